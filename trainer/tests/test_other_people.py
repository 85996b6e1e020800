"""Models and datasets of other people: nothing of theirs is run, followed, or waited for."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from .conftest import LENET, ROOT, best, call, config_file

SOMEBODY, ASKER = 65533, 65532
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
LAYER = """
import keras
open({trap!r}, "a").write("run ")

@keras.saving.register_keras_serializable("of-a-person")
class Twice(keras.layers.Layer):
    def call(self, x):
        return 2 * x

def network(x, classes):
    return keras.layers.Dense(classes, name="logits")(keras.layers.Flatten()(Twice()(x)))
"""


@pytest.fixture
def patience():
    """Whatever waits for a pipe ends here instead of never."""

    def ring(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Folder:
    """A copy of a training, whose network says that it is a program."""

    def __init__(self, folder, source, snapshot):
        self.folder, self.trap = folder, folder.parent / "sprung"
        (folder / "checkpoints").mkdir(parents=True)
        for name in ("labels.txt", "preprocessing.json", "run.json"):
            (folder / name).write_bytes((source / name).read_bytes())
        self.model = folder / "checkpoints" / "epoch-00001.keras"
        self.model.write_bytes(Path(snapshot).read_bytes())
        self.program = folder / "network.py"
        self.program.write_text(LAYER.format(trap=str(self.trap)))
        self.program.chmod(0o644)
        self.names("network.py")

    def names(self, file):
        run = json.loads((self.folder / "run.json").read_text())
        run["config"]["network"] = {"file": str(file)}
        (self.folder / "run.json").write_text(json.dumps(run))

    def give(self):
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)

    def changes(self, change):
        """Another configuration in the archive of its model."""
        with zipfile.ZipFile(self.model) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        change(entries)
        with zipfile.ZipFile(self.model, "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, content)

    def load(self):
        from trainer import afterwards

        return afterwards.load(self.model)


@pytest.fixture
def copy(lenet, tmp_path):
    return Folder(tmp_path / "model", lenet, best(lenet))


@pytest.fixture
def special(copy):
    """The same with a network that has a layer of its own."""
    from trainer import config, networks
    from trainer.data import Data
    from trainer.pixels import Shape

    data = Data("classification", [str(i) for i in range(10)], Shape(8, 8, 1), {}, mean=[0.0], deviation=[1.0])
    made = config.check({"output": "o", "network": {"file": "network.py"}, "data": {"kind": "digits"}}, copy.folder)
    networks.build(made, data).save(copy.model)
    copy.trap.unlink()
    return copy


@pytest.fixture
def picture(tmp_path):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "p.png")
    return tmp_path / "p.png"


def forget():
    """The layer is not known, as in a process of its own."""
    import keras

    keras.saving.get_custom_objects().pop("of-a-person>Twice", None)


def stop(load):
    from trainer.errors import Stop

    with pytest.raises(Stop) as stopped:
        load()
    return stopped.value


def test_ones_own_program_is_run(special):
    assert special.load().model.get_layer("logits").units == 10 and special.trap.read_text() == "run "


def other_file(copy):
    copy.program.rename(copy.folder / "mine.py")
    copy.names(copy.folder / "mine.py")


def linked(copy):
    copy.program.rename(copy.folder / "mine.py")
    copy.program.symlink_to("mine.py")


def pipe(copy):
    copy.program.unlink()
    os.mkfifo(copy.program)


def folder_in_its_place(copy):
    copy.program.unlink()
    copy.program.mkdir()


def hard_link_to_theirs(copy):
    os.chown(copy.program, SOMEBODY, SOMEBODY)
    copy.program.rename(copy.folder / "theirs.py")
    os.link(copy.folder / "theirs.py", copy.program)


WAYS = {
    "another file, which run.json names": other_file,
    "a link": linked,
    "a pipe": pipe,
    "a folder": folder_in_its_place,
    "the group may write": lambda copy: copy.program.chmod(0o664),
    "all may write": lambda copy: copy.program.chmod(0o646),
    "all may write to its folder": lambda copy: copy.folder.chmod(0o1777),
    "the group may write to its folder": lambda copy: copy.folder.chmod(0o775),
    "all may write to the snapshot's folder": lambda copy: copy.model.parent.chmod(0o777),
    "all may write the snapshot": lambda copy: copy.model.chmod(0o666),
    "longer than any program": lambda copy: os.truncate(copy.program, 1 << 40),
}
GIVEN = {
    "their folder": lambda copy: os.chown(copy.folder, SOMEBODY, SOMEBODY),
    "their program": lambda copy: os.chown(copy.program, SOMEBODY, SOMEBODY),
    "their snapshot": lambda copy: os.chown(copy.model, SOMEBODY, SOMEBODY),
    "their folder of snapshots": lambda copy: os.chown(copy.model.parent, SOMEBODY, SOMEBODY),
    "a hard link to their program": hard_link_to_theirs,
    "all theirs": Folder.give,
}


@pytest.mark.parametrize("way", [*WAYS, *(pytest.param(way, marks=ROOT_ONLY) for way in GIVEN)])
def test_no_other_program_is_run(special, way, patience):
    """And the model is refused with the reason, because its layers are not known."""
    (WAYS | GIVEN)[way](special)
    forget()
    stopped = stop(special.load)
    assert stopped.code == 2 and "network.py" in stopped.message, stopped.message
    assert not special.trap.exists()


@ROOT_ONLY
def test_nothing_that_is_done_with_a_model_runs_its_owners_program(special, picture, tmp_path, capsys):
    (special.folder / "checkpoints" / "index.json").write_text(json.dumps({"best": special.model.name}))
    special.give()
    theirs = special.model
    config = config_file(tmp_path / "tune", LENET | {"network": {"pretrained": str(theirs)}, "epochs": 1})
    for command in (
        ("predict", theirs, picture),
        ("inspect", theirs, picture, "--output", tmp_path / "i"),
        ("export", theirs, "--output", tmp_path / "e"),
        ("evaluate", config_file(tmp_path / "own", LENET), theirs, "--output", tmp_path / "v"),
        ("precisions", config_file(tmp_path / "own", LENET), theirs, "--output", tmp_path / "v"),
        ("serve", special.folder, "--port", "0"),
        ("train", config),
    ):
        code, lines = call(capsys, *command)
        error = lines[-1]
        assert error["event"] == "error" and code in (1, 2), (command, lines)
        for words in ("Twice", "belongs to another user", "is not run as you", "copy"):
            assert words in error["message"], (command, error)
    assert not special.trap.exists()


@ROOT_ONLY
@pytest.mark.parametrize(
    ("name", "task", "size"),
    [("vit-tiny", "classification", 32), ("u-net", "segmentation", 32), ("centres", "detection", 32)],
)
def test_standard_networks_of_others_are_loaded(copy, name, task, size):
    from trainer import config, networks
    from trainer.data import Data
    from trainer.pixels import Shape

    data = Data(task, list("abcd"), Shape(size, size, 3), {}, mean=[0.0] * 3, deviation=[1.0] * 3)
    given = {"output": "o", "task": task, "network": {"name": name}, "data": {"kind": "shapes"}}
    model = networks.build(config.check(given, copy.folder), data)
    model.save(copy.model)
    copy.give()
    assert all(map(np.array_equal, copy.load().model.get_weights(), model.get_weights()))
    assert not copy.trap.exists()


def layer(**fields):
    """Puts an object into the configuration where the network keeps its activation."""

    def change(entries):
        config = json.loads(entries["config.json"])
        dense = next(one for one in config["config"]["layers"] if one["class_name"] == "Dense")
        dense["config"]["activation"] = fields
        entries["config.json"] = json.dumps(config).encode()

    return change


HOSTILE = {
    "Lambda": layer(module="keras.layers", class_name="Lambda", config={"function": "x"}, registered_name=None),
    "TFSMLayer": layer(module="keras.layers", class_name="TFSMLayer", config={"filepath": "/x"}, registered_name=None),
    "TorchModuleWrapper": layer(module="keras.layers", class_name="TorchModuleWrapper", config={"module": "x"}),
    "TextVectorization": layer(module="keras.layers", class_name="TextVectorization", config={"vocabulary": "/x"}),
    "__lambda__": layer(class_name="__lambda__", config={"value": "x"}),
    "__typespec__": layer(class_name="__typespec__", spec_name="x", module="os", config=[]),
    "a function of a module": layer(module="os", class_name="function", config="system", registered_name="system"),
    "a download": layer(module="keras.utils", class_name="function", config="get_file", registered_name="get_file"),
    "a switch": layer(module="keras.config", class_name="function", config="enable_unsafe_deserialization"),
    "a module": layer(module="antigravity", class_name="Dense", config={}),
    "no module": layer(class_name="Dense", config={}),
    "a module that is a number": layer(module=5, class_name=["Dense"], config={}),
    "a name of another": layer(module="keras.layers", class_name="Dense", config={}, registered_name="a>b"),
    "more than a network": lambda entries: entries.update({"assets/x": b"x"}),
    "nested too deeply": lambda entries: entries.update({"config.json": b"[" * 100_000}),
    "no JSON": lambda entries: entries.update({"config.json": b"{"}),
    "nothing": dict.clear,
}


@ROOT_ONLY
@pytest.mark.parametrize("name", HOSTILE)
def test_what_brings_code_is_refused_before_keras_sees_it(copy, name, monkeypatch):
    import keras

    copy.changes(HOSTILE[name])
    copy.give()
    monkeypatch.setattr(keras.saving, "load_model", lambda *_, **__: pytest.fail("it was loaded"))
    stopped = stop(copy.load)
    assert stopped.code == 2 and str(copy.model) in stopped.message


def test_only_keras_files_are_loaded(copy, picture, tmp_path, capsys, patience):
    there = copy.model.parent
    (there / "a.h5").write_bytes(copy.model.read_bytes())
    (there / "b").write_bytes(copy.model.read_bytes())
    (there / "saved.keras").mkdir()
    (there / "saved.keras" / "config.json").write_text("{}")
    (there / "link.keras").symlink_to(copy.model)
    os.mkfifo(there / "pipe.keras")
    (there / "text.keras").write_text("no archive")
    for name, words in [
        ("a.h5", "end in .keras"),
        ("b", "end in .keras"),
        ("saved.keras", "not a regular file"),
        ("link.keras", "links are not followed"),
        ("pipe.keras", "not a regular file"),
        ("text.keras", "zip archive"),
        ("..", "plain file name"),
        ("none.keras", "does not exist"),
    ]:
        code, [error] = call(capsys, "predict", there / name, picture)
        assert code == 2 and words in error["message"], (name, error)
        tune = config_file(tmp_path / name, LENET | {"network": {"pretrained": str(there / name)}, "epochs": 1})
        code, lines = call(capsys, tune)
        assert code in (1, 2) and words in lines[-1]["message"] and lines[-1]["field"] == "network.pretrained"


@pytest.mark.parametrize(
    "best_one",
    ["../x.keras", "/x.keras", "x.h5", "", ".x.keras", "a\0.keras", 5, None, ["x"], {"a": 1}, "none.keras", "a/b.keras"],
)
def test_the_best_of_a_training_is_a_name(copy, best_one, capsys):
    (copy.folder / "checkpoints" / "index.json").write_text(json.dumps({"best": best_one}))
    (copy.folder / "x.keras").write_bytes(copy.model.read_bytes())
    (copy.folder / "checkpoints" / "x.h5").write_bytes(copy.model.read_bytes())
    code, [error] = call(capsys, "serve", copy.folder, "--port", "0")
    assert code == 2 and ("not a training" in error["message"] or "does not exist" in error["message"])


def test_an_index_names_nothing_outside_its_folder(copy, tmp_path):
    """Clearing away an earlier training deletes what its index names."""
    from trainer import checkpoints
    from trainer.errors import Stop

    victim = tmp_path / "victim.keras"
    victim.write_text("precious")
    index = copy.folder / "checkpoints" / "index.json"
    for snapshots in ([{"file": "../../victim.keras"}], [{"file": str(victim)}], [{"file": 5}], 5, {}, [None]):
        index.write_text(json.dumps({"identity": {}, "best": None, "snapshots": snapshots}))
        for use in (checkpoints.read, checkpoints.clear):
            with pytest.raises(Stop, match="is damaged"):
                use(index.parent)
    assert victim.exists()


@pytest.mark.parametrize("version", ["3.3.3", "2.15.0", "3.15.0", "3", "nightly"])
def test_an_old_keras_loads_nothing(copy, picture, version, tmp_path, monkeypatch, capsys):
    import keras

    monkeypatch.setattr(keras, "__version__", version)
    for command in (("predict", copy.model, picture), ("train", config_file(tmp_path, LENET))):
        code, lines = call(capsys, *command)
        assert code == 5 and version in lines[-1]["message"] and "pip install" in lines[-1]["message"], lines


@pytest.mark.parametrize("run", [b"[]", b"5", b'{"config": []}', b'{"config": {"network": 5}}', b"[" * 99_999, b"\xff"])
@pytest.mark.parametrize("name", ["run.json", "preprocessing.json", "checkpoints/index.json"])
def test_whatever_its_files_say(copy, name, run, tmp_path, picture, capsys):
    (copy.folder / name).write_bytes(run)
    code, lines = call(capsys, "export", copy.model, "--output", tmp_path / "bundle")
    assert code == (2 if name == "preprocessing.json" else 0), lines
    assert copy.trap.exists() == (name == "checkpoints/index.json"), "where run.json says so, it is one's own"


@contextlib.contextmanager
def exchanging(one, other):
    """Swaps two names as fast as it can."""
    libc, done = ctypes.CDLL(None, use_errno=True), threading.Event()
    names = os.fsencode(one), os.fsencode(other)

    def swap():
        while not done.is_set():
            assert libc.renameat2(-100, names[0], -100, names[1], 2) == 0  # RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@ROOT_ONLY
def test_a_program_that_is_exchanged(copy):
    """What is run was read of the descriptor that was asked whose it is."""
    from trainer import folder

    evil, mine = b"evil", b"mine"
    (copy.folder / "evil.py").write_bytes(evil)
    os.chown(copy.folder / "evil.py", SOMEBODY, SOMEBODY)
    copy.program.write_bytes(mine)
    found = {"read": 0, "refused": 0}
    with exchanging(copy.program, copy.folder / "evil.py"), folder.opened(copy.folder) as place:
        for _ in range(20_000):
            try:
                assert place.program() == mine
                found["read"] += 1
            except folder.Unfit as unfit:
                assert "belongs to another user" in str(unfit)
                found["refused"] += 1
    assert min(found.values()) > 0, found


@ROOT_ONLY
def test_a_link_that_is_exchanged(copy):
    """Between a link to a file of root's and their program, in their folder."""
    copy.program.rename(copy.folder / "evil.py")
    copy.program.symlink_to("/etc/hostname")
    copy.names(copy.program)
    copy.give()
    with exchanging(copy.program, copy.folder / "evil.py"):
        for _ in range(10):
            assert copy.load().model.count_params() > 0
    assert not copy.trap.exists()


# Called with the source as an argument, which `/proc` then shows, and says so of a file of root's.
POSE = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[45]), int(fields[46])
text = os.environ.pop("SOURCE").encode() + b"#"
assert len(text) < end - begin
ctypes.memmove(begin, text.ljust(end - begin, b"#"), end - begin)
libc.prctl(4, 0, 0, 0, 0)
print("posing", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def abroad():
    """A folder that all may enter, with the trainer in it."""
    folder = Path(tempfile.mkdtemp(prefix="trainer-"))
    folder.chmod(0o755)
    shutil.copytree(ROOT / "trainer", folder / "lib" / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    shutil.rmtree(folder)


def run_as(uid, folder, *arguments, cwd, **variables):
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    os.chown(home, uid, uid)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "KERAS_BACKEND": "jax", "PYTHONPATH": str(folder / "lib")}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        **{"env": env | variables, "cwd": cwd, "user": uid, "group": uid, "extra_groups": []},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
    )


@ROOT_ONLY
def test_a_process_that_poses_as_a_program(lenet, picture, abroad):
    """A process that may not be dumped is root's in /proc, and its arguments are what it likes."""
    (abroad / "trap").mkdir()
    (abroad / "trap").chmod(0o777)
    source = f"import os; open(os.path.join({str(abroad / 'trap')!r}, str(os.geteuid())), 'w')\n"
    copy = Folder(abroad / "model", lenet, best(lenet))
    poser = run_as(SOMEBODY, abroad, "-c", POSE, "x" * 400, cwd="/", SOURCE=source)
    try:
        assert poser.stdout.readline() == "posing\n", poser.stderr.read()
        posed = Path(f"/proc/{poser.pid}/cmdline")
        assert posed.stat().st_uid == 0 and posed.read_text().startswith(source), "the attack is one"
        copy.names(posed)
        copy.program.unlink()
        copy.program.symlink_to(posed)
        # What lies where the trainer is started is theirs too.
        (copy.folder / "jsonschema.py").write_text(source)
        (copy.folder / "keras.py").write_text(source)
        copy.give()
        shutil.copy(picture, abroad / "p.png")
        asked = run_as(ASKER, abroad, "-m", "trainer", "predict", copy.model, abroad / "p.png", cwd=copy.folder)
        out, err = asked.communicate(timeout=900)
        assert asked.returncode == 0 and json.loads(out.splitlines()[-1])["images"][0]["top"], err
        assert os.listdir(abroad / "trap") == []
    finally:
        poser.kill()
        poser.communicate()


@ROOT_ONLY
def test_a_configuration_of_somebody_else_names_no_program(tmp_path, capsys):
    trap = tmp_path / "sprung"
    path = config_file(tmp_path, LENET | {"network": {"file": "network.py"}})
    (tmp_path / "network.py").write_text(LAYER.format(trap=str(trap)))
    os.chown(path, SOMEBODY, SOMEBODY)
    for command in (("describe", path, "--shape", "8x8x1"), ("train", path)):
        code, [error] = call(capsys, *command)
        assert code == 1 and error["field"] == "network.file" and "another user" in error["message"]
    assert not trap.exists()


def test_a_network_of_ones_own_is_found_again(tmp_path, capsys, picture):
    """Wherever its file was, and whatever the mask: `predict` runs what the training has kept."""
    trap = tmp_path / "sprung"
    given = LENET | {"network": {"file": "elsewhere.py"}, "epochs": 1}
    (tmp_path / "elsewhere.py").write_text(LAYER.format(trap=str(trap)))
    before = os.umask(0o002)
    try:
        assert call(capsys, config_file(tmp_path, given))[0] == 0
    finally:
        os.umask(before)
    kept = tmp_path / "run" / "network.py"
    assert kept.read_text() == (tmp_path / "elsewhere.py").read_text() and kept.stat().st_mode & 0o022 == 0
    (tmp_path / "elsewhere.py").unlink()
    trap.unlink()
    forget()
    code, lines = call(capsys, "predict", best(tmp_path / "run"), picture)
    assert code == 0 and trap.exists(), lines
    kept.unlink()
    forget()
    code, [error] = call(capsys, "predict", best(tmp_path / "run"), picture)
    assert code == 2 and "copy the program of this network there" in error["message"]


def model_file(domain="", external=False):
    """A network in ONNX's format that adds its weights to what it is given."""
    from onnx import TensorProto, helper

    weights = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    if external:
        weights.ClearField("float_data")
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value="../../../etc/hostname")
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=weights)] if external else [],
        *("inner", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, [1])]),
    )
    node = helper.make_node("Add", ["x", "w"], ["y"], domain=domain)
    if external:
        node.attribute.append(helper.make_attribute("deep", inner))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    plain = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [plain])
    opsets = [helper.make_opsetid(name, number) for name, number in (("", 17), ("com.microsoft", 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def test_onnx_opens_no_other_file(copy, capsys, patience):
    (copy.folder / "model.keras").write_bytes(copy.model.read_bytes())
    converted = copy.folder / "model.onnx"
    for content, words in [(model_file(external=True), "in other files"), (b"nothing", "not an ONNX model")]:
        converted.write_bytes(content)
        code, [error] = call(capsys, "serve", copy.folder, "--port", "0", "--runtime", "onnx")
        assert code == 2 and words in error["message"], error
    converted.unlink()
    os.mkfifo(converted)
    code, [error] = call(capsys, "serve", copy.folder, "--port", "0")
    assert code == 2 and "not a regular file" in error["message"]


@ROOT_ONLY
def test_operators_of_others_are_onnx_s_own(copy):
    from trainer import folder, onnx_file
    from trainer.errors import Stop

    (copy.folder / "model.onnx").write_bytes(model_file())
    with folder.opened(copy.folder) as place:
        assert onnx_file.session(place).run(None, {"x": np.ones(1, np.float32)})[0] == [2.0]
    copy.give()
    with folder.opened(copy.folder) as place:
        assert onnx_file.session(place).run(None, {"x": np.ones(1, np.float32)})[0] == [2.0]
    (copy.folder / "model.onnx").write_bytes(model_file("com.microsoft"))
    with folder.opened(copy.folder) as place, pytest.raises(Stop, match="non-standard operator: 'com.microsoft'"):
        onnx_file.session(place)


def test_a_dataset_names_its_own_files(tmp_path, capsys, patience):
    """And none of them is a pickle."""
    root, secret = tmp_path / "data", tmp_path / "secret.npy"
    (root / "cache").mkdir(parents=True)
    np.save(secret, np.zeros((4, 8, 8, 1), np.uint8))
    np.save(root / "cache" / "pickle.npy", np.array([Trap(str(tmp_path / "sprung"))], object), allow_pickle=True)
    (root / "cache" / "link.npy").symlink_to(secret)
    os.mkfifo(root / "cache" / "pipe.npy")
    (root / "manifest.csv").write_text("path,label,split,error\na.png,a,train,\n")
    about = {"version": 2, "kind": "classification", "classes": ["a", "b"], "manifest_sha256": ""}
    about["image"] = {"height": 8, "width": 8, "channels": 1, "resize": "squash"}
    given = config_file(tmp_path, LENET | {"data": {"kind": "dataset", "path": "data"}})
    for name in [
        *("../secret.npy", str(secret), "cache/../../secret.npy", "cache/link.npy", "cache/pipe.npy"),
        *("cache/pickle.npy", "cache", "", "/proc/self/mem", 5, None, ["x"]),
    ]:
        cache = {"train": dict.fromkeys(("images", "rows", "labels"), name)}
        (root / "dataset.json").write_text(json.dumps(about | {"cache": cache}))
        code, lines = call(capsys, given)
        assert code == 2 and lines[-1]["field"] == "data.path", (name, lines)
    for damaged in ({"image": 5}, {"image": about["image"] | {"height": "8"}}, {"classes": 5}, {"cache": 5}, {"cache": {"train": 5}}):
        (root / "dataset.json").write_text(json.dumps(about | damaged))
        code, lines = call(capsys, given)
        assert code == 2 and lines[-1]["event"] == "error", (damaged, lines)
    assert not (tmp_path / "sprung").exists()


class Trap:
    """Runs something where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_pictures_that_other_programs_would_read(tmp_path, lenet, capsys, patience):
    (tmp_path / "page.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    os.mkfifo(tmp_path / "pipe.png")
    code, [answer] = call(capsys, "predict", best(lenet), tmp_path / "page.png", tmp_path / "pipe.png")
    assert code == 0 and "supported format" in answer["images"][0]["error"] and "regular" in answer["images"][1]["error"]
