"""Labels that somebody brings to a trained detector or segmenter: an evaluation set, built from them by
`lyceum dataset evaluation`, whose classes are those of the model by their names.

A class that the model does not have cannot be predicted by it. Its boxes are not scored, and its pixels not
judged; both are counted. Labels that have numbers instead of names have the model's classes in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import dataset, folder
from .data import Part, Sample
from .errors import bad_data
from .folder import Unfit


@dataclass
class Labels:
    """What is known of the pictures below a folder."""

    source: str
    root: Path
    part: Part
    classes: list[str]
    index: np.ndarray  # of the model's classes, by the labels' classes; -1 for one that it does not have
    problems: dict[str, str]  # by picture: why it is not scored
    dropped: int = 0  # boxes that cannot be used
    unknown: dict[str, int] = field(default_factory=dict)  # boxes, or pixels, of classes that the model does not have

    @property
    def reason(self) -> str | None:
        """Why nothing can be scored."""
        if (self.index >= 0).any():
            return None
        return f"none of the labels' classes ({_listed(self.classes)}) is a class of the model"

    def listed(self, pictures: list[Path]) -> list[tuple[Path, Callable[[], Sample] | None]]:
        """The labelled pictures with their truth, and other pictures; beside masks, the others are masks."""
        found: dict[Path, Callable[[], Sample] | None] = {} if self.source == "masks" else dict.fromkeys(pictures)
        found |= dict.fromkeys(self.root / name for name in self.problems)
        if self.reason is None:
            found |= {self.root / name: partial(self._sample, i) for i, name in enumerate(self.part.names)}
        else:
            found |= dict.fromkeys(self.root / name for name in self.part.names)
        return sorted(found.items())

    def why_not(self, path: Path) -> str:
        """Why a picture is not scored."""
        try:
            return self.problems.get(path.relative_to(self.root).as_posix(), self.reason or "no labels")
        except ValueError:
            return "no labels"

    def _sample(self, i: int) -> Sample:
        sample = self.part.read(i)
        if sample.boxes is not None:
            known = self.index[sample.boxes[:, 0].astype(int)]
            self._count(sample.boxes[known < 0, 0].astype(int))
            boxes = sample.boxes[known >= 0].copy()
            boxes[:, 0] = known[known >= 0]
            return sample._replace(boxes=boxes)
        assert sample.mask is not None
        from .tasks.segmentation import IGNORED

        table = np.full(256, IGNORED, np.uint8)
        table[: len(self.index)] = np.where(self.index >= 0, self.index, IGNORED)
        counts = np.bincount(sample.mask.ravel(), minlength=256)[: len(self.index)]
        for number in np.nonzero((self.index < 0) & (counts > 0))[0]:
            self._count(np.full(int(counts[number]), number))
        return sample._replace(mask=table[sample.mask])

    def _count(self, classes: np.ndarray) -> None:
        for number, count in zip(*np.unique(classes, return_counts=True)):
            name = self.classes[int(number)]
            self.unknown[name] = self.unknown.get(name, 0) + int(count)

    def summary(self, scored: int, of: int) -> dict[str, Any]:
        """What `predict` says of the labels."""
        unknown = [{"class": name, "count": count} for name, count in sorted(self.unknown.items())]
        about = {"source": self.source, "scored": scored, "unscored": of - scored, "dropped_boxes": self.dropped}
        return about | {"unknown": unknown} | ({"reason": self.reason} if self.reason else {})


def opened(path: Path, task: str, classes: list[str], shape: tuple[int, int, int]) -> Labels:
    """The labels of an evaluation set for a model of this task, with these classes and this input."""
    found = dataset.dataset({"task": task, "image": {}, "data": {"path": str(path), "memory_mb": 0}}, 1)
    if found.shape.hwc != shape:
        raise bad_data(f"{path} was built with {found.shape.hwc}, and the model's input is {shape}", "--labels")
    if "test" not in found.parts:
        raise bad_data(f"{path} has no test images; build it with `lyceum dataset evaluation`", "--labels")
    try:
        with folder.opened(path) as root:
            about = root.json("dataset.json")
        source, place, counts = about["source"]["kind"], about["source"]["root"], about["counts"]
    except (Unfit, KeyError, TypeError) as error:
        raise bad_data(f"{path}/dataset.json is damaged: {error}", "--labels") from None
    index = np.array([_place(name, i, found.classes, classes) for i, name in enumerate(found.classes)], np.int64)
    problems = dict(found.problems)
    return Labels(source, Path(place), found.parts["test"], found.classes, index, problems, counts["broken_boxes"])


def _place(name: str, number: int, all_of_them: list[str], classes: list[str]) -> int:
    if name in classes:
        return classes.index(name)
    is_numbered = all(one == str(i) for i, one in enumerate(all_of_them))
    return number if is_numbered and number < len(classes) else -1


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
