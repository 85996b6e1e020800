"""Reads a configuration: every field is checked, and every fault names its field.

What a field may hold stands in config.schema.json, which is also what a form is made from.
Here it is filled with what is not said, and the rules that hold between fields are checked.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from .errors import bad_config
from .policies import POLICIES

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parent / "config.schema.json").read_text())

Config = dict[str, Any]

# Which fields of `data` say where it is, by kind: those that must be there, and those that may.
_PLACES: dict[str, tuple[set[str], set[str]]] = {
    "dataset": ({"path"}, set()),
    "manifest": ({"path"}, {"root"}),
    "folder": ({"path"}, set()),
    "idx": ({"images", "labels"}, {"test_images", "test_labels", "classes"}),
    "digits": (set(), set()),
    "shapes": (set(), {"count"}),
}
_PATHS = ("path", "root", "images", "labels", "test_images", "test_labels")
METRICS = {
    "classification": ("accuracy", "loss"),
    "segmentation": ("iou", "accuracy", "loss"),
    "detection": ("map50_95", "map50", "loss"),
    "regression": ("loss", "mae", "rmse", "r2"),
    "reconstruction": ("loss", "mse", "mae", "psnr"),
}
_OF_A_PICTURE = (
    *("lenet", "small-cnn", "alexnet", "vgg-16", "googlenet", "resnet-18", "resnet-50"),
    *("mobilenet-v3", "efficientnet-b0", "vit-tiny"),
)
NETWORKS = {
    "classification": _OF_A_PICTURE,
    "regression": _OF_A_PICTURE,
    "reconstruction": ("autoencoder", "u-net"),
    "segmentation": ("u-net",),
    "detection": ("centres",),
}


def load(path: Path) -> Config:
    """The configuration in a file, complete and with absolute paths."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            is_own = os.fstat(file.fileno()).st_uid == os.geteuid()
            text = file.read()
    except OSError as error:
        raise bad_config("", f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise bad_config("", f"{path} is not UTF-8 text") from None
    try:
        given = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise bad_config("", f"{path} is not valid JSON: {error.msg} in line {error.lineno}") from None
    config = check(given, path.resolve().parent)
    if "file" in config["network"] and not is_own:
        raise bad_config(
            "network.file",
            f"is a program that would run with your account, but {path} belongs to another user: read the program, then"
            " copy both files and use the copies",
        )
    return config


def check(given: Any, folder: Path) -> Config:
    """The same for what has been read already; relative paths begin at `folder`."""
    faults = sorted(Draft202012Validator(SCHEMA).iter_errors(given), key=lambda fault: list(map(str, fault.path)))
    if faults:
        raise bad_config(*_said(faults[0]))
    config = _filled(given, SCHEMA)
    for name in ("learning_rate", "optimizer", "augmentation", "early_stopping", "checkpoints", "image", "events"):
        config[name] = _filled(config.get(name, {}), SCHEMA["properties"][name])
    config["network"] = _filled(config.get("network", {}), SCHEMA["properties"]["network"])
    _between(config, given)
    config["output"] = str(folder / config["output"])
    for place, keys in ((config["data"], _PATHS), (config["network"], ("file", "pretrained"))):
        for key in keys:
            if key in place:
                place[key] = str(folder / Path(place[key]).expanduser())
    return config


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise bad_config(key, "is set twice")
        seen[key] = value
    return seen


def _no_number(word: str) -> None:
    raise bad_config("", f"{word} is not a valid JSON number")


def _filled(given: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    filled = {}
    for key, rule in schema["properties"].items():
        if key in given:
            filled[key] = _filled(given[key], rule) if rule.get("type") == "object" else given[key]
        elif "default" in rule:
            filled[key] = rule["default"]
    return filled


def _said(fault: ValidationError) -> tuple[str, str]:
    """The field, and what is wrong with it in words."""
    field = ".".join(map(str, fault.absolute_path))
    value = json.dumps(fault.instance, ensure_ascii=False)[:80]
    rule = fault.validator_value
    match fault.validator:
        case "additionalProperties":
            unknown = sorted(set(fault.instance) - set(fault.schema["properties"]))[0]
            known = ", ".join(sorted(fault.schema["properties"]))
            return ".".join(filter(None, (field, unknown))), f"is unknown; allowed are: {known}"
        case "required":
            missing = next(name for name in rule if name not in fault.instance)
            return ".".join(filter(None, (field, missing))), "is missing"
        case "type":
            return field, f"must be {_article(rule)}, not {value}"
        case "enum":
            return field, f"must be one of {', '.join(map(str, rule))}, not {value}"
        case "minimum":
            return field, f"must be at least {rule}, not {value}"
        case "exclusiveMinimum":
            return field, f"must be greater than {rule}, not {value}"
        case "maximum":
            return field, f"must be at most {rule}, not {value}"
        case "exclusiveMaximum":
            return field, f"must be less than {rule}, not {value}"
        case "minLength":
            return field, "must not be empty"
        case "minItems":
            return field, f"needs at least {rule} entries"
        case "oneOf" if field == "devices":
            return field, f'must be a number from 1 to 1024 or "all", not {value}'
    return field, fault.message


def _article(kind: str) -> str:
    return {"integer": "a whole number", "object": "an object", "array": "a list"}.get(kind, f"a {kind}")


def _between(config: Config, given: dict[str, Any]) -> None:
    """What holds between fields, and what is said by another."""
    task, data, network = config["task"], config["data"], config["network"]
    needed, allowed = _PLACES[data["kind"]]
    for key in sorted(needed - data.keys()):
        raise bad_config(f"data.{key}", f"is missing: it is required for data of the kind {data['kind']}")
    for key in sorted((given["data"].keys() & {*_PATHS, "classes", "count"}) - needed - allowed):
        raise bad_config(f"data.{key}", f"does not apply to data of the kind {data['kind']}")
    if ("test_images" in data) != ("test_labels" in data):
        raise bad_config("data.test_images", "and data.test_labels must be set together")
    if data["validation_percent"] + data["test_percent"] > 95:
        raise bad_config("data.test_percent", "leaves less than 5 percent for training")
    if task in ("segmentation", "detection") and data["kind"] not in ("dataset", "shapes"):
        raise bad_config("task", f"{task} needs data of the kind dataset or shapes, not {data['kind']}")

    if "file" in network and ("name" in network or "pretrained" in network):
        raise bad_config("network.file", "cannot be combined with network.name or network.pretrained")
    if "pretrained" in network and "name" in network:
        raise bad_config("network.pretrained", "already defines the network: remove network.name")
    if not network.keys() & {"name", "file", "pretrained"}:
        network["name"] = NETWORKS[task][0]
    if "name" in network and network["name"] not in NETWORKS[task]:
        raise bad_config("network.name", f"{network['name']} does not support {task}; use {', '.join(NETWORKS[task])}")
    if network["freeze"] and "pretrained" not in network:
        raise bad_config("network.freeze", "requires network.pretrained")

    rate = config["learning_rate"]
    known = {"base", "policy", "warm_up", *POLICIES[rate["policy"]][1]}
    for key in sorted(rate.keys() - known):
        raise bad_config(f"learning_rate.{key}", f"does not apply to the policy {rate['policy']}")
    if rate["policy"] == "exp" and rate.get("gamma", 0.5) > 1:
        raise bad_config("learning_rate.gamma", "must be at most 1 with the policy exp")

    if task == "detection" and config["augmentation"]["rotate"]:
        raise bad_config("augmentation.rotate", "is not supported for detection, because boxes cannot be rotated")
    if task != "classification" and config["class_weights"] != "none":
        raise bad_config("class_weights", "is only supported for classification")
    if config["metric"] == "auto":
        # A file may say which it is.
        config["metric"] = "auto" if "file" in network else METRICS[task][0]
    elif config["metric"] not in METRICS[task]:
        raise bad_config("metric", f"must be one of {', '.join(METRICS[task])} for {task}")
