"""Snapshots of a training: `.keras` files with the optimiser's state, and an index that says
where the training stood. The best and the last few are kept.

A snapshot is in the index only after it is whole on the disk, and goes from the index before
its file does, so whatever happens, the index names files that can be loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import bad_data
from .files import replace, write_json

INDEX = "index.json"

# What must be the same for a training to be gone on with; epochs, for one, may change.
_IDENTITY = (
    "task",
    "image",
    "normalisation",
    "network",
    "batch_size",
    "accumulation",
    "seed",
    "optimizer",
    "precision",
    "augmentation",
)


def identity(config: dict[str, Any], classes: list[str], pictures: int) -> dict[str, Any]:
    return {key: config[key] for key in _IDENTITY} | {"classes": classes, "pictures": pictures}


def plain(identity: dict[str, Any]) -> dict[str, Any]:
    """Through JSON, because that is how what it is compared with has gone."""
    return json.loads(json.dumps(identity))


def read(folder: Path) -> dict[str, Any] | None:
    """The index, or `None` where there is none or nothing in it."""
    try:
        index = json.loads((folder / INDEX).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise bad_data(f"{folder / INDEX} cannot be read: {error}", "resume") from None
    index["snapshots"] = [entry for entry in index["snapshots"] if (folder / entry["file"]).exists()]
    return index if index["snapshots"] else None


def clear(folder: Path) -> None:
    """Takes away what an earlier training has left, and nothing that it did not write."""
    index = read(folder)
    if index:
        (folder / INDEX).unlink()
        for entry in index["snapshots"]:
            (folder / entry["file"]).unlink()


def changed(index: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first field that is not as it was when these snapshots were made."""
    return next((key for key, value in plain(now).items() if index["identity"].get(key) != value), None)


def save(
    folder: Path, model: Any, index: dict[str, Any], entry: dict[str, Any], keep_last: int, writes: bool = True
) -> None:
    """Writes the snapshot, then the index, then removes what is neither the best nor among the last.

    Without `writes` the index alone is changed, in memory: another process does the rest.
    """
    if writes:
        replace(folder / entry["file"], model.save)
    others = [old for old in index["snapshots"] if old["file"] != entry["file"]]
    index["snapshots"] = others + [entry]
    kept = [old for old in index["snapshots"][-keep_last:]]
    kept_files = {old["file"] for old in kept} | {index["best"]}
    gone = [old for old in index["snapshots"] if old["file"] not in kept_files]
    index["snapshots"] = [old for old in index["snapshots"] if old["file"] in kept_files]
    if not writes:
        return
    write_json(folder / INDEX, index)
    for old in gone:
        (folder / old["file"]).unlink(missing_ok=True)
