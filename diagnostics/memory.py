"""A share of each GPU's memory is filled with a pattern and read back, then again with the inverted pattern.

Each word depends on its place, so that a wrong address is found as well as a bit that sticks. One GPU at a time.
"""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp

from .devices import Opened, limit
from .faults import Faults


@functools.partial(jax.jit, static_argnums=0)
def filled(words: int, start, inverted):
    place = jnp.arange(words, dtype=jnp.uint32) + start
    mixed = place * jnp.uint32(2654435761) ^ (place >> 15)
    return jnp.where(inverted, ~mixed, mixed)


@functools.partial(jax.jit, static_argnums=1)
def differing(chunk, words: int, start, inverted):
    return jnp.sum(chunk != filled(words, start, inverted), dtype=jnp.uint32)


def memory(opened: Opened, injected: Faults) -> dict:
    rows = []
    chunk = opened.sizes.memory_chunk
    words = chunk // 4
    for number, device in enumerate(opened.all):
        most = limit(device)
        used = (device.memory_stats() or {}).get("bytes_in_use", 0)
        # What reading back needs beside the chunks stays free.
        room = (most - used) * opened.sizes.memory_share if most else opened.sizes.memory_unknown
        wrong, tested, began = 0, 0, time.perf_counter()
        stopped = ""
        with jax.default_device(device):
            for inverted in (False, True):
                chunks = []
                try:
                    for place in range(max(1, int(room // chunk))):
                        chunks.append(filled(words, jnp.uint32(place * words % 2**32), inverted).block_until_ready())
                except Exception as error:  # Somebody else uses the memory as well.
                    if "RESOURCE_EXHAUSTED" not in str(error):
                        raise
                    stopped = "another program uses a part of the memory"
                if injected.has("memory", number):
                    chunks[0] = chunks[0].at[7].set(chunks[0][7] ^ 4)
                for place, held in enumerate(chunks):
                    wrong += int(differing(held, words, jnp.uint32(place * words % 2**32), inverted))
                tested = max(tested, len(chunks) * chunk)
        rows.append(
            {
                "device": number,
                "bytes": tested,
                "of_bytes": most,
                "wrong": wrong,
                "seconds": round(time.perf_counter() - began, 3),
                "note": stopped,
            }
        )
    return {"rows": rows}
