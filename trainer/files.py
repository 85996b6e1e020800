"""Writing so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .progress import plain


def replace(path: Path, write: Callable[[Path], None]) -> None:
    """Has `write` fill a file beside `path`, then puts it in place; nothing is left on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The ending stays: some writers choose the format by it.
    beside = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(beside)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    replace(path, lambda beside: _exactly(beside, text))


def _exactly(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def write_program(path: Path, source: bytes) -> None:
    """A program that nobody else may change: only such a one is run again."""

    def fill(beside: Path) -> None:
        beside.write_bytes(source)
        beside.chmod(beside.stat().st_mode & 0o755)

    replace(path, fill)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(plain(value), indent=2) + "\n")


def write_hyperparameters(path: Path, config: dict[str, Any]) -> None:
    """Writes what a training was configured with where curves are read, as `hparams.yaml`: one level, the names joined
    by dots. JSON is YAML. Where the training was and what its files are called is left out, and lists."""

    def level(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
        for name, value in values.items():
            if isinstance(value, dict):
                yield from level(value, f"{prefix}{name}.")
            elif isinstance(value, bool | int | float | str):
                yield f"{prefix}{name}", value

    write_json(path, dict(level({name: config[name] for name in config if name not in ("name", "output", "data")})))


def write_rows(path: Path, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """A CSV file after RFC 4180 with LF ends."""

    def fill(beside: Path) -> None:
        with open(beside, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    replace(path, fill)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
