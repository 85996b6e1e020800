"""Learning-rate policies as pure functions of how far the training is.

`t` goes from 0 to 100 percent, as in DIGITS, whose seven policies these begin with; cosine and
one-cycle are later inventions, and a linear warm-up can precede any of them. The rates of a
whole training are one array, so what is drawn before the start is what is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Policy = Callable[[float, dict[str, Any]], float]


def _fixed(t: float, p: dict[str, Any]) -> float:
    return 1.0


def _step(t: float, p: dict[str, Any]) -> float:
    return p["gamma"] ** math.floor(t / p["step"])


def _multistep(t: float, p: dict[str, Any]) -> float:
    return p["gamma"] ** sum(1 for at in p["steps"] if at <= t)


def _exp(t: float, p: dict[str, Any]) -> float:
    return p["gamma"] ** t


def _inv(t: float, p: dict[str, Any]) -> float:
    return (1.0 + p["gamma"] * t) ** -p["power"]


def _poly(t: float, p: dict[str, Any]) -> float:
    return (1.0 - t / 100.0) ** p["power"]


def _sigmoid(t: float, p: dict[str, Any]) -> float:
    return 1.0 / (1.0 + math.exp(min(700.0, p["gamma"] * (t - p["step"]))))


def _cosine(t: float, p: dict[str, Any]) -> float:
    return p["end"] + (1.0 - p["end"]) * 0.5 * (1.0 + math.cos(math.pi * t / 100.0))


def _one_cycle(t: float, p: dict[str, Any]) -> float:
    """Up from `start` to 1 until `peak` percent, then down to `end`; both by half a cosine."""
    if t < p["peak"]:
        low, high, part = p["start"], 1.0, t / p["peak"]
    else:
        low, high, part = 1.0, p["end"], (t - p["peak"]) / (100.0 - p["peak"])
    return low + (high - low) * 0.5 * (1.0 - math.cos(math.pi * part))


# Each policy with what it needs beside the base rate, and the values that stand for what is not said.
POLICIES: dict[str, tuple[Policy, dict[str, Any]]] = {
    "fixed": (_fixed, {}),
    "step": (_step, {"step": 33.0, "gamma": 0.1}),
    "multistep": (_multistep, {"steps": [50.0, 85.0], "gamma": 0.5}),
    "exp": (_exp, {"gamma": 0.95}),
    "inv": (_inv, {"gamma": 0.1, "power": 0.5}),
    "poly": (_poly, {"power": 3.0}),
    "sigmoid": (_sigmoid, {"step": 50.0, "gamma": 0.1}),
    "cosine": (_cosine, {"end": 0.0}),
    "one-cycle": (_one_cycle, {"start": 0.04, "peak": 30.0, "end": 0.0001}),
}


def rates(config: dict[str, Any], steps: int) -> np.ndarray:
    """The rate of each of `steps` updates, float32."""
    policy, defaults = POLICIES[config["policy"]]
    given = defaults | {key: config[key] for key in defaults if key in config}
    warm_up = config.get("warm_up", 0.0) / 100.0 * steps  # updates, maybe a fraction
    curve = np.empty(steps, np.float32)
    for i in range(steps):
        # The policy runs over what is left after the warm-up; the first update is at t = 0.
        if i < warm_up:
            curve[i] = config["base"] * (i + 1) / (warm_up + 1)
        else:
            curve[i] = config["base"] * policy(100.0 * (i - warm_up) / max(1.0, steps - warm_up), given)
    return curve


def drawing(config: dict[str, Any], steps: int, points: int = 101) -> dict[str, list[float]]:
    """The same at evenly spaced steps, for a chart."""
    curve = rates(config, steps)
    at = np.unique(np.linspace(0, steps - 1, min(points, steps)).round().astype(int))
    return {"step": at.tolist(), "percent": (100.0 * at / steps).tolist(), "rate": curve[at].tolist()}
