"""Keeps what JAX compiles, so that a network that was trained before starts in half the time.

Programs are made for one processor, and homes are shared by machines that differ: each kind of
machine has a folder of its own. What was kept longest ago goes when there is too much.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

MAX_BYTES = 1 << 30


def keep(environment: dict[str, str] | os._Environ[str] = os.environ, root: Path = Path("/")) -> Path | None:
    """Names the folder to JAX before it is imported; what somebody has set already stays.

    Without a folder that can be written, nothing is kept: training goes on all the same.
    """
    if "JAX_COMPILATION_CACHE_DIR" in environment:
        return None
    # Of several machines all would load what the first has compiled for a device of its own, which has crashed them:
    # https://github.com/openxla/xla/issues/18286
    if environment.get("WORLD_SIZE", "1") != "1":
        return None
    try:
        home = environment.get("XDG_CACHE_HOME") or str(Path(environment["HOME"]) / ".cache")
        folder = Path(home) / "lyceum" / "jax" / _processor(root)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None
        prune(folder.parent, MAX_BYTES)
    except (KeyError, OSError):
        return None
    environment["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # Hundreds of small programs take as long as the few large ones.
    environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    return folder


def prune(folder: Path, most: int) -> None:
    """Removes the files that were written longest ago until the others have `most` bytes together."""
    files = []
    for path in folder.glob("*/*"):
        try:
            status = path.stat()
        except OSError:  # another training's pruning was quicker
            continue
        files.append((status.st_mtime, status.st_size, path))
    size = sum(file[1] for file in files)
    for _, bytes_, path in sorted(files):
        if size <= most:
            return
        path.unlink(missing_ok=True)
        size -= bytes_


def _processor(root: Path) -> str:
    """What tells processors apart whose programs do not run on each other."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    words = " ".join(sorted(features.partition(":")[2].split()))
    return f"{platform.machine()}-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
