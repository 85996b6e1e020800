"""Several processes train one network: as one does, and they begin, stop and end together."""

import csv
import json
import signal
import socket

import pytest

from .conftest import ROOT, config_file, spawn
from .test_events import series
from .test_training import HARD

# No rounding is to decide which snapshot is the best one.
BOTH = HARD | {"network": {"name": "small-cnn"}, "data": {"kind": "digits", "limit": 256}, "batch_size": 32}


def pair(config, **more):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"} | more
    return [spawn(config, RANK=str(rank), **places) for rank in (0, 1)]


def ended(processes):
    """Exit codes, and what each has said."""
    said = [process.communicate(timeout=300) for process in processes]
    lines = [[json.loads(line) for line in out.splitlines() if line.startswith("{")] for out, _ in said]
    return [process.returncode for process in processes], lines, [err for _, err in said]


def alike(one, other):
    for part, tag in (("train", "loss"), ("train", "learning_rate"), ("validation", "loss"), ("validation", "accuracy")):
        left, right = (series(output / "events" / part, tag) for output in (one, other))
        assert [step for step, _ in left] == [step for step, _ in right], tag
        assert [value for _, value in left] == pytest.approx([value for _, value in right], rel=5e-3, abs=1e-3), tag


def test_two_are_as_one_and_stop_as_one(train, tmp_path):
    whole = train(BOTH, "whole")
    assert whole.code == 0, whole.lines
    config = config_file(tmp_path / "cut", BOTH)
    processes = pair(config)
    for line in processes[0].stdout:
        if line.startswith("{") and json.loads(line)["event"] == "progress":
            processes[1].send_signal(signal.SIGTERM)  # not the one that leads
            break
    codes, lines, errors = ended(processes)
    assert codes == [143, 143], errors
    assert lines[0][-1]["event"] == "terminated" and not lines[1], "one of them speaks"
    stopped = lines[0][-1]["step"]
    codes, lines, errors = ended(pair(config))
    assert codes == [0, 0], errors
    resumed = next(line for line in lines[0] if line["event"] == "resume")
    assert (resumed["step"], resumed["devices"]) == (stopped, 2) and stopped > 0
    alike(whole.output, tmp_path / "cut/run")
    assert json.loads((tmp_path / "cut/run/speed.json").read_text())["devices"] == 2
    with open(tmp_path / "cut/run/eval/val/predictions.csv", newline="") as file:
        answers = list(csv.DictReader(file))
    with open(whole.output / "eval/val/predictions.csv", newline="") as file:
        assert [row["path"] for row in answers] == [row["path"] for row in csv.DictReader(file)]
    # One machine goes on with what two have begun.
    alone = train(BOTH | {"epochs": 4}, "cut")
    assert alone.code == 0 and [line["epoch"] for line in alone.lines if line["event"] == "epoch"] == [4]


@pytest.mark.parametrize(
    ("more", "field", "code", "sentence"),
    [
        ({"batch_size": 33}, "batch_size", 1, "a multiple of 2"),
        ({"devices": 2}, "devices", 1, "only 1 available (cpu), 2 requested"),
    ],
)
def test_what_does_not_fit_all_is_told(tmp_path, more, field, code, sentence):
    codes, lines, errors = ended(pair(config_file(tmp_path, BOTH | more)))
    assert codes == [code, code], "\n=====\n".join(errors)
    assert all(said[-1]["field"] == field and sentence in said[-1]["message"] for said in lines)


def test_what_fits_nobody_is_told_by_one_that_is_late(tmp_path):
    """The first one, which the others ask, is not gone before they have ended: JAX would abort them."""
    late = "import os, time\nleave = os._exit\nif os.environ['RANK'] == '1': os._exit = lambda code: (time.sleep(8), leave(code))\n"
    (tmp_path / "sitecustomize.py").write_text(late)
    config = config_file(tmp_path, BOTH | {"devices": 2})
    codes, _, errors = ended(pair(config, PYTHONPATH=f"{tmp_path}:{ROOT}"))
    assert codes == [1, 1], "\n=====\n".join(errors)


def test_other_pictures_there_are_told(tmp_path):
    """Each machine has a folder of its own where one was thought to be."""
    configs = [
        config_file(tmp_path / str(limit), BOTH | {"data": {"kind": "digits", "limit": limit}}) for limit in (256, 128)
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    processes = [spawn(config, RANK=str(rank), **places) for rank, config in enumerate(configs)]
    out, err = processes[1].communicate(timeout=300)
    processes[0].kill()  # as whoever started them does when one of them fails
    processes[0].communicate()
    assert processes[1].returncode == 2, err
    assert "differ from those on the first" in json.loads(out.splitlines()[-1])["message"]


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number"),
        ({"WORLD_SIZE": "2"}, "RANK must be from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "1"}, "MASTER_ADDR must be"),
    ],
)
def test_variables_that_say_nothing(tmp_path, variables, sentence):
    process = spawn(config_file(tmp_path, BOTH), **variables)
    codes, lines, _ = ended([process])
    assert codes == [7] and sentence in lines[0][-1]["message"]
