"""What a network's own file may define besides the network: the loss, the metrics, what is predicted
(`target`, `outputs`), and which metric chooses the best checkpoint (`monitor`).

Functions are registered with Keras, so that a checkpoint that was compiled with them can be resumed.
What a function goes wrong with is named with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import program
from .errors import Stop, bad_config

FIELD = program.FIELD


@dataclass(frozen=True)
class Own:
    """What a file defines; nothing of it where there is no file."""

    file: str = ""
    loss: Any = None
    metrics: list[Any] = field(default_factory=list)
    target: Callable[[np.ndarray, str], Any] | None = None
    outputs: list[str] | None = None
    monitor: tuple[str, str] | None = None  # a metric, and min or max

    @property
    def is_measured(self) -> bool:
        return self.loss is not None or bool(self.metrics)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A function of the file; an error in it names its line."""
        try:
            return function(*arguments)
        except Exception as error:
            raise self.said(error, function) or error from error

    def said(self, error: Exception, function: Any = None) -> Stop | None:
        """The error with its line, if the file has a part in it."""
        line = program.line_of(error, self.file) if self.file else ""
        if not line and function is None:
            return None
        name = getattr(function, "__name__", "")
        return bad_config(FIELD, " ".join(filter(None, [name, line.strip(" ()")])) + f": {program.whole(error)}")


def of(config: dict[str, Any]) -> Own:
    """What the file of a configuration defines, checked."""
    file = config.get("network", {}).get("file")
    if file is None:
        return Own()
    from . import networks

    module = networks.load_file(Path(file))
    loss = _loss(getattr(module, "loss", None), file)
    metrics = _metrics(getattr(module, "metrics", []), file)
    target, outputs = getattr(module, "target", None), getattr(module, "outputs", None)
    if target is not None and not callable(target):
        raise bad_config(FIELD, "target must be a function target(image, label)")
    if outputs is not None:
        outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        if not outputs or not all(isinstance(name, str) and name.strip() == name != "" for name in outputs):
            raise bad_config(FIELD, "outputs must be a list of names")
    return Own(file, loss, metrics, target, outputs, _monitor(getattr(module, "monitor", None), metrics))


def _registered(function: Any, file: str) -> Any:
    """A function of the file, known to Keras by its name, so that checkpoints with it can be loaded."""
    import keras

    is_of_file = getattr(getattr(function, "__code__", None), "co_filename", None) == file
    return keras.saving.register_keras_serializable("network_file")(function) if is_of_file else function


def _loss(loss: Any, file: str) -> Any:
    import keras

    if loss is None or isinstance(loss, keras.losses.Loss):
        return loss
    if isinstance(loss, str):
        try:
            return keras.losses.get(loss)
        except ValueError as error:
            raise bad_config(FIELD, f"loss: {program.whole(error)}") from None
    if isinstance(loss, type) or not callable(loss):
        raise bad_config(FIELD, "loss must be a function loss(truth, predicted), a Keras loss or its name")
    return _registered(loss, file)


def _metrics(metrics: Any, file: str) -> list[Any]:
    import keras

    if not isinstance(metrics, Sequence) or isinstance(metrics, str):
        raise bad_config(FIELD, "metrics must be a list")
    found = []
    for one in metrics:
        if isinstance(one, str):
            try:
                one = keras.metrics.get(one)
            except ValueError as error:
                raise bad_config(FIELD, f"metrics: {program.whole(error)}") from None
        if isinstance(one, type) or not callable(one):
            raise bad_config(FIELD, f"metrics: {one!r} is not a function, a Keras metric or its name")
        found.append(_registered(one, file))
    names = [name_of(one) for one in found]
    if doubled := next((name for name in names if names.count(name) > 1 or name in ("loss", "epoch")), None):
        raise bad_config(FIELD, f"metrics: the name {doubled} is used twice, or by the trainer itself")
    return found


def _monitor(monitor: Any, metrics: list[Any]) -> tuple[str, str] | None:
    if monitor is None:
        return None
    fits = isinstance(monitor, tuple | list) and len(monitor) == 2 and monitor[1] in ("min", "max")
    known = ["loss", *map(name_of, metrics)]
    if not fits or monitor[0] not in known:
        raise bad_config(FIELD, f"monitor must be a pair of a metric ({', '.join(known)}) and min or max")
    return monitor[0], monitor[1]


def name_of(metric: Any) -> str:
    return str(getattr(metric, "name", None) or getattr(metric, "__name__", type(metric).__name__.lower()))


class Score:
    """The loss and the metrics of a file over a split, batch by batch."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self.parts = ([("loss", own.loss)] if own.loss is not None else []) + [
            (name_of(one), _fresh(one)) for one in own.metrics
        ]
        self.sums = dict.fromkeys((name for name, _ in self.parts), 0.0)
        self.count = 0

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        from keras import ops

        truth, predicted = ops.convert_to_tensor(truth), ops.convert_to_tensor(predicted)
        for name, part in self.parts:
            if hasattr(part, "update_state"):
                self.own.call(part.update_state, truth, predicted)
            else:
                value = np.asarray(ops.convert_to_numpy(self.own.call(part, truth, predicted)), np.float64)
                self.sums[name] += float(value.mean()) * len(truth)
        self.count += len(truth)

    def result(self) -> dict[str, float]:
        def value(name: str, part: Any) -> float:
            if hasattr(part, "update_state"):
                return float(part.result())
            return self.sums[name] / max(1, self.count)

        return {name: value(name, part) for name, part in self.parts}


def _fresh(metric: Any) -> Any:
    """One that has counted nothing: the training has another."""
    return type(metric).from_config(metric.get_config()) if hasattr(metric, "update_state") else metric


def warnings(own: Own, task: str, last: str) -> list[str]:
    """What is probably a mistake in the loss; `last` is the activation at the end of the network."""
    kwargs = getattr(own.loss, "_fn_kwargs", {})
    takes_logits = getattr(own.loss, "from_logits", None) or kwargs.get("from_logits", False)
    if not takes_logits:
        return []
    name = type(own.loss).__name__
    if task in ("classification", "segmentation"):
        return [
            f"The loss {name} has from_logits=True, but it receives probabilities: the trainer adds a softmax to the"
            " network. The softmax would be applied twice. Set from_logits=False."
        ]
    if last in ("softmax", "sigmoid"):
        return [
            f"The loss {name} has from_logits=True, but the network ends in {last}, which would be applied twice."
            f" Set from_logits=False, or return the values before the {last} (logits)."
        ]
    return []
