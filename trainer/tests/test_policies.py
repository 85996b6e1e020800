"""Learning-rate policies against their formulas, and the drawn curve against the used one."""

import math

import numpy as np
import pytest

from trainer.policies import POLICIES, drawing, rates

from .conftest import best, call, config_file
from .test_events import series

# At t = 0, 33, 66 and 99 percent of 100 updates, with the values that DIGITS has where nothing is said.
EXPECTED = {
    "fixed": lambda t: 1,
    "step": lambda t: 0.1 ** math.floor(t / 33),
    "multistep": lambda t: 0.5 ** ((t >= 50) + (t >= 85)),
    "exp": lambda t: 0.95**t,
    "inv": lambda t: (1 + 0.1 * t) ** -0.5,
    "poly": lambda t: (1 - t / 100) ** 3,
    "sigmoid": lambda t: 1 / (1 + math.exp(0.1 * (t - 50))),
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t / 100)),
}


@pytest.mark.parametrize("policy", EXPECTED)
def test_formula(policy):
    curve = rates({"base": 0.01, "policy": policy}, 100)
    assert np.allclose(curve, [0.01 * EXPECTED[policy](t) for t in range(100)], rtol=1e-5, atol=1e-9)


def test_one_cycle_rises_and_falls():
    curve = rates({"base": 1.0, "policy": "one-cycle"}, 1000)
    assert curve[0] == pytest.approx(0.04) and curve[300] == pytest.approx(1.0) and curve[-1] < 0.001
    assert (np.diff(curve[:301]) >= 0).all() and (np.diff(curve[300:]) <= 0).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_warm_up_precedes_any_policy(policy):
    warm = rates({"base": 0.5, "policy": policy, "warm_up": 10}, 200)
    assert np.allclose(np.diff(warm[:20]), warm[0], atol=1e-6) and warm[0] == pytest.approx(0.5 / 21)
    assert np.allclose(warm[20:], rates({"base": 0.5, "policy": policy}, 180), atol=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 101, 5000])
def test_a_drawing_begins_and_ends_with_the_training(steps):
    drawn = drawing({"base": 0.1, "policy": "exp"}, steps)
    assert drawn["step"][0] == 0 and drawn["step"][-1] == steps - 1 and len(drawn["rate"]) == min(steps, 101)


def test_what_is_drawn_is_what_is_used(lenet, tmp_path, capsys):
    from .conftest import LENET

    used = dict(series(lenet / "events/train", "learning_rate"))
    code, [drawn] = call(capsys, "lr", config_file(tmp_path, LENET), "--steps", len(used))
    assert code == 0 and best(lenet).exists()
    for step, rate in zip(drawn["step"], drawn["rate"]):
        assert used[step + 1] == pytest.approx(rate, rel=1e-6)
