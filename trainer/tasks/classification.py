"""Classification: one class a picture. Besides the metrics it writes every prediction with its
probabilities, the confusion matrix, precision and recall by class, ROC, precision-recall and calibration
curves, and the worst samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import curves
from ..data import Data, Part, Sample
from ..files import write_json, write_rows

HIGHER_IS_BETTER = ("accuracy",)
COMPILE: dict[str, Any] = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}


def targets(samples: list[Sample], data: Data) -> np.ndarray:
    return np.array([sample.label for sample in samples], np.int32)


class Measure:
    """Takes predictions batch by batch and says what they come to."""

    def __init__(self, data: Data):
        self.data = data
        self.found: list[np.ndarray] = []
        self.truth: list[np.ndarray] = []

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        self.found.append(np.asarray(predicted, np.float32))
        self.truth.append(truth)

    def metrics(self) -> dict[str, float]:
        found, truth = np.concatenate(self.found), np.concatenate(self.truth)
        metrics = {"loss": float(losses(found, truth).mean()), "accuracy": float((found.argmax(1) == truth).mean())}
        if found.shape[1] > 5:
            # As many as stand above the true class decide whether it is among the first five.
            above = (found > found[np.arange(len(truth)), truth][:, None]).sum(1)
            metrics["top5"] = float((above < 5).mean())
        return metrics

    def write(self, folder: Path, part: Part) -> None:
        found, truth = np.concatenate(self.found), np.concatenate(self.truth)
        predicted, classes = found.argmax(1), self.data.classes
        loss = losses(found, truth)
        write_rows(
            folder / "predictions.csv",
            ["path", "label", "predicted", "confidence", "loss", *(f"p_{name}" for name in classes)],
            (
                [part.names[i], classes[truth[i]], classes[predicted[i]], f"{found[i].max():.6g}", f"{loss[i]:.6g}"]
                + [f"{p:.6g}" for p in found[i]]
                for i in range(len(truth))
            ),
        )
        matrix = confusion(truth, predicted, len(classes))
        write_rows(
            folder / "confusion.csv", ["label", *classes], ([name, *row] for name, row in zip(classes, matrix.tolist()))
        )
        drawn, more, rows = curves.of_classifier(found, truth, classes)
        write_json(folder / "curves.json", drawn)
        listed = [one | row for one, row in zip(by_class(matrix, classes), rows)]
        write_json(folder / "metrics.json", {"pictures": len(truth)} | self.metrics() | more | {"classes": listed})
        worst = np.argsort(-loss, kind="stable")[:100]
        write_json(
            folder / "worst.json",
            [
                {"path": part.names[i], "label": classes[truth[i]], "predicted": classes[predicted[i]], "loss": loss[i]}
                | {"probability": found[i, truth[i]], "confidence": found[i].max()}
                for i in worst
            ],
        )


def losses(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return -np.log(np.clip(found[np.arange(len(truth)), truth].astype(np.float64), 1e-7, 1.0))


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Rows are the truth, columns the answer."""
    return np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes * classes).reshape(
        classes, classes
    )


def by_class(matrix: np.ndarray, classes: list[str]) -> list[dict[str, Any]]:
    """Precision, recall and F1. What cannot be said (nothing there, nothing answered) is null."""
    rows = []
    for i, name in enumerate(classes):
        right, there, answered = int(matrix[i, i]), int(matrix[i].sum()), int(matrix[:, i].sum())
        rows.append(
            {
                "class": name,
                "pictures": there,
                "precision": right / answered if answered else None,
                "recall": right / there if there else None,
                "f1": 2 * right / (there + answered) if there + answered else None,
            }
        )
    return rows
