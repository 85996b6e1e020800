"""Augmentation: the same stream gives the same sample, and masks and boxes follow their picture."""

import numpy as np
import pytest

from trainer.augment import augment, stream
from trainer.config import SCHEMA
from trainer.data import Sample

OFF = {key: rule["default"] for key, rule in SCHEMA["properties"]["augmentation"]["properties"].items()}
EVERYTHING = OFF | {
    "flip_horizontal": True,
    "flip_vertical": True,
    "shift": 0.2,
    "rotate": 30,
    "zoom": 0.2,
    "brightness": 0.2,
}
EVERYTHING |= {"contrast": 0.3, "saturation": 0.3, "hue": 0.1, "noise": 0.05, "erase": 0.3}


def scene(channels=3):
    image = np.zeros((48, 64, channels), np.uint8)
    image[15:31, 20:44] = 200
    mask = (image[..., 0] > 0).astype(np.uint8)
    return image, mask, np.array([[2, 20, 15, 24, 16]], np.float32)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_stream_decides_everything(channels):
    image, mask, _ = scene(channels)
    sample = Sample(image, mask=mask)
    first, again, other = (augment(sample, EVERYTHING, stream(5, 1, index)) for index in (9, 9, 10))
    assert (first.image == again.image).all() and (first.mask == again.mask).all()
    assert (first.image != other.image).any()
    assert first.image.shape == image.shape and first.image.dtype == np.uint8
    assert (sample.image == scene(channels)[0]).all(), "the sample itself is left alone"


def test_nothing_is_done_unless_it_is_said():
    image, mask, boxes = scene()
    left = augment(Sample(image, mask=mask, boxes=boxes), OFF, stream(1, 1, 1))
    assert (left.image == image).all() and (left.boxes == boxes).all()


@pytest.mark.parametrize("index", range(12))
def test_masks_follow(index):
    image, mask, _ = scene()
    rules = OFF | {"flip_horizontal": True, "flip_vertical": True, "shift": 0.2, "rotate": 45, "zoom": 0.3}
    moved = augment(Sample(image, mask=mask), rules, stream(3, 0, index))
    judged = moved.mask != 255
    same = (moved.mask == 1) == (moved.image[..., 0] > 100)
    assert judged.mean() > 0.3 and same[judged].mean() > 0.97


@pytest.mark.parametrize("index", range(12))
def test_boxes_follow(index):
    image, _, boxes = scene()
    rules = OFF | {"flip_horizontal": True, "flip_vertical": True, "shift": 0.15, "zoom": 0.3}
    moved = augment(Sample(image, boxes=boxes), rules, stream(4, 0, index))
    rows, columns = np.nonzero(moved.image[..., 0] > 100)
    [[kind, x, y, width, height]] = moved.boxes
    assert kind == 2
    assert [x, y, x + width, y + height] == pytest.approx(
        [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], abs=1.2
    )


def test_a_box_that_leaves_the_picture_goes():
    image, _, _ = scene()
    boxes = np.array([[0, 0, 0, 6, 6]], np.float32)
    rules = OFF | {"shift": 0.5}
    counts = {len(augment(Sample(image, boxes=boxes), rules, stream(1, 0, i)).boxes) for i in range(20)}
    assert counts == {0, 1}
