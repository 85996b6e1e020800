"""Networks with a loss, metrics and a task of their own: a regression and an autoencoder learn, and what
is wrong with a file is said with its line.
"""

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from .conftest import ROOT, best, call, config_file

EXAMPLES = ROOT / "trainer/examples"


def program(folder: Path, text: str) -> str:
    path = folder / "network.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def rows(path: Path) -> list[dict[str, str]]:
    import csv

    with open(path, newline="") as file:
        return list(csv.DictReader(file))


DIGITS = {
    "data": {"kind": "digits"},
    "optimizer": {"name": "adam"},
    "learning_rate": {"base": 0.003, "policy": "one-cycle"},
    "batch_size": 64,
}


def test_regression_reads_numbers_by_its_own_loss(train, capsys, tmp_path):
    run = train(DIGITS | {"task": "regression", "network": {"file": str(EXAMPLES / "regression.py")}, "epochs": 12})
    assert run.code == 0, run.lines[-1]
    metrics = read(run.output / "eval/val/metrics.json")
    assert metrics["rmse"] < 1.6 and metrics["r2"] > 0.6 and metrics["within_one"] > 0.6, metrics
    # The loss is the file's: Huber, which for errors below one is half of the square and for others less.
    assert 0 < metrics["loss"] < metrics["rmse"] ** 2
    found = rows(run.output / "eval/val/predictions.csv")
    assert found[0].keys() == {"path", "output", "true", "predicted", "error"} and len(found) == metrics["pictures"]
    error = np.array([abs(float(row["true"]) - float(row["predicted"])) for row in found])
    assert error.mean() == pytest.approx(metrics["mae"], rel=1e-3)
    assert (error < 1).mean() == pytest.approx(metrics["within_one"], abs=2e-3)
    huber = np.where(error < 1, error**2 / 2, error - 0.5).mean()
    assert huber == pytest.approx(metrics["loss"], rel=1e-3)
    worst = read(run.output / "eval/val/worst.json")
    assert worst[0]["error"] == pytest.approx(error.max(), rel=1e-4) and worst[0]["output"] == "value"
    index = read(run.output / "checkpoints/index.json")
    assert index["metric"] == "loss" and index["best_value"] == pytest.approx(metrics["loss"], rel=1e-3)
    assert {"within_one", "mean_absolute_error"} <= index["snapshots"][-1]["metrics"].keys()

    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "black.png")
    code, [answer] = call(capsys, "predict", best(run.output), tmp_path / "black.png")
    [value] = answer["images"][0]["values"]
    assert code == 0 and value["output"] == "value" and np.isfinite(value["value"])
    code, [about] = call(capsys, "export", best(run.output), "--output", tmp_path / "bundle")
    assert code == 0 and "1 outputs" in (tmp_path / "bundle/README.md").read_text()


def test_an_autoencoder_returns_its_pictures(train, capsys, tmp_path):
    run = train(DIGITS | {"task": "reconstruction", "network": {"file": str(EXAMPLES / "reconstruction.py")}, "epochs": 10})
    assert run.code == 0, run.lines[-1]
    metrics = read(run.output / "eval/val/metrics.json")
    assert metrics["psnr"] > 12 and metrics["mse"] == pytest.approx(metrics["loss"], rel=1e-3)
    assert 0 < metrics["largest_error"] <= 1
    found = rows(run.output / "eval/val/predictions.csv")
    stored = [row for row in found if row["image"]]
    assert len(stored) == 200 and float(stored[0]["mse"]) > 0
    worst = read(run.output / "eval/val/worst.json")[0]
    drawn = np.asarray(Image.open(run.output / "eval/val" / worst["image"]), np.float64) / 255
    from trainer import config, sources

    data = sources.load(config.load(run.output.parent / "config.json"), 2)
    part = data.parts["val"]
    there = part.read(part.names.index(worst["path"])).image[..., 0] / 255.0
    assert ((drawn - there) ** 2).mean() == pytest.approx(worst["mse"], abs=2e-3)

    Image.fromarray((there * 255).astype(np.uint8)).save(tmp_path / "one.png")
    code, [answer] = call(capsys, "predict", best(run.output), tmp_path / "one.png", "--output", tmp_path / "out")
    again = np.asarray(Image.open(tmp_path / "out" / answer["images"][0]["image"]), np.float64) / 255
    assert code == 0 and np.abs(again - drawn).max() < 0.02


@pytest.mark.parametrize("task", ["regression", "reconstruction"])
def test_built_in_networks_do_both_and_are_resumed(train, task):
    config = DIGITS | {"task": task, "epochs": 2}
    first = train(config)
    assert first.code == 0
    after = train(config | {"epochs": 3})
    assert after.code == 0 and any(line["event"] == "resume" for line in after.lines)


def test_a_target_of_its_own(train, tmp_path):
    file = program(
        tmp_path,
        """
        import keras
        import numpy as np

        outputs = ["left", "right"]
        loss = "mse"

        def target(image, label):
            assert label in "0123456789"
            return [image[:, :4].mean() / 255, image[:, 4:].mean() / 255]

        def network(x, outputs):
            return keras.layers.Dense(outputs)(keras.layers.Flatten()(x))
        """,
    )
    rate = {"base": 0.02, "policy": "one-cycle"}
    run = train(DIGITS | {"task": "regression", "network": {"file": file}, "epochs": 30, "learning_rate": rate})
    metrics = read(run.output / "eval/val/metrics.json")
    assert run.code == 0 and metrics["mae"] < 0.05, metrics
    assert [row["class"] for row in metrics["classes"]] == ["left", "right"]
    assert (run.output / "labels.txt").read_text() == "left\nright\n"


def test_a_classifier_with_its_own_loss_is_resumed_and_chosen_by_its_own_metric(train, tmp_path):
    text = """
        import keras
        from keras import ops

        def network(x, classes):
            return keras.layers.Dense(classes, name="logits")(keras.layers.Flatten()(x))

        def loss(truth, predicted):
            true = ops.take_along_axis(predicted, ops.cast(truth, "int32")[:, None], axis=1)[:, 0]
            return -((1 - true) ** 2) * ops.log(ops.clip(true, 1e-7, 1.0))

        def sure(truth, predicted):
            return ops.max(predicted, axis=-1)

        metrics = [sure, keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")]
        monitor = ("sure", "max")
        """
    config = DIGITS | {"network": {"file": program(tmp_path, text)}, "epochs": 2}
    assert train(config).code == 0
    run = train(config | {"epochs": 4})
    assert run.code == 0 and any(line["event"] == "resume" for line in run.lines)
    index = read(run.output / "checkpoints/index.json")
    values = [entry["metrics"]["sure"] for entry in index["snapshots"]]
    assert index["metric"] == "sure" and index["best_value"] == max(values)
    metrics = read(run.output / "eval/val/metrics.json")
    assert metrics["top2"] >= metrics["accuracy"] > 0.5
    assert (run.output / "events/train").exists()


NETWORK = """
    import keras
    from keras import ops

    def network(x, classes):
        return keras.layers.Dense(classes{activation})(keras.layers.Flatten()(x))
"""


@pytest.mark.parametrize(
    "lines, said",
    [
        ("loss = 3", "loss must be a function"),
        ("loss = 'nothing'", "loss: ValueError"),
        ("metrics = [keras.metrics.Mean]", "is not a function"),
        ("metrics = 'mae'", "metrics must be a list"),
        ("metrics = ['mae', 'mae']", "used twice"),
        ("monitor = ('psnr', 'max')", "monitor must be a pair of a metric (loss)"),
        ("target = 3", "target must be a function"),
        ("outputs = ['']", "outputs must be a list of names"),
        ("def loss(truth, predicted):\n    return ops.matmul(truth, 'x')", "line 9: "),
        ("def worst(truth, predicted):\n    raise ValueError('so it is')\nmetrics = [worst]", "line 9: ValueError: so it is"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(train, tmp_path, lines, said):
    text = textwrap.dedent(NETWORK.replace("{activation}", "")) + "\n" + lines + "\n"
    run = train(DIGITS | {"network": {"file": program(tmp_path, text)}, "epochs": 1})
    assert run.code == 1 and run.error["field"] == "network.file" and said in run.error["message"], run.error


def test_a_target_that_fails_names_its_line(train, tmp_path):
    text = textwrap.dedent(NETWORK.replace("{activation}", "")) + "\ndef target(image, label):\n    return image[99, 99]\n"
    run = train(DIGITS | {"task": "regression", "network": {"file": program(tmp_path, text)}, "epochs": 1})
    assert run.code == 1 and "line 9: IndexError" in run.error["message"], run.error


def test_names_that_are_no_numbers_are_refused_for_regression(train):
    run = train({"task": "regression", "data": {"kind": "shapes", "count": 40}, "image": {"width": 24, "height": 24}})
    assert run.code == 2 and "'circle' is not a number" in run.error["message"] and run.error["field"] == "task"


@pytest.mark.parametrize(
    "task, activation, loss, warned",
    [
        ("classification", "", "keras.losses.SparseCategoricalCrossentropy(from_logits=True)", "from_logits=True"),
        ("classification", "", "keras.losses.SparseCategoricalCrossentropy()", ""),
        ("classification", ", activation='softmax'", "None", "already applies softmax"),
        ("regression", ", activation='sigmoid'", "keras.losses.BinaryCrossentropy(from_logits=True)", "ends in sigmoid"),
        ("regression", "", "keras.losses.BinaryCrossentropy(from_logits=True)", ""),
    ],
)
def test_a_softmax_that_meets_logits_is_noticed(tmp_path, capsys, task, activation, loss, warned):
    text = textwrap.dedent(NETWORK.replace("{activation}", activation)) + f"\nloss = {loss}\n"
    path = config_file(tmp_path, DIGITS | {"task": task, "network": {"file": program(tmp_path, text)}})
    code, [about] = call(capsys, "describe", path)
    assert code == 0 and bool(about["warnings"]) == bool(warned)
    assert warned in " ".join(about["warnings"])
