"""Runs the network program of a person's own, and says in which line it failed.

It is that person's code and runs as that person. Whose it is was decided by whoever read it: by the
configuration that names it, or by `folder`, where it lies beside a model.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import traceback
from pathlib import Path
from typing import Any

from .errors import bad_config

FIELD = "network.file"
LONGEST_REASON = 3000


def read(path: Path) -> bytes:
    """The file that a configuration names."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise bad_config(FIELD, f"{path} is not a regular file")
            return file.read()
    except (OSError, ValueError) as error:
        raise bad_config(FIELD, f"cannot read {path}: {error}") from None


def run(source: bytes, name: str) -> Any:
    """The module that it makes; what it goes wrong with is named with its line."""
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise bad_config(FIELD, f"cannot read {name}: {error}") from None
    spec = importlib.util.spec_from_loader("network_file", loader=None, origin=name)
    module = importlib.util.module_from_spec(spec)
    try:
        exec(compile(text, name, "exec"), module.__dict__)  # the person's own code, run as the person
    except Exception as error:
        where = line_of(error, name).strip(" ()")
        raise bad_config(FIELD, f"{where}: {whole(error)}" if where else whole(error)) from error
    return module


def short(error: Exception) -> str:
    """The first line that says something, with what the library adds cut off."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {printable(lines[0][:300])}" if lines else type(error).__name__


def whole(error: Exception) -> str:
    """All that a library says of an error to its user, on as many lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [printable(line.rstrip()) for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: " + "\n".join(lines)[:LONGEST_REASON] if lines else type(error).__name__


def printable(text: str) -> str:
    """Words that may be of somebody else's file, as a terminal may have them."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def line_of(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == file:
        return f" (line {error.lineno})"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" (line {lines[-1]})" if lines else ""
