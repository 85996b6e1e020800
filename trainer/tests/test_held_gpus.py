"""GPUs that are held and not used are reported at the start of a training."""

from __future__ import annotations

import json
import os

import pytest

from trainer import held_gpus

from .conftest import config_file, spawn
from .test_training import SHORT


@pytest.mark.parametrize(
    ("backend", "held", "there", "used", "words"),
    [
        ("jax", 0, 0, 1, None),
        ("jax", 2, 2, 2, None),
        ("jax", 2, 0, 1, "2 GPUs allocated; JAX sees only CPUs: choose an environment with CUDA"),
        ("torch", 1, 0, 1, "1 GPU allocated; PyTorch sees only CPUs: choose an environment with CUDA"),
        ("jax", 4, 3, 3, "4 GPUs allocated; JAX sees only 3: ask your administrator"),
        ("jax", 2, 2, 1, '2 GPUs allocated; this training uses 1: set devices to "all"'),
        ("tensorflow", 2, 2, 1, "2 GPUs allocated; this training uses 1: choose the backend jax"),
    ],
)
def test_what_is_said(backend, held, there, used, words):
    said = held_gpus.sentence_of(backend, held, there, used)
    assert said is None if words is None else said.startswith(words)


@pytest.mark.parametrize(
    ("devices", "count"), [("", 0), ("0,1", 2), ("GPU-0b1c, GPU-2d3e", 2), ("-1", 0), ("NoDevFiles", 0)]
)
def test_what_is_held(monkeypatch, devices, count):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    monkeypatch.delenv("LYCEUM_SESSION", raising=False)
    assert held_gpus.allocated() == 0, "outside of the portal"
    monkeypatch.setenv("LYCEUM_SESSION", "a session")
    assert held_gpus.allocated() == count


def test_a_training_without_the_gpus_that_it_holds(tmp_path):
    notes = tmp_path / "notes"
    held = {"LYCEUM_SESSION": "a session", "LYCEUM_NOTES": str(notes), "CUDA_VISIBLE_DEVICES": "0,1"}
    out, err = (process := spawn(config_file(tmp_path, SHORT), **held)).communicate()
    assert process.returncode == 0, err
    sentence = "2 GPUs allocated; JAX sees only CPUs: choose an environment with CUDA"
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines]
    assert events.index("warning") < events.index("data"), "before any work"
    assert next(line for line in lines if line["event"] == "warning")["message"] == sentence
    assert notes.read_text() == sentence + "\n"


def test_devices_that_are_not_there(train):
    run = train(SHORT | {"devices": os.cpu_count() + 1000})
    assert (run.code, run.error["field"]) == (1, "devices")
    assert "only 1 available (cpu)" in run.error["message"]
