"""`python -m diagnostics.storage --directory D --output storage.json`: how fast the storage of a folder is.

Measures a large file and many small ones in a folder of the user, and how a training reads a dataset. All that it writes
is bounded, lies in one folder of its own, and is removed at every end that a program can see. Reads count only what did
not come from memory: the page cache is dropped before, and asked whether it was.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .report import not_tested, say, write

# Of the JSON document.
VERSION = 1
PARTS = ("sequential", "files", "dataset")
BLOCK = 4 << 20
# So much is written before it is waited for.
SYNC = 64 << 20
DEFAULT_SIZE, MIN_SIZE = 1 << 30, 16 << 20
# Of the free space, at most this part is used.
SHARE = 10
FILES, FILE_SIZE, FOLDERS = 1000, 16 << 10, 20
# A slow storage ends a part early (seconds).
LIMIT = 120.0
DATASET_LIMIT = 20.0
BATCH = 32
# So many files are asked whether they are in memory.
SAMPLES = 64
PREFIX = ".lyceum-storage-test-"
# Longer than any test: what is older was left by one that was killed (seconds).
STALE = 7200
UNFINISHED = "the job ended before this part did"


class Refused(Exception):
    """Why nothing can be measured."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="diagnostics.storage", description="Measures the storage of a folder.")
    parser.add_argument("--directory", default="", help="the folder in which files are written")
    parser.add_argument("--size", type=int, help="the size of the large file (bytes)")
    parser.add_argument("--dataset", default="", help="the folder of a built dataset")
    parser.add_argument("--output", type=Path, required=True, help="the JSON document to write")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    document = measure(
        arguments.directory, arguments.size, arguments.dataset, lambda found: write(arguments.output, found)
    )
    write(arguments.output, document)
    return 0


def measure(directory: str, size: int | None, dataset: str, keep: Callable[[dict], None] = lambda found: None) -> dict:
    """The whole document; `keep` gets it whenever a part has ended."""
    document: dict = {"version": VERSION, "node": socket.gethostname(), "fault": "", "file_system": None}
    document |= {
        "sequential": not_tested(UNFINISHED if directory else "no folder was given"),
        "files": not_tested(UNFINISHED if directory else "no folder was given"),
        "dataset": not_tested(UNFINISHED if dataset else "no dataset was given"),
    }
    try:
        place = os.path.realpath(os.path.expanduser(directory or dataset))
        document["file_system"] = file_system(place)
        if directory:
            in_folder(place, room(place, size), document, keep)
    except Refused as reason:
        document["fault"] = str(reason)
        return document
    say("progress", part="dataset", done=2, of=len(PARTS))
    if dataset:
        document["dataset"] = part("dataset", lambda: read_dataset(dataset))
    say("progress", part="", done=len(PARTS), of=len(PARTS))
    return document


def in_folder(place: str, size: int, document: dict, keep: Callable[[dict], None]) -> None:
    remove_stale(place)
    try:
        own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    except OSError as error:
        raise Refused(f"{place} cannot be written: {error.strerror}") from None
    try:
        for number, (name, run) in enumerate(
            (("sequential", lambda: sequential(own / "large", size)), ("files", lambda: many(own / "small")))
        ):
            say("progress", part=name, done=number, of=len(PARTS))
            document[name] = part(name, run)
            keep(document)
    finally:
        shutil.rmtree(own, ignore_errors=True)
        if own.exists():
            say("left", path=str(own))


def remove_stale(place: str) -> None:
    """Removes what tests of this user left here that were killed."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            about = entry.stat(follow_symlinks=False) if entry.name.startswith(PREFIX) else None
            if about and about.st_uid == os.geteuid() and time.time() - about.st_mtime > STALE:
                shutil.rmtree(entry.path, ignore_errors=True)


def part(name: str, run: Callable[[], dict]) -> dict:
    """One part. What fails in it is written down, and the other parts go on."""
    began = time.perf_counter()
    try:
        found = {"state": "measured", "reason": ""} | run()
    except OSError as error:
        words = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "your disk quota is used up"}
        found = not_tested(words.get(error.errno or 0, f"{error.strerror or error}"))
    except Exception as error:  # Of a reader of a dataset that may be damaged.
        found = not_tested(" ".join(f"{error}".split())[:500] or type(error).__name__)
    seconds = round(time.perf_counter() - began, 3)
    say(found["state"], part=name, seconds=seconds, reason=found["reason"])
    return found | {"seconds": seconds}


# --- Where it is.


def file_system(place: str) -> dict:
    """Type, source and mount point of the file system that a folder is in. `Refused` if it is not a folder."""
    if not os.path.isdir(place):
        raise Refused(f"{place} is not a folder that you can reach from {socket.gethostname()}")
    about = os.statvfs(place)
    found = mount_of(place, Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    return found | {"size_bytes": about.f_blocks * about.f_frsize, "free_bytes": about.f_bavail * about.f_frsize}


def mount_of(place: str, mounts: str) -> dict:
    """The last of the deepest mounts above a path (`/proc/self/mountinfo`)."""
    best, found = "", {"type": "", "source": "", "mount_point": ""}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, ends = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(ends) < 2:
            continue
        point = unescaped(fields[4])
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, found = point, {"type": ends[0], "source": unescaped(ends[1])[:300], "mount_point": point[:300]}
    return found


def unescaped(text: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text


def room(place: str, size: int | None) -> int:
    """How large the file may be. `Refused` if that is too little to measure anything."""
    about = os.statvfs(place)
    most = about.f_bavail * about.f_frsize // SHARE
    if size is None:
        size = min(DEFAULT_SIZE, most // BLOCK * BLOCK)
    elif size > most:
        raise Refused(
            f"{megabytes(size)} is more than a tenth of the free space of {place}, which is {megabytes(most)}"
        )
    if size < MIN_SIZE:
        raise Refused(
            f"{place} has too little free space: a tenth of it is {megabytes(most)}; {megabytes(MIN_SIZE)} is needed"
        )
    return size


def megabytes(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


# --- What comes from memory.


def dropped(files: Iterable[Path]) -> str:
    """Asks the kernel to forget these files: `dropped`, `kept`, or `unknown` where it does not answer."""
    paths = list(files)
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    places = [place for path in paths[:: max(1, len(paths) // SAMPLES)] for place in cached(path)]
    if not places or None in places:
        return "unknown"
    return "kept" if sum(places) * 2 > len(places) else "dropped"


def cached(path: Path) -> list[bool | None]:
    """Whether some places of a file are in memory, asked without waiting for the storage."""
    found: list[bool | None] = []
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        for place in [size * number // 8 for number in range(8)] if size > BLOCK else [0] * (size > 0):
            try:
                found.append(bool(os.preadv(file.fileno(), [bytearray(1)], place, os.RWF_NOWAIT)))
            except BlockingIOError:
                found.append(False)
            except OSError:
                found.append(None)
    return found


# --- The parts.


def sequential(path: Path, size: int) -> dict:
    """A large file, written with fsync and read again (MB/s)."""
    block = bytearray(os.urandom(BLOCK))
    count, began = 0, time.perf_counter()
    with path.open("wb", buffering=0) as file:
        while count < size and time.perf_counter() - began < LIMIT:
            # No two blocks are alike, for storage that keeps equal ones once.
            block[:8] = count.to_bytes(8, "little")
            count += file.write(memoryview(block)[: min(BLOCK, size - count)])
            # A slow disk must not hold a test that is to end: nothing interrupts the wait for it.
            if count % SYNC == 0:
                os.fsync(file.fileno())
        os.fsync(file.fileno())
    write_seconds = time.perf_counter() - began
    cache = dropped([path])
    done, began = 0, time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while (read := file.readinto(block)) and time.perf_counter() - began < LIMIT:
            done += read
    read_seconds = time.perf_counter() - began
    path.unlink()
    return {
        "bytes": count,
        "cache": cache,
        "write_mb_s": round(count / write_seconds / 1e6, 1),
        "read_mb_s": round(done / read_seconds / 1e6, 1),
    }


def many(folder: Path) -> dict:
    """Many small files: created, asked about, and read, each per second."""
    paths = [folder / str(number % FOLDERS) / f"{number}.bin" for number in range(FILES)]
    for number in range(FOLDERS):
        (folder / str(number)).mkdir(parents=True)
    content = os.urandom(FILE_SIZE)
    create = per_second(paths, lambda path: path.write_bytes(content))
    made = paths[: create[1]]
    for path in made:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    cache = dropped(made)
    stat = per_second(made, os.stat)
    read = per_second(made, lambda path: path.read_bytes())
    return {
        "count": len(made),
        "bytes_each": FILE_SIZE,
        "cache": cache,
        "create_per_s": create[0],
        "stat_per_s": stat[0],
        "read_per_s": read[0],
    }


def per_second(paths: list[Path], act: Callable[[Path], object]) -> tuple[float, int]:
    """The rate, and how many there was time for."""
    done, began = 0, time.perf_counter()
    for path in paths:
        act(path)
        done += 1
        if time.perf_counter() - began > LIMIT / 3:
            break
    return round(done / max(time.perf_counter() - began, 1e-9), 1), done


def read_dataset(folder: str) -> dict:
    """How many images of a dataset a training gets in a second: the trainer's reader, with one and several workers."""
    from trainer import loader, sources, threads

    path = Path(os.path.realpath(os.path.expanduser(folder)))
    about = json.loads((path / "dataset.json").read_text(encoding="utf-8"))
    # Nothing is kept in memory: what is measured is the first epoch, and later ones of a large dataset.
    config = {
        "task": about["kind"],
        "image": {},
        "data": {"kind": "dataset", "path": str(path), "seed": 42, "memory_mb": 0},
    }
    rows, cache = [], "unknown"
    several = threads.allowed()
    for workers in sorted({1, several}):
        data = sources.load(config, several)
        part = data.parts["train"]
        cache = dropped(files_of(path, about, part.names))
        images, size, began = 0, 0, time.perf_counter()
        batches = loader.training(part, lambda samples: None, min(BATCH, len(part)), 42, 0, {}, workers)
        for pixels, _, count in batches:
            # A mapped array is read when it is looked at.
            images, size = images + count, size + pixels.nbytes
            if time.perf_counter() - began > DATASET_LIMIT:
                break
        batches.close()
        seconds = max(time.perf_counter() - began, 1e-9)
        rate = round(images / seconds, 1)
        rows.append(
            {"workers": workers, "images": images, "images_per_second": rate, "mb_s": round(size / seconds / 1e6, 3)}
        )
        del data, part, batches
        # Pages that are still mapped cannot be dropped.
        gc.collect()
    return {
        "cache": cache,
        "is_cached_dataset": bool(about.get("cache")),
        "file_system": file_system(str(path)),
        "rows": rows,
    }


def files_of(path: Path, about: dict, names: Iterable[str]) -> list[Path]:
    """What a training reads of a dataset: its own files, and the original images if it has no cache of them."""
    own = [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    if about.get("cache"):
        return own
    root = Path(about["source"]["root"])
    return own + [file for name in names if (file := root / name).is_file()]


if __name__ == "__main__":
    sys.exit(main())
