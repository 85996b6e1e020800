"""Snapshots of a training: `.keras` files with the optimiser's state, and an index that says
where the training stood. The best and the last few are kept.

A snapshot is in the index only after it is whole on the disk, and goes from the index before
its file does, so whatever happens, the index names files that can be loaded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import folder as folders
from . import saved
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
        with folders.opened(folder) as place:
            index = place.json(INDEX)
    except FileNotFoundError:
        return None
    except folders.Unfit as unfit:
        raise bad_data(f"{folder / INDEX} {unfit}", "resume") from None
    if not _is_sound(index):
        raise bad_data(f"{folder / INDEX} is damaged: use another output, or delete it with its checkpoints", "resume")
    index["snapshots"] = [entry for entry in index["snapshots"] if (folder / entry["file"]).exists()]
    return index if index["snapshots"] else None


def _is_sound(index: Any) -> bool:
    """Whether it is one as `save` writes them: it names checkpoints in its own folder and nothing else."""
    if not isinstance(index, dict) or not isinstance(index.get("identity"), dict):
        return False
    entries, best = index.get("snapshots"), index.get("best")
    return (
        (best is None or folders.is_plain(best, saved.ENDING))
        and isinstance(entries, list)
        and all(isinstance(entry, dict) and folders.is_plain(entry.get("file"), saved.ENDING) for entry in entries)
    )


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
