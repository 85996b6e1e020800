"""What differs between classification, segmentation and detection: the truth as numbers, the
loss, what is measured, and the files of the evaluation. Each is a module with the same functions.
"""

from __future__ import annotations

from types import ModuleType


def of(task: str) -> ModuleType:
    from . import classification, detection, segmentation

    return {"classification": classification, "segmentation": segmentation, "detection": detection}[task]
