"""From a file to pixels of the size that the network sees.

Whatever a picture is stored as (16 bits, CMYK, palette, transparent, turned by EXIF), it ends
as 8 bits in one or three channels. What is no picture, or no whole one, is a `Broken` that says
why; what it means for the training is the caller's business.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

MOST_PIXELS = 200_000_000  # more is taken for a bomb
Image.MAX_IMAGE_PIXELS = MOST_PIXELS
# Others have other programs read a picture, or are seldom looked at by anybody.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
RESIZES = ("squash", "crop", "fill", "half-crop")


class Broken(Exception):
    """Why a file cannot be used, as half a sentence."""


@dataclass(frozen=True)
class Shape:
    """What a network sees: height, width, channels, and how pictures come to it."""

    height: int
    width: int
    channels: int
    resize: str = "squash"

    @property
    def hwc(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels


def read(path: Path | BinaryIO, shape: Shape) -> np.ndarray:
    """uint8, H×W×C; of a file, or of what was sent."""
    image, _ = resized(opened(path, shape.channels), shape)
    return as_array(image)


def as_array(image: Image.Image) -> np.ndarray:
    pixels = np.asarray(image, np.uint8)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def opened(path: Path | BinaryIO, channels: int) -> Image.Image:
    """The whole picture in L or RGB, upright."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with _opened(path) as source, Image.open(source, formats=FORMATS) as file:
                file.load()
                image = ImageOps.exif_transpose(file)
                return _eight_bits(image, channels)
    except UnidentifiedImageError:
        raise Broken(_what_instead(path)) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Broken(f"has more than {MOST_PIXELS} pixels") from None
    except FileNotFoundError:
        raise Broken("does not exist") from None
    except IsADirectoryError:
        raise Broken("is a folder") from None
    except PermissionError:
        raise Broken("cannot be read: permission denied") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        # Pillow's own words: "image file is truncated (12 bytes not processed)", "broken PNG file".
        raise Broken(f"cannot be decoded: {error}") from None


@contextlib.contextmanager
def _opened(path: Path | BinaryIO) -> Iterator[BinaryIO]:
    """A regular file: a pipe would be waited for."""
    if not isinstance(path, Path):
        yield path
        return
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", closefd=True) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Broken("is not a regular file")
        yield file


def _eight_bits(image: Image.Image, channels: int) -> Image.Image:
    wanted = "L" if channels == 1 else "RGB"
    if image.mode.startswith("I;16") or image.mode == "I":
        # Pillow cuts at 255; the upper byte is what a person sees.
        deep = np.asarray(image, np.int64)
        image = Image.fromarray((np.clip(deep, 0, 65535) // 257).astype(np.uint8))
    elif image.mode == "F":
        flat = np.nan_to_num(np.asarray(image, np.float32))
        top = float(flat.max(initial=0.0))
        # Shares of one, values as of 8 bits, or a range of their own.
        scale = 255.0 if top <= 1.0 else 1.0 if top <= 255.0 else 255.0 / top
        image = Image.fromarray((np.clip(flat, 0, None) * scale).astype(np.uint8))
    elif "transparency" in image.info or image.mode in ("RGBA", "LA", "PA"):
        # What is transparent is black, whatever colour lies below.
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, (0, 0, 0, 255)), solid).convert("RGB")
    return image if image.mode == wanted else image.convert(wanted)


def _what_instead(path: Path | BinaryIO) -> str:
    with _opened(path) as file:
        file.seek(0)
        head = file.read(512)
    if not head:
        return "is empty"
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "is a web page or XML, not an image"
    return "is not an image in a supported format"


@dataclass(frozen=True)
class Fit:
    """Where a point of the original went: x → x·scale_x + left, and the same for y."""

    scale_x: float
    scale_y: float
    left: float
    top: float


def resized(image: Image.Image, shape: Shape, nearest: bool = False) -> tuple[Image.Image, Fit]:
    """squash: both sides as they must be. crop: the middle of what covers. fill: all of it, in black.
    half-crop: half way between the two."""
    width, height = shape.width, shape.height
    along, across = width / image.width, height / image.height
    match shape.resize:
        case "squash":
            scale_x, scale_y = along, across
        case "crop":
            scale_x = scale_y = max(along, across)
        case "fill":
            scale_x = scale_y = min(along, across)
        case _:
            # The middle of both is that of the sizes: DIGITS averages how much smaller each side becomes.
            scale_x = scale_y = 2 / (1 / along + 1 / across)
    x, y = _axis(image.width, width, scale_x), _axis(image.height, height, scale_y)
    fit = Fit(x.size / x.length, y.size / y.length, x.to - x.start * x.size / x.length, y.to - y.start * y.size / y.length)
    size, box = (x.size, y.size), (x.start, y.start, x.start + x.length, y.start + y.length)
    if size != image.size or box != (0, 0, *image.size):
        method = Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
        image = image.resize(size, method, box=box)
    if size != (width, height):
        canvas = Image.new(image.mode, (width, height))
        canvas.paste(image, (x.to, y.to))
        image = canvas
    return image, fit


@dataclass(frozen=True)
class _Axis:
    """A part of the original's length, from `start` on, becomes `size` pixels from `to` on."""

    start: float
    length: float
    to: int
    size: int


def _axis(length: int, whole: int, scale: float) -> _Axis:
    """As crates/datasets/src/fit.rs divides it, so that a model sees when it predicts what it was trained on."""
    if length * scale < whole + 0.5:
        size = min(max(math.floor(length * scale + 0.5), 1), whole)
        return _Axis(0.0, float(length), (whole - size) // 2, size)
    kept = min(whole / scale, float(length))
    return _Axis((length - kept) / 2, kept, 0, whole)
