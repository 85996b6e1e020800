"""The pictures of a training: splits of samples that are read when they are needed.

A sample is 8-bit pixels with what is to be learnt of it: a class, a mask, or boxes. Where the
samples come from is told in sources.py; the order, batches and threads are the loader's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .errors import bad_data
from .pixels import Broken, Shape

SPLITS = ("train", "val", "test")


class Sample(NamedTuple):
    """One picture, uint8 H×W×C, and one of the three kinds of truth."""

    image: np.ndarray
    label: int = -1
    mask: np.ndarray | None = None  # uint8 H×W, 255 is not judged
    boxes: np.ndarray | None = None  # float32 N×5: class, x, y, width, height in pixels


@dataclass(frozen=True)
class Rows:
    """Some of an array's pictures, which stay where they are until they are asked for."""

    images: np.ndarray
    at: np.ndarray

    def __getitem__(self, i: int | np.ndarray) -> np.ndarray:
        return self.images[self.at[i]]


@dataclass
class Part:
    """One split."""

    names: Sequence[str]
    read: Callable[[int], Sample]
    labels: np.ndarray | None = None  # int32, classification
    array: np.ndarray | Rows | None = None  # uint8 N×H×W×C where the pixels lie together

    def __len__(self) -> int:
        return len(self.names)


@dataclass
class Data:
    task: str
    classes: list[str]
    shape: Shape
    parts: dict[str, Part]
    source: str = ""
    mean: list[float] | None = None  # by channel, of 0..255
    deviation: list[float] | None = None
    problems: list[tuple[str, str]] = field(default_factory=list)  # name, reason
    fingerprint: str = ""  # of the manifest, where there is one
    target: Callable[[Sample], np.ndarray] | None = None  # regression, reconstruction: what is to be predicted

    @property
    def evaluated(self) -> list[str]:
        return [split for split in SPLITS[1:] if split in self.parts]


def checked(data: Data) -> Data:
    """The same, or why nothing can be learnt from it."""
    train = data.parts.get("train")
    broken = (
        f"; {len(data.problems)} files could not be used, the first is {': '.join(data.problems[0])}" if data.problems else ""
    )
    if train is None or len(train) == 0:
        raise bad_data(f"there are no images for training{broken}", "data")
    if data.task == "classification":
        present = np.unique(train.labels)
        if len(data.classes) < 2:
            raise bad_data(f"there is only one class, {data.classes[0]!r}; at least two are required{broken}", "data")
        if len(present) < 2:
            name = data.classes[int(present[0])]
            raise bad_data(f"all training images belong to one class, {name!r}{broken}", "data")
    if not data.evaluated:
        raise bad_data(f"there are no images for validation{broken}", "data.validation_percent")
    if data.mean is None:
        data.mean, data.deviation = statistics(train)
    return data


def statistics(part: Part, most: int = 4000) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel over up to `most` evenly spaced pictures."""
    at = np.unique(np.linspace(0, len(part) - 1, min(most, len(part))).astype(int))
    total = square = 0.0
    count = 0
    for i in at:
        pixels = (part.array[i] if part.array is not None else part.read(int(i)).image).astype(np.float64)
        total = total + pixels.sum((0, 1))
        square = square + (pixels**2).sum((0, 1))
        count += pixels.shape[0] * pixels.shape[1]
    mean = total / count
    deviation = np.sqrt(np.maximum(square / count - mean**2, 0.0))
    # A channel that never changes has nothing to be divided by.
    return mean.tolist(), np.where(deviation < 1e-3, 1.0, deviation).tolist()


def stratified(labels: np.ndarray, seed: int, validation: float, test: float) -> dict[str, np.ndarray]:
    """Indices by split; each class is shared out alike. The same seed gives the same split."""
    rng = np.random.default_rng([seed, 0])
    taken: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        count = len(members)
        n_test = round(count * test / 100)
        n_val = round(count * validation / 100)
        if count >= 2 and validation > 0:
            n_val = max(1, n_val)  # a class without a picture in validation would not be judged
        n_val = min(n_val, max(0, count - n_test - 1))
        taken["test"].append(members[:n_test])
        taken["val"].append(members[n_test : n_test + n_val])
        taken["train"].append(members[n_test + n_val :])
    nothing = np.zeros(0, np.int64)
    return {split: np.sort(np.concatenate([nothing, *lists])) for split, lists in taken.items()}


def limited(part: Part, limit: int | None, seed: int) -> Part:
    """At most `limit` of them, drawn with the seed."""
    if limit is None or len(part) <= limit:
        return part
    return chosen(part, np.sort(np.random.default_rng([seed, 1]).permutation(len(part))[:limit]))


def chosen(part: Part, rows: np.ndarray) -> Part:
    names = [part.names[i] for i in rows]
    labels = None if part.labels is None else part.labels[rows]
    if part.array is not None:
        array = part.array[rows]
        if labels is not None:
            return arrays(names, array, labels)
        return Part(names, lambda i: part.read(int(rows[i])), None, array)
    return Part(names, lambda i: part.read(int(rows[i])), labels)


def arrays(names: Sequence[str], images: np.ndarray | Rows, labels: np.ndarray) -> Part:
    """Pictures with a class each that lie in one array."""
    return Part(names, lambda i: Sample(images[i], int(labels[i])), labels, images)


def decoded(
    names: list[str], labels: np.ndarray, read: Callable[[int], np.ndarray], shape: Shape, memory_mb: int, threads: int
) -> tuple[Part, list[tuple[str, str]]]:
    """Opens every file once, so that what is broken is known before the start, and keeps the
    pixels if they fit in memory."""
    size = int(np.prod(shape.hwc))
    keep = len(names) * size <= memory_mb << 20
    pixels = np.empty((len(names), *shape.hwc), np.uint8) if keep else None

    def one(i: int) -> str | None:
        try:
            image = read(i)
        except Broken as broken:
            return str(broken)
        if pixels is not None:
            pixels[i] = image
        return None

    with ThreadPoolExecutor(threads) as pool:
        reasons = list(pool.map(one, range(len(names)), chunksize=16))
    problems = [(names[i], reason) for i, reason in enumerate(reasons) if reason]
    good = np.array([i for i, reason in enumerate(reasons) if not reason], np.int64)
    names, labels = [names[i] for i in good], labels[good]
    if pixels is not None:
        return arrays(names, pixels if len(good) == len(pixels) else pixels[good], labels), problems
    return Part(names, lambda i: Sample(read(int(good[i])), int(labels[i])), labels), problems


def still_there(name: str, broken: Broken) -> Exception:
    """A file that could be read before the start, and now cannot."""
    return bad_data(f"{name} {broken}; it was readable when the training started", "data")


def name_of(path: str | os.PathLike[str]) -> str:
    """A path as text that can be written to a file, whatever bytes it has."""
    return os.fspath(path).encode("utf-8", "replace").decode("utf-8")
