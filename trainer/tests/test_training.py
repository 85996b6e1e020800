"""Whole trainings: they learn, what they leave behind is consistent, and stopping loses nothing."""

import csv
import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from .conftest import LENET, best, config_file, leave_out, spawn
from .test_events import series


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_lenet_learns_digits(lenet):
    metrics = json.loads((lenet / "eval/val/metrics.json").read_text())
    assert metrics["accuracy"] >= 0.95
    assert json.loads((lenet / "eval/test/metrics.json").read_text())["accuracy"] >= 0.93
    assert (lenet / "labels.txt").read_text().split() == [str(i) for i in range(10)]


@pytest.mark.parametrize("split", ["val", "test"])
def test_the_evaluation_is_what_the_predictions_come_to(lenet, split):
    predictions = rows(lenet / "eval" / split / "predictions.csv")
    classes = (lenet / "labels.txt").read_text().split()
    matrix = np.zeros((10, 10), int)
    for row in predictions:
        p = np.array([float(row[f"p_{name}"]) for name in classes])
        assert abs(p.sum() - 1) < 1e-4 and row["predicted"] == classes[p.argmax()]
        assert float(row["confidence"]) == pytest.approx(p.max()) and float(row["loss"]) == pytest.approx(
            -np.log(p[classes.index(row["label"])]), rel=1e-3, abs=2e-5
        )
        matrix[classes.index(row["label"]), classes.index(row["predicted"])] += 1
    written = [[int(row[name]) for name in classes] for row in rows(lenet / "eval" / split / "confusion.csv")]
    assert written == matrix.tolist()
    metrics = json.loads((lenet / "eval" / split / "metrics.json").read_text())
    assert metrics["pictures"] == len(predictions) == matrix.sum()
    assert metrics["accuracy"] == pytest.approx(np.trace(matrix) / matrix.sum())
    for i, about in enumerate(metrics["classes"]):
        precision, recall = matrix[i, i] / matrix[:, i].sum(), matrix[i, i] / matrix[i].sum()
        assert [about["precision"], about["recall"], about["f1"]] == pytest.approx(
            [precision, recall, 2 * precision * recall / (precision + recall)]
        )
    worst = json.loads((lenet / "eval" / split / "worst.json").read_text())
    assert worst[0]["path"] == max(predictions, key=lambda row: float(row["loss"]))["path"]


def test_the_configuration_is_told_beside_the_curves(lenet):
    told = json.loads((lenet / "events/train/hparams.yaml").read_text())
    assert told["network.name"] == "lenet" and told["epochs"] == LENET["epochs"]
    assert told["learning_rate.base"] == LENET["learning_rate"]["base"] and "output" not in told
    assert not any(isinstance(value, dict | list) for value in told.values())


def test_curves_and_snapshots_say_the_same(lenet):
    index = json.loads((lenet / "checkpoints/index.json").read_text())
    curve = series(lenet / "events/validation", "accuracy")
    assert len(curve) == LENET["epochs"]
    steps = curve[-1][0] // LENET["epochs"]
    assert [step for step, _ in curve] == [steps * (i + 1) for i in range(LENET["epochs"])]
    assert [epoch for _, epoch in series(lenet / "events/validation", "epoch")] == list(range(1, LENET["epochs"] + 1))
    values = [value for _, value in curve]
    assert index["best_value"] == pytest.approx(max(values)) and index["best_epoch"] == 1 + int(np.argmax(values))
    assert best(lenet).name == f"epoch-{index['best_epoch']:05d}.keras"
    kept = {entry["file"] for entry in index["snapshots"]}
    assert {path.name for path in (lenet / "checkpoints").glob("*.keras")} == kept
    assert kept == {"epoch-00007.keras", "epoch-00008.keras", index["best"]}
    train = series(lenet / "events/train", "loss")
    assert train[-1][0] == curve[-1][0] and train[-1][1] < train[0][1] / 3


# Everything that is random or has a state: dropout, augmentation, momentum, accumulation across steps.
HARD = LENET | {
    "epochs": 3,
    "accumulation": 3,
    "augmentation": {"shift": 0.1, "rotate": 5, "noise": 0.02},
    "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "learning_rate": {"base": 0.05, "policy": "one-cycle"},
    "events": {"every_steps": 4},
}


def test_stopped_and_resumed_is_as_never_stopped(train, tmp_path):
    whole = train(HARD, "whole")
    assert whole.code == 0
    # In a process of its own, because the signal is a real one. It comes in the middle of an epoch.
    config = config_file(tmp_path / "cut", HARD)
    process = spawn(config)
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "progress":
            process.send_signal(signal.SIGTERM)
            break
    lines += [json.loads(line) for line in process.stdout]
    assert process.wait() == 143, process.stderr.read()
    assert lines[-1]["event"] == "terminated" and lines[-2]["event"] == "checkpoint"
    stopped = lines[-1]["step"]
    assert 0 < stopped < whole.lines[-1].get("step", 10**9)
    resumed = train(HARD, "cut")
    assert resumed.code == 0
    begun = next(line for line in resumed.lines if line["event"] == "resume")
    assert begun["step"] == stopped
    for part, tag in (
        ("train", "loss"),
        ("train", "accuracy"),
        ("train", "learning_rate"),
        ("validation", "loss"),
        ("validation", "accuracy"),
    ):
        one, other = (series(run.output / "events" / part, tag) for run in (whole, resumed))
        assert [step for step, _ in one] == [step for step, _ in other], tag
        assert [value for _, value in one] == pytest.approx([value for _, value in other], rel=1e-3, abs=1e-4), tag
    # Once it is done, starting it again trains nothing, and judges the same model.
    again = train(HARD, "cut")
    assert again.code == 0 and not [line for line in again.lines if line["event"] == "epoch"]
    for split, metrics in resumed.lines[-1]["evaluation"].items():
        assert again.lines[-1]["evaluation"][split] == pytest.approx(metrics)
    # With something else in the configuration it would not be the same training.
    other = train(HARD | {"batch_size": 32}, "cut")
    assert other.code == 1 and other.error["field"] == "batch_size"


SHORT = {"data": {"kind": "digits", "limit": 128}, "epochs": 2, "batch_size": 32}


def test_divergence_has_its_own_code(train, tmp_path):
    (tmp_path / "wild.py").write_text(
        "import keras\n\ndef network(x, classes):\n"
        "    return keras.layers.Dense(classes)(keras.ops.log(keras.layers.Flatten()(x) - 1000.0))\n"
    )
    run = train(SHORT | {"network": {"file": "wild.py"}, "learning_rate": {"base": 100, "policy": "fixed"}})
    assert run.code == 3 and "not finite" in run.error["message"] and run.error["field"] == "learning_rate.base"
    assert not np.isfinite([value for _, value in series(run.output / "events/train", "loss")][-1]), (
        "the curve shows it"
    )
    assert not list(run.output.glob("checkpoints/*.keras")), "what is no number is not kept"


def test_early_stopping_waits_as_long_as_it_should(train):
    given = SHORT | {"epochs": 50, "early_stopping": {"patience": 3}, "checkpoints": {"keep_last": 1}}
    given |= {"learning_rate": {"base": 1e-12}, "class_weights": "balanced"}
    run = train(given)
    epochs = [line for line in run.lines if line["event"] == "epoch"]
    assert run.code == 0 and len(epochs) == 4 and [line for line in run.lines if line["event"] == "early_stop"]
    assert {path.name for path in (run.output / "checkpoints").glob("*.keras")} == {
        "epoch-00001.keras",
        "epoch-00004.keras",
    }
    # Started again it has still had enough; told not to resume, it begins anew and leaves nothing of the first.
    again = train(given)
    assert again.code == 0 and not [line for line in again.lines if line["event"] == "epoch"]
    anew = train(given | {"resume": False, "epochs": 1})
    assert anew.code == 0 and [line["event"] for line in anew.lines].count("epoch") == 1
    assert {path.name for path in (anew.output / "checkpoints").glob("*.keras")} == {"epoch-00001.keras"}


@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(train, precision):
    from trainer.export import exported

    run = train(
        SHORT
        | {
            "precision": precision,
            "network": {"name": "small-cnn", "width": 0.25},
            "optimizer": {"name": "adamw", "weight_decay": 0.01, "clip_norm": 1.0},
        }
    )
    assert run.code == 0 and run.lines[-1]["event"] == "done"
    # ONNX computes in float32, and is compared with the model in float32.
    about = exported(run.output / "checkpoints" / "epoch-00001.keras", run.output / "bundle")
    assert about["onnx"] == "model.onnx" and about["onnx_difference"] < 1e-5, about


def test_a_full_disk_leaves_whole_snapshots(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode
    ):
        leave_out("a full disk leaves whole snapshots", "root that may mount a tmpfs")
    try:
        # One snapshot of LeNet on digits with Adam has about 2 MiB; a second one no longer fits.
        config = config_file(tmp_path, LENET | {"output": "disk/run", "checkpoints": {"keep_last": 5}})
        from trainer.__main__ import main

        assert main([str(config)]) == 4
        snapshots = json.loads((disk / "run/checkpoints/index.json").read_text())["snapshots"]
        assert {path.name for path in (disk / "run/checkpoints").iterdir()} == {
            "index.json",
            *(entry["file"] for entry in snapshots),
        }
        import keras

        keras.saving.load_model(disk / "run/checkpoints" / snapshots[-1]["file"])
    finally:
        deadline = time.monotonic() + 30
        while subprocess.run(["umount", disk], capture_output=True).returncode and time.monotonic() < deadline:
            time.sleep(0.1)


def test_two_devices_learn_what_one_does(train, tmp_path):
    given = SHORT | {"network": {"name": "lenet", "dropout": 0}}
    one = train(given, "one")
    process = spawn(
        config_file(tmp_path / "two", given | {"devices": "all"}), XLA_FLAGS="--xla_force_host_platform_device_count=2"
    )
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert next(json.loads(line) for line in out.splitlines() if '"begin"' in line)["devices"] == 2
    losses = [[value for _, value in series(tmp_path / name / "run/events/train", "loss")] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3) and one.code == 0
    for name, devices in (("one", 1), ("two", 2)):
        speed = json.loads((tmp_path / name / "run/speed.json").read_text())
        assert (speed["devices"], speed["device"], speed["batch_size"]) == (devices, "cpu", SHORT["batch_size"])
        # It counts all that a step waits for, so no more than the quickest steps alone.
        quickest = max(value for _, value in series(tmp_path / name / "run/events/train", "images_per_second"))
        assert 0 < speed["images_per_second"] <= quickest
    assert train(SHORT | {"devices": 3}, "three").error["field"] == "devices"


def test_a_backend_that_is_not_there(train):
    import importlib.util

    missing = [name for name in ("tensorflow", "torch") if importlib.util.find_spec(name) is None]
    run = train(SHORT | {"backend": missing[0] if missing else "tensorflow"})
    assert run.code == 5 and run.error["field"] == "backend"
