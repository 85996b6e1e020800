"""Copies between the host's memory and each GPU, and from each GPU to each other one. Contents are compared.

The host's memory is pageable, as in a training. JAX chooses the way between two GPUs: peer access, or through the host.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .devices import Opened, best
from .faults import Faults

REPEATS = 5
LATENCY_REPEATS = 30


def pattern(size: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 2**32, size // 4, dtype=np.uint32)


def host(opened: Opened, injected: Faults) -> dict:
    """Bandwidth in both directions in GB/s, and how many words of a copy were wrong."""
    data = pattern(opened.sizes.transfer)
    rows = [host_row(number, device, data, injected) for number, device in enumerate(opened.all)]
    return {"bytes": data.nbytes, "rows": rows}


def host_row(number: int, device: Any, data: np.ndarray, injected: Faults) -> dict:
    up = best(lambda: jax.device_put(data, device, may_alias=False).block_until_ready(), REPEATS)
    there = jax.device_put(data, device, may_alias=False)
    # An array remembers its copy on the host, so that each time needs an array of its own.
    touch = jax.jit(lambda x: x ^ jnp.uint32(0))
    copies = [touch(there).block_until_ready() for _ in range(REPEATS + 1)]
    down = best(lambda: np.array(copies.pop(), copy=True), REPEATS)
    back = np.array(touch(there), copy=True)
    if injected.has("host-wrong", number):
        back[3] ^= 1
    return {
        "device": number,
        "to_device_gb_s": rate(data.nbytes, up),
        "to_host_gb_s": rate(data.nbytes, down),
        "wrong": int((back != data).sum()),
    }


def links(opened: Opened, injected: Faults) -> dict:
    """Matrices from row to column: bandwidth in GB/s, latency in µs, and wrong words. The diagonal is null."""
    count = len(opened.all)
    data = pattern(opened.sizes.link)
    wanted = [jax.device_put(data, device, may_alias=False) for device in opened.all]
    small = [jax.device_put(np.float32(1), device, may_alias=False) for device in opened.all]
    differing = jax.jit(lambda one, other: jnp.sum(one != other))
    bandwidth, latency, wrong = ([[None] * count for _ in range(count)] for _ in range(3))
    for one, other in itertools.permutations(range(count), 2):
        delay = 0.02 if injected.has("link-slow", one, other) else 0
        move = functools.partial(copy, to=opened.all[other], delay=delay)
        bandwidth[one][other] = rate(data.nbytes, best(functools.partial(move, wanted[one]), REPEATS))
        latency[one][other] = round(best(functools.partial(move, small[one]), LATENCY_REPEATS) * 1e6, 2)
        moved = move(wanted[one])
        if injected.has("link-wrong", one, other):
            moved = moved.at[5].set(moved[5] ^ 1)
        wrong[one][other] = int(differing(moved, wanted[other]))
    return {"bytes": data.nbytes, "bandwidth_gb_s": bandwidth, "latency_us": latency, "wrong": wrong}


def copy(array: Any, to: Any, delay: float) -> Any:
    moved = jax.device_put(array, to, may_alias=False).block_until_ready()
    if delay:
        time.sleep(delay)
    return moved


def rate(size: int, seconds: float) -> float:
    return round(size / seconds / 1e9, 3)
