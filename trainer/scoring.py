"""Scores answers on pictures whose truth is known, by the measure that evaluates a training's validation
images, and says of each answer how it compares with the truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import files, tasks
from .data import Data, Part, Sample
from .pixels import Image

TASKS = ("classification", "detection", "segmentation")
TRUE_BOXES = 100  # of a picture that are listed; all are scored


class Scored:
    """Answers with their truth, picture by picture."""

    def __init__(self, data: Data):
        self.data = data
        self.task = tasks.of(data.task)
        self.measure = self.task.Measure(data)
        self.answers: list[dict[str, Any]] = []
        self.truth: list[Sample] = []

    @property
    def count(self) -> int:
        return len(self.answers)

    def take(self, answers: list[dict[str, Any]], truth: list[Any], found: np.ndarray, output: Path | None) -> None:
        """The answers of a batch with their truth; true masks are drawn below `output`, beside the predicted ones."""
        if not answers:
            return
        self.measure.take(found, self.task.targets(truth, self.data))
        for answer, sample in zip(answers, truth):
            if sample.mask is not None and output is not None:
                answer["truth"] = answer["mask"].replace("mask", "truth")
                files.replace(output / answer["truth"], Image.fromarray(sample.mask).save)
            # Neither pixels nor masks are needed any more.
            self.truth.append(Sample(np.empty(0), sample.label, None, sample.boxes))
        self.answers += answers

    def written(self, output: Path | None, least: float | None) -> dict[str, Any] | None:
        """The metrics; and below `output` the files that the evaluation of a training has. Boxes with a lower score
        than `least` are scored, but not listed."""
        if not self.answers:
            return None
        part = Part([answer["path"] for answer in self.answers], self.truth.__getitem__)
        if hasattr(self.measure, "finish"):
            self.measure.finish(part)
        for i, answer in enumerate(self.answers):
            answer |= self._compared(i, answer["path"], least)
        if output is not None:
            self.measure.write(output / "evaluation", part)
        return {"pictures": self.count} | self.measure.metrics()

    def _compared(self, i: int, name: str, least: float | None) -> dict[str, Any]:
        if self.data.task == "detection":
            picture = self.measure.picture(i, name)
            lowest = self.task.SHOWN if least is None else least
            boxes = [_short(box) for box in picture["boxes"] if box["score"] >= lowest]
            truth = [_short(box) for box in picture["truth"][:TRUE_BOXES]]
            return {"missed": picture["missed"], "extra": picture["extra"], "boxes": boxes, "truth": truth}
        if self.data.task == "segmentation":
            iou, accuracy = self.measure.scores[i]
            return {"iou": iou, "accuracy": accuracy}
        return {}


def _short(box: dict[str, Any]) -> dict[str, Any]:
    """Of thousands of pictures there are many: hundredths of a pixel are enough to draw them."""
    return {key: round(value, 4 if key == "score" else 2) if isinstance(value, float) else value for key, value in box.items()}
