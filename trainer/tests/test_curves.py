"""The curves and metrics against scikit-learn and pycocotools, on the same predictions."""

import contextlib
import io
import json

import numpy as np
import pytest
from PIL import Image
from sklearn import calibration, metrics

from trainer import curves
from trainer.data import Data, Part, Sample
from trainer.pixels import Shape


@pytest.fixture
def scores():
    """A classifier that is right more often than not; scores repeat, one class has one picture."""
    draw = np.random.default_rng(7)
    truth = draw.choice(4, 400, p=[0.6, 0.3, 0.0975, 0.0025])
    truth[11] = 3
    values = draw.normal(size=(400, 4)) + 1.5 * np.eye(4)[truth]
    found = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    return np.round(found, 2).astype(np.float32), truth


def test_roc_precision_and_recall_are_those_of_scikit_learn(scores):
    found, truth = scores
    for i in range(4):
        score, positive = found[:, i], truth == i
        x, y, area = curves.roc(score, positive)
        wanted = metrics.roc_curve(positive, score, drop_intermediate=False)
        assert np.allclose(x, wanted[0]) and np.allclose(y, wanted[1])
        assert area == pytest.approx(metrics.roc_auc_score(positive, score), abs=1e-12)
        x, y, mean = curves.precision_recall(score, positive)
        precision, recall, _ = metrics.precision_recall_curve(positive, score)
        # It lists them from the lowest score on.
        assert np.allclose(x, recall[::-1]) and np.allclose(y, precision[::-1])
        assert mean == pytest.approx(metrics.average_precision_score(positive, score), abs=1e-12)
    assert curves.roc(found[:, 0], np.zeros(400, bool)) is None
    assert curves.precision_recall(found[:, 0], np.zeros(400, bool)) is None


def test_calibration_is_that_of_scikit_learn(scores):
    found, truth = scores
    sure, right = found.max(1), found.argmax(1) == truth
    bins, error = curves.calibration(sure, right)
    share, mean = calibration.calibration_curve(right, sure, n_bins=curves.BINS, strategy="uniform")
    assert np.allclose([one["accuracy"] for one in bins], share)
    assert np.allclose([one["confidence"] for one in bins], mean)
    counts = np.array([one["count"] for one in bins])
    assert counts.sum() == 400 and error == pytest.approx((counts / 400 * abs(share - mean)).sum())


def test_top_k_is_that_of_scikit_learn():
    from trainer.tasks.classification import Measure

    draw = np.random.default_rng(3)
    found, truth = draw.random((300, 12)).astype(np.float32), draw.integers(0, 12, 300)
    measure = Measure(Data("classification", [str(i) for i in range(12)], Shape(1, 1, 1), {}))
    measure.take(found, truth)
    said = measure.metrics()
    assert said["accuracy"] == metrics.top_k_accuracy_score(truth, found, k=1)
    assert said["top5"] == metrics.top_k_accuracy_score(truth, found, k=5)


def test_a_classifier_writes_its_curves(scores, tmp_path):
    from trainer.tasks.classification import Measure

    found, truth = scores
    classes = ["a", "b", "c", "d"]
    measure = Measure(Data("classification", classes, Shape(1, 1, 1), {}))
    measure.take(found, truth)
    measure.write(tmp_path, Part([str(i) for i in range(400)], lambda i: None))
    written = json.loads((tmp_path / "metrics.json").read_text())
    drawn = json.loads((tmp_path / "curves.json").read_text())
    areas = [metrics.roc_auc_score(truth == i, found[:, i]) for i in range(4)]
    assert [one["roc_auc"] for one in written["classes"]] == pytest.approx(areas)
    assert written["roc_auc"] == pytest.approx(np.mean(areas)) and [one["class"] for one in drawn["roc"]] == classes
    for one in drawn["roc"] + drawn["precision_recall"]:
        assert len(one["x"]) == len(one["y"]) <= curves.POINTS
        assert one["x"][0] == 0 and one["x"][-1] == 1, "both ends"
    assert drawn["calibration"]["ece"] == pytest.approx(written["ece"])


def boxes_of(draw, count, classes, scored):
    place = draw.uniform(0, 50, (count, 2))
    size = draw.uniform(4, 30, (count, 2))
    kinds = draw.integers(0, classes, (count, 1))
    columns = [kinds, place, size] + ([np.round(draw.random((count, 1)), 2)] if scored else [])
    found = np.concatenate(columns, 1).astype(np.float32)
    return found[np.argsort(-found[:, 5], kind="stable")] if scored else found


def judged_by_coco(truth, answers, classes):
    """pycocotools on the same boxes: mean over classes, and by class, at 0.5 and from 0.5 to 0.95."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        there = COCO()
        there.dataset = {
            "info": {},
            "images": [{"id": i + 1} for i in range(len(truth))],
            "categories": [{"id": i + 1, "name": str(i)} for i in range(classes)],
            "annotations": [
                {
                    **{"image_id": i + 1, "category_id": int(box[0]) + 1, "bbox": box[1:].astype(float).tolist()},
                    **{"area": float(box[3] * box[4]), "iscrowd": 0},
                }
                for i, boxes in enumerate(truth)
                for box in boxes
            ],
        }
        for number, one in enumerate(there.dataset["annotations"], 1):
            one["id"] = number
        there.createIndex()
        rows = [
            [i + 1, *box[1:5].astype(float), float(box[5]), int(box[0]) + 1]
            for i, boxes in enumerate(answers)
            for box in boxes
        ]
        judge = COCOeval(there, there.loadRes(np.array(rows, np.float64)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    # Overlap, recall, class, area, most answers a picture.
    precision = judge.eval["precision"][:, :, :, 0, -1]
    by_class = [precision[:, :, i] if (precision[:, :, i] > -1).any() else None for i in range(classes)]
    return judge.stats[1], judge.stats[0], by_class


def test_average_precision_is_that_of_pycocotools(tmp_path):
    from trainer.tasks.detection import Measure

    draw = np.random.default_rng(5)
    truth, answers = [], []
    for _ in range(60):
        there = boxes_of(draw, int(draw.integers(0, 6)), 3, False)
        # Some near what is there, some anywhere; the fourth class is only ever answered.
        near = np.repeat(there, 2, 0)
        near[:, 1:] += draw.normal(0, 1.5, near[:, 1:].shape).astype(np.float32)
        near[:, 3:] = near[:, 3:].clip(1)
        near = np.concatenate([near, draw.random((len(near), 1)).round(2)], 1).astype(np.float32)
        found = np.concatenate([near, boxes_of(draw, int(draw.integers(0, 5)), 4, True)])
        answers.append(found[np.argsort(-found[:, 5], kind="stable")])
        truth.append(there)
    data = Data("detection", ["a", "b", "c", "d"], Shape(64, 64, 3), {})
    part = Part([f"{i}.png" for i in range(60)], lambda i: Sample(np.zeros((1, 1, 3), np.uint8), boxes=truth[i]))
    measure = Measure(data)
    measure.answers, measure.loss = answers, [(1.0, 60)]
    measure.finish(part)
    measure.write(tmp_path, part)
    said = json.loads((tmp_path / "metrics.json").read_text())
    half, mean, by_class = judged_by_coco(truth, answers, 4)
    assert 0.05 < mean < half < 0.95
    assert said["map50"] == pytest.approx(half, abs=1e-9) and said["map50_95"] == pytest.approx(mean, abs=1e-9)
    for row, precision in zip(said["classes"], by_class):
        if precision is None:
            assert row["class"] == "d" and row["ap50"] is None
        else:
            assert row["ap50"] == pytest.approx(precision[0].mean(), abs=1e-9)
            assert row["ap50_95"] == pytest.approx(precision.mean(), abs=1e-9)
    drawn = json.loads((tmp_path / "curves.json").read_text())["precision_recall"]
    assert [one["class"] for one in drawn] == ["a", "b", "c"]
    assert np.allclose(drawn[0]["y"], by_class[0][0], atol=1e-5) and len(drawn[0]["x"]) == 101
    listed = (tmp_path / "images.csv").read_text().splitlines()
    assert len(listed) == 61, "also pictures in which nothing is or was found"


def test_intersection_over_union_is_that_of_pycocotools(tmp_path):
    from pycocotools import mask as coco

    from trainer.tasks.segmentation import Measure

    draw = np.random.default_rng(2)
    truth = draw.choice(3, (12, 16, 16), p=[0.6, 0.3, 0.1])
    answer = np.where(draw.random(truth.shape) < 0.8, truth, draw.integers(0, 3, truth.shape))
    measure = Measure(Data("segmentation", ["sky", "road", "car"], Shape(16, 16, 3), {}))
    measure.take(np.eye(3, dtype=np.float32)[answer], truth.astype(np.int32))
    measure.write(tmp_path, Part([f"{i}.png" for i in range(12)], lambda i: None))
    said = json.loads((tmp_path / "metrics.json").read_text())

    def of(values, kind):
        return coco.encode(np.asfortranarray((values == kind).reshape(-1, 16).astype(np.uint8)))

    wanted = [float(coco.iou([of(answer, kind)], [of(truth, kind)], [False])[0, 0]) for kind in range(3)]
    assert [one["iou"] for one in said["classes"]] == pytest.approx(wanted)
    assert said["iou"] == pytest.approx(np.mean(wanted))
    header, first = (line.split(",") for line in (tmp_path / "predictions.csv").read_text().splitlines()[:2])
    row = dict(zip(header, first))
    assert float(row["share_car"]) == pytest.approx((answer[0] == 2).mean(), abs=1e-6)
    assert float(row["iou_sky"]) == pytest.approx(coco.iou([of(answer[0], 0)], [of(truth[0], 0)], [False])[0, 0], abs=1e-6)
    assert (np.asarray(Image.open(tmp_path / row["mask"])) == answer[0]).all()
