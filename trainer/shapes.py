"""Generated pictures: circles, squares and triangles on noise, with labels, masks and boxes.

Nothing is downloaded, the truth is exact, and the same seed draws the same pictures.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from .data import Sample

KINDS = ("circle", "square", "triangle")


def sample(seed: int, index: int, task: str, height: int, width: int, channels: int) -> Sample:
    """Picture `index`: one shape for classification, one to three apart from each other otherwise."""
    rng = np.random.default_rng([seed, 7, index])
    base = rng.integers(20, 110, channels)
    canvas = np.clip(base + rng.normal(0, 12, (height, width, channels)), 0, 255)
    mask = np.zeros((height, width), np.uint8)
    boxes: list[tuple[float, ...]] = []
    short = min(height, width)
    wanted = 1 if task == "classification" else int(rng.integers(1, 4))
    first = index % len(KINDS)  # every kind comes equally often
    for _ in range(20 * wanted):
        if len(boxes) == wanted:
            break
        side = int(rng.integers(max(6, round(short * 0.22)), max(7, round(short * 0.42)) + 1))
        x, y = int(rng.integers(1, width - side)), int(rng.integers(1, height - side))
        if any(
            x < bx + bw + 2 and bx < x + side + 2 and y < by + bh + 2 and by < y + side + 2
            for _, bx, by, bw, bh in boxes
        ):
            continue
        kind = first if not boxes else int(rng.integers(len(KINDS)))
        inside = _stencil(kind, side, height, width, x, y)
        colour = np.clip(base + rng.integers(60, 140, channels), 0, 255)
        canvas[inside] = np.clip(colour + rng.normal(0, 8, (int(inside.sum()), channels)), 0, 255)
        mask[inside] = kind + 1
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        left, top = float(columns[0]), float(rows[0])
        boxes.append((float(kind), left, top, columns[-1] + 1 - left, rows[-1] + 1 - top))
    image = canvas.astype(np.uint8)
    match task:
        case "classification":
            return Sample(image, label=int(boxes[0][0]))
        case "segmentation":
            return Sample(image, mask=mask)
        case _:
            return Sample(image, boxes=np.array(boxes, np.float32).reshape(-1, 5))


def _stencil(kind: int, side: int, height: int, width: int, x: int, y: int) -> np.ndarray:
    stencil = Image.new("1", (width, height))
    draw = ImageDraw.Draw(stencil)
    corner = (x + side - 1, y + side - 1)
    match KINDS[kind]:
        case "circle":
            draw.ellipse([(x, y), corner], fill=1)
        case "square":
            draw.rectangle([(x, y), corner], fill=1)
        case _:
            draw.polygon([(x + side // 2, y), (x, corner[1]), corner], fill=1)
    return np.asarray(stencil, bool)
