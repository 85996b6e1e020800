"""The notebooks that the environment of tests/notebooks/run.py has no framework for: Keras on TensorFlow, and PyTorch."""

import json
import os
import subprocess
import sys

import pytest

from .conftest import ROOT
from .test_events import series
from .test_template import python

# Runs the cells one after the other, as a kernel does; what is drawn goes nowhere.
RUN = """
import json, sys
cells = [cell for cell in json.load(open(sys.argv[1]))["cells"] if cell["cell_type"] == "code"]
names = {"__name__": "__main__"}
for cell in cells:
    exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
"""


@pytest.mark.parametrize(
    ("name", "logs", "backend"), [("keras-digits", "digits", "tensorflow"), ("pytorch-digits", "digits-pytorch", None)]
)
def test_a_notebook_learns_and_logs(name, logs, backend, tmp_path):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "MPLBACKEND": "agg",
        "CPU_LIMIT": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    if backend:
        env["KERAS_BACKEND"] = backend
    command = [sys.executable if backend else python(), "-c", RUN, str(ROOT / "notebooks/templates" / f"{name}.ipynb")]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if backend:
        assert f"on {backend}" in done.stdout
        return  # its curves are checked where it runs on JAX
    [run] = (tmp_path / "logs" / logs).iterdir()
    curve = series(run / "validation", "epoch_accuracy")
    assert [step for step, _ in curve] == list(range(20)) and curve[-1][1] > 0.95
    assert json.loads(json.dumps(done.stdout)).count("epoch") == 20
