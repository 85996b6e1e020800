"""Segmentation and detection: the measures by hand, and that the networks learn generated shapes."""

import json

import numpy as np
import pytest
from PIL import Image

from trainer.data import Data, Sample
from trainer.pixels import Shape

from .conftest import best, call


def test_segmentation_learns_shapes(segmenter, capsys, tmp_path):
    metrics = json.loads((segmenter / "eval/val/metrics.json").read_text())
    assert metrics["iou"] > 0.8
    assert [about["class"] for about in metrics["classes"]] == ["background", "circle", "square", "triangle"]
    from trainer import config, sources

    data = sources.load(config.load(segmenter.parent / "config.json"), 2)
    sample = data.parts["val"].read(0)
    Image.fromarray(sample.image).save(tmp_path / "one.png")
    code, [answer] = call(capsys, "predict", best(segmenter), tmp_path / "one.png", "--output", tmp_path / "masks")
    mask = np.asarray(Image.open(tmp_path / "masks" / answer["images"][0]["mask"]))
    assert code == 0 and (mask == sample.mask).mean() > 0.95


def test_detection_learns_shapes(detector, capsys, tmp_path):
    metrics = json.loads((detector / "eval/val/metrics.json").read_text())
    assert metrics["map50"] >= 0.9 and metrics["map50_95"] > 0.4
    assert metrics["boxes"] == sum(about["boxes"] for about in metrics["classes"])
    assert metrics["predicted"] == sum(about["predicted"] for about in metrics["classes"])
    # map50 is soon 1.0, and says nothing of how well boxes fit from then on.
    snapshots = [s for s in json.loads((detector / "checkpoints/index.json").read_text())["snapshots"] if s["metrics"]]
    assert best(detector).name == max(snapshots, key=lambda s: s["metrics"]["map50_95"])["file"]
    described = json.loads((detector / "eval/val/worst.json").read_text())[0]
    assert {"class", "x", "y", "width", "height", "score", "hit"} == described["boxes"][0].keys()
    assert {"class", "x", "y", "width", "height", "found"} == described["truth"][0].keys()
    rows = (detector / "eval/val/confusion.csv").read_text().splitlines()
    assert rows[0] == "label,circle,square,triangle,background" and len(rows) == 5
    there = sum(int(count) for row in rows[1:4] for count in row.split(",")[1:])
    assert there == sum(about["boxes"] for about in metrics["classes"]), "each true box is in one row"
    from trainer import config, sources
    from trainer.curves import overlap

    sample = sources.load(config.load(detector.parent / "config.json"), 2).parts["val"].read(0)
    Image.fromarray(sample.image).save(tmp_path / "one.png")
    code, [answer] = call(capsys, "predict", best(detector), tmp_path / "one.png")
    found = np.array([[box[key] for key in ("x", "y", "width", "height")] for box in answer["images"][0]["boxes"]])
    assert code == 0 and (overlap(sample.boxes[:, 1:], found).max(1) > 0.5).all()


def test_a_true_box_is_matched_once_by_the_best_answer_of_its_class():
    from trainer.curves import matched

    truth = np.array([[0, 0, 0, 10, 10], [0, 20, 20, 10, 10], [1, 40, 0, 10, 10]], np.float32)
    answers = np.array(
        [
            [0, 0, 0, 10, 10, 0.9],
            [0, 1, 0, 10, 10, 0.8],
            [1, 20, 20, 10, 10, 0.7],
            [0, 20, 23, 10, 10, 0.6],
            [1, 40, 6, 10, 10, 0.5],
        ],
        np.float32,
    )
    found = matched(answers, truth)
    # The second answers what the first has; the third has the wrong class; the last overlaps by a quarter.
    assert found[0].tolist() == [0, -1, -1, 1, -1]
    # The fourth overlaps by 7/13, which is more than a half and less than 0.55.
    assert found[1].tolist() == [0, -1, -1, -1, -1]
    assert (matched(answers, truth[:0]) == -1).all()


def test_boxes_come_back_from_their_maps():
    from trainer.tasks.detection import boxes, targets

    truth = np.array([[0, 3, 5, 12, 20], [1, 40, 30, 17, 9]], np.float32)
    data = Data("detection", ["a", "b"], Shape(64, 64, 3), {})
    [maps] = targets([Sample(np.zeros((64, 64, 3), np.uint8), boxes=truth)], data)
    found = boxes(maps[..., :6])
    assert found[found[:, 5] > 0.99][:, :5] == pytest.approx(truth, abs=1e-3)
    maps[0, 0, 2:4] = -9.0  # the centre of a box far to the left of the image, and above it
    maps[0, 0, 0] = 1.0
    assert (boxes(maps[..., :6])[:, 3:5] > 0).all()


def test_what_is_not_judged_counts_nowhere():
    from trainer.tasks.segmentation import Measure, mean_iou, pixel_loss

    truth = np.array([[[0, 1], [255, 255]]], np.int32)
    right = np.array([[[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.1, 0.9]]]], np.float32)
    other = right.copy()
    other[0, 1] = other[0, 1, :, ::-1]
    assert float(pixel_loss(truth, right)) == pytest.approx(float(pixel_loss(truth, other)))
    measure = Measure(Data("segmentation", ["a", "b"], Shape(2, 2, 3), {}))
    measure.take(right, truth)
    assert measure.matrix.tolist() == [[1, 0], [0, 1]] and measure.metrics()["iou"] == 1.0
    assert mean_iou(np.array([[3, 1], [0, 0]])) == pytest.approx((3 / 4 + 0) / 2)
