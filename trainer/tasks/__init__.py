"""What differs between classification, segmentation, detection and the others: the truth as numbers, the
loss, what is measured, and the files of the evaluation. Each is a module with the same functions.
"""

from __future__ import annotations

from types import ModuleType


def of(task: str) -> ModuleType:
    from . import classification, detection, reconstruction, regression, segmentation

    return {
        "classification": classification,
        "segmentation": segmentation,
        "detection": detection,
        "regression": regression,
        "reconstruction": reconstruction,
    }[task]
