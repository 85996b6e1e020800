"""A model in fewer bits: what is measured is true of the model, and what cannot be done is said."""

import csv
import importlib.util
import json

import numpy as np
import pytest

from .conftest import LENET, best, call, config_file


def said_of(run):
    with open(run / "eval/val/predictions.csv", newline="") as file:
        return [row["predicted"] == row["label"] for row in csv.DictReader(file)]


def test_three_precisions_of_one_model(lenet, tmp_path, capsys):
    from trainer.__main__ import main

    code = main(["precisions", str(config_file(tmp_path, LENET)), str(best(lenet)), "--output", str(tmp_path)])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert code == 0 and found == json.loads((tmp_path / "precisions.json").read_text())
    whole, half, small = found["precisions"]
    assert [row["precision"] for row in found["precisions"]] == ["float32", "float16", "int8"]
    assert all(row["runtime"].startswith("ONNX Runtime") for row in found["precisions"]), found
    assert (found["split"], found["metric"], found["pictures"]) == ("val", "accuracy", len(said_of(lenet)))
    # In 32 bits it is the model that was evaluated.
    assert whole["metrics"]["accuracy"] == pytest.approx(np.mean(said_of(lenet)))
    assert abs(half["metrics"]["accuracy"] - whole["metrics"]["accuracy"]) < 0.02
    assert abs(small["metrics"]["accuracy"] - whole["metrics"]["accuracy"]) < 0.05
    # And each is another model than the one before.
    assert len({row["metrics"]["loss"] for row in found["precisions"]}) == 3
    assert half["bytes"] < 0.6 * whole["bytes"] and small["bytes"] < half["bytes"]
    for row in found["precisions"]:
        assert 0 < row["latency_ms"] <= row["latency_95_ms"] and row["images_per_second"] > 0
    said = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert [(line["done"], line["of"]) for line in said if line["event"] == "progress"] == [(n, 3) for n in range(4)]


def test_what_the_environment_lacks_is_said(lenet, tmp_path, capsys, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else there(name))
    code, [found] = call(
        capsys, "precisions", config_file(tmp_path, LENET), best(lenet), "--output", tmp_path / "there"
    )
    whole, half, small = found["precisions"]
    assert code == 0 and whole["runtime"] == "Keras on jax"
    assert whole["metrics"]["accuracy"] == pytest.approx(np.mean(said_of(lenet)))
    assert half["missing"] == small["missing"] == "this environment lacks the Python package onnxruntime"


def test_data_of_other_classes_are_refused(lenet, tmp_path, capsys):
    given = LENET | {"data": {"kind": "shapes", "count": 40}}
    code, [error] = call(capsys, "precisions", config_file(tmp_path, given), best(lenet), "--output", tmp_path)
    assert code == 2 and "differ from the classes of the data" in error["message"]
    assert not (tmp_path / "precisions.json").exists()
