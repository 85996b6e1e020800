"""What the GPUs compute: matmul rates in two precisions, and whether the same work gives the same bits.

A GPU that computes other bits than before, or than its equals, corrupts trainings without a word. All GPUs of a model
run one compiled program for that, so that only the hardware can differ.
"""

from __future__ import annotations

import hashlib
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from .devices import Opened
from .faults import Faults

AXIS = "gpus"
# Several multiplications in one program, so that starting it costs nothing to speak of.
CHAIN = 8


def matmul(opened: Opened, injected: Faults) -> dict:
    """TFLOP/s of each GPU in float32 and bfloat16, one GPU after the other."""
    size = opened.sizes.matmul
    rows = []
    for kind, precision in (("float32", "highest"), ("bfloat16", "default")):
        start = (np.random.default_rng(3).standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)

        @jax.jit
        def chain(x, a, precision=precision):
            for _ in range(CHAIN):
                x = jnp.matmul(x, a, precision=precision)
            return x

        for number, device in enumerate(opened.all):
            a = jax.device_put(start, device).astype(kind)
            chain(a, a).block_until_ready()
            runs, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < opened.sizes.matmul_seconds or runs < 3:
                chain(a, a).block_until_ready()
                runs += 1
            if injected.has("matmul-slow", number):
                spent *= 20
            rows.append({"device": number, "type": kind, "tflops": round(2 * size**3 * CHAIN * runs / spent / 1e12, 4)})
    return {"size": size, "rows": rows}


def bits(opened: Opened, injected: Faults) -> dict:
    """Digests of the same work, done twice on each GPU. They are equal on GPUs of one model."""
    size = opened.sizes.bits
    rng = np.random.default_rng(11)
    first = rng.standard_normal((size, size)).astype(np.float32)
    second = (rng.standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)

    def work(a, b):
        x, y = a, a.astype(jnp.bfloat16)
        for _ in range(16):
            x = jnp.tanh(jnp.matmul(x, b, precision="highest")) + jnp.float32(0.25)
            y = jnp.sin(jnp.matmul(y, b.astype(jnp.bfloat16)))
        return jnp.stack([x, y.astype(jnp.float32)])[None]

    digests: dict[int, list[str]] = {}
    for group in opened.groups():
        mesh = Mesh(np.array([opened.all[number] for number in group]), (AXIS,))
        every = (PartitionSpec(), PartitionSpec())
        run = jax.jit(jax.shard_map(work, mesh=mesh, in_specs=every, out_specs=PartitionSpec(AXIS), check_vma=False))
        for again in (False, True):
            parts = {shard.device: shard.data for shard in run(first, second).addressable_shards}
            for number in group:
                result = np.array(parts[opened.all[number]], copy=True)
                if injected.has("bits", number) or (again and injected.has("unsteady", number)):
                    result.view(np.uint32).reshape(-1)[9] ^= 1
                digests.setdefault(number, []).append(hashlib.sha256(result.tobytes()).hexdigest()[:16])
    return {"rows": [{"device": number, "digests": digests[number]} for number in sorted(digests)]}
