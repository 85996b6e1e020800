"""Detection: boxes with a class. The truth is a map with a soft peak at each centre; answers are
the peaks of the predicted map. Measured is the average precision as COCO defines it, at an overlap
(IoU) of one half and as the mean from 0.5 to 0.95.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from .. import curves
from ..data import Data, Part, Sample
from ..files import write_json, write_rows

HIGHER_IS_BETTER = ("map50", "map50_95", "f1")
STRIDE = 4
MOST = 100  # boxes a picture
LEAST = 0.01  # confidence of what is counted at all
SHOWN = 0.3  # confidence from which a box is an answer
DRAWN = 0.05  # confidence from which a box of the worst pictures is listed
BACKGROUND = "background"  # of the confusion matrix: nothing there, or nothing found


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
    found = np.stack([kind, x1, y1, x2 - x1, y2 - y1, heat[row, column, kind]], 1).astype(np.float32)
    # A box that lies outside the image as a whole is none.
    return found[(found[:, 3] > 0) & (found[:, 4] > 0)]


class Measure:
    def __init__(self, data: Data):
        self.data = data
        self.loss: list[tuple[float, int]] = []
        self.answers: list[np.ndarray] = []
        self.matches: list[np.ndarray] = []
        self.truth: list[np.ndarray] = []

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        loss = centre_loss(ops.convert_to_tensor(truth), ops.convert_to_tensor(predicted))
        self.loss.append((float(loss), len(truth)))
        self.answers += [boxes(found) for found in predicted]

    def finish(self, part: Part) -> None:
        """The true boxes, which the maps hold only roughly."""
        self.truth = [part.read(i).boxes for i in range(len(self.answers))]
        self.matches = [curves.matched(found, truth) for found, truth in zip(self.answers, self.truth)]

    def _precision(self) -> list[np.ndarray | None]:
        """For each class the precision by overlap and recall; `None` for a class that does not occur."""
        answers, truth = np.concatenate(self.answers), np.concatenate(self.truth)
        hits = np.concatenate(self.matches, 1) >= 0
        found: list[np.ndarray | None] = []
        for i in range(len(self.data.classes)):
            mine, there = answers[:, 0] == i, int((truth[:, 0] == i).sum())
            found.append(curves.precision_at(answers[mine, 5], hits[:, mine], there) if there else None)
        return found

    def _by_class(self, precision: list[np.ndarray | None]) -> list[dict[str, Any]]:
        answers, truth = np.concatenate(self.answers), np.concatenate(self.truth)
        hits = np.concatenate(self.matches, 1)[0] >= 0
        rows = []
        for i, (name, values) in enumerate(zip(self.data.classes, precision)):
            there = int((truth[:, 0] == i).sum())
            shown = (answers[:, 0] == i) & (answers[:, 5] >= SHOWN)
            right = int(hits[shown].sum())
            rows.append(
                {
                    "class": name,
                    "boxes": there,
                    "predicted": int(shown.sum()),
                    "ap50": None if values is None else float(values[0].mean()),
                    "ap50_95": None if values is None else float(values.mean()),
                    "precision": right / int(shown.sum()) if shown.any() else None,
                    "recall": right / there if there else None,
                    "f1": 2 * right / (there + int(shown.sum())) if there + shown.sum() else None,
                }
            )
        return rows

    def _counts(self) -> dict[str, int]:
        """How many boxes there are, and how many are answers."""
        shown = sum(int((found[:, 5] >= SHOWN).sum()) for found in self.answers)
        return {"boxes": sum(map(len, self.truth)), "predicted": shown}

    def metrics(self) -> dict[str, float]:
        return self._metrics(self._by_class(self._precision()))

    def _metrics(self, rows: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in rows if row["ap50"] is not None]
        count = sum(number for _, number in self.loss)
        mean = lambda key: sum(row[key] or 0.0 for row in rows) / len(rows) if rows else 0.0  # noqa: E731
        about = {"loss": sum(loss * n for loss, n in self.loss) / count}
        return about | {"map50": mean("ap50"), "map50_95": mean("ap50_95"), "f1": mean("f1")}

    def _confusion(self) -> np.ndarray:
        """Boxes that are answers, by true and predicted class at an overlap of one half; the last is background."""
        rest = len(self.data.classes)
        matrix = np.zeros((rest + 1, rest + 1), np.int64)
        for found, truth in zip(self.answers, self.truth):
            found = found[found[:, 5] >= SHOWN]
            # Where a box is decides what it is compared with, not its class.
            at = curves.matched(found * _PLACE, truth * _PLACE[:5])[0]
            for answer, i in zip(found[:, 0].astype(int), at):
                matrix[int(truth[i, 0]) if i >= 0 else rest, answer] += 1
            for i in np.setdiff1d(np.arange(len(truth)), at):
                matrix[int(truth[i, 0]), rest] += 1
        return matrix

    def write(self, folder: Path, part: Part) -> None:
        classes = self.data.classes
        precision = self._precision()
        rows = self._by_class(precision)
        write_json(folder / "metrics.json", {"pictures": len(self.answers)} | self._counts() | self._metrics(rows) | {"classes": rows})
        recalls = [
            {"class": name, "ap": float(values[0].mean())} | curves.thinned(curves.RECALLS, values[0])
            for name, values in list(zip(classes, precision))[: curves.CLASSES]
            if values is not None
        ]
        write_json(folder / "curves.json", {"precision_recall": recalls})
        matrix = self._confusion().tolist()
        names = [*classes, BACKGROUND]
        write_rows(folder / "confusion.csv", ["label", *names], ([name, *row] for name, row in zip(names, matrix)))
        listed = [self.picture(i, part.names[i]) for i in range(len(self.answers))]
        self._write_boxes(folder, listed)
        listed.sort(key=lambda entry: -(entry["missed"] + entry["extra"]))
        drawn = lambda one: [box for box in one["boxes"] if box["score"] >= DRAWN]  # noqa: E731
        write_json(folder / "worst.json", [one | {"boxes": drawn(one)} for one in listed[:100]])

    def picture(self, i: int, name: str) -> dict[str, Any]:
        """What is in a picture, what was found there, and how much of either has no counterpart."""
        found, truth, taken = self.answers[i], self.truth[i], self.matches[i][0]
        shown = found[:, 5] >= SHOWN
        seen = set(taken[shown & (taken >= 0)].tolist())
        boxes = [_named(self.data.classes, box) | {"hit": bool(at >= 0)} for box, at in zip(found, taken)]
        there = [_named(self.data.classes, box) | {"found": at in seen} for at, box in enumerate(truth)]
        missed, extra = len(truth) - len(seen), int((shown & (taken < 0)).sum())
        return {"path": name, "missed": missed, "extra": extra, "boxes": boxes, "truth": there}

    def _write_boxes(self, folder: Path, listed: list[dict[str, Any]]) -> None:
        place = ("class", "x", "y", "width", "height")

        def lines(key: str, *columns: str) -> Any:
            return ([one["path"], *(_cell(box[c]) for c in columns)] for one in listed for box in one[key])

        # Files keep the name that this column always had.
        answer = ["path", *place, "confidence", "hit"]
        write_rows(folder / "predictions.csv", answer, lines("boxes", *place, "score", "hit"))
        write_rows(folder / "truth.csv", ["path", *place, "found"], lines("truth", *place, "found"))
        # A picture without boxes is in neither.
        columns = ["path", "missed", "extra"]
        write_rows(folder / "images.csv", columns, ([one[key] for key in columns] for one in listed))


_PLACE = np.array([0, 1, 1, 1, 1, 1], np.float32)


def _named(classes: list[str], box: np.ndarray) -> dict[str, Any]:
    keys = ("x", "y", "width", "height", "score")
    return {"class": classes[int(box[0])]} | dict(zip(keys, map(float, box[1:])))


def _cell(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else value
