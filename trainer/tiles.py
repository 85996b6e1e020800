"""Draws the values of a layer: maps and filters side by side, each over its own range, and matrices as
they are. A picture is bounded in size, so that of large layers the first part is shown; how much that is
is said with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from PIL import Image

MAPS = 64  # maps or filters of a layer that are drawn at most
SIDE = 8  # filters, and channels of each, where both are many
MATRIX = 256  # rows and columns of a matrix that are drawn at most
PIXELS = 640  # longest side of a picture that is enlarged


class Sheet(NamedTuple):
    """A picture, and how much of a layer it shows: pairs of shown and all, by what they count."""

    image: Image.Image
    shown: dict[str, Any]


def of_activations(value: np.ndarray) -> Sheet | None:
    """Maps of a layer that knows places, else its values as a matrix, a vector folded to a square."""
    if value.size == 0:
        return None
    if value.ndim == 3:
        count = value.shape[-1]
        return Sheet(tiled(np.moveaxis(value, -1, 0)[:MAPS]), {"maps": [min(count, MAPS), count]})
    if value.ndim == 1:
        shown = min(value.size, MATRIX * MATRIX)
        side = int(np.ceil(np.sqrt(shown)))
        folded = np.full(-(-shown // side) * side, value[:shown].min(), value.dtype)
        folded[:shown] = value[:shown]
        return Sheet(_large(_grey(folded.reshape(-1, side))), {"values": [shown, value.size]})
    return _matrix(value) if value.ndim > 1 else None


def of_weights(value: np.ndarray) -> Sheet | None:
    """Filters of a convolution, in colour where their input is; other matrices as they are. A vector has none."""
    if value.ndim < 2 or value.size == 0:
        return None
    if value.ndim != 4 or max(value.shape[:2]) == 1:
        # A filter of one pixel mixes channels, as a dense layer does.
        return _matrix(value.reshape(value.shape[-2], value.shape[-1]) if value.ndim == 4 else value)
    _, _, channels, filters = value.shape
    if channels == 3:
        coloured = np.moveaxis(value, -1, 0)[:MAPS]
        return Sheet(tiled(coloured), {"filters": [len(coloured), filters], "channels": [3, 3]})
    if channels == 1 or filters == 1:
        # One channel each, as in grey images and in depthwise convolutions.
        single = np.moveaxis(value.reshape(*value.shape[:2], -1), -1, 0)[:MAPS]
        of = "filters" if channels == 1 else "channels"
        return Sheet(tiled(single), {of: [len(single), max(channels, filters)]})
    part = value[:, :, :SIDE, :SIDE]
    rows = part.transpose(3, 2, 0, 1).reshape(-1, *value.shape[:2])
    shown = {"filters": [part.shape[3], filters], "channels": [part.shape[2], channels]}
    return Sheet(tiled(rows, columns=part.shape[2]), shown)


def tiled(maps: np.ndarray, columns: int | None = None) -> Image.Image:
    """Pictures side by side, each over its own range: count × height × width, or × 3 for colours."""
    count, height, width = maps.shape[:3]
    columns = columns or int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    sheet = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1, *maps.shape[3:]), np.uint8)
    for i, one in enumerate(maps):
        y, x = i // columns * (height + 1), i % columns * (width + 1)
        sheet[y : y + height, x : x + width] = _grey(one)
    return _large(sheet)


def _matrix(value: np.ndarray) -> Sheet:
    flat = value.reshape(value.shape[0], -1)
    part = flat[:MATRIX, :MATRIX]
    shown = {"rows": [part.shape[0], flat.shape[0]], "columns": [part.shape[1], flat.shape[1]]}
    return Sheet(_large(_grey(part)), shown)


def _grey(values: np.ndarray) -> np.ndarray:
    """From black, the least, to white, the greatest; what is not finite is black."""
    values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    least, greatest = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    if greatest <= least:
        return np.zeros(values.shape, np.uint8)
    return (255 * np.where(finite, values - least, 0.0) / (greatest - least)).astype(np.uint8)


def _large(sheet: np.ndarray) -> Image.Image:
    height, width = sheet.shape[:2]
    scale = max(1, PIXELS // max(height, width))
    image = Image.fromarray(sheet).resize((width * scale, height * scale), Image.Resampling.NEAREST)
    # Large maps side by side are more than a page has room for.
    most = 2 * PIXELS
    if max(image.size) > most:
        image.thumbnail((most, most), Image.Resampling.BILINEAR)
    return image
