"""The GPUs that this training holds, and those that its framework sees: a difference is reported before any work.

An environment without CUDA computes on the CPU, and nothing else would say so. The sentence goes into the log, and into
the file that the portal shows to the owner (`LYCEUM_NOTES`).
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from .progress import say

TITLES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}


def report(backend: str, used: int) -> None:
    """Says what a person should change where GPUs are held and not used; `used` counts the devices of this machine."""
    held = allocated()
    sentence = sentence_of(backend, held, seen(backend) if held else 0, used)
    if sentence:
        say("warning", message=sentence)
        _note(sentence)


def allocated() -> int:
    """How many GPUs the portal or the batch system has given out; 0 outside of both."""
    if "LYCEUM_SESSION" not in os.environ:
        return 0
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return sum(1 for name in names if name and name not in ("-1", "NoDevFiles"))


def seen(backend: str) -> int:
    """How many GPUs the framework sees on this machine."""
    if backend == "jax":
        return sum(device.platform != "cpu" for device in importlib.import_module("jax").local_devices())
    if backend == "tensorflow":
        return len(importlib.import_module("tensorflow").config.list_physical_devices("GPU"))
    return int(importlib.import_module("torch").cuda.device_count())


def sentence_of(backend: str, held: int, there: int, used: int) -> str | None:
    """The sentence; None where all that is held is used."""
    title = TITLES[backend]
    gpus = "1 GPU" if held == 1 else f"{held} GPUs"
    if held and not there:
        return f"{gpus} allocated; {title} sees only CPUs: choose an environment with CUDA"
    if there < held:
        return f"{gpus} allocated; {title} sees only {there}: ask your administrator to check the GPUs of this node"
    if used < held:
        way = 'set devices to "all"' if backend == "jax" else "choose the backend jax, or request 1 GPU"
        return f"{gpus} allocated; this training uses {used}: {way}"
    return None


def _note(sentence: str) -> None:
    path = os.environ.get("LYCEUM_NOTES")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as notes:
            notes.write(sentence + "\n")
    except OSError as error:
        say("warning", message=f"the portal cannot show this: {error}")
