"""The devices that are measured: which ones JAX sees, and how much each part does on them.

A GPU gets sizes that take a while at its speed; a CPU, on which only tests measure, gets small ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform as machine
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")


@dataclass(frozen=True)
class Sizes:
    """How much is moved and computed."""

    transfer: int = 256 << 20
    link: int = 64 << 20
    collective: tuple[int, ...] = (64 << 10, 4 << 20, 128 << 20)
    matmul: int = 8192
    matmul_seconds: float = 1.5
    bits: int = 2048
    # Of the memory that JAX may use.
    memory_share: float = 0.6
    memory_chunk: int = 512 << 20
    memory_unknown: int = 1 << 30


SMALL = Sizes(
    transfer=4 << 20,
    link=1 << 20,
    collective=(16 << 10, 256 << 10),
    matmul=256,
    matmul_seconds=0.05,
    bits=128,
    memory_chunk=4 << 20,
    memory_unknown=8 << 20,
)


@dataclass
class Opened:
    """The devices, or why there are none."""

    all: list[Any] = field(default_factory=list)
    fault: str = ""
    software: dict = field(default_factory=dict)
    sizes: Sizes = SMALL

    def table(self) -> list[dict]:
        return [
            {"device": number, "model": device.device_kind, "memory_bytes": limit(device)}
            for number, device in enumerate(self.all)
        ]

    def groups(self) -> list[list[int]]:
        """The numbers of the devices of each model."""
        kinds = sorted({device.device_kind for device in self.all})
        return [[n for n, device in enumerate(self.all) if device.device_kind == kind] for kind in kinds]


def held() -> int:
    """How many GPUs the portal or the batch system has given out."""
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return sum(1 for name in names if name and name not in ("-1", "NoDevFiles"))


def open_all(platform: str) -> Opened:
    """Opens the devices of a platform. Without any, `fault` says why in one line."""
    # Memory is tested; an allocator that takes most of it at once would leave no say in how much.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    opened = Opened(software={"python": machine.python_version(), "platform": platform})
    plugins = [name for name in PLUGINS if importlib.util.find_spec(name)]
    opened.software["cuda_plugin"] = bool(plugins)
    try:
        jax = importlib.import_module("jax")
    except ImportError as error:
        opened.fault = f"JAX is not installed in this environment ({error})"
        return opened
    opened.software |= {"jax": jax.__version__, "jaxlib": importlib.import_module("jaxlib").__version__}
    if platform == "gpu" and not plugins:
        opened.fault = "JAX was installed without CUDA in this environment"
        return opened
    try:
        opened.all = jax.local_devices(backend=platform)
    except RuntimeError as error:
        opened.fault = "JAX cannot open the GPUs: " + " ".join(str(error).split())[:400]
        return opened
    if platform != "cpu":
        opened.sizes = Sizes()
    return opened


def limit(device: Any) -> int | None:
    """How many bytes of its memory JAX may use."""
    statistics = device.memory_stats() or {}
    return statistics.get("bytes_limit")


def best(run: Callable[[], Any], repeats: int) -> float:
    """The shortest of several times in seconds, after one run that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)
