"""Batches, made by threads while the network computes.

The order of an epoch depends on the seed and the epoch alone, and what happens to a picture on
the seed, the epoch and the picture; so the loader can begin anywhere, and resuming is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from .augment import augment, is_on, stream
from .data import Part, Sample, still_there
from .pixels import Broken

# A batch: pictures, what the task makes of the truth, and how many of them count. Pictures that nothing has changed
# stay 8-bit: a quarter of the bytes go to the GPU, and the network's input makes float32 of them there.
Batch = tuple[np.ndarray, np.ndarray, int]
Targets = Callable[[list[Sample]], np.ndarray]


def order(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, 3, epoch]).permutation(count)


def steps_per_epoch(count: int, batch_size: int) -> int:
    """What does not fill a batch is left for an epoch with another order."""
    return max(1, count // batch_size)


def training(
    part: Part,
    targets: Targets,
    batch_size: int,
    seed: int,
    epoch: int,
    rules: dict[str, Any],
    threads: int,
    begin: int = 0,
    share: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
) -> Iterator[Batch]:
    """The batches of one epoch from batch `begin` on; of each the part that `share` takes."""
    rows = order(len(part), seed, epoch)
    if len(rows) < batch_size:  # a small set fills its one batch with some of itself again
        rows = np.resize(rows, batch_size)
    numbers = range(begin, steps_per_epoch(len(rows), batch_size))
    chunks = [share(rows[i * batch_size : (i + 1) * batch_size]) for i in numbers]
    augments = is_on(rules)

    def sample(index: int) -> Sample:
        found = _read(part, index)
        return augment(found, rules, stream(seed, epoch, index)) if augments else found

    return _made(chunks, lambda chunk: _batch(part, chunk, sample, targets, augments), threads)


def in_order(part: Part, targets: Targets, batch_size: int, threads: int) -> Iterator[Batch]:
    """Every picture once. The last batch is filled up, so that all have one shape."""
    count = len(part)
    chunks = [np.minimum(np.arange(i, i + batch_size), count - 1) for i in range(0, count, batch_size)]
    for number, (images, truth, _) in enumerate(
        _made(chunks, lambda chunk: _batch(part, chunk, lambda i: _read(part, i), targets, False), threads)
    ):
        yield images, truth, min(batch_size, count - number * batch_size)


def _read(part: Part, index: int) -> Sample:
    try:
        return part.read(index)
    except Broken as broken:
        raise still_there(part.names[index], broken) from None


def _batch(part: Part, rows: np.ndarray, sample: Callable[[int], Sample], targets: Targets, augments: bool) -> Batch:
    if part.array is not None and part.labels is not None and not augments:
        return part.array[rows], part.labels[rows].astype(np.int32), len(rows)
    samples = [sample(int(i)) for i in rows]
    images = np.stack([found.image for found in samples])
    return images if images.dtype == np.uint8 else images.astype(np.float32), targets(samples), len(rows)


def _made(chunks: list[np.ndarray], make: Callable[[np.ndarray], Batch], threads: int) -> Iterator[Batch]:
    """Made ahead by as many threads as may be, handed out in order."""
    with ThreadPoolExecutor(max(1, threads), "loader") as pool:
        waiting: deque[Future[Batch]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(make, chunk))
                if len(waiting) > threads + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
