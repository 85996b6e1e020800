"""Segmentation: a class for every pixel. 255 in a mask is not judged, neither by the loss nor
by the metrics. IoU is the mean over the classes that occur.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from PIL import Image

from ..data import Data, Part, Sample
from ..files import replace, write_json, write_rows
from .classification import by_class, confusion

HIGHER_IS_BETTER = ("iou", "accuracy")
IGNORED = 255
KEPT = 24  # predicted masks that are stored: the worst


@keras.saving.register_keras_serializable("lyceum")
def pixel_loss(truth: Any, found: Any) -> Any:
    """Cross-entropy of the judged pixels and, so that small objects count, one minus the Dice overlap."""
    classes = found.shape[-1]
    label = ops.cast(truth, "int32")
    judged = ops.cast(label < classes, found.dtype)[..., None]
    one_hot = ops.one_hot(ops.minimum(label, classes - 1), classes, dtype=found.dtype) * judged
    safe = ops.clip(found, 1e-7, 1.0)
    entropy = -ops.sum(one_hot * ops.log(safe)) / ops.maximum(ops.sum(judged), 1.0)
    shared = ops.sum(one_hot * found, axis=(0, 1, 2))
    both = ops.sum(one_hot + found * judged, axis=(0, 1, 2))
    return entropy + 1.0 - ops.mean((2.0 * shared + 1.0) / (both + 1.0))


COMPILE: dict[str, Any] = {"loss": pixel_loss, "metrics": []}


def targets(samples: list[Sample], data: Data) -> np.ndarray:
    return np.stack([sample.mask for sample in samples]).astype(np.int32)


class Measure:
    """Counts pixels by true and predicted class; keeps the score of each picture."""

    def __init__(self, data: Data):
        self.data = data
        self.matrix = np.zeros((len(data.classes),) * 2, np.int64)
        self.loss: list[tuple[float, int]] = []
        self.scores: list[tuple[float, float]] = []  # IoU and accuracy by picture
        self.masks: list[np.ndarray] = []

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        classes = len(self.data.classes)
        answer = predicted.argmax(-1).astype(np.uint8)
        self.loss.append(
            (float(pixel_loss(ops.convert_to_tensor(truth), ops.convert_to_tensor(predicted))), len(truth))
        )
        for found, mask in zip(answer, truth):
            judged = mask < classes
            matrix = confusion(mask[judged], found[judged], classes)
            self.matrix += matrix
            self.scores.append((mean_iou(matrix), float(np.trace(matrix) / max(1, matrix.sum()))))
        self.masks += list(answer)

    def metrics(self) -> dict[str, float]:
        count = sum(number for _, number in self.loss)
        return {
            "loss": sum(loss * number for loss, number in self.loss) / count,
            "accuracy": float(np.trace(self.matrix) / max(1, self.matrix.sum())),
            "iou": mean_iou(self.matrix),
        }

    def write(self, folder: Path, part: Part) -> None:
        classes = self.data.classes
        write_rows(
            folder / "predictions.csv",
            ["path", "iou", "accuracy"],
            ([name, f"{iou:.6g}", f"{accuracy:.6g}"] for name, (iou, accuracy) in zip(part.names, self.scores)),
        )
        rows = zip(classes, self.matrix.tolist())
        write_rows(folder / "confusion.csv", ["label", *classes], ([name, *row] for name, row in rows))
        about = by_class(self.matrix, classes)
        for i, entry in enumerate(about):
            entry["pixels"] = entry.pop("pictures")
            union = self.matrix[i].sum() + self.matrix[:, i].sum() - self.matrix[i, i]
            entry["iou"] = self.matrix[i, i] / union if union else None
        write_json(folder / "metrics.json", {"pictures": len(self.scores)} | self.metrics() | {"classes": about})
        worst = sorted(range(len(self.scores)), key=lambda i: self.scores[i])[:KEPT]
        listed = []
        for number, i in enumerate(worst):
            mask = Image.fromarray(self.masks[i])
            replace(folder / "masks" / f"{number:02d}.png", mask.save)
            listed.append({"path": part.names[i], "iou": self.scores[i][0], "mask": f"masks/{number:02d}.png"})
        write_json(folder / "worst.json", listed)


def mean_iou(matrix: np.ndarray) -> float:
    union = matrix.sum(0) + matrix.sum(1) - np.diag(matrix)
    there = union > 0
    return float((np.diag(matrix)[there] / union[there]).mean()) if there.any() else 0.0
