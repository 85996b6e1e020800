"""Eight pictures of the training split, as they are and as augmentation shows them to the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import loader, sources, threads
from .augment import augment, is_on, stream
from .data import Data, Sample
from .files import replace

COUNT = 8


def drawn(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Writes the files; says which picture is in which."""
    data = sources.load(config, threads.allowed())
    part, seed, rules = data.parts["train"], config["seed"], config["augmentation"]
    rows = loader.order(len(part), seed, 0)[:COUNT]
    listed = []
    for number, i in enumerate(rows):
        sample = part.read(int(i))
        changed = augment(sample, rules, stream(seed, 0, int(i))) if is_on(rules) else sample
        names = {"original": f"original-{number}.png", "augmented": f"augmented-{number}.png"}
        _write(folder / names["original"], sample)
        _write(folder / names["augmented"], changed)
        label = _label(sample, data)
        boxes = None if changed.boxes is None else changed.boxes
        listed.append({"path": part.names[int(i)], "label": label, "boxes": boxes} | names)
    return {"samples": listed, "augmentation": rules}


def _label(sample: Sample, data: Data) -> str | None:
    if data.task == "regression":
        assert data.target is not None
        return ", ".join(f"{value:g}" for value in data.target(sample))
    return data.classes[sample.label] if sample.label >= 0 else None


def _write(path: Path, sample: Sample) -> None:
    pixels = sample.image[..., 0] if sample.image.shape[-1] == 1 else sample.image
    replace(path, Image.fromarray(np.ascontiguousarray(pixels)).save)
