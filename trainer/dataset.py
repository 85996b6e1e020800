"""Reads a dataset as the portal builds it: a folder with dataset.json, a manifest, and mostly a
cache of resized pictures that are mapped into memory and not copied. docs/trainer.md names the files.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from . import folder, pixels
from .data import Data, Part, Rows, Sample, arrays, decoded
from .errors import bad_config, bad_data
from .folder import Folder, Unfit
from .pixels import RESIZES, Broken, Shape

VERSION = 2
KINDS = ("classification", "detection", "segmentation")
_LARGEST_TABLE = 1 << 30  # bytes


def dataset(config: dict[str, Any], threads: int) -> Data:
    """A dataset may be somebody else's: it names no file but in its own folder, and whatever it says is data."""
    path = Path(config["data"]["path"])
    try:
        with folder.opened(path) as root:
            return _read(root, config, threads)
    except FileNotFoundError as error:
        name = "dataset.json" if error.filename == str(path) else error.filename
        raise bad_data(f"{path} is not a complete dataset: {name} is missing", "data.path") from None
    except Unfit as unfit:
        raise bad_data(f"{path} {unfit}", "data.path") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise bad_data(f"{path} is damaged: {type(error).__name__}: {str(error)[:200]!r}", "data.path") from error


def _read(root: Folder, config: dict[str, Any], threads: int) -> Data:
    about = _about(root)
    # The labels of a classification can be numbers, and any picture can be its own truth.
    fits = {"regression": ("classification",), "reconstruction": KINDS}.get(config["task"], (config["task"],))
    if about["kind"] not in fits:
        raise bad_config("task", f"the dataset is for {about['kind']}, not for {config['task']}")
    image = about["image"]
    shape = Shape(image["height"], image["width"], image["channels"], image["resize"])
    sides = all(type(side) is int and 1 <= side for side in (shape.height, shape.width))
    if not sides or shape.channels not in (1, 3) or shape.resize not in RESIZES:
        raise bad_data(f"{root.path}/dataset.json is damaged: the image size is invalid", "data.path")
    for key, value in zip(("height", "width", "channels"), shape.hwc):
        if config["image"].get(key, value) != value:
            raise bad_config(f"image.{key}", f"the dataset was built with {value}")
    data = Data(
        "", list(about["classes"]), shape, {}, f"dataset {root.path.name}", about.get("mean"), about.get("deviation")
    )
    data.fingerprint = about.get("manifest_sha256") or ""
    rows = _table(root, "manifest.csv")
    data.problems = [(row["path"], row["error"]) for row in rows if row["error"]]
    if about.get("cache"):
        for split, files in about["cache"].items():
            data.parts[split] = _cached(root, files, rows, about)
    else:
        _uncached(data, root, rows, about, config, threads)
    return data


def _about(root: Folder) -> dict[str, Any]:
    try:
        about = json.loads(root.read("dataset.json"))
        version, kind = about["version"], about["kind"]
    except Unfit as unfit:
        raise bad_data(f"{root.path}/dataset.json {unfit}", "data.path") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise bad_data(f"{root.path}/dataset.json is damaged", "data.path") from None
    if version != VERSION:
        raise bad_data(f"{root.path} has format version {version}; this program reads version {VERSION}", "data.path")
    if kind not in KINDS:
        raise bad_data(f"{root.path} has an unknown kind, {kind!r}", "data.path")
    return about


def _table(root: Folder, name: str) -> list[dict[str, str]]:
    try:
        text = root.read(name, _LARGEST_TABLE).decode("utf-8")
    except Unfit as unfit:
        raise bad_data(f"{root.path / name} {unfit}", "data.path") from None
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _array(root: Folder, name: str) -> np.ndarray:
    """An array of the cache, mapped into memory: of the file that was opened here, and no other."""
    where, _, file_name = name.rpartition("/")
    with root.below(where) if where else contextlib.nullcontext(root) as place, place.open(file_name) as file:
        return np.load(f"/proc/self/fd/{file.fileno()}", mmap_mode="r", allow_pickle=False)


def _cached(root: Folder, files: dict[str, str], rows: list[dict[str, str]], about: dict[str, Any]) -> Part:
    def load(key: str) -> np.ndarray:
        if not isinstance(files.get(key), str):
            raise bad_data(f"{root.path}/dataset.json does not list {key} in its cache", "data.path")
        try:
            return _array(root, files[key])
        except (OSError, ValueError, Unfit) as error:
            raise bad_data(f"{root.path / files[key]} cannot be read: {error}", "data.path") from None

    # The pictures of all splits are in one array; these are the places of this split's.
    images, at = load("images"), np.asarray(load("rows"))
    names = [rows[i]["path"] for i in at]
    match about["kind"]:
        case "classification":
            return arrays(names, Rows(images, at), np.asarray(load("labels"), np.int32))
        case "segmentation":
            masks = load("masks")
            return Part(names, lambda i: Sample(np.asarray(images[at[i]]), mask=np.asarray(masks[at[i]])))
        case _:
            boxes = np.asarray(load("boxes"), np.float32).reshape(-1, 6)
            starts = np.searchsorted(boxes[:, 0], np.arange(len(at) + 1))
            return Part(
                names, lambda i: Sample(np.asarray(images[at[i]]), boxes=boxes[starts[i] : starts[i + 1], 1:])
            )


def _uncached(
    data: Data, root: Folder, rows: list[dict[str, str]], about: dict[str, Any], config: dict[str, Any], threads: int
) -> None:
    """Without a cache the original pictures are read where they lie."""
    if about["kind"] == "segmentation":
        raise bad_data(f"{root.path} was built without a cache, which is required for segmentation", "data.path")
    source = Path(about["source"]["root"])
    number_of = {name: i for i, name in enumerate(data.classes)}
    truth = _boxes(root, number_of) if about["kind"] == "detection" else {}
    for split in ("train", "val", "test"):
        members = [row for row in rows if row["split"] == split and not row["error"]]
        if not members:
            continue
        paths = [source / row["path"] for row in members]
        if about["kind"] == "classification":
            labels = np.array([number_of[row["label"]] for row in members], np.int32)
        else:
            labels = np.zeros(len(members), np.int32)

        def read(i: int, paths: list[Path] = paths) -> np.ndarray:
            return pixels.read(paths[i], data.shape)

        names = [row["path"] for row in members]
        part, broken = decoded(names, labels, read, data.shape, config["data"]["memory_mb"], threads)
        data.problems += broken
        data.parts[split] = part if about["kind"] == "classification" else _boxed(part, source, truth, data.shape)


def _boxes(root: Folder, number_of: dict[str, int]) -> dict[str, np.ndarray]:
    found: dict[str, list[list[float]]] = {}
    for row in _table(root, "boxes.csv"):
        if not row["error"]:
            found.setdefault(row["path"], []).append(
                [number_of[row["class"]], *(float(row[key]) for key in ("x", "y", "width", "height"))]
            )
    return {path: np.array(boxes, np.float32) for path, boxes in found.items()}


def _boxed(part: Part, source: Path, truth: dict[str, np.ndarray], shape: Shape) -> Part:
    """Boxes come in pixels of the original and go where the resize puts them."""
    moved: list[np.ndarray] = []
    for name in part.names:
        boxes = truth.get(name, np.zeros((0, 5), np.float32)).copy()
        if len(boxes):
            try:
                _, fit = pixels.resized(pixels.opened(source / name, shape.channels), shape)
            except Broken as broken:
                raise bad_data(f"{name} {broken}", "data.path") from None
            boxes[:, [1, 3]] *= fit.scale_x
            boxes[:, [2, 4]] *= fit.scale_y
            boxes[:, 1] += fit.left
            boxes[:, 2] += fit.top
        moved.append(boxes)
    return Part(part.names, lambda i: Sample(part.read(i).image, boxes=moved[i]), None, part.array)
