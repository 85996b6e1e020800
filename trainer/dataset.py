"""Reads a dataset as the portal builds it: a folder with dataset.json, a manifest, and mostly a
cache of resized pictures that are mapped into memory and not copied. docs/trainer.md names the files.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from . import pixels
from .data import Data, Part, Rows, Sample, arrays, decoded
from .errors import bad_config, bad_data
from .pixels import Broken, Shape

VERSION = 2


def dataset(config: dict[str, Any], threads: int) -> Data:
    root = Path(config["data"]["path"])
    about = _about(root)
    if about["kind"] != config["task"]:
        raise bad_config("task", f"the dataset is for {about['kind']}, not for {config['task']}")
    image = about["image"]
    shape = Shape(image["height"], image["width"], image["channels"], image["resize"])
    for key, value in zip(("height", "width", "channels"), shape.hwc):
        if config["image"].get(key, value) != value:
            raise bad_config(f"image.{key}", f"the dataset was built with {value}")
    data = Data(
        "", list(about["classes"]), shape, {}, f"dataset {root.name}", about.get("mean"), about.get("deviation")
    )
    data.fingerprint = about.get("manifest_sha256") or ""
    rows = list(csv.DictReader(io.StringIO((root / "manifest.csv").read_text("utf-8"), newline="")))
    data.problems = [(row["path"], row["error"]) for row in rows if row["error"]]
    if about.get("cache"):
        for split, files in about["cache"].items():
            data.parts[split] = _cached(root, files, rows, about)
    else:
        _uncached(data, root, rows, about, config, threads)
    return data


def _about(root: Path) -> dict[str, Any]:
    try:
        about = json.loads((root / "dataset.json").read_text("utf-8"))
        version, kind = about["version"], about["kind"]
    except FileNotFoundError:
        raise bad_data(f"{root} is no finished dataset: it has no dataset.json", "data.path") from None
    except OSError as error:
        raise bad_data(f"cannot read {root}/dataset.json: {error.strerror}", "data.path") from None
    except (ValueError, KeyError, TypeError):
        raise bad_data(f"{root}/dataset.json is damaged", "data.path") from None
    if version != VERSION:
        raise bad_data(f"{root} has the format {version}; this program reads {VERSION}", "data.path")
    if kind not in ("classification", "detection", "segmentation"):
        raise bad_data(f"{root} is of an unknown kind, {kind!r}", "data.path")
    return about


def _cached(root: Path, files: dict[str, str], rows: list[dict[str, str]], about: dict[str, Any]) -> Part:
    def load(key: str) -> np.ndarray:
        try:
            return np.load(root / files[key], mmap_mode="r", allow_pickle=False)
        except KeyError:
            raise bad_data(f"{root}/dataset.json names no {key} in its cache", "data.path") from None
        except (OSError, ValueError) as error:
            raise bad_data(f"{root / files[key]} cannot be read: {error}", "data.path") from None

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
    data: Data, root: Path, rows: list[dict[str, str]], about: dict[str, Any], config: dict[str, Any], threads: int
) -> None:
    """Without a cache the original pictures are read where they lie."""
    if about["kind"] == "segmentation":
        raise bad_data(f"{root} was built without a cache, which segmentation needs", "data.path")
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


def _boxes(root: Path, number_of: dict[str, int]) -> dict[str, np.ndarray]:
    found: dict[str, list[list[float]]] = {}
    for row in csv.DictReader(io.StringIO((root / "boxes.csv").read_text("utf-8"), newline="")):
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
