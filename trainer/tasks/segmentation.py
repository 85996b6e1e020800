"""Segmentation: a class for every pixel. 255 in a mask is not judged, neither by the loss nor
by the metrics. IoU is the mean over the classes that occur.
"""

from __future__ import annotations

from collections.abc import Iterable
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
KEPT = 200  # predicted masks that are stored: the worst


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
        self.ious: list[list[float | None]] = []  # of each class by picture
        self.shares: list[np.ndarray] = []  # of each class by picture
        self.masks: dict[int, np.ndarray] = {}  # of the worst

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
            self.ious.append(ious(matrix))
            self.shares.append(np.bincount(found.ravel(), minlength=classes) / found.size)
            self.masks[len(self.scores) - 1] = found
        # All masks of a large set would not fit in memory.
        if len(self.masks) > 2 * KEPT:
            self.masks = {i: self.masks[i] for i in self._worst(self.masks)}

    def _worst(self, of: Iterable[int]) -> list[int]:
        return sorted(of, key=lambda i: (self.scores[i], i))[:KEPT]

    def metrics(self) -> dict[str, float]:
        count = sum(number for _, number in self.loss)
        return {
            "loss": sum(loss * number for loss, number in self.loss) / count,
            "accuracy": float(np.trace(self.matrix) / max(1, self.matrix.sum())),
            "iou": mean_iou(self.matrix),
        }

    def write(self, folder: Path, part: Part) -> None:
        classes = self.data.classes
        worst, shares = self._worst(self.masks), self.shares
        names = {i: f"masks/{number:03d}.png" for number, i in enumerate(worst)}
        for i, name in names.items():
            replace(folder / name, Image.fromarray(self.masks[i]).save)
        write_rows(
            folder / "predictions.csv",
            ["path", "iou", "accuracy", "mask", *(f"share_{name}" for name in classes), *(f"iou_{name}" for name in classes)],
            (
                [part.names[i], f"{iou:.6g}", f"{accuracy:.6g}", names.get(i, "")]
                + [f"{share:.6g}" for share in shares[i]]
                + ["" if one is None else f"{one:.6g}" for one in self.ious[i]]
                for i, (iou, accuracy) in enumerate(self.scores)
            ),
        )
        rows = zip(classes, self.matrix.tolist())
        write_rows(folder / "confusion.csv", ["label", *classes], ([name, *row] for name, row in rows))
        about = by_class(self.matrix, classes)
        for entry, iou in zip(about, ious(self.matrix)):
            entry["pixels"] = entry.pop("pictures")
            entry["iou"] = iou
        write_json(folder / "metrics.json", {"pictures": len(self.scores)} | self.metrics() | {"classes": about})
        listed = []
        for i in worst[:100]:
            parts = [
                {"class": name, "share": float(share), "iou": iou}
                for name, share, iou in zip(classes, shares[i], self.ious[i])
            ]
            iou, accuracy = self.scores[i]
            listed.append({"path": part.names[i], "iou": iou, "accuracy": accuracy, "mask": names[i], "classes": parts})
        write_json(folder / "worst.json", listed)


def ious(matrix: np.ndarray) -> list[float | None]:
    """The overlap of each class; `None` where it is neither there nor answered."""
    union = matrix.sum(0) + matrix.sum(1) - np.diag(matrix)
    return [float(right / all_of_it) if all_of_it else None for right, all_of_it in zip(np.diag(matrix), union)]


def mean_iou(matrix: np.ndarray) -> float:
    there = [iou for iou in ious(matrix) if iou is not None]
    return float(np.mean(there)) if there else 0.0
