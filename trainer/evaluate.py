"""Runs a model over a split and measures it; one way for validation, test and for afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import tasks
from .data import Data
from .loader import in_order


def measured(
    model: Any, data: Data, split: str, batch_size: int, threads: int, poll: Callable[[], None] = lambda: None
) -> Any:
    """The task's `Measure` after all pictures of the split; `poll` is called between batches."""
    task, part = tasks.of(data.task), data.parts[split]
    measure = task.Measure(data)
    for images, truth, count in in_order(part, lambda samples: task.targets(samples, data), batch_size, threads):
        measure.take(np.asarray(model.predict_on_batch(images))[:count], truth[:count])
        poll()
    if hasattr(measure, "finish"):
        measure.finish(part)
    return measure


def written(
    model: Any, data: Data, folder: Path, batch_size: int, threads: int, poll: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Every split that was not trained on, in a folder of its name below `folder`; the metrics by split."""
    found = {}
    for split in data.evaluated:
        measure = measured(model, data, split, batch_size, threads, poll)
        measure.write(folder / split, data.parts[split])
        found[split] = measure.metrics()
    return found
