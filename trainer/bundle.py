"""Makes a model of a bundle: the output that a training would have left, with the bundle's model as its only
checkpoint. A bundle is a folder, or the tar archive that the portal makes of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import afterwards, describe, export, files, folder
from .checkpoints import INDEX
from .errors import bad_data
from .folder import Folder, Unfit
from .progress import say

FILE = "epoch-00000.keras"
_NEEDED = ("model.keras", "labels.txt", "preprocessing.json")
_SUMS = "SHA256SUMS"
LARGEST = 8 << 30  # of a file in an archive


def imported(path: Path, output: Path) -> dict[str, Any]:
    """Writes the output, its bundle among it; says what it is."""
    with _opened(path) as place:
        _checked(place, path)
        trained = afterwards.load(place.path / "model.keras")
    say("data", source=str(path), classes=len(trained.labels), shape=trained.shape.hwc)
    output.mkdir(parents=True, exist_ok=True)
    files.write_text(output / "labels.txt", "".join(f"{label}\n" for label in trained.labels))
    files.write_json(output / "preprocessing.json", trained.preprocessing)
    about = {"config": {"name": path.stem, "task": trained.task, "network": {}}, "source": str(path)}
    files.write_json(output / "run.json", about)
    described = describe.described(trained.model, {"optimizer": {"name": "sgd"}, "accumulation": 1, "precision": "float32", "batch_size": 1})
    files.write_json(output / "model_summary.json", described)
    files.replace(output / "checkpoints" / FILE, trained.model.save)
    at = {"file": FILE, "epoch": 0, "batch": 0, "step": 0, "metrics": None, "sums": {}, "window": {}}
    index = {"identity": {}, "metric": "", "best": FILE, "best_value": None, "waited": 0, "snapshots": [at]}
    files.write_json(output / "checkpoints" / INDEX, index)
    bundle = export.exported(output / "checkpoints" / FILE, output / "bundle")
    return {"task": trained.task, "classes": len(trained.labels), "files": bundle["files"]}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Folder]:
    try:
        with contextlib.ExitStack() as stack:
            place = path
            if not path.is_dir():
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bundle-")))
                _unpacked(path, place)
            yield stack.enter_context(folder.opened(place))
    except FileNotFoundError:
        raise bad_data(f"{path} does not exist", "BUNDLE") from None
    except Unfit as unfit:
        raise bad_data(f"{path} {unfit}", "BUNDLE") from None


def _unpacked(path: Path, place: Path) -> None:
    """The files of a bundle by their names; whatever else is in an archive is left there."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = Path(member.name).name
                if not member.isreg() or name not in (*_NEEDED, _SUMS) or (place / name).exists():
                    continue
                if member.size > LARGEST:
                    raise Unfit(f"contains {name} of more than {LARGEST >> 30} GiB")
                source = archive.extractfile(member)
                assert source is not None
                with open(place / name, "xb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise Unfit(f"is not a folder or a tar archive: {error}") from None


def _checked(place: Folder, path: Path) -> None:
    """What it needs is there and, where it has checksums, as it was exported."""
    for name in _NEEDED:
        try:
            place.open(name).close()
        except FileNotFoundError:
            raise bad_data(f"{path} is not a bundle: {name} is missing", "BUNDLE") from None
    try:
        lines = place.read(_SUMS).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return
    wanted = dict(reversed(line.split("  ", 1)) for line in lines if "  " in line)
    for name in _NEEDED:
        with place.open(name) as file:
            if wanted.get(name) != hashlib.file_digest(file, "sha256").hexdigest():
                raise bad_data(f"{path}: {name} differs from its checksum in {_SUMS}", "BUNDLE")
