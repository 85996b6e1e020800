"""Reads what lies in a folder that may be somebody else's: a model's, or a dataset's.

The folder is opened once and everything in it by a plain name below its descriptor, without following
links, so that whoever owns it cannot exchange a file between a look and its use. What is asked of a file is
asked of its descriptor, and nothing but a regular file is read, so that nobody is kept waiting by a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

PROGRAM = "network.py"  # of a network of a person's own, beside what was trained with it
LONGEST_PROGRAM = 1 << 20
LONGEST_TEXT = 64 << 20


class Unfit(Exception):
    """Why a file or a folder is not used, as half a sentence."""


@dataclass(frozen=True)
class Folder:
    """A folder that is held open."""

    path: Path
    descriptor: int
    about: os.stat_result

    @property
    def objection(self) -> str | None:
        return objection(self.about)

    def open(self, name: str) -> BinaryIO:
        """A regular file of this folder; `FileNotFoundError` where there is none."""
        # A pipe would wait for its writer without O_NONBLOCK.
        descriptor = _opened(name, os.O_NONBLOCK | os.O_NOCTTY, self.descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Unfit("is not a regular file")
        return os.fdopen(descriptor, "rb")

    def read(self, name: str, limit: int = LONGEST_TEXT) -> bytes:
        with self.open(name) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise Unfit(f"is larger than {limit >> 20} MiB")
        return content

    def json(self, name: str) -> Any:
        """A file's value; whatever is no JSON is `Unfit`."""
        try:
            return json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            raise Unfit(f"is not valid JSON: {error}") from None

    @contextlib.contextmanager
    def below(self, name: str) -> Iterator[Folder]:
        """A folder of this folder."""
        yield from _held(self.path / name, _opened(name, os.O_DIRECTORY, self.descriptor))

    def program(self) -> bytes:
        """The network program that lies here, where nobody else can have written any of it."""
        if why := self.objection:
            raise Unfit(f"is not run, because its folder {why}")
        with self.open(PROGRAM) as file:
            about = os.fstat(file.fileno())
            if why := objection(about):
                raise Unfit(f"is not run, because it {why}")
            if about.st_dev != self.about.st_dev:
                raise Unfit("is not run, because it is on another file system than its folder")
            content = file.read(LONGEST_PROGRAM + 1)
        # Files that the kernel makes up have no size.
        if len(content) != about.st_size or len(content) > LONGEST_PROGRAM:
            raise Unfit(f"is not run, because it is longer than {LONGEST_PROGRAM >> 20} MiB, or changed meanwhile")
        return content


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Folder]:
    """The folder of a path that a person named. Links on the way to it are followed; what counts is whose it is."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, "does not exist", str(path)) from None
    except (OSError, ValueError) as error:
        raise Unfit(f"cannot be opened: {_words(error)}") from None
    yield from _held(path, descriptor)


def objection(about: os.stat_result) -> str | None:
    """What makes it possible that another user wrote it; `None` for what is this person's alone."""
    if about.st_uid != os.geteuid():
        return "belongs to another user"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be changed by other users"
    return None


def is_plain(name: Any, ending: str = "") -> bool:
    """Whether it is the name of a file that can lie in a folder, as the trainer gives names."""
    return (
        isinstance(name, str)
        and len(name) < 200
        and name.endswith(ending)
        and not name.startswith(".")
        and name.isprintable()
        and "/" not in name
        and name != ""
    )


def _opened(name: str, flags: int, parent: int) -> int:
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise Unfit("is not a plain file name")
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        is_link = error.errno == errno.ELOOP or _is_link(name, parent)
        raise Unfit("is a link; links are not followed" if is_link else f"cannot be read: {_words(error)}") from None


def _is_link(name: str, parent: int) -> bool:
    """For the sentence alone: O_DIRECTORY calls a link something that is not a folder."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _held(path: Path, descriptor: int) -> Iterator[Folder]:
    try:
        yield Folder(path, descriptor, os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
