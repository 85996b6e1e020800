"""Runs a model over a split and measures it; one way for validation, test and for afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import own, tasks
from .data import Data
from .loader import in_order


def measured(
    model: Any,
    data: Data,
    split: str,
    batch_size: int,
    threads: int,
    poll: Callable[[], None] = lambda: None,
    of_file: own.Own | None = None,
) -> Any:
    """The task's `Measure` after all pictures of the split; `poll` is called between batches. The loss and the
    metrics of the network's own file are among its metrics."""
    task, part = tasks.of(data.task), data.parts[split]
    measure, score = task.Measure(data), own.Score(of_file or own.Own())
    for images, truth, count in in_order(part, lambda samples: task.targets(samples, data), batch_size, threads):
        predicted = np.asarray(model.predict_on_batch(images))[:count]
        measure.take(predicted, truth[:count])
        score.take(predicted, truth[:count])
        poll()
    if hasattr(measure, "finish"):
        measure.finish(part)
    of_task, found = measure.metrics, score.result()
    measure.metrics = lambda: of_task() | found
    return measure


def written(
    model: Any,
    data: Data,
    folder: Path,
    batch_size: int,
    threads: int,
    poll: Callable[[], None] = lambda: None,
    of_file: own.Own | None = None,
) -> dict[str, Any]:
    """Every split that was not trained on, in a folder of its name below `folder`; the metrics by split."""
    found = {}
    for split in data.evaluated:
        measure = measured(model, data, split, batch_size, threads, poll, of_file)
        measure.write(folder / split, data.parts[split])
        found[split] = measure.metrics()
    return found
