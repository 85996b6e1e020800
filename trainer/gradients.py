"""The gradient of one answer with respect to the values inside a network: the one thing that
Keras cannot say without its backend. One small function for each; only the one in use is run.
"""

from __future__ import annotations

import importlib
from typing import Any

import keras
import numpy as np


def of_answer(tail: Any, values: np.ndarray, answer: int) -> np.ndarray:
    """d tail(values)[0, answer] / d values."""
    return {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}[keras.backend.backend()](tail, values, answer)


def _jax(tail: Any, values: np.ndarray, answer: int) -> np.ndarray:
    jax = importlib.import_module("jax")

    def score(x: Any) -> Any:
        fixed = [v.value for v in tail.non_trainable_variables]
        found, _ = tail.stateless_call([v.value for v in tail.trainable_variables], fixed, x, training=False)
        return found[0, answer]

    return np.asarray(jax.grad(score)(values))


def _tensorflow(tail: Any, values: np.ndarray, answer: int) -> np.ndarray:
    tf = importlib.import_module("tensorflow")
    x = tf.convert_to_tensor(values)
    with tf.GradientTape() as tape:
        tape.watch(x)
        score = tail(x, training=False)[0, answer]
    return np.asarray(tape.gradient(score, x))


def _torch(tail: Any, values: np.ndarray, answer: int) -> np.ndarray:
    torch = importlib.import_module("torch")
    device = next((p.device for p in tail.parameters()), "cpu")
    x = torch.tensor(values, device=device, requires_grad=True)
    tail(x, training=False)[0, answer].backward()
    return x.grad.detach().cpu().numpy()
