"""What can go wrong, and the exit code that tells it to whoever started the program.

Everything a person can mend is a `Stop`: it carries what happened, why, and where it can be
said the field of the configuration. Anything else is a mistake of ours and keeps its traceback.
"""

from __future__ import annotations

import errno

DONE = 0
BAD_CONFIG = 1
BAD_DATA = 2
DIVERGED = 3
CANNOT_WRITE = 4
NO_BACKEND = 5
NO_MEMORY = 6
NO_COMPANY = 7
INTERNAL = 70
TERMINATED = 143  # what a shell makes of SIGTERM; the last checkpoint has everything


class Stop(Exception):
    """Ends the program with a code and a sentence; `field` names a place in the configuration."""

    def __init__(self, code: int, message: str, field: str | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field


def bad_config(field: str, message: str) -> Stop:
    return Stop(BAD_CONFIG, message, field)


def bad_data(message: str, field: str | None = None) -> Stop:
    return Stop(BAD_DATA, message, field)


def as_stop(error: BaseException) -> Stop | None:
    """The `Stop` for failures of the machine: a full disk, a missing backend, too little memory."""
    if isinstance(error, Stop):
        return error
    text = str(error)
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text
        if full:
            return Stop(CANNOT_WRITE, f"the disk or the quota is full: {text}; earlier checkpoints are intact")
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return Stop(CANNOT_WRITE, f"permission denied: {text}")
    if isinstance(error, ModuleNotFoundError):
        return Stop(NO_BACKEND, f"this environment lacks the Python package {error.name}")
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        return Stop(NO_MEMORY, "out of memory: use a smaller batch_size, smaller images, or more memory")
    return None
