"""What the program says while it runs: one JSON object a line on standard output.

The portal shows these; curves are never read from here, they are in the event files.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any, TextIO


def plain(value: Any) -> Any:
    """The same without numbers that JSON cannot hold (NaN, Infinity become null) or NumPy types."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_mute = False


def only_errors() -> None:
    """From here on, of a process that does the same as another one."""
    global _mute
    _mute = True


def say(event: str, to: TextIO | None = None, **facts: Any) -> None:
    if _mute and event != "error":
        return
    line = {"event": event, "time": round(time.time(), 3)} | plain(facts)
    to = to or sys.stdout
    to.write(json.dumps(line) + "\n")
    to.flush()
