"""The PyTorch template keeps the same contract: it learns, its curves are read, and stopping loses nothing."""

import csv
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainer import shapes

from .conftest import leave_out
from .test_events import series

SCRIPT = Path(__file__).parents[1] / "templates" / "pytorch.py"


def python():
    """One with PyTorch: what ./test has made, or our own."""
    if found := os.environ.get("LYCEUM_TEST_TORCH"):
        return found
    if importlib.util.find_spec("torch") is None:
        leave_out("PyTorch template", "PyTorch (Debian: python3-torch)")
    return sys.executable


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("torch")
    for i in range(400):
        sample = shapes.sample(5, i, "classification", 32, 32, 3)
        place = root / "shapes" / shapes.KINDS[sample.label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(sample.image).save(place / f"{i:03}.png")
    (root / "shapes" / "circle" / "broken.png").write_bytes(b"<html>")
    return root


def start(folder, output, variables=None, **more):
    config = folder / f"{output}.json"
    given = {
        "output": output,
        "data": "shapes",
        "epochs": 10,
        "batch_size": 20,
        "flip": True,
        "shift": 0.05,
        "learning_rate": 0.01,
    }
    config.write_text(json.dumps(given | more))
    env = {key: value for key, value in os.environ.items() if not key.startswith(("KERAS", "PYTHON"))}
    env |= {"CPU_LIMIT": "1", "OMP_NUM_THREADS": "1"} | (variables or {})
    return subprocess.Popen(
        [python(), str(SCRIPT), str(config)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(process, code=0):
    out, err = process.communicate()
    assert process.returncode == code, err
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_it_learns_and_goes_on_where_it_was_stopped(folder):
    cut = start(folder, "cut")
    for line in cut.stdout:
        if json.loads(line)["event"] == "epoch":
            cut.send_signal(signal.SIGTERM)
            break
    assert done(cut, 143)[-1]["event"] == "terminated"
    lines = done(start(folder, "cut"))
    whole = done(start(folder, "whole"))
    assert lines[0]["event"] == "broken" and lines[1]["event"] == "resume" and lines[1]["step"] > 0
    assert whole[-1]["best"] > 0.8, "a third is chance"
    for part, tag in (("train", "loss"), ("train", "learning_rate"), ("validation", "accuracy")):
        one, other = (series(folder / name / "events" / part, tag) for name in ("whole", "cut"))
        assert [step for step, _ in one] == [step for step, _ in other]
        assert [value for _, value in one] == pytest.approx([value for _, value in other], rel=1e-3, abs=1e-4)


def test_the_evaluation_is_what_the_predictions_come_to(folder):
    if not (folder / "whole/eval").exists():
        done(start(folder, "whole"))
    with open(folder / "whole/eval/val/predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    matrix = np.zeros((3, 3), int)
    for row in rows:
        matrix[shapes.KINDS.index(row["label"]), shapes.KINDS.index(row["predicted"])] += 1
    with open(folder / "whole/eval/val/confusion.csv", newline="") as file:
        assert [[int(v) for v in row[1:]] for row in list(csv.reader(file))[1:]] == matrix.tolist()
    metrics = json.loads((folder / "whole/eval/val/metrics.json").read_text())
    assert metrics["pictures"] == len(rows) and metrics["accuracy"] == pytest.approx(np.trace(matrix) / len(rows))


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_checkpoint_of_somebody_else_is_not_opened(folder):
    """A pickle is a program."""
    there = folder / "theirs" / "checkpoints"
    there.mkdir(parents=True)
    (there / "step-00000001.pt").write_bytes(f"cos\nmkdir\n(S{str(folder / 'sprung')!r}\ntR.".encode())
    os.chown(there / "step-00000001.pt", 65533, 65533)
    assert "belongs to another user" in done(start(folder, "theirs"), 1)[-1]["message"]
    assert not (folder / "sprung").exists()


def test_two_processes_train_one_model(folder):
    """With the variables that torchrun sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    pair = [start(folder, "two", {"RANK": str(rank), "LOCAL_RANK": str(rank)} | address, epochs=2) for rank in (0, 1)]
    both = [done(process) for process in pair]
    assert both[0][-1] == both[1][-1] and both[0][-1]["event"] == "done"
    assert len(series(folder / "two/events/train", "loss")) == 2 * (300 // 20)


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"epoch": 3}, 1, "epoch: is unknown"),
        ({"epochs": "3"}, 1, "epochs: must be"),
        ({"data": "none"}, 2, "is not a folder"),
        ({"learning_rate": 1e30}, 3, "not finite"),
    ],
)
def test_a_fault_is_named(folder, more, code, message):
    assert message in done(start(folder, "fault", **more), code)[-1]["message"]
