"""Collectives over all GPUs, in the columns of nccl-tests: size, count, type, time, algbw, busbw, #wrong.

Every rank checks its own part of the result against values that it computes itself, so that a wrong value is counted
where it arrives. Sizes are in bytes and mean what they mean in nccl-tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .devices import Opened, best
from .faults import COLLECTIVE, Faults

REPEATS = 10
AXIS = "gpus"


def value(rank: Any, index: Any) -> Any:
    """What a rank holds at an index: small whole numbers, whose sums are exact."""
    return ((rank * 31 + index * 7) % 13).astype(jnp.float32)


class Collective:
    def __init__(self, run: Callable, wanted: Callable, sent: Callable, factor: Callable) -> None:
        self.run = run
        # What rank r of n has to receive, from the number of elements that each sends.
        self.wanted = wanted
        # How many elements each rank sends for a size of so many elements.
        self.sent = sent
        # Bus bandwidth = factor × algorithm bandwidth.
        self.factor = factor


def every_sum(n: int, index: Any) -> Any:
    return sum(value(rank, index) for rank in range(n))


ALL = {
    "all_reduce": Collective(
        run=lambda x, n: jax.lax.psum(x, AXIS),
        wanted=lambda rank, n, sent: every_sum(n, jnp.arange(sent)),
        sent=lambda elements, n: elements,
        factor=lambda n: 2 * (n - 1) / n,
    ),
    "all_gather": Collective(
        run=lambda x, n: jax.lax.all_gather(x, AXIS, tiled=True),
        wanted=lambda rank, n, sent: value(jnp.arange(sent * n) // sent, jnp.arange(sent * n) % sent),
        sent=lambda elements, n: elements // n,
        factor=lambda n: (n - 1) / n,
    ),
    "reduce_scatter": Collective(
        run=lambda x, n: jax.lax.psum_scatter(x, AXIS, tiled=True),
        wanted=lambda rank, n, sent: every_sum(n, rank * (sent // n) + jnp.arange(sent // n)),
        sent=lambda elements, n: elements,
        factor=lambda n: (n - 1) / n,
    ),
    "all_to_all": Collective(
        run=lambda x, n: jax.lax.all_to_all(x, AXIS, 0, 0, tiled=True),
        wanted=lambda rank, n, sent: value(
            jnp.arange(sent) // (sent // n), rank * (sent // n) + jnp.arange(sent) % (sent // n)
        ),
        sent=lambda elements, n: elements,
        factor=lambda n: (n - 1) / n,
    ),
    "ring": Collective(
        run=lambda x, n: jax.lax.ppermute(x, AXIS, [(rank, (rank + 1) % n) for rank in range(n)]),
        wanted=lambda rank, n, sent: value((rank - 1) % n, jnp.arange(sent)),
        sent=lambda elements, n: elements,
        factor=lambda n: 1.0,
    ),
}


def collectives(opened: Opened, injected: Faults) -> dict:
    n = len(opened.all)
    mesh = Mesh(np.array(opened.all), (AXIS,))
    rows = []
    for name, collective in ALL.items():
        for size in opened.sizes.collective:
            # The same number of elements for each block of each rank.
            elements = size // 4 // (n * n) * (n * n)
            rows.append(row(name, collective, mesh, n, elements, injected.has(COLLECTIVE, name)))
    return {"rows": rows}


def row(name: str, collective: Collective, mesh: Mesh, n: int, elements: int, is_wrong: bool) -> dict:
    sent = collective.sent(elements, n)

    def over_ranks(body: Callable, **how: Any) -> Callable:
        spec = PartitionSpec(AXIS)
        return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False), **how)

    def differing(received: Any) -> Any:
        rank = jax.lax.axis_index(AXIS)
        if is_wrong:
            received = received.at[0].add(jnp.where(rank == 0, 1.0, 0.0))
        return jnp.sum(received != collective.wanted(rank, n, sent)).reshape(1)

    ranks = jax.device_put(np.arange(n, dtype=np.int32), NamedSharding(mesh, PartitionSpec(AXIS)))
    data = over_ranks(lambda rank: value(rank[0], jnp.arange(sent)))(ranks)
    run = over_ranks(lambda x: collective.run(x, n))
    seconds = best(lambda: run(data).block_until_ready(), REPEATS)
    wrong = int(np.asarray(over_ranks(differing)(run(data))).sum())
    algorithm = elements * 4 / seconds / 1e9
    return {
        "name": name,
        "size": elements * 4,
        "count": elements,
        "type": "float",
        "time_us": round(seconds * 1e6, 2),
        "algbw_gb_s": round(algorithm, 3),
        "busbw_gb_s": round(algorithm * collective.factor(n), 3),
        "wrong": wrong,
    }
