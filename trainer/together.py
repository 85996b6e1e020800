"""Several machines that train one network: which of them this process is, and how they agree.

There is a process a machine, each with the pictures of its part of a batch. The first of them
leads: it alone writes and speaks. The others do the same steps, and go by what the first has
measured, so that no rounding of one machine parts them. Alone, all of this does nothing.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .errors import NO_BACKEND, NO_COMPANY, Stop

# How long the machines wait for each other at the start, in seconds.
_PATIENCE = 300
# How long the first machine answers the others after all have left, in seconds.
_FAREWELL = 1.0


class Place:
    """One of `count` processes, numbered from 0. Where nothing else is said, all of them call."""

    def __init__(self, rank: int = 0, count: int = 1):
        self.rank, self.count = rank, count
        self.leads = rank == 0
        self.joined = count > 1
        self._twin: Any = None

    def any(self, asked: bool) -> bool:
        """Whether one of them says so."""
        if not self.joined:
            return asked
        return bool(np.any(_utilities().process_allgather(np.array(asked))))

    def agreed(self, value: Any) -> Any:
        """What the first of them has: something that JSON can hold."""
        if not self.joined:
            return value
        text = np.frombuffer(json.dumps(value, default=float).encode(), np.uint8)
        length = int(_utilities().broadcast_one_to_all(np.array(len(text))))
        text = text if self.leads else np.zeros(length, np.uint8)
        return json.loads(bytes(np.asarray(_utilities().broadcast_one_to_all(text), np.uint8)))

    def share(self, rows: np.ndarray) -> np.ndarray:
        """This process's part of a batch."""
        return rows.reshape(self.count, -1)[self.rank]

    @contextmanager
    def apart(self) -> Iterator[None]:
        """For what one machine does without the others: what is made in it, is made here alone."""
        import keras

        among = keras.distribution.distribution() if self.joined else None
        if among:
            keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            if among:
                keras.distribution.set_distribution(among)

    @contextmanager
    def own(self, model: Any) -> Iterator[Any]:
        """The network as it is now, on this machine alone, to be asked about whole batches."""
        if not self.joined:
            yield model
            return
        import keras

        with self.apart():
            if self._twin is None:
                self._twin = keras.models.clone_model(model)
            self._twin.set_weights(model.get_weights())
            yield self._twin

    def part(self) -> None:
        """From here on each is alone. Waits until all have come here."""
        if self.joined:
            import keras

            self.joined = False
            keras.distribution.set_distribution(None)
            _leave()


def join(backend: str) -> Place:
    """As the variables say that torchrun sets, too; before anything is computed."""
    count = _number("WORLD_SIZE", 1)
    if count < 2:
        return Place()
    rank = _number("RANK", count)
    if not 0 <= rank < count:
        raise Stop(NO_COMPANY, f"RANK must be from 0 to {count - 1} if WORLD_SIZE is {count}")
    if backend != "jax":
        raise Stop(NO_BACKEND, f"several machines need the backend jax, not {backend}", "backend")
    try:
        address = f"{os.environ['MASTER_ADDR']}:{_number('MASTER_PORT', 0)}"
    except KeyError:
        raise Stop(NO_COMPANY, "MASTER_ADDR must be the address of the first machine") from None
    jax = importlib.import_module("jax")
    # Between processors nothing keeps two computations in the same order on all machines.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    # It would take SIGTERM away from us.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(address, count, rank, initialization_timeout=_PATIENCE)
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        raise Stop(NO_COMPANY, f"the {count} machines could not connect at {address}: {said}") from None
    atexit.register(_leave)  # before JAX's own, which does the same without the pause
    return Place(rank, count)


def _leave() -> None:
    """Waits until all leave, and does. The first of them answers the others for a moment more: one that has not heard yet
    that all have come would take the first one's silence for a crash, and abort."""
    jax = importlib.import_module("jax")
    state = importlib.import_module("jax._src.distributed").global_state
    if state.service and state.client:
        state.client.shutdown()
        state.client = None
        time.sleep(_FAREWELL)  # nothing tells when the others have heard
    jax.distributed.shutdown()


def _number(name: str, without: int) -> int:
    text = os.environ.get(name, str(without))
    try:
        return int(text)
    except ValueError:
        raise Stop(NO_COMPANY, f"{name} must be a whole number, not {text[:80]}") from None


def _utilities() -> Any:
    return importlib.import_module("jax.experimental.multihost_utils")
