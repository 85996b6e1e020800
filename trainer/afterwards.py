"""What is done with a trained model: evaluating it on data, and asking it about pictures.

A model finds its labels and preprocessing beside itself or one folder up, where a training and
a bundle put them.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import backend, evaluate, files, labelled, own, pixels, progress, saved, scoring, sources, threads
from .data import Data, Sample
from .errors import NO_BACKEND, Stop, bad_data
from .folder import Folder, Unfit
from .pixels import RESIZES, Broken, Shape

BATCH = 32
_DRAWN = ("segmentation", "reconstruction")  # answered by pictures
MOST = 20_000  # pictures of folders
_TASKS = ("classification", "segmentation", "detection", "regression", "reconstruction")


@dataclass
class Trained:
    """A model with what must be known to use it."""

    model: Any
    task: str
    labels: list[str]
    shape: Shape
    preprocessing: dict[str, Any]

    @property
    def input(self) -> dict[str, Any]:
        """Size of what it sees, and how a picture becomes that."""
        shape = self.shape
        return {"width": shape.width, "height": shape.height, "channels": shape.channels, "resize": shape.resize}


def load(path: Path) -> Trained:
    """On whichever backend is there: a `.keras` file does not depend on one. Nothing of another user's is run."""
    try:
        with saved.home(path) as (place, about):
            place.open(path.name).close()
            if about is None:
                raise bad_data(f"preprocessing.json is missing beside {path} and in the folder above", "MODEL")
            task, labels, shape, preprocessing = _described(about)
    except FileNotFoundError:
        raise bad_data(f"{path} does not exist", "MODEL") from None
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
        raise bad_data(f"the {len(trained.labels)} classes of the model differ from the classes of the data", "MODEL")
    return evaluate.written(trained.model, data, output, config["batch_size"], workers, of_file=own.of(config))


def predicted(
    path: Path,
    images: Sequence[Path],
    top: int,
    output: Path | None,
    least: float | None = None,
    labels: Path | None = None,
) -> dict[str, Any]:
    """Answers for pictures, in their order; a picture that cannot be read has an error instead.
    A folder stands for the pictures in it, however deep, and a CSV file for those that it lists.
    Where their classes are known, the answers of a classifier are scored too; those of a detector or segmenter where
    `labels` is an evaluation set of the pictures."""
    if top < 1:
        raise Stop(1, "must be at least 1", "--top")
    trained = load(path)
    if trained.task in _DRAWN and output is None:
        raise Stop(1, f"is required for {trained.task}, because images are written as files", "--output")
    known, scored = None, None
    if labels is not None:
        if trained.task not in ("detection", "segmentation"):
            raise Stop(1, f"is for detection and segmentation, not for {trained.task}", "--labels")
        known = labelled.opened(labels, trained.task, trained.labels, trained.shape.hwc)
    listed = [one for image in images for one in _pictures(image, trained.labels, known)]
    answers: list[dict[str, Any]] = []
    if trained.task in scoring.TASKS:
        scored = scoring.Scored(Data(trained.task, trained.labels, trained.shape, {}))
    for begin in range(0, len(listed), BATCH):
        answers += _batch(trained, listed[begin : begin + BATCH], begin, top, output, least, scored)
        if BATCH < len(listed):
            # Standard output is the answer.
            progress.say("progress", sys.stderr, done=len(answers), of=len(listed))
    about = {"model": str(path), "task": trained.task, "classes": trained.labels, "input": trained.input}
    if known is not None:
        about["labels"] = known.summary(scored.count if scored else 0, len(listed))
        for one, answer in zip(listed, answers):
            if one.sample is None and "error" not in answer:
                answer["unscored"] = known.why_not(one.path)
    evaluation = scored.written(output, least) if scored else None
    return about | ({"evaluation": evaluation} if evaluation else {}) | {"images": answers}


class Listed(NamedTuple):
    """A picture to be answered for, with its class or its truth as far as that is known."""

    path: Path
    label: str | None = None
    sample: Callable[[], Sample] | None = None


def _pictures(path: Path, labels: list[str], known: labelled.Labels | None) -> list[Listed]:
    """Pictures with their classes, as far as these are known: folders with the name of a class, or a list. With the
    labels of an evaluation set, a document of annotations stands for the pictures that it lists."""
    is_document = known is not None and path.suffix.lower() in (".json", ".xml")
    if not path.is_dir() and not is_document:
        return _list(path, labels) if path.suffix.lower() == ".csv" else [Listed(path)]
    found = sorted(one for one in path.rglob("*") if one.suffix.lower() in sources.ENDINGS and one.is_file())
    if known is not None:
        of_labels = [Listed(one, None, sample) for one, sample in known.listed(found)]
        _few(path, len(of_labels))
        return of_labels
    if not found:
        raise bad_data(f"no images found in {path}", "IMAGE")
    _few(path, len(found))
    classes = set(labels)
    first = [one.relative_to(path).parts for one in found]
    return [Listed(one, parts[0] if len(parts) > 1 and parts[0] in classes else None) for one, parts in zip(found, first)]


def _list(path: Path, labels: list[str]) -> list[Listed]:
    """A CSV file with a column path, and label if the classes are known. Relative paths begin at its folder."""
    rows = list(csv.DictReader(io.StringIO(sources.text(path, "IMAGE"), newline="")))
    if not rows or "path" not in rows[0]:
        raise bad_data(f"{path} is not a list of images: a CSV file with a column path is required", "IMAGE")
    _few(path, len(rows))
    listed = []
    for number, row in enumerate(rows, 2):
        name, label = (row["path"] or "").strip(), (row.get("label") or "").strip()
        if label and label not in labels:
            raise bad_data(f"line {number} of {path} has the label {label!r}, which is not a class of the model", "IMAGE")
        if name:
            listed.append(Listed(path.parent / Path(name).expanduser(), label or None))
    return listed


def _few(path: Path, count: int) -> None:
    if count > MOST:
        raise bad_data(f"{path} contains {count} images; at most {MOST} are allowed at once", "IMAGE")


def _batch(
    trained: Trained,
    listed: Sequence[Listed],
    begin: int,
    top: int,
    output: Path | None,
    least: float | None,
    scored: scoring.Scored | None,
) -> list[dict[str, Any]]:
    batch = np.zeros((BATCH if len(listed) > 1 else 1, *trained.shape.hwc), np.float32)
    errors: dict[int, str] = {}
    truth = [_truth(trained, one) for one in listed]
    for i, (one, sample) in enumerate(zip(listed, truth)):
        try:
            # The pixels of a labelled picture are those that its truth was resized with.
            batch[i] = sample.image if sample and sample.image.size else pixels.read(one.path, trained.shape)
        except Broken as broken:
            errors[i] = str(broken)
    found = np.asarray(trained.model.predict_on_batch(batch))
    answers = []
    for i, (path, label, _) in enumerate(listed):
        about = {"path": files_name(path)} | ({"label": label} if label is not None else {})
        if i in errors:
            answers.append(about | {"error": errors[i]})
            continue
        answers.append(about | _answer(trained, found[i], begin + i, top, output, least))
    if scored:
        right = [i for i, sample in enumerate(truth) if sample and i not in errors]
        scored.take([answers[i] for i in right], [truth[i] for i in right], found[right], output)
    return answers


def _truth(trained: Trained, one: Listed) -> Sample | None:
    if one.label is not None and trained.task == "classification":
        return Sample(np.empty(0), trained.labels.index(one.label))
    return one.sample() if one.sample else None


def files_name(path: Path) -> str:
    from .data import name_of

    return name_of(path)


def _answer(
    trained: Trained, found: np.ndarray, number: int, top: int, output: Path | None, least: float | None
) -> dict[str, Any]:
    if trained.task not in _DRAWN:
        return answer(trained, found, top, least)
    assert output is not None
    if trained.task == "reconstruction":
        from .tasks.reconstruction import drawn as picture

        name = f"output-{number:05d}.png"
        files.replace(output / name, picture(found).save)
        return {"image": name}
    name = f"mask-{number:05d}.png"
    drawn = mask(found)
    files.replace(output / name, pixels.Image.fromarray(drawn).save)
    return {"mask": name, "share": shares(trained, drawn)}


def answer(trained: Trained, found: np.ndarray, top: int, least: float | None = None) -> dict[str, Any]:
    """What was found in a picture, in words: its classes, or its objects with their boxes, those with at
    least a score."""
    labels = trained.labels
    if trained.task == "classification":
        best = np.argsort(-found, kind="stable")[:top]
        return {"top": [{"class": labels[i], "probability": float(found[i])} for i in best]}
    if trained.task == "regression":
        return {"values": [{"output": name, "value": float(value)} for name, value in zip(labels, found)]}
    from .tasks.detection import SHOWN, boxes

    shown = [box for box in boxes(found) if box[5] >= (SHOWN if least is None else least)]
    keys = ("x", "y", "width", "height", "score")
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
        NO_BACKEND, f"this operation needs one of the backends {', '.join(wanted)}; the environment has {', '.join(there)}"
    )
