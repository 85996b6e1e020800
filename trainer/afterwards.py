"""What is done with a trained model: evaluating it on data, and asking it about pictures.

A model finds its labels and preprocessing beside itself or one folder up, where a training and
a bundle put them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import backend, evaluate, files, pixels, progress, saved, sources, threads
from .errors import NO_BACKEND, Stop, bad_data
from .folder import Folder, Unfit
from .pixels import RESIZES, Broken, Shape

BATCH = 32
MOST = 20_000  # pictures of folders
_TASKS = ("classification", "segmentation", "detection")


@dataclass
class Trained:
    """A model with what must be known to use it."""

    model: Any
    task: str
    labels: list[str]
    shape: Shape
    preprocessing: dict[str, Any]


def load(path: Path) -> Trained:
    """On whichever backend is there: a `.keras` file does not depend on one. Nothing of another user's is run."""
    try:
        with saved.home(path) as (place, about):
            place.open(path.name).close()
            if about is None:
                raise bad_data(f"there is no preprocessing.json beside {path} or one folder up", "MODEL")
            task, labels, shape, preprocessing = _described(about)
    except FileNotFoundError:
        raise bad_data(f"{path} is not there", "MODEL") from None
    except Unfit as unfit:
        raise bad_data(f"{path} {unfit}", "MODEL") from None
    backend.start()
    return Trained(saved.load(path), task, labels, shape, preprocessing)


def _described(folder: Folder) -> tuple[str, list[str], Shape, dict[str, Any]]:
    """Task, classes, size of the pictures, and all that is said of them."""
    try:
        about = folder.json("preprocessing.json")
        labels = folder.read("labels.txt").decode("utf-8").splitlines()
        shape = Shape(about["height"], about["width"], about["channels"], about["resize"])
        task = about["task"]
        sides = all(type(side) is int and 1 <= side <= 4096 for side in (shape.height, shape.width))
        if not sides or shape.channels not in (1, 3) or shape.resize not in RESIZES or task not in _TASKS:
            raise ValueError("a value is out of range")
    except (OSError, ValueError, KeyError, TypeError, Unfit) as error:
        raise bad_data(f"{folder.path}/preprocessing.json and labels.txt cannot be read: {error}", "MODEL") from None
    return task, labels, shape, about


def evaluated(config: dict[str, Any], path: Path, output: Path) -> dict[str, Any]:
    trained = load(path)
    workers = threads.allowed()
    data = sources.load(config, workers)
    if data.classes != trained.labels:
        raise bad_data(f"the model knows {len(trained.labels)} classes that are not those of the data", "MODEL")
    return evaluate.written(trained.model, data, output, config["batch_size"], workers)


def predicted(path: Path, images: Sequence[Path], top: int, output: Path | None) -> dict[str, Any]:
    """Answers for pictures, in their order; a picture that cannot be read has an error instead.
    A folder stands for the pictures in it, however deep."""
    if top < 1:
        raise Stop(1, "must be at least 1", "--top")
    trained = load(path)
    if trained.task == "segmentation" and output is None:
        raise Stop(1, "is needed for segmentation: masks are files", "--output")
    images = [picture for image in images for picture in _pictures(image)]
    answers: list[dict[str, Any]] = []
    for begin in range(0, len(images), BATCH):
        answers += _batch(trained, images[begin : begin + BATCH], begin, top, output)
        if BATCH < len(images):
            # Standard output is the answer.
            progress.say("progress", sys.stderr, done=len(answers), of=len(images))
    return {"model": str(path), "task": trained.task, "images": answers}


def _pictures(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.rglob("*") if one.suffix.lower() in sources.ENDINGS and one.is_file())
    if not found:
        raise bad_data(f"there is no picture in {path}", "IMAGE")
    if len(found) > MOST:
        raise bad_data(f"{path} holds {len(found)} pictures; {MOST} at once are the most", "IMAGE")
    return found


def _batch(trained: Trained, paths: Sequence[Path], begin: int, top: int, output: Path | None) -> list[dict[str, Any]]:
    batch = np.zeros((BATCH if len(paths) > 1 else 1, *trained.shape.hwc), np.float32)
    errors: dict[int, str] = {}
    for i, path in enumerate(paths):
        try:
            batch[i] = pixels.read(path, trained.shape)
        except Broken as broken:
            errors[i] = str(broken)
    found = np.asarray(trained.model.predict_on_batch(batch))
    answers = []
    for i, path in enumerate(paths):
        answer = {"error": errors[i]} if i in errors else _answer(trained, found[i], begin + i, top, output)
        answers.append({"path": files_name(path)} | answer)
    return answers


def files_name(path: Path) -> str:
    from .data import name_of

    return name_of(path)


def _answer(trained: Trained, found: np.ndarray, number: int, top: int, output: Path | None) -> dict[str, Any]:
    if trained.task != "segmentation":
        return answer(trained, found, top)
    assert output is not None
    name = f"mask-{number:05d}.png"
    drawn = mask(found)
    files.replace(output / name, pixels.Image.fromarray(drawn).save)
    return {"mask": name, "share": shares(trained, drawn)}


def answer(trained: Trained, found: np.ndarray, top: int) -> dict[str, Any]:
    """What was found in a picture, in words: its classes, or its objects with their boxes."""
    labels = trained.labels
    if trained.task == "classification":
        best = np.argsort(-found, kind="stable")[:top]
        return {"top": [{"class": labels[i], "probability": float(found[i])} for i in best]}
    from .tasks.detection import SHOWN, boxes

    shown = [box for box in boxes(found) if box[5] >= SHOWN]
    keys = ("x", "y", "width", "height", "confidence")
    return {"boxes": [{"class": labels[int(box[0])]} | dict(zip(keys, map(float, box[1:]))) for box in shown]}


def mask(found: np.ndarray) -> np.ndarray:
    """The class of each pixel."""
    return found.argmax(-1).astype(np.uint8)


def shares(trained: Trained, mask: np.ndarray) -> dict[str, float]:
    """How much of the picture is of each class."""
    share = np.bincount(mask.ravel(), minlength=len(trained.labels)) / mask.size
    return {label: float(part) for label, part in zip(trained.labels, share)}


def other_backend(*wanted: str) -> str:
    """The first of these that is installed; for what only some backends can do."""
    there = backend.installed()
    for name in wanted:
        if name in there:
            return name
    raise Stop(
        NO_BACKEND, f"this needs one of the backends {', '.join(wanted)}; the environment has {', '.join(there)}"
    )
