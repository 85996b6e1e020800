"""Pictures of every kind that people have, and files that are none."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainer.pixels import Broken, Shape, opened, read, resized

SQUARE = Shape(16, 16, 3)


def photo(width=40, height=30):
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([x * 6 % 256, y * 8 % 256, (x + y) * 3 % 256], -1).astype(np.uint8))


def save(path, image, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK", "1", "P", "RGBA", "LA", "YCbCr", "I;16", "I", "F"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_ends_as_eight_bits(tmp_path, mode, channels):
    grey = np.asarray(photo().convert("L"))
    wide = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
    if mode in wide:
        image = Image.fromarray(grey.astype(wide[mode]) * (1 if mode == "F" else 257))
    else:
        image = photo().convert(mode)
    name = {"CMYK": "x.jpg", "YCbCr": "x.jpg", "F": "x.tif", "I": "x.tif"}.get(mode, "x.png")
    pixels = read(save(tmp_path / name, image), Shape(30, 40, channels))
    assert pixels.shape == (30, 40, channels) and pixels.dtype == np.uint8
    if mode not in ("1", "P"):
        expected = np.asarray(
            photo().convert("L" if channels == 1 or mode in wide or mode in ("L", "LA") else "RGB"), float
        )
        if expected.ndim == 2:
            expected = expected[..., None]
        assert abs(pixels - expected).mean() < 6, "16 bits must not be cut off, CMYK not inverted"


def test_what_is_transparent_is_black(tmp_path):
    clear = Image.new("RGBA", (8, 8), (255, 255, 255, 0))
    assert read(save(tmp_path / "x.png", clear), Shape(8, 8, 3)).max() == 0


def test_exif_turns_the_picture(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "x.png", photo(), exif=exif)
    assert opened(tmp_path / "x.png", 3).size == (30, 40)


def whole(kind):
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (100, 100, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (whole("JPEG")[:4000], "truncated"),
        (whole("PNG")[:2000], "cannot be decoded"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"  <html>", "web page"),
        (b"", "empty"),
        (b"hello", "not an image"),
        (whole("JPEG")[:20], "not an image"),
    ],
)
def test_a_broken_file_says_why(tmp_path, content, part):
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(Broken, match=part):
        read(tmp_path / "x.jpg", SQUARE)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(Broken, match="does not exist"):
        read(tmp_path / "none.png", SQUARE)
    with pytest.raises(Broken, match="folder"):
        read(tmp_path, SQUARE)


def test_a_bomb_is_not_unpacked(tmp_path):
    # 20 000 × 20 000 pixels of one bit are 49 kB in a file.
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    with pytest.raises(Broken, match="pixels"):
        read(tmp_path / "bomb.png", SQUARE)


@pytest.mark.parametrize(
    ("mode", "scale", "left", "top"),
    [
        ("squash", (0.4, 0.8), 0, 0),
        ("crop", (0.8, 0.8), -8, 0),
        ("fill", (0.4, 0.4), 0, 4),
        ("half-crop", (16 / 30, 0.55), -8 / 3, 2),
    ],
)
def test_resize_modes(mode, scale, left, top):
    white = Image.new("L", (40, 20), 255)
    image, fit = resized(white, Shape(16, 16, 1, mode))
    assert image.size == (16, 16) and (fit.scale_x, fit.scale_y) == pytest.approx(scale)
    assert (fit.left, fit.top) == pytest.approx((left, top))
    assert (np.asarray(image) == 255).sum() == 16 * min(16, round(20 * fit.scale_y)), "what is not filled is black"


TABLE = json.loads((Path(__file__).parent / "pictures" / "table.json").read_text())


@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case['file']} {case['resize']} {case['channels']}")
def test_pictures_are_what_datasets_are_built_of(case):
    """The table that crates/datasets/src/picture.rs is tested with too."""
    shape = Shape(case["height"], case["width"], case["channels"], case["resize"])
    pixels = read(Path(__file__).parent / "pictures" / case["file"], shape)
    for x, y, expected in case["pixels"]:
        assert np.abs(pixels[y, x].astype(int) - expected).max() <= 1, (x, y, pixels[y, x].tolist(), case["why"])
