"""Regression: one or more numbers for each picture. They are the name of its class read as a number, or
what the function `target` of the network's file returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..data import Data, Part, Sample
from ..errors import bad_data
from ..files import write_json, write_rows
from ..own import Own

HIGHER_IS_BETTER = ("r2",)
POINTS = 1000  # of a scatter plot
OUTPUTS = 20  # that have one
COMPILE: dict[str, Any] = {"loss": "mean_squared_error", "metrics": ["mae"]}


def prepared(data: Data, own: Own) -> Data:
    """The same pictures with numbers to learn; the outputs take the place of the classes."""
    classes = data.classes
    if own.target is not None:

        def target(sample: Sample) -> Any:
            assert own.target is not None
            return own.target(sample.image, classes[sample.label])
    else:
        values = [_number(name) for name in classes]

        def target(sample: Sample) -> Any:
            return values[sample.label]

    def numbers(sample: Sample) -> np.ndarray:
        found = own.call(lambda: np.atleast_1d(np.asarray(target(sample), np.float32)))
        if found.ndim != 1 or not np.isfinite(found).all():
            raise bad_data(f"target returned {found.tolist()!r:.80}: one finite number, or a list of them, is required", "data")
        return found

    data.target = numbers
    data.parts = {split: Part(part.names, part.read, None, part.array) for split, part in data.parts.items()}
    if data.parts.get("train") is not None and len(data.parts["train"]):
        count = len(numbers(data.parts["train"].read(0)))
        names = own.outputs or (["value"] if count == 1 else [f"value_{i}" for i in range(count)])
        if len(names) != count:
            raise bad_data(f"target returns {count} numbers, but outputs names {len(names)}", "network.file")
        data.classes = names
    return data


def _number(name: str) -> float:
    try:
        value = float(name.replace(",", "."))
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise bad_data(
            f"the class {name!r} is not a number. For regression the names of the classes are the values; or define"
            " target(image, label) in a custom network",
            "task",
        )
    return value


def targets(samples: list[Sample], data: Data) -> np.ndarray:
    assert data.target is not None
    return np.stack([data.target(sample) for sample in samples])


class Measure:
    """Takes predictions batch by batch and says how far off they are."""

    def __init__(self, data: Data):
        self.data = data
        self.found: list[np.ndarray] = []
        self.truth: list[np.ndarray] = []

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        self.found.append(np.asarray(predicted, np.float64))
        self.truth.append(np.asarray(truth, np.float64))

    def metrics(self) -> dict[str, float]:
        return _errors(np.concatenate(self.found), np.concatenate(self.truth))

    def write(self, folder: Path, part: Part) -> None:
        found, truth = np.concatenate(self.found), np.concatenate(self.truth)
        off = np.abs(found - truth)
        outputs = self.data.classes
        write_rows(
            folder / "predictions.csv",
            ["path", "output", "true", "predicted", "error"],
            (
                [part.names[i], name, f"{truth[i, j]:.6g}", f"{found[i, j]:.6g}", f"{off[i, j]:.6g}"]
                for i in range(len(truth))
                for j, name in enumerate(outputs)
            ),
        )
        each = []
        if len(outputs) > 1:
            each = [{"class": name} | _errors(found[:, [j]], truth[:, [j]]) for j, name in enumerate(outputs)]
        write_json(folder / "metrics.json", {"pictures": len(truth)} | self.metrics() | {"classes": each})
        at = np.unique(np.linspace(0, len(truth) - 1, min(POINTS, len(truth))).astype(int))
        points = [
            {"output": name, "true": truth[at, j], "predicted": found[at, j]} for j, name in enumerate(outputs[:OUTPUTS])
        ]
        write_json(folder / "curves.json", {"scatter": points})
        order = np.argsort(-off.ravel(), kind="stable")[:100]
        listed = []
        for i, j in zip(*np.unravel_index(order, off.shape)):
            values = {"true": truth[i, j], "predicted": found[i, j], "error": off[i, j]}
            listed.append({"path": part.names[i], "output": outputs[j]} | values)
        write_json(folder / "worst.json", listed)


def _errors(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    square = float(((found - truth) ** 2).mean())
    spread = float(((truth - truth.mean(0)) ** 2).mean())
    # Where all true values are the same, there is nothing to explain.
    explained = {"r2": 1.0 - square / spread} if spread > 0 else {}
    return {"loss": square, "mae": float(np.abs(found - truth).mean()), "rmse": square**0.5} | explained
