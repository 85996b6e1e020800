"""Configurations: what is not said is filled in, and each fault names its field."""

import json

import pytest

from trainer import config
from trainer.errors import Stop

from .conftest import call


def minimal(**more):
    return {"output": "o", "data": {"kind": "digits"}} | more


def test_what_is_not_said_is_filled_in(tmp_path):
    filled = config.check(minimal(), tmp_path)
    assert filled["output"] == str(tmp_path / "o")
    assert filled["network"]["name"] == "lenet" and filled["metric"] == "accuracy"
    assert filled["learning_rate"] == {"base": 0.01, "policy": "step", "warm_up": 0}
    assert filled["checkpoints"] == {"every_epochs": 1, "keep_last": 2} and filled["epochs"] == 30
    assert config.check(minimal(task="detection", data={"kind": "shapes"}), tmp_path)["network"]["name"] == "centres"


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("output", {"data": {"kind": "digits"}}),
        ("data", {"output": "o"}),
        ("data.kind", minimal(data={})),
        ("data.kind", minimal(data={"kind": "lmdb"})),
        ("epoch", minimal(epoch=3)),
        ("epochs", minimal(epochs=0)),
        ("epochs", minimal(epochs="3")),
        ("epochs", minimal(epochs=2.5)),
        ("epochs", minimal(epochs=True)),
        ("batch_size", minimal(batch_size=-1)),
        ("seed", minimal(seed=2**32)),
        ("devices", minimal(devices="two")),
        ("optimizer.name", minimal(optimizer={"name": "SGD"})),
        ("optimizer.momentum", minimal(optimizer={"momentum": 1})),
        ("learning_rate.base", minimal(learning_rate={"base": 0})),
        ("learning_rate.gamma", minimal(learning_rate={"policy": "fixed", "gamma": 0.1})),
        ("learning_rate.gamma", minimal(learning_rate={"policy": "exp", "gamma": 1.1})),
        ("learning_rate.steps.1", minimal(learning_rate={"policy": "multistep", "steps": [5, 101]})),
        ("augmentation.flip", minimal(augmentation={"flip": True})),
        ("augmentation.rotate", minimal(task="detection", data={"kind": "shapes"}, augmentation={"rotate": 5})),
        ("network.name", minimal(network={"name": "u-net"})),
        ("network.file", minimal(network={"name": "lenet", "file": "n.py"})),
        ("network.pretrained", minimal(network={"name": "lenet", "pretrained": "m.keras"})),
        ("network.freeze", minimal(network={"freeze": True})),
        ("task", minimal(task="segmentation")),
        ("metric", minimal(metric="iou")),
        ("class_weights", minimal(task="detection", data={"kind": "shapes"}, class_weights="balanced")),
        ("data.path", minimal(data={"kind": "folder"})),
        ("data.path", minimal(data={"kind": "digits", "path": "x"})),
        ("data.test_images", minimal(data={"kind": "idx", "images": "i", "labels": "l", "test_images": "t"})),
        ("data.test_percent", minimal(data={"kind": "digits", "validation_percent": 60, "test_percent": 40})),
    ],
)
def test_a_fault_names_its_field(field, given, tmp_path):
    with pytest.raises(Stop) as stopped:
        config.check(given, tmp_path)
    assert (stopped.value.code, stopped.value.field) == (1, field)
    assert stopped.value.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "not valid JSON"),
        ('{"epochs": NaN}', "NaN"),
        ('{"epochs": 1, "epochs": 2}', "twice"),
        ("[]", "must be an object"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_file_that_is_no_configuration(text, part, tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    code, [error] = call(capsys, path)
    assert code == 1 and error["event"] == "error" and part in error["message"]
    assert call(capsys, tmp_path / "none.json")[0] == 1


def test_the_schema_can_be_asked_for_and_describes_every_place(capsys):
    from trainer.__main__ import main

    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == config.SCHEMA
    inner = [rule for rule in schema["properties"].values() if rule.get("type") == "object"]
    assert all(rule["additionalProperties"] is False for rule in [schema, *inner])
