"""Run every notebook template as a new user would: from the first cell to the last.

    python3 tests/notebooks/run.py PYTHON

PYTHON belongs to an environment made from notebooks/requirements.txt. Each
notebook gets a kernel of its own and an empty home directory that only holds
the templates. Afterwards the curves that keras-digits has logged are read back,
once from the event files and once through TensorBoard on its Unix socket.

The R notebook is run where Jupyter finds an R kernel (on Debian the packages
r-base-core and r-cran-irkernel bring it). Otherwise it is left out, and the
output says so; with LYCEUM_TEST_STRICT=1 its absence is a failure.
"""

import argparse
import http.client
import json
import math
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "notebooks" / "templates"
WRAPPER = ROOT / "crates" / "services" / "src" / "environments" / "tensorboard.py"

CELL_SECONDS = 120  # generous: the machine may be busy with other tests


class Failed(Exception):
    """Something a person should read; the message says what and where."""


# What runs in the environment's own Python: nbclient, nbformat and TensorBoard are there.


def execute(notebook):
    """Check the file as it is stored, then run it. Writes nothing back."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    book = nbformat.read(notebook, as_version=nbformat.NO_CONVERT)
    nbformat.validate(book)
    if (book.nbformat, book.nbformat_minor) != (4, 5):
        raise Failed(f"format {book.nbformat}.{book.nbformat_minor}, not 4.5")
    for number, cell in enumerate(book.cells, 1):
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            raise Failed(f"cell {number} ({cell.id}): stored with its output")

    at = {}
    client = NotebookClient(
        book,
        timeout=CELL_SECONDS,
        resources={"metadata": {"path": str(notebook.parent)}},
        on_cell_start=lambda cell, cell_index: at.update(number=cell_index + 1, id=cell.id),
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise Failed(f"cell {at['number']} ({at['id']}): {error.ename}: {error.evalue}") from None
    except CellTimeoutError:
        raise Failed(f"cell {at['number']} ({at['id']}): not done after {CELL_SECONDS} s") from None
    except DeadKernelError:
        raise Failed(f"cell {at.get('number', 1)}: the kernel died") from None


# What each notebook logs, by the folder below logs: the tags, and the least that the last validation value must reach.
LOGGED = {
    "digits": (("epoch_loss", "epoch_accuracy"), 0.95),
    "digits-pytorch": (("epoch_loss", "epoch_accuracy"), 0.95),
    "tumours": (("loss", "accuracy"), 0.9),
    "iris": (("loss",), 0.0),
}


def event_files(logs):
    """Every step of the one run below `logs` is there, in order, with finite numbers."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    runs = [p for p in logs.glob("*") if p.is_dir()]
    if len(runs) != 1:
        raise Failed(f"expected one run below {logs.name}, found {len(runs)}")
    tags, least = LOGGED[logs.name]
    for part in ("train", "validation"):
        # Without this it keeps ten tensors, drawn at random.
        events = EventAccumulator(str(runs[0] / part), size_guidance={"tensors": 0, "scalars": 0}).Reload()
        for tag in tags:
            # TensorBoard's Writer stores a scalar as a tensor without dimensions, others as a simple value.
            if tag in events.Tags()["tensors"]:
                points = events.Tensors(tag)
                values = [make_ndarray(p.tensor_proto).item() for p in points]
            elif tag in events.Tags()["scalars"]:
                points = events.Scalars(tag)
                values = [p.value for p in points]
            else:
                raise Failed(f"{part}: no {tag}")
            if [p.step for p in points] != list(range(len(points))) or len(points) < 2:
                raise Failed(f"{part}/{tag}: the steps are {[p.step for p in points]}")
            if not all(map(math.isfinite, values)):
                raise Failed(f"{part}/{tag}: not finite: {values}")
    if values[-1] < least:
        raise Failed(f"the model has not learnt: validation accuracy {values[-1]:.3f}")


def inner(what, path):
    try:
        {"execute": execute, "events": event_files}[what](Path(path))
    except Failed as error:
        print(error)
        sys.exit(1)


# What runs outside.


def environment(python, home):
    """A session's environment: nothing of the caller's but the system's path."""
    return {
        "PATH": f"{Path(python).parent}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "CPU_LIMIT": "2",
        "MEM_LIMIT": str(4 << 30),
        "CUDA_VISIBLE_DEVICES": "",
    }


def call(python, env, *arguments):
    done = subprocess.run(
        [python, __file__, python, "--inner", *map(str, arguments)],
        env=env, cwd=env["HOME"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    if done.returncode:
        raise Failed(done.stdout.strip() or done.stderr.strip() or f"exit status {done.returncode}")


def has_kernel(python, name, env):
    listed = subprocess.run(
        [python, "-m", "jupyter_client.kernelspecapp", "list", "--json"],
        env=env, capture_output=True, text=True, check=True,
    )
    return name in json.loads(listed.stdout)["kernelspecs"]


def has_module(python, name, env):
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", look], env=env).returncode == 0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def get(path, url):
    connection = UnixConnection(path)
    try:
        connection.request("GET", url)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def tensorboard(python, env):
    """What the notebook logged is what TensorBoard shows, on a socket that a stop removes."""
    path = str(Path(env["HOME"]) / "tb.sock")
    # One that a killed program has left behind must not be in the way.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(path)
    served = subprocess.Popen(
        [python, str(WRAPPER), "--socket", path, "--logdir", "logs", "--path_prefix", "/s/x"],
        env=env | {"TMPDIR": env["HOME"] + "/tmp"}, cwd=env["HOME"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    try:
        if "ready" not in served.stdout.readline():
            raise Failed(served.stderr.read())
        if (mode := stat.S_IMODE(os.stat(path).st_mode)) != 0o660:
            raise Failed(f"the socket has mode {mode:o}")
        if (status := get(path, "/s/x/")[0]) != 200:
            raise Failed(f"the page answers {status}")
        if (status := get(path, "/data/runs")[0]) != 404:
            raise Failed(f"outside its prefix it answers {status}")

        # Event files are read in the background; a minute is far more than it takes.
        deadline = time.monotonic() + 60
        while not (runs := [r for r in json.loads(get(path, "/s/x/data/runs")[1]) if r.endswith("/validation")]):
            if time.monotonic() > deadline:
                raise Failed("the run of keras-digits does not appear")
            time.sleep(0.1)
        status, body = get(path, f"/s/x/data/plugin/scalars/scalars?run={runs[0]}&tag=epoch_loss")
        if status != 200:
            raise Failed(f"epoch_loss answers {status}: {body[:200]!r}")
        steps = [step for _, step, _ in json.loads(body)]
        if steps != list(range(len(steps))) or len(steps) < 2:
            raise Failed(f"epoch_loss has the steps {steps}")

        served.send_signal(signal.SIGTERM)
        if (status := served.wait(timeout=5)) != 0:
            raise Failed(f"exit status {status} after SIGTERM")
        left = [p for p in (path, env["HOME"] + "/tmp/.tensorboard-info") if os.path.exists(p)]
        if left:
            raise Failed(f"left behind: {', '.join(left)}")
    finally:
        served.kill()
        served.wait()


def leave_out(name, need):
    """Says so and has it counted; 1 where everything can be had, and this is a failure."""
    print(f"left out: {name} (needs {need})", flush=True)
    if file := os.environ.get("LYCEUM_TEST_LEFT_OUT"):
        with open(file, "a") as left_out:
            left_out.write(f"group\t{name}\t{need}\n")
    return os.environ.get("LYCEUM_TEST_STRICT") == "1"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", metavar="PYTHON")
    parser.add_argument("--inner", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        return inner(*options.inner)
    # The link is what makes a virtual environment, so it is not resolved.
    python = os.path.abspath(options.python)

    passed = failed = 0

    def check(name, what, *arguments):
        nonlocal passed, failed
        began = time.monotonic()
        try:
            what(*arguments)
        except Exception as error:
            failed += 1
            print(f"FAILED  {name}: {error}", flush=True)
        else:
            passed += 1
            print(f"passed  {name} ({time.monotonic() - began:.1f} s)", flush=True)

    with tempfile.TemporaryDirectory(prefix="lyceum-") as home:
        env = environment(python, home)
        os.mkdir(home + "/tmp")
        shutil.copytree(TEMPLATES, home + "/templates")
        for notebook in sorted((Path(home) / "templates").glob("*.ipynb")):
            kernel = json.loads(notebook.read_text())["metadata"]["kernelspec"]["name"]
            if kernel == "ir" and not has_kernel(python, kernel, env):
                failed += leave_out(notebook.name, "an R kernel (Debian: r-base-core r-cran-irkernel)")
            elif notebook.name.startswith("pytorch") and not has_module(python, "torch", env):
                print(f"{notebook.name} is run by the tests of the trainer, which have PyTorch", flush=True)
            else:
                check(notebook.name, call, python, env, "execute", notebook)
        # Outside the portal nobody sets limits; the tour must cope with that.
        bare = {k: v for k, v in env.items() if k not in ("CPU_LIMIT", "MEM_LIMIT", "CUDA_VISIBLE_DEVICES")}
        check("welcome.ipynb without limits", call, python, bare, "execute", Path(home) / "templates/welcome.ipynb")
        for folder in sorted(Path(home, "logs").iterdir()):
            if folder.name in LOGGED:
                check(f"curves in logs/{folder.name}", call, python, env, "events", folder)
        check("curves in TensorBoard", tensorboard, python, env)

    print(f"notebooks: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
