"""Detection: boxes with a class. The truth is a map with a soft peak at each centre; answers are
the peaks of the predicted map. Measured is the average precision at an overlap (IoU) of one half.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from ..data import Data, Part, Sample
from ..files import write_json, write_rows

HIGHER_IS_BETTER = ("map50", "f1")
STRIDE = 4
MOST = 100  # boxes a picture
LEAST = 0.01  # confidence of what is counted at all
SHOWN = 0.3  # confidence from which a box is an answer


@keras.saving.register_keras_serializable("lyceum")
def centre_loss(truth: Any, found: Any) -> Any:
    """Focal loss for the peaks, and the distance of place and size where there is a centre."""
    classes = found.shape[-1] - 4
    heat, box, centre = truth[..., :classes], truth[..., classes : classes + 4], truth[..., classes + 4 :]
    seen = ops.clip(found[..., :classes], 1e-5, 1.0 - 1e-5)
    peak = ops.cast(heat >= 0.999, found.dtype)
    right = peak * ops.square(1.0 - seen) * ops.log(seen)
    wrong = (1.0 - peak) * ops.power(1.0 - heat, 4.0) * ops.square(seen) * ops.log(1.0 - seen)
    count = ops.maximum(ops.sum(peak), 1.0)
    apart = ops.sum(ops.abs(found[..., classes:] - box) * centre) / ops.maximum(ops.sum(centre), 1.0)
    return -ops.sum(right + wrong) / count + apart


COMPILE: dict[str, Any] = {"loss": centre_loss, "metrics": []}


def targets(samples: list[Sample], data: Data) -> np.ndarray:
    """For each cell: peaks by class; place in the cell and logarithm of the size in cells; whether that counts."""
    rows, columns, classes = data.shape.height // STRIDE, data.shape.width // STRIDE, len(data.classes)
    maps = np.zeros((len(samples), rows, columns, classes + 5), np.float32)
    y, x = np.mgrid[:rows, :columns]
    for grid, sample in zip(maps, samples):
        for kind, left, top, width, height in sample.boxes:
            if width <= 0 or height <= 0:
                continue
            cx, cy = (left + width / 2) / STRIDE, (top + height / 2) / STRIDE
            column, row = min(columns - 1, int(cx)), min(rows - 1, int(cy))
            sx, sy = max(0.6, width / STRIDE / 8), max(0.6, height / STRIDE / 8)
            peak = np.exp(-(((x - column) / sx) ** 2 + ((y - row) / sy) ** 2) / 2)
            grid[..., int(kind)] = np.maximum(grid[..., int(kind)], peak)
            # The neighbours learn the box too: a peak one cell off is then no loss.
            near = (abs(x - column) <= 1) & (abs(y - row) <= 1)
            grid[near, classes] = (cx - x)[near]
            grid[near, classes + 1] = (cy - y)[near]
            grid[near, classes + 2] = math.log(width / STRIDE)
            grid[near, classes + 3] = math.log(height / STRIDE)
            grid[near, classes + 4] = 1.0
    return maps


def boxes(found: np.ndarray) -> np.ndarray:
    """The boxes of one predicted map, best first: class, x, y, width, height in pixels, confidence."""
    rows, columns = found.shape[:2]
    classes = found.shape[-1] - 4
    heat = found[..., :classes]
    padded = np.pad(heat, ((1, 1), (1, 1), (0, 0)), constant_values=-1)
    highest = np.max([padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)], axis=0)
    row, column, kind = np.nonzero((heat >= highest) & (heat >= LEAST))
    best = np.argsort(-heat[row, column, kind], kind="stable")[:MOST]
    row, column, kind = row[best], column[best], kind[best]
    dx, dy, log_w, log_h = found[row, column, classes:].T
    width, height = (np.exp(np.clip(size, -4, 8)) * STRIDE for size in (log_w, log_h))
    left, top = (column + dx) * STRIDE - width / 2, (row + dy) * STRIDE - height / 2
    x1, y1 = left.clip(0, columns * STRIDE), top.clip(0, rows * STRIDE)
    x2, y2 = (left + width).clip(0, columns * STRIDE), (top + height).clip(0, rows * STRIDE)
    return np.stack([kind, x1, y1, x2 - x1, y2 - y1, heat[row, column, kind]], 1).astype(np.float32)


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of each of the boxes x, y, width, height with each."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[None, :, :2] + b[None, :, 2:])
    shared = np.prod((high - low).clip(0), -1)
    return shared / np.maximum(np.prod(a[:, 2:], -1)[:, None] + np.prod(b[:, 2:], -1)[None] - shared, 1e-9)


def matched(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Which answers, best first, hit a true box of their class that no better answer has taken."""
    hit, taken = np.zeros(len(answers), bool), np.zeros(len(truth), bool)
    if len(truth) == 0:
        return hit
    ious = overlap(answers[:, 1:5], truth[:, 1:5])
    for i in range(len(answers)):
        fits = np.where(taken | (truth[:, 0] != answers[i, 0]), 0.0, ious[i])
        best = int(fits.argmax())
        if fits[best] >= 0.5:
            hit[i] = taken[best] = True
    return hit


def average_precision(confidence: np.ndarray, hit: np.ndarray, there: int) -> float:
    """The area under precision over recall, with precision made monotonic, at every point."""
    best = np.argsort(-confidence, kind="stable")
    right = np.cumsum(hit[best])
    precision = right / np.arange(1, len(best) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float((precision * hit[best]).sum() / there)


class Measure:
    def __init__(self, data: Data):
        self.data = data
        self.loss: list[tuple[float, int]] = []
        self.answers: list[np.ndarray] = []
        self.hits: list[np.ndarray] = []
        self.truth: list[np.ndarray] = []

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        loss = centre_loss(ops.convert_to_tensor(truth), ops.convert_to_tensor(predicted))
        self.loss.append((float(loss), len(truth)))
        self.answers += [boxes(found) for found in predicted]

    def finish(self, part: Part) -> None:
        """The true boxes, which the maps hold only roughly."""
        self.truth = [part.read(i).boxes for i in range(len(self.answers))]
        self.hits = [matched(found, truth) for found, truth in zip(self.answers, self.truth)]

    def _by_class(self) -> list[dict[str, Any]]:
        answers, truth = np.concatenate(self.answers), np.concatenate(self.truth)
        hits = np.concatenate(self.hits)
        rows = []
        for i, name in enumerate(self.data.classes):
            mine, there = answers[:, 0] == i, int((truth[:, 0] == i).sum())
            shown = mine & (answers[:, 5] >= SHOWN)
            right = int(hits[shown].sum())
            rows.append(
                {
                    "class": name,
                    "boxes": there,
                    "ap50": average_precision(answers[mine, 5], hits[mine], there) if there else None,
                    "precision": right / int(shown.sum()) if shown.any() else None,
                    "recall": right / there if there else None,
                    "f1": 2 * right / (there + int(shown.sum())) if there + shown.sum() else None,
                }
            )
        return rows

    def metrics(self) -> dict[str, float]:
        rows = [row for row in self._by_class() if row["ap50"] is not None]
        count = sum(number for _, number in self.loss)
        mean = lambda key: sum(row[key] or 0.0 for row in rows) / len(rows) if rows else 0.0  # noqa: E731
        return {"loss": sum(loss * n for loss, n in self.loss) / count, "map50": mean("ap50"), "f1": mean("f1")}

    def write(self, folder: Path, part: Part) -> None:
        classes = self.data.classes
        write_rows(
            folder / "predictions.csv",
            ["path", "class", "x", "y", "width", "height", "confidence", "hit"],
            (
                [part.names[i], classes[int(box[0])], *(f"{v:.6g}" for v in box[1:]), int(hit)]
                for i, (found, hits) in enumerate(zip(self.answers, self.hits))
                for box, hit in zip(found, hits)
            ),
        )
        write_json(
            folder / "metrics.json", {"pictures": len(self.answers)} | self.metrics() | {"classes": self._by_class()}
        )
        listed = []
        for i, (found, hits, truth) in enumerate(zip(self.answers, self.hits, self.truth)):
            shown = found[:, 5] >= SHOWN
            missed, extra = len(truth) - int(hits[shown].sum()), int((~hits[shown]).sum())
            listed.append({"path": part.names[i], "missed": missed, "extra": extra})
        listed.sort(key=lambda entry: -(entry["missed"] + entry["extra"]))
        write_json(folder / "worst.json", listed[:100])
