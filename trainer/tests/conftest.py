"""What several tests share: a place to train in, and one finished training of LeNet on digits.

The tests run on JAX in this process; what needs another backend or a signal has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trainer import compiled

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
compiled.keep()  # before the first test imports JAX

ROOT = Path(__file__).parents[2]


class Run(NamedTuple):
    code: int
    lines: list[dict[str, Any]]
    output: Path

    @property
    def error(self) -> dict[str, Any]:
        return next(line for line in self.lines if line["event"] == "error")


def config_file(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({"output": "run"} | config))
    return path


def call(capture: Any, *arguments: Any) -> tuple[int, list[dict[str, Any]]]:
    """The command line in this process: the exit code, and the lines of JSON."""
    from trainer.__main__ import main

    capture.readouterr()
    code = main([str(argument) for argument in arguments])
    return code, [json.loads(line) for line in capture.readouterr().out.splitlines() if line.startswith("{")]


@pytest.fixture
def train(tmp_path, capsys):
    """Trains with a configuration, in this process."""

    def start(config: dict[str, Any], folder: str = "") -> Run:
        path = config_file(tmp_path / folder, config)
        code, lines = call(capsys, path)
        return Run(code, lines, path.parent / json.loads(path.read_text())["output"])

    return start


def spawn(*arguments: Any, backend: str = "jax", **environment: str) -> subprocess.Popen[str]:
    """The trainer in a process of its own; its standard output is lines of JSON."""
    env = os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-m", "trainer", *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


LENET: dict[str, Any] = {
    "data": {"kind": "digits", "test_percent": 10},
    "network": {"name": "lenet"},
    "epochs": 8,
    "batch_size": 64,
    "optimizer": {"name": "adam"},
    "learning_rate": {"base": 0.001, "policy": "cosine", "warm_up": 5},
    "seed": 1,
}


@pytest.fixture(scope="session")
def lenet(tmp_path_factory) -> Path:
    """The folder of a finished training; tests read it and change nothing in it."""
    from trainer import config, train

    folder = tmp_path_factory.mktemp("lenet")
    assert train.run(config.load(config_file(folder, LENET))) == 0
    return folder / "run"


SEGMENTER: dict[str, Any] = {
    "task": "segmentation",
    "data": {"kind": "shapes", "count": 320},
    "image": {"width": 48, "height": 48},
    "network": {"name": "u-net", "width": 0.5},
    "epochs": 9,
    "batch_size": 16,
    "optimizer": {"name": "adam"},
    "learning_rate": {"base": 0.004, "policy": "one-cycle"},
    "augmentation": {"flip_horizontal": True},
}

DETECTOR: dict[str, Any] = {
    "task": "detection",
    "data": {"kind": "shapes", "count": 400},
    "image": {"width": 64, "height": 64},
    "network": {"name": "centres", "width": 0.5},
    "epochs": 12,
    "batch_size": 16,
    "optimizer": {"name": "adam"},
    "learning_rate": {"base": 0.004, "policy": "one-cycle"},
    "augmentation": {"flip_horizontal": True, "flip_vertical": True},
}


@pytest.fixture(scope="session")
def segmenter(tmp_path_factory) -> Path:
    """The folder of a finished training, beside its configuration; read only."""
    return _trained(tmp_path_factory.mktemp("segmenter"), SEGMENTER)


@pytest.fixture(scope="session")
def detector(tmp_path_factory) -> Path:
    """The folder of a finished training, beside its configuration; read only."""
    return _trained(tmp_path_factory.mktemp("detector"), DETECTOR)


def _trained(folder: Path, given: dict[str, Any]) -> Path:
    from trainer import config, train

    assert train.run(config.load(config_file(folder, given))) == 0
    return folder / "run"


def best(run: Path) -> Path:
    index = json.loads((run / "checkpoints/index.json").read_text())
    return run / "checkpoints" / index["best"]


def leave_out(name: str, need: str) -> None:
    """Says so where ./test adds it up; where everything can be had, it is a failure."""
    if file := os.environ.get("LYCEUM_TEST_LEFT_OUT"):
        with open(file, "a") as left_out:
            left_out.write(f"group\t{name}\t{need}\n")
    if os.environ.get("LYCEUM_TEST_STRICT") == "1":
        pytest.fail(f"needs {need}")
    pytest.skip(f"left out: needs {need}")
