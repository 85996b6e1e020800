"""The optimiser that a configuration names. Its rate is set before each step by the policy."""

from __future__ import annotations

from typing import Any

import keras


def make(config: dict[str, Any]) -> keras.optimizers.Optimizer:
    wanted = config["optimizer"]
    options: dict[str, Any] = {"learning_rate": float(config["learning_rate"]["base"])}
    if wanted["weight_decay"]:
        options["weight_decay"] = wanted["weight_decay"]
    if "clip_norm" in wanted:
        options["global_clipnorm"] = wanted["clip_norm"]
    if config["accumulation"] > 1:
        options["gradient_accumulation_steps"] = config["accumulation"]
    kinds = {
        "sgd": keras.optimizers.SGD,
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "rmsprop": keras.optimizers.RMSprop,
        "lion": keras.optimizers.Lion,
        "adagrad": keras.optimizers.Adagrad,
        "adadelta": keras.optimizers.Adadelta,
        "nadam": keras.optimizers.Nadam,
        "ftrl": keras.optimizers.Ftrl,
    }
    if wanted["name"] in ("sgd", "rmsprop"):
        options["momentum"] = wanted["momentum"]
    if wanted["name"] == "sgd":
        options["nesterov"] = wanted["nesterov"]
    if wanted["name"] == "adamw" and not wanted["weight_decay"]:
        options["weight_decay"] = 0.0  # not the library's own 0.004: what is said holds
    return kinds[wanted["name"]](**options)
