"""Where pictures come from: a built dataset, a manifest, class folders, IDX files, scikit-learn's
digits, or generated shapes. Each gives the same `Data`; what cannot be read is listed with its
reason, and what cannot be trained with is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import pixels, shapes
from .data import Data, Part, Sample, arrays, checked, chosen, decoded, limited, name_of, stratified
from .errors import bad_data
from .pixels import Shape

ENDINGS = {".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".ppm", ".pgm", ".pnm", ".tif", ".tiff", ".webp"}
_SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
}


def load(config: dict[str, Any], threads: int) -> Data:
    """What `data` of a configuration says."""
    from .dataset import dataset

    readers: dict[str, Callable[[dict[str, Any], int], Data]] = {
        "dataset": dataset,
        "manifest": manifest,
        "folder": folder,
        "idx": idx,
        "digits": digits,
        "shapes": generated,
    }
    data = readers[config["data"]["kind"]](config, threads)
    data.task = config["task"]
    if "train" in data.parts:
        data.parts["train"] = limited(data.parts["train"], config["data"].get("limit"), config["data"]["seed"])
    if data.task in ("regression", "reconstruction"):
        from . import own, tasks

        data = tasks.of(data.task).prepared(data, own.of(config))
    return checked(data)


def shape_of(config: dict[str, Any], height: int, width: int, channels: int) -> Shape:
    """What the configuration says, and where it does not, what the source has."""
    image = config["image"]
    return Shape(
        image.get("height", height), image.get("width", width), image.get("channels", channels), image["resize"]
    )


def _split(config: dict[str, Any], part: Part, keep_all: bool = False) -> dict[str, Part]:
    """Train, val and test from one part; `keep_all` where the source has a test split of its own."""
    data = config["data"]
    labels = part.labels if part.labels is not None else np.zeros(len(part), np.int32)
    rows = stratified(labels, data["seed"], data["validation_percent"], 0 if keep_all else data["test_percent"])
    return {split: chosen(part, at) for split, at in rows.items() if len(at)}


def text(path: Path, field: str) -> str:
    """A text file as people save them: UTF-8 with or without a mark, or UTF-16."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise bad_data(f"cannot read {path}: {error.strerror}", field) from None
    try:
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise bad_data(f"{path} is not UTF-8 or UTF-16 text", field) from None


def manifest(config: dict[str, Any], threads: int) -> Data:
    """A CSV with a header and at least path, label and split; rows with an error are passed over."""
    path = Path(config["data"]["path"])
    root = Path(config["data"].get("root", path.parent))
    rows = list(csv.DictReader(io.StringIO(text(path, "data.path"), newline=""), strict=False))
    if not rows:
        raise bad_data(f"{path} has no rows", "data.path")
    missing = [column for column in ("path", "label", "split") if column not in rows[0]]
    if missing:
        raise bad_data(f"{path} does not have the column {missing[0]!r}; path, label and split are required", "data.path")
    problems = []
    good: dict[str, list[tuple[str, str]]] = {split: [] for split in ("train", "val", "test")}
    for number, row in enumerate(rows, 2):
        name, label, split = ((row[key] or "").strip() for key in ("path", "label", "split"))
        if (row.get("error") or "").strip():
            problems.append((name, row["error"]))
        elif not name or not label:
            problems.append((name or f"line {number}", "has no path or no label"))
        elif split.lower() in _SPLIT_WORDS:
            good[_SPLIT_WORDS[split.lower()]].append((name, label))
        elif split:
            problems.append((name, f"the split {split!r} is not train, val or test"))
    classes = sorted({label for members in good.values() for _, label in members})
    if not classes:
        raise bad_data(f"{path} does not have a usable row" + (f"; {': '.join(problems[0])}" if problems else ""), "data.path")
    number_of = {name: i for i, name in enumerate(classes)}
    shape = shape_of(config, 64, 64, 3)
    parts = {}
    for split, members in good.items():
        if members:
            names = [name for name, _ in members]
            labels = np.array([number_of[label] for _, label in members], np.int32)
            parts[split], broken = _files(names, [root / name for name in names], labels, shape, config, threads)
            problems += broken
    if "val" not in parts and "train" in parts:
        kept = parts.pop("train")
        parts |= _split(config, kept, keep_all="test" in parts)
    return Data("", classes, shape, parts, f"manifest {path.name}", problems=problems)


def _files(names: list[str], paths: list[Path], labels: np.ndarray, shape: Shape, config: dict[str, Any], threads: int):
    def read(i: int) -> np.ndarray:
        return pixels.read(paths[i], shape)

    return decoded(names, labels, read, shape, config["data"]["memory_mb"], threads)


def folder(config: dict[str, Any], threads: int) -> Data:
    """One folder a class, pictures anywhere below it. Folders train, val and test on top are taken as splits."""
    root = Path(config["data"]["path"])
    if not root.is_dir():
        raise bad_data(f"{root} is not a folder", "data.path")
    inside = [child for child in sorted(root.iterdir()) if child.is_dir() and not child.name.startswith(".")]
    splits = {_SPLIT_WORDS[child.name.lower()]: child for child in inside if child.name.lower() in _SPLIT_WORDS}
    # Folders that are called train and val are splits only if nothing else lies beside them.
    bases = splits if "train" in splits and len(splits) == len(inside) else {"": root}
    classes = sorted(
        {
            child.name
            for base in bases.values()
            for child in base.iterdir()
            if child.is_dir() and not child.name.startswith(".")
        }
    )
    if not classes:
        raise bad_data(f"{root} does not contain folders: one folder for each class is required", "data.path")
    shape = shape_of(config, 64, 64, 3)
    parts, problems = {}, []
    for split, base in bases.items():
        paths, labels = [], []
        for number, name in enumerate(classes):
            found = sorted(p for p in (base / name).rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
            paths += found
            labels += [number] * len(found)
        if paths:
            names = [name_of(path.relative_to(root)) for path in paths]
            part, broken = _files(names, paths, np.array(labels, np.int32), shape, config, threads)
            problems += broken
            parts[split] = part
    for number, name in enumerate(classes):
        if not any((part.labels == number).any() for part in parts.values()):
            problems.append((name, "this class has no usable images"))
    # Classes that are empty everywhere would be columns that nothing ever fills.
    used = sorted({int(label) for part in parts.values() for label in np.unique(part.labels)})
    if len(used) < len(classes):
        for split, part in parts.items():
            labels = np.searchsorted(used, part.labels).astype(np.int32)
            parts[split] = _relabelled(part, labels)
        classes = [classes[i] for i in used]
    if not classes:
        raise bad_data(f"none of the images below {root} can be used; {': '.join(problems[0])}", "data.path")
    if "" in parts:
        parts = _split(config, parts[""])
    elif "val" not in parts and "train" in parts:
        parts |= _split(config, parts.pop("train"), keep_all="test" in parts)
    return Data("", classes, shape, parts, f"folder {root.name}", problems=problems)


def _relabelled(part: Part, labels: np.ndarray) -> Part:
    if part.array is not None:
        return arrays(part.names, part.array, labels)
    return Part(part.names, lambda i: part.read(i)._replace(label=int(labels[i])), labels)


_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: Path, field: str) -> np.ndarray:
    """An IDX file, packed or not: two zero bytes, the type, the number of dimensions, their sizes, the values."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except OSError as error:
        raise bad_data(f"cannot read {path}: {error.strerror or error}", field) from None
    except EOFError:
        raise bad_data(f"{path} is truncated", field) from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES or raw[3] == 0:
        raise bad_data(f"{path} is not an IDX file", field)
    head = 4 + 4 * raw[3]
    sizes = tuple(int(size) for size in np.frombuffer(raw[4:head], ">u4")) if len(raw) >= head else ()
    kind = np.dtype(_IDX_TYPES[raw[2]])
    if not sizes or len(raw) != head + kind.itemsize * int(np.prod(sizes, dtype=object)):
        raise bad_data(f"{path} is truncated or has extra data at its end", field)
    return np.frombuffer(raw, kind, offset=head).reshape(sizes)


def _idx_part(config: dict[str, Any], prefix: str) -> tuple[np.ndarray, np.ndarray]:
    fields = f"{prefix}images", f"{prefix}labels"
    images, labels = (read_idx(Path(config["data"][key]), f"data.{key}") for key in fields)
    if images.ndim not in (3, 4) or images.dtype != np.uint8:
        raise bad_data("does not contain 8-bit images", f"data.{fields[0]}")
    if labels.ndim != 1 or len(labels) != len(images):
        raise bad_data(f"has {len(labels)} labels for {len(images)} images", f"data.{fields[1]}")
    if len(labels) and int(labels.min()) < 0:
        raise bad_data("has a negative label", f"data.{fields[1]}")
    return (images if images.ndim == 4 else images[..., np.newaxis]), labels.astype(np.int32)


def idx(config: dict[str, Any], threads: int) -> Data:
    images, labels = _idx_part(config, "")
    shape = shape_of(config, images.shape[1], images.shape[2], images.shape[3])
    prefixes = [""] + (["test_"] if "test_images" in config["data"] else [])
    found = [(images, labels)] + [_idx_part(config, prefix) for prefix in prefixes[1:]]
    count = 1 + max(int(label.max(initial=0)) for _, label in found)
    classes = config["data"].get("classes", [str(i) for i in range(count)])
    if len(classes) < count:
        raise bad_data(f"names {len(classes)} classes, but a label is {count - 1}", "data.classes")
    parts = {}
    for prefix, (pictures, truth) in zip(("train", "test"), found):
        names = [f"{prefix}-{i:08d}" for i in range(len(pictures))]
        parts[prefix] = arrays(names, _sized(pictures, shape), truth)
    parts |= _split(config, parts.pop("train"), keep_all="test" in parts)
    return Data("", list(classes), shape, parts, "IDX files")


def _sized(images: np.ndarray, shape: Shape) -> np.ndarray:
    """Pictures that lie in an array, in the size and with the channels that are wanted."""
    if images.shape[1:] == shape.hwc:
        return images
    out = np.empty((len(images), *shape.hwc), np.uint8)
    for i, image in enumerate(images):
        picture = pixels.Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image)
        picture = picture.convert("L" if shape.channels == 1 else "RGB")
        out[i] = pixels.as_array(pixels.resized(picture, shape)[0])
    return out


def digits(config: dict[str, Any], threads: int) -> Data:
    """1797 handwritten digits of 8 × 8 pixels that come with scikit-learn."""
    from sklearn.datasets import load_digits

    found = load_digits()
    shape = shape_of(config, 8, 8, 1)
    images = np.round(found.images * (255.0 / 16.0)).astype(np.uint8)[..., np.newaxis]
    whole = arrays([f"digit-{i:04d}" for i in range(len(images))], _sized(images, shape), found.target.astype(np.int32))
    return Data("", [str(i) for i in range(10)], shape, _split(config, whole), "scikit-learn's digits")


def generated(config: dict[str, Any], threads: int) -> Data:
    shape, task, seed = shape_of(config, 64, 64, 3), config["task"], config["data"]["seed"]
    if task in ("regression", "reconstruction"):
        task = "classification"  # of which they are made
    if min(shape.height, shape.width) < 24:
        raise bad_data("must be at least 24 × 24 for generated shapes", "image")

    def draw(i: int) -> Sample:
        return shapes.sample(seed, i, task, *shape.hwc)

    samples = [draw(i) for i in range(config["data"]["count"])]
    names = [f"shapes-{i:06d}" for i in range(len(samples))]
    images = np.stack([sample.image for sample in samples])
    if task == "classification":
        whole = arrays(names, images, np.array([sample.label for sample in samples], np.int32))
    else:
        whole = Part(names, samples.__getitem__, None, images)
    classes = list(shapes.KINDS) if task != "segmentation" else ["background", *shapes.KINDS]
    return Data("", classes, shape, _split(config, whole), f"{len(samples)} generated shapes, seed {seed}")
