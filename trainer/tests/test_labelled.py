"""Labels that are brought to a detector and a segmenter: an evaluation set as `lyceum dataset evaluation`
builds it, scored as the training's validation images are.
"""

import csv
import json

import numpy as np
import pytest
from PIL import Image

from trainer import config, sources
from trainer.data import Sample

from .conftest import best, call

SHUFFLED = ["triangle", "star", "circle", "square"]


def validation(run):
    """The validation images of a training, and its classes."""
    data = sources.load(config.load(run.parent / "config.json"), 2)
    return [data.parts["val"].read(i) for i in range(len(data.parts["val"]))], data.classes


def evaluation_set(folder, samples, classes, pictures, source="yolo", without=()):
    """Writes the pictures as files, and what the portal builds of their labels; `without` are not labelled."""
    (folder / "cache").mkdir(parents=True)
    pictures.mkdir()
    names = [f"{i:04d}.png" for i in range(len(samples))]
    for name, sample in zip(names, samples):
        Image.fromarray(sample.image).save(pictures / name)
    at = np.array([i for i in range(len(names)) if i not in without], np.int64)
    np.save(folder / "cache/images.npy", np.stack([sample.image for sample in samples]))
    np.save(folder / "cache/test.rows.npy", at)
    files = {"images": "cache/images.npy", "rows": "cache/test.rows.npy"}
    kind = "detection" if samples[0].boxes is not None else "segmentation"
    if kind == "detection":
        rows = [[i, *box] for i, row in enumerate(at) for box in samples[row].boxes]
        np.save(folder / "cache/test.boxes.npy", np.array(rows, np.float32).reshape(-1, 6))
        files["boxes"] = "cache/test.boxes.npy"
    else:
        np.save(folder / "cache/masks.npy", np.stack([sample.mask for sample in samples]))
        files["masks"] = "cache/masks.npy"
    with open(folder / "manifest.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "split", "width", "height", "size", "hash", "error"])
        for i, name in enumerate(names):
            rows.writerow([name, "", "" if i in without else "test", "", "", "", "", "no file of boxes" if i in without else ""])
    height, width, channels = samples[0].image.shape
    about = {
        "version": 2,
        "kind": kind,
        "classes": classes,
        "counts": {"test": len(at), "broken_boxes": 3},
        "source": {"kind": source, "root": str(pictures)},
        "image": {"width": width, "height": height, "channels": channels, "resize": "squash"},
        "cache": {"test": files},
    }
    (folder / "dataset.json").write_text(json.dumps(about))
    return folder


def metrics(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_boxes_are_scored_as_those_of_the_validation(detector, tmp_path, capsys):
    samples, classes = validation(detector)
    # The same classes in another order, and one that the model does not have.
    to = np.array([SHUFFLED.index(name) for name in classes])
    moved = []
    for i, sample in enumerate(samples):
        boxes = sample.boxes.copy()
        boxes[:, 0] = to[boxes[:, 0].astype(int)]
        star = np.array([[1, 4, 4, 9, 9]], np.float32)
        moved.append(sample._replace(boxes=np.concatenate([boxes, star]) if i < 2 else boxes))
    pictures = tmp_path / "pictures"
    folder = evaluation_set(tmp_path / "set", moved, SHUFFLED, pictures)
    Image.fromarray(samples[0].image).save(pictures / "not-listed.png")
    result = tmp_path / "result"
    options = ("--labels", folder, "--output", result, "--least", 0.05)
    code, [answer] = call(capsys, "predict", best(detector), pictures, *options)
    assert code == 0 and len(answer["images"]) == len(samples) + 1
    about = {"source": "yolo", "scored": len(samples), "unscored": 1, "dropped_boxes": 3}
    assert answer["labels"] == about | {"unknown": [{"class": "star", "count": 2}]}
    here, there = metrics(result / "evaluation"), metrics(detector / "eval/val")
    for key in ("pictures", "boxes", "predicted", "map50", "map50_95", "f1"):
        assert here[key] == pytest.approx(there[key], abs=1e-9), key
    assert here["classes"] == [pytest.approx(one, abs=1e-9) for one in there["classes"]]
    curves = json.loads((result / "evaluation/curves.json").read_text())["precision_recall"]
    assert [curve["class"] for curve in curves] == classes and curves[0]["ap"] == here["classes"][0]["ap50"]
    assert answer["evaluation"]["map50_95"] == here["map50_95"]
    images = answer["images"]
    assert sum(len(image["truth"]) for image in images[:-1]) == here["boxes"]
    assert sum(not box["found"] for image in images[:-1] for box in image["truth"]) == sum(i["missed"] for i in images[:-1])
    shown = [box for image in images[:-1] for box in image["boxes"] if box["score"] >= 0.3]
    assert sum(not box["hit"] for box in shown) == sum(image["extra"] for image in images[:-1])
    assert "truth" not in images[-1] and images[-1]["unscored"] == "no labels" and images[-1]["boxes"]


def test_a_picture_without_labels_is_not_one_without_objects(detector, tmp_path, capsys):
    samples, classes = validation(detector)
    few = samples[:6]
    few[1] = few[1]._replace(boxes=np.zeros((0, 5), np.float32))  # an empty file
    folder = evaluation_set(tmp_path / "set", few, classes, tmp_path / "pictures", without=(0, 3))
    code, [answer] = call(capsys, "predict", best(detector), tmp_path / "pictures", "--labels", folder)
    assert code == 0 and (answer["labels"]["scored"], answer["labels"]["unscored"]) == (4, 2)
    assert [image.get("unscored") for image in answer["images"]] == ["no file of boxes", None, None, "no file of boxes", None, None]
    assert answer["evaluation"]["pictures"] == 4
    empty = answer["images"][1]
    assert (empty["truth"], empty["missed"]) == ([], 0) and empty["extra"] == len(empty["boxes"]) > 0


def test_numbers_are_the_classes_in_their_order_and_strange_names_are_none(detector, tmp_path, capsys):
    samples, _ = validation(detector)
    numbered = evaluation_set(tmp_path / "numbers", samples[:8], ["0", "1", "2"], tmp_path / "a")
    code, [answer] = call(capsys, "predict", best(detector), tmp_path / "a", "--labels", numbered)
    assert code == 0 and answer["labels"]["unknown"] == [] and answer["evaluation"]["map50"] > 0.8
    strange = evaluation_set(tmp_path / "strange", samples[:8], ["cat", "dog", "cow"], tmp_path / "b")
    code, [answer] = call(capsys, "predict", best(detector), tmp_path / "b", "--labels", strange)
    assert code == 0 and "evaluation" not in answer and len(answer["images"]) == 8
    reason = "none of the labels' classes (cat, dog, cow) is a class of the model"
    assert answer["labels"]["reason"] == answer["images"][0]["unscored"] == reason
    assert answer["labels"]["scored"] == 0 and answer["images"][0]["boxes"]


def test_masks_are_scored_as_those_of_the_validation(segmenter, tmp_path, capsys):
    samples, classes = validation(segmenter)
    pictures = tmp_path / "pictures"
    folder = evaluation_set(tmp_path / "set", samples, classes, pictures, "masks")
    (pictures / "masks").mkdir()
    Image.fromarray(samples[0].mask).save(pictures / "masks/0000.png")  # not a picture to predict
    result = tmp_path / "result"
    code, [answer] = call(capsys, "predict", best(segmenter), pictures, "--labels", folder, "--output", result)
    assert code == 0 and len(answer["images"]) == len(samples) and answer["labels"]["scored"] == len(samples)
    here, there = metrics(result / "evaluation"), metrics(segmenter / "eval/val")
    assert (here["iou"], here["accuracy"]) == pytest.approx((there["iou"], there["accuracy"]), abs=1e-9)
    assert here["classes"] == [pytest.approx(one, abs=1e-9) for one in there["classes"]]
    for i, image in enumerate(answer["images"]):
        truth, found = (np.asarray(Image.open(result / image[key])) for key in ("truth", "mask"))
        assert (truth == samples[i].mask).all() and image["accuracy"] == pytest.approx((truth == found).mean())
    # Pixels of a class that the model does not have are not judged.
    three = [*classes[:3], "star"]
    folder = evaluation_set(tmp_path / "other", samples[:9], three, tmp_path / "b", "masks")
    code, [answer] = call(capsys, "predict", best(segmenter), tmp_path / "b", "--labels", folder, "--output", tmp_path / "r")
    pixels = sum(int((sample.mask == 3).sum()) for sample in samples[:9])
    assert code == 0 and answer["labels"]["unknown"] == [{"class": "star", "count": pixels}] and pixels > 0
    assert sum(one["pixels"] for one in metrics(tmp_path / "r/evaluation")["classes"]) == 9 * 48 * 48 - pixels


def test_labels_that_do_not_fit_the_model(detector, lenet, tmp_path, capsys):
    small = [Sample(np.zeros((32, 32, 3), np.uint8), boxes=np.array([[0, 1, 1, 9, 9]], np.float32))]
    folder = evaluation_set(tmp_path / "set", small, ["circle"], tmp_path / "a")
    code, [error] = call(capsys, "predict", best(detector), tmp_path / "a", "--labels", folder)
    assert code == 2 and "was built with (32, 32, 3), and the model's input is (64, 64, 3)" in error["message"]
    code, [error] = call(capsys, "predict", best(lenet), tmp_path / "a", "--labels", folder)
    assert code == 1 and error["field"] == "--labels" and "not for classification" in error["message"]
    (folder / "dataset.json").unlink()
    code, [error] = call(capsys, "predict", best(detector), tmp_path / "a", "--labels", folder)
    assert code == 2 and "is not a complete dataset" in error["message"]
