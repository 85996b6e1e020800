"""What is done with a trained model: predictions, a look inside, another backend, the bundle."""

import csv
import hashlib
import json
import os

import numpy as np
import pytest
from PIL import Image

from .conftest import LENET, best, call, config_file, spawn


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The first eight of the test split, as files, with what the training said of them."""
    from trainer import config, sources

    folder = tmp_path_factory.mktemp("pictures")
    data = sources.load(config.check({"output": "o"} | LENET, folder), 2)
    part = data.parts["test"]
    for i in range(8):
        Image.fromarray(part.read(i).image[..., 0]).save(folder / f"{i}.png")
    return [folder / f"{i}.png" for i in range(8)]


def said(run):
    with open(run / "eval/test/predictions.csv", newline="") as file:
        return [[float(row[f"p_{i}"]) for i in range(10)] for row in csv.DictReader(file)][:8]


def probabilities(answer):
    return [
        [{top["class"]: top["probability"] for top in image["top"]}[str(i)] for i in range(10)]
        for image in answer["images"]
    ]


def test_predictions_are_those_of_the_evaluation(lenet, pictures, capsys):
    code, [answer] = call(capsys, "predict", best(lenet), *pictures, "--top", 10)
    assert code == 0 and np.allclose(probabilities(answer), said(lenet), atol=1e-5)
    code, [answer] = call(capsys, "predict", best(lenet), pictures[0], "--top", 3)
    tops = [top["probability"] for top in answer["images"][0]["top"]]
    assert len(tops) == 3 and tops == sorted(tops, reverse=True)


def test_what_cannot_be_read_does_not_stop_the_others(lenet, pictures, tmp_path, capsys):
    (tmp_path / "page.png").write_bytes(b"<html></html>")
    code, [answer] = call(capsys, "predict", best(lenet), tmp_path / "page.png", pictures[0], tmp_path / "none.png")
    page, good, none = answer["images"]
    assert code == 0 and "web page" in page["error"] and good["top"] and none["error"] == "does not exist"


def test_labelled_pictures_are_scored(lenet, pictures, tmp_path, capsys):
    """Folders that are called as classes, and a list, give the same; what has no label is only answered."""
    from trainer import config, sources

    part = sources.load(config.check({"output": "o"} | LENET, tmp_path), 2).parts["test"]
    rows = []
    for i, picture in enumerate(pictures):
        # The first is in the wrong folder.
        label = str((int(part.labels[i]) + (i == 0)) % 10)
        target = tmp_path / "digits" / label / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture.read_bytes())
        rows.append(f"digits/{label}/{i}.png,{label}\n")
    (tmp_path / "digits" / "unknown.png").write_bytes(pictures[0].read_bytes())
    code, [answer] = call(capsys, "predict", best(lenet), tmp_path / "digits", "--output", tmp_path / "result")
    assert code == 0 and len(answer["images"]) == 9
    labelled = [image for image in answer["images"] if "label" in image]
    right = sum(image["label"] == image["top"][0]["class"] for image in labelled)
    assert len(labelled) == 8 and answer["evaluation"]["accuracy"] == right / 8 and right in (6, 7)
    written = json.loads((tmp_path / "result/evaluation/metrics.json").read_text())
    assert written["pictures"] == 8 and written["accuracy"] == right / 8 and len(written["classes"]) == 10
    matrix = (tmp_path / "result/evaluation/confusion.csv").read_text().splitlines()[1:]
    assert sum(int(count) for row in matrix for count in row.split(",")[1:]) == 8
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(rows) + "digits/unknown.png,\n")
    code, [listed] = call(capsys, "predict", best(lenet), tmp_path / "list.csv")
    assert code == 0 and len(listed["images"]) == 9
    assert listed["evaluation"] == pytest.approx(answer["evaluation"], rel=1e-5)
    (tmp_path / "list.csv").write_text("path,label\nx.png,eleven\n")
    code, [error] = call(capsys, "predict", best(lenet), tmp_path / "list.csv")
    assert code == 2 and "line 2" in error["message"] and "'eleven'" in error["message"]


def test_a_folder_stands_for_its_pictures(lenet, pictures, tmp_path, capsys):
    from trainer.__main__ import main

    (tmp_path / "deep").mkdir()
    for number in range(40):
        source = pictures[number % len(pictures)]
        (tmp_path / ("deep" if number % 2 else ".") / f"{number:02d}.PNG").write_bytes(source.read_bytes())
    (tmp_path / "notes.txt").write_text("no picture")
    code = main(["predict", str(best(lenet)), str(tmp_path), "--top", "1"])
    out, err = capsys.readouterr()
    images = json.loads(out)["images"]
    assert code == 0 and [image["path"] for image in images] == sorted(image["path"] for image in images)
    assert len(images) == 40 and all(len(image["top"]) == 1 for image in images)
    said = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert [(line["done"], line["of"]) for line in said if line["event"] == "progress"] == [(32, 40), (40, 40)]
    (tmp_path / "none").mkdir()
    code, [error] = call(capsys, "predict", best(lenet), tmp_path / "none")
    assert code == 2 and "no images found" in error["message"]


def test_a_model_that_is_gone_or_alone(lenet, pictures, tmp_path, capsys):
    code, [error] = call(capsys, "predict", tmp_path / "gone.keras", pictures[0])
    assert code == 2 and "does not exist" in error["message"]
    (tmp_path / "alone.keras").write_bytes(best(lenet).read_bytes())
    code, [error] = call(capsys, "predict", tmp_path / "alone.keras", pictures[0])
    assert code == 2 and "preprocessing.json" in error["message"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_program_of_somebody_else_is_not_run(lenet, pictures, tmp_path, capsys):
    """Asking their model would run their program as oneself."""
    folder = tmp_path / "theirs"
    (folder / "checkpoints").mkdir(parents=True)
    for name in ("labels.txt", "preprocessing.json", "run.json"):
        (folder / name).write_bytes((lenet / name).read_bytes())
    copy = folder / "checkpoints" / best(lenet).name
    copy.write_bytes(best(lenet).read_bytes())
    trap, program = tmp_path / "sprung", folder / "network.py"
    program.write_text(f"open({str(trap)!r}, 'w')\n\ndef network(x, classes):\n    return x\n")
    run = json.loads((folder / "run.json").read_text())
    run["config"]["network"] = {"file": str(program)}
    (folder / "run.json").write_text(json.dumps(run))
    os.chown(program, 65534, 65534)
    code, [answer] = call(capsys, "predict", copy, pictures[0])
    assert code == 0 and answer["images"][0]["top"] and not trap.exists()
    os.chown(program, 0, 0)
    assert call(capsys, "predict", copy, pictures[0])[0] == 0 and trap.exists(), "one's own is"


def test_another_backend_answers_the_same(lenet, pictures, tmp_path, capsys):
    """The same file on JAX here and on TensorFlow there: answers, and the gradient behind Grad-CAM."""
    process = spawn("predict", best(lenet), *pictures, "--top", 10, backend="tensorflow")
    look = spawn("inspect", best(lenet), pictures[0], "--output", tmp_path / "there", backend="tensorflow")
    assert call(capsys, "inspect", best(lenet), pictures[0], "--output", tmp_path / "here")[0] == 0
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert np.allclose(probabilities(json.loads(out.splitlines()[-1])), said(lenet), atol=1e-5)
    _, err = look.communicate()
    assert look.returncode == 0, err
    here, there = (json.loads((tmp_path / name / "inspection.json").read_text()) for name in ("here", "there"))
    assert here["class"] == there["class"] and np.allclose(here["grad_cam"]["map"], there["grad_cam"]["map"], atol=2e-3)


def test_a_look_inside(lenet, pictures, tmp_path, capsys):
    import keras

    code, [about] = call(capsys, "inspect", best(lenet), pictures[0], "--output", tmp_path, "--class", "3")
    assert code == 0 and about["class"] == "3"
    model = keras.saving.load_model(best(lenet))
    batch = np.asarray(Image.open(pictures[0]), np.float32)[None, ..., None]
    for row in about["layers"]:
        value = np.asarray(keras.Model(model.inputs, model.get_layer(row["name"]).output)(batch))[0]
        found = row["activations"]
        assert [found["mean"], found["deviation"]] == pytest.approx([value.mean(), value.std()], rel=1e-3, abs=1e-5)
        assert sum(found["counts"]) == value.size and list(value.shape) == row["shape"]
        assert (tmp_path / row["image"]).is_file() and row["parameters"] == model.get_layer(row["name"]).count_params()
        assert [found["zeros"], found["not_finite"]] == pytest.approx([(value == 0).mean(), 0])
    assert about["total_parameters"] == model.count_params()
    kernel = next(
        row for row in about["weights"] if row["name"].endswith("conv2d/kernel") or "conv2d/kernel" in row["name"]
    )
    assert kernel["values"]["mean"] == pytest.approx(
        float(np.asarray(model.get_layer("conv2d").kernel).mean()), rel=1e-3, abs=1e-6
    )
    assert np.max(about["grad_cam"]["map"]) == 1.0 and Image.open(tmp_path / "grad-cam.png").size == (448, 448)
    code, [error] = call(capsys, "inspect", best(lenet), pictures[0], "--output", tmp_path, "--class", "eleven")
    assert code == 1 and "eleven" in error["message"]


def test_the_bundle_is_whole_and_its_onnx_answers_the_same(lenet, pictures, tmp_path, capsys):
    import onnxruntime
    from safetensors.numpy import load_file

    code, [about] = call(capsys, "export", best(lenet), "--output", tmp_path / "bundle")
    bundle = tmp_path / "bundle"
    assert code == 0 and about["onnx"] == "model.onnx", about
    assert about["onnx_difference"] < 1e-4
    sums = dict(reversed(line.split("  ")) for line in (bundle / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in sums}
    assert sums.keys() == {
        "README.md",
        "labels.txt",
        "model.keras",
        "model.onnx",
        "model.safetensors",
        "preprocessing.json",
    }
    session = onnxruntime.InferenceSession(bundle / "model.onnx")
    batch = np.stack([np.asarray(Image.open(path), np.float32)[..., None] for path in pictures])
    [answers] = session.run(None, {session.get_inputs()[0].name: batch})
    assert np.abs(answers - said(lenet)).max() < 1e-4
    code, [answer] = call(capsys, "predict", bundle / "model.keras", *pictures, "--top", 10)
    assert code == 0 and np.allclose(probabilities(answer), said(lenet), atol=1e-5)
    import keras

    weights = load_file(bundle / "model.safetensors")
    model = keras.saving.load_model(bundle / "model.keras")
    assert all((weights[v.path] == np.asarray(v)).all() for v in model.trainable_variables)
    assert "accuracy" in (bundle / "README.md").read_text()


def test_a_snapshot_can_be_judged_again(lenet, tmp_path, capsys):
    code, [found] = call(capsys, "evaluate", config_file(tmp_path, LENET), best(lenet), "--output", tmp_path / "eval")
    assert code == 0
    for split in ("val", "test"):
        written = json.loads((lenet / "eval" / split / "metrics.json").read_text())
        assert found[split]["accuracy"] == written["accuracy"]
        assert (tmp_path / "eval" / split / "confusion.csv").read_text() == (
            lenet / "eval" / split / "confusion.csv"
        ).read_text()


def test_eight_samples_before_the_start(tmp_path, capsys):
    given = LENET | {"augmentation": {"rotate": 30, "brightness": 0.3}}
    code, [about] = call(capsys, "preview", config_file(tmp_path, given), "--output", tmp_path / "preview")
    assert code == 0 and len(about["samples"]) == 8
    for sample in about["samples"]:
        one, other = (np.asarray(Image.open(tmp_path / "preview" / sample[key])) for key in ("original", "augmented"))
        assert one.shape == other.shape == (8, 8) and (one != other).any() and sample["label"] in "0123456789"


def test_a_bundle_is_a_model_again(lenet, pictures, tmp_path, capsys):
    """From its folder and from an archive; what was changed since it was exported is refused."""
    import tarfile

    assert call(capsys, "export", best(lenet), "--output", tmp_path / "bundle")[0] == 0
    with tarfile.open(tmp_path / "bundle.tar", "w") as archive:
        archive.add(tmp_path / "bundle", "bundle")
    code, [said] = call(capsys, "predict", best(lenet), *pictures, "--top", 10)
    for source in ("bundle", "bundle.tar"):
        output = tmp_path / f"from-{source}"
        code, lines = call(capsys, "import", tmp_path / source, "--output", output)
        assert code == 0 and lines[-1]["classes"] == 10, lines
        code, [again] = call(capsys, "predict", best(output), *pictures, "--top", 10)
        assert code == 0 and np.allclose(probabilities(again), probabilities(said), atol=1e-6)
        assert (output / "bundle/SHA256SUMS").exists() and json.loads((output / "model_summary.json").read_text())["layers"]
    (tmp_path / "bundle/labels.txt").write_text("".join(f"{i}\n" for i in range(9, -1, -1)))
    code, [error] = call(capsys, "import", tmp_path / "bundle", "--output", tmp_path / "changed")
    assert code == 2 and "labels.txt differs from its checksum" in error["message"]
    (tmp_path / "notes.tar").write_text("nothing")
    code, [error] = call(capsys, "import", tmp_path / "notes.tar", "--output", tmp_path / "none")
    assert code == 2 and "not a folder or a tar archive" in error["message"]
    code, [error] = call(capsys, "import", tmp_path / "none", "--output", tmp_path / "none")
    assert code == 2 and "does not exist" in error["message"]
