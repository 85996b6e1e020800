"""What a network is made of, before anything is trained: for each layer its shape, parameters
and multiply-accumulates, and roughly how much memory a training step takes.
"""

from __future__ import annotations

import math
from typing import Any

# Numbers that an optimiser keeps for each weight.
_SLOTS = {"sgd": 1, "adam": 2, "adamw": 2, "nadam": 2, "rmsprop": 2, "lion": 1, "adagrad": 1, "adadelta": 2, "ftrl": 2}


def described(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    rows = [_row(layer) for layer in model.layers]
    trainable = sum(math.prod(v.shape) for v in model.trainable_variables)
    others = sum(math.prod(v.shape) for v in model.non_trainable_variables)
    slots = _SLOTS[config["optimizer"]["name"]] + (1 if config["accumulation"] > 1 else 0)
    width = 4 if config["precision"] == "float32" else 2
    # Each value is kept for the way back, where its gradient joins it.
    values = sum(row["values"] for row in rows) * config["batch_size"]
    weights = 4 * (trainable * (2 + slots) + others)
    from . import networks

    return {
        "layers": rows,
        "warnings": networks.warnings(model, config),
        "parameters": {"trainable": trainable, "fixed": others, "total": trainable + others},
        "macs": sum(row["macs"] for row in rows),
        "memory": {"weights": weights, "activations": 2 * values * width, "total": weights + 2 * values * width},
        "batch_size": config["batch_size"],
    }


def _row(layer: Any) -> dict[str, Any]:
    output = layer.output
    shape = [list(one.shape[1:]) for one in (output if isinstance(output, (list, tuple)) else [output])]
    return {
        "name": layer.name,
        "type": type(layer).__name__,
        "shape": shape[0] if len(shape) == 1 else shape,
        "parameters": layer.count_params(),
        "macs": _macs(layer),
        "values": sum(math.prod(size or 0 for size in one) for one in shape),
    }


def _macs(layer: Any) -> int:
    """For one picture. Only what multiplies matrices counts; the rest is small beside it."""
    kind = type(layer).__name__
    if kind in ("Conv2D", "Conv2DTranspose"):
        place = layer.output.shape[1:3] if kind == "Conv2D" else layer.input.shape[1:3]
        return math.prod(place) * math.prod(layer.kernel.shape)
    if kind == "DepthwiseConv2D":
        return math.prod(layer.output.shape[1:3]) * math.prod(layer.kernel.shape)
    if kind == "SeparableConv2D":
        return math.prod(layer.output.shape[1:3]) * (
            math.prod(layer.depthwise_kernel.shape) + math.prod(layer.pointwise_kernel.shape)
        )
    if kind == "Dense":
        return math.prod(layer.output.shape[1:-1]) * math.prod(layer.kernel.shape)
    if kind == "MultiHeadAttention":
        length, size = layer.output.shape[1:]
        inner = layer.num_heads * layer.key_dim
        return length * 4 * size * inner + 2 * length * length * inner
    if hasattr(layer, "layers"):  # a model within the model
        return sum(_macs(inner) for inner in layer.layers)
    return 0
