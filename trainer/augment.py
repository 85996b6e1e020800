"""What is done to training pictures at random, with NumPy and Pillow alone.

One sample and one random stream give one result, whatever thread computes it and in whatever
order: a training that is resumed sees what an uninterrupted one would have seen. Masks and
boxes follow their picture.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from PIL import Image

from .data import Sample


def is_on(rules: dict[str, Any]) -> bool:
    return any(rules.values())


def stream(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random numbers of one sample in one epoch."""
    return np.random.Generator(np.random.SFC64([seed, 11, epoch, index]))


def augment(sample: Sample, rules: dict[str, Any], rng: np.random.Generator) -> Sample:
    sample = _flipped(sample, rules, rng)
    if rules["shift"] or rules["rotate"] or rules["zoom"]:
        sample = _moved(sample, rules, rng)
    return sample._replace(image=_recoloured(sample.image, rules, rng))


def _flipped(sample: Sample, rules: dict[str, Any], rng: np.random.Generator) -> Sample:
    height, width = sample.image.shape[:2]
    image, mask, boxes = sample.image, sample.mask, sample.boxes
    if rules["flip_horizontal"] and rng.random() < 0.5:
        image = image[:, ::-1]
        mask = None if mask is None else mask[:, ::-1]
        if boxes is not None:
            boxes = boxes.copy()
            boxes[:, 1] = width - boxes[:, 1] - boxes[:, 3]
    if rules["flip_vertical"] and rng.random() < 0.5:
        image = image[::-1]
        mask = None if mask is None else mask[::-1]
        if boxes is not None:
            boxes = boxes.copy()
            boxes[:, 2] = height - boxes[:, 2] - boxes[:, 4]
    return sample._replace(image=image, mask=mask, boxes=boxes)


def _moved(sample: Sample, rules: dict[str, Any], rng: np.random.Generator) -> Sample:
    """Shift, turn and zoom in one resampling, so that nothing is blurred twice. The edge is mirrored."""
    height, width = sample.image.shape[:2]
    dx, dy = rng.uniform(-1, 1, 2) * rules["shift"] * (width, height)
    angle = math.radians(rng.uniform(-1, 1) * rules["rotate"])
    zoom = 1.0 + rng.uniform(-1, 1) * rules["zoom"]
    # Pillow asks where in the source a point of the result comes from.
    cos, sin = math.cos(angle) / zoom, math.sin(angle) / zoom
    cx, cy = (width - 1) / 2, (height - 1) / 2
    x0, y0 = cx + dx, cy + dy
    pad = max(height, width) // 2
    matrix = (cos, sin, cx - cos * x0 - sin * y0 + pad, -sin, cos, cy + sin * x0 - cos * y0 + pad)

    def warp(pixels: np.ndarray, nearest: bool, mode: str) -> np.ndarray:
        edges = [(pad, pad), (pad, pad)] + [(0, 0)] * (pixels.ndim - 2)
        padded = np.pad(pixels, edges, mode=mode, **({"constant_values": 255} if mode == "constant" else {}))
        flat = padded[..., 0] if padded.ndim == 3 and padded.shape[-1] == 1 else padded
        how = Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
        # Pillow takes the middle of a pixel as its place, half a pixel on.
        a, b, c, d, e, f = matrix
        coefficients = (a, b, c + 0.5 - 0.5 * (a + b), d, e, f + 0.5 - 0.5 * (d + e))
        moved = np.asarray(
            Image.fromarray(np.ascontiguousarray(flat)).transform(
                (width, height), Image.Transform.AFFINE, coefficients, how
            )
        )
        return moved.reshape(height, width, *pixels.shape[2:])

    boxes = sample.boxes
    if boxes is not None:  # never turned: the configuration refuses that
        boxes = boxes.copy()
        corners = np.stack([boxes[:, 1], boxes[:, 2], boxes[:, 1] + boxes[:, 3], boxes[:, 2] + boxes[:, 4]], 1)
        centre = np.array([cx + 0.5, cy + 0.5] * 2)
        corners = (corners - centre) * zoom + centre + np.array([dx, dy] * 2)
        area = boxes[:, 3] * boxes[:, 4] * zoom**2
        corners[:, [0, 2]] = corners[:, [0, 2]].clip(0, width)
        corners[:, [1, 3]] = corners[:, [1, 3]].clip(0, height)
        boxes[:, 1:3] = corners[:, :2]
        boxes[:, 3:] = corners[:, 2:] - corners[:, :2]
        # What is left of an object must be enough to recognise it.
        boxes = boxes[boxes[:, 3] * boxes[:, 4] >= 0.4 * area]
    return sample._replace(
        # Mirrored edges would show objects that have no box.
        image=warp(sample.image, False, "reflect" if boxes is None and min(height, width) > pad else "edge"),
        mask=None if sample.mask is None else warp(sample.mask, True, "constant"),
        boxes=boxes,
    )


def _recoloured(image: np.ndarray, rules: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    if not any(rules[key] for key in ("brightness", "contrast", "saturation", "hue", "noise", "erase")):
        return image
    pixels = image.astype(np.float32)
    if rules["contrast"]:
        middle = pixels.mean()
        pixels = (pixels - middle) * (1 + rng.uniform(-1, 1) * rules["contrast"]) + middle
    if rules["brightness"]:
        pixels += rng.uniform(-1, 1) * rules["brightness"] * 255
    if image.shape[-1] == 3 and (rules["saturation"] or rules["hue"]):
        # In luma and two colour differences: saturation is their length, hue their angle.
        luma = pixels @ np.array([0.299, 0.587, 0.114], np.float32)
        u, v = (pixels[..., 2] - luma) * 0.493, (pixels[..., 0] - luma) * 0.877
        length = 1 + rng.uniform(-1, 1) * rules["saturation"]
        angle = 2 * math.pi * rng.uniform(-1, 1) * rules["hue"]
        u, v = (
            length * (u * math.cos(angle) - v * math.sin(angle)),
            length * (u * math.sin(angle) + v * math.cos(angle)),
        )
        red, blue = luma + v / 0.877, luma + u / 0.493
        pixels = np.stack([red, (luma - 0.299 * red - 0.114 * blue) / 0.587, blue], -1)
    if rules["noise"]:
        pixels += rng.normal(0, rules["noise"] * 255, pixels.shape).astype(np.float32)
    if rules["erase"]:
        height, width = pixels.shape[:2]
        side = max(1, round(min(height, width) * rules["erase"]))
        top, left = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
        pixels[top : top + side, left : left + side] = 127
    return pixels.clip(0, 255).astype(np.uint8)
