"""How fast a training is, over how many devices: what trainings are compared by when they are the
same but for that. The first step of each epoch is not counted: it compiles, or waits for the loader."""

from __future__ import annotations

import os
import time
from pathlib import Path

from . import files

FILE = "speed.json"


class Speed:
    """Pictures and seconds of the steps of this attempt, with all that a step waits for."""

    def __init__(self) -> None:
        self.pictures, self.seconds = 0, 0.0
        self._last: float | None = None

    def epoch(self) -> None:
        self._last = None

    def step(self, count: int) -> None:
        now = time.monotonic()
        if self._last is not None:
            self.pictures, self.seconds = self.pictures + count, self.seconds + now - self._last
        self._last = now

    def write(self, output: Path, devices: int, batch_size: int, precision: str) -> None:
        """Nothing where nothing was counted: an attempt that only evaluated says nothing of an earlier one."""
        if not self.pictures:
            return
        about = {"devices": devices, "device": _device(), "batch_size": batch_size, "precision": precision}
        files.write_json(output / FILE, about | {"images_per_second": self.pictures / max(self.seconds, 1e-9)})


def _device() -> str:
    """What each of the devices is: `cpu`, or what a GPU calls itself."""
    backend = os.environ.get("KERAS_BACKEND")
    if backend == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    if backend == "tensorflow":
        import tensorflow

        gpus = tensorflow.config.list_physical_devices("GPU")
        if not gpus:
            return "cpu"
        return str(tensorflow.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
