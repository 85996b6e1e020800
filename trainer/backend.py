"""Chooses what Keras computes with, before Keras is first imported, and over how many devices."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from . import compiled, threads
from .errors import NO_BACKEND, Stop, bad_config
from .together import Place

NAMES = ("jax", "tensorflow", "torch")


def installed() -> list[str]:
    return [name for name in NAMES if importlib.util.find_spec(name) is not None]


def start(wanted: str = "auto") -> str:
    """Sets the backend and the number of threads; the name of the backend."""
    threads.limit(threads.allowed())
    there = installed()
    name = wanted if wanted != "auto" else os.environ.get("KERAS_BACKEND") or (there[0] if there else "")
    if not name:
        raise Stop(NO_BACKEND, f"this environment contains none of the backends {', '.join(NAMES)}", "backend")
    if name not in there:
        raise Stop(
            NO_BACKEND,
            f"this environment does not contain {name}; available: {', '.join(there) or 'none of the backends'}",
            "backend",
        )
    os.environ["KERAS_BACKEND"] = name
    if name == "jax":
        compiled.keep()
    if importlib.util.find_spec("keras") is None:
        raise Stop(NO_BACKEND, "this environment lacks the Python package keras", "backend")
    import keras

    if keras.backend.backend() != name:
        raise Stop(NO_BACKEND, f"Keras already runs on {keras.backend.backend()}", "backend")
    return name


def prepare(config: dict[str, Any], place: Place) -> int:
    """Seed, precision and devices; how many devices share a batch, on all machines together."""
    import keras

    keras.utils.clear_session()  # names of layers begin anew
    keras.utils.set_random_seed(config["seed"])
    keras.mixed_precision.set_dtype_policy(config["precision"])
    wanted = config["devices"]
    if wanted == 1 and place.count == 1:
        return 1
    if keras.backend.backend() != "jax":
        if wanted == "all":
            return 1
        raise bad_config("devices", f"several devices need the backend jax, not {keras.backend.backend()}")
    machines = _devices(place.count)
    try:
        devices = _that_share(machines, wanted, config["batch_size"])
    except Stop:
        # All machines come to this. The first one answers the others until they have, too.
        place.part()
        raise
    if len(devices) > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    return len(devices)


def _that_share(machines: list[list[str]], wanted: int | str, batch: int) -> list[str]:
    """The devices that share a batch, as many on each machine."""
    fewest = min(len(devices) for devices in machines)
    each = fewest if wanted == "all" else int(wanted)
    if each > fewest:
        kinds = ", ".join(sorted({device.split(":")[0] for device in machines[0]}))
        raise bad_config("devices", f"only {fewest} available ({kinds}), {each} requested")
    devices = [device for machine in machines for device in machine[:each]]
    if batch % len(devices):
        raise bad_config("batch_size", f"must be a multiple of {len(devices)}, the number of devices")
    return devices


def _devices(machines: int) -> list[list[str]]:
    """The devices of each machine, as Keras calls them."""
    found: list[list[str]] = [[] for _ in range(machines)]
    for device in importlib.import_module("jax").devices():
        found[device.process_index].append(f"{device.platform}:{device.id}")
    return found


def versions() -> dict[str, str]:
    """What this run was computed with."""
    import importlib.metadata

    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("keras", "jax", "tensorflow", "tensorflow-cpu", "torch", "numpy", "pillow"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
