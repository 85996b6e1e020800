"""Everything about a model in one folder, for use elsewhere: `.keras`, safetensors, ONNX, labels,
preprocessing, a model card, and checksums.

ONNX is written by `graph`, on any backend. A network with a layer that it does not know is left to Keras, on TensorFlow
or PyTorch where they are, in a process of its own, since a process has one backend. Either way the answers of
the result are compared with those of the model.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import afterwards, files, folder

TOLERANCE = 1e-4

# Runs in the other process: MODEL, ONNX, RUN FOLDER. What converters say goes to the error output.
_CONVERT = """
import sys, pathlib
from trainer import afterwards
trained = afterwards.load(pathlib.Path(sys.argv[1]))
import numpy
trained.model(numpy.zeros((1, *trained.shape.hwc), "float32"))
trained.model.export(sys.argv[2], format="onnx", verbose=False)
"""


def on_cpu() -> None:
    """Keeps what ONNX is compared with off the GPU, before a backend starts: GPUs round products of float32 to ten bits,
    which is more than ONNX may differ by."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def exported(path: Path, output: Path) -> dict[str, Any]:
    """Writes the bundle; says what is in it, and how far ONNX is from the model."""
    trained = afterwards.load(path)
    output.mkdir(parents=True, exist_ok=True)
    files.replace(output / "model.keras", trained.model.save)
    files.write_text(output / "labels.txt", "".join(f"{label}\n" for label in trained.labels))
    files.write_json(output / "preprocessing.json", trained.preprocessing)
    about: dict[str, Any] = {
        "bundle": str(output),
        "safetensors": _safetensors(trained.model, output),
        **onnx_model(trained, path, output),
    }
    files.write_text(output / "README.md", _card(trained, path, about))
    names = sorted(
        file.name
        for file in output.iterdir()
        if file.is_file() and file.name != "SHA256SUMS" and not file.name.startswith(".")
    )
    files.write_text(output / "SHA256SUMS", "".join(f"{files.sha256(output / name)}  {name}\n" for name in names))
    return about | {"files": [*names, "SHA256SUMS"]}


def _safetensors(model: Any, output: Path) -> str | None:
    if importlib.util.find_spec("safetensors") is None:
        return None
    from safetensors.numpy import save_file

    weights = {
        v.path: np.asarray(v.numpy() if hasattr(v, "numpy") else v)
        for v in model.variables
        if "seed_generator" not in v.path
    }
    files.replace(output / "model.safetensors", lambda beside: save_file(weights, beside, {"format": "keras"}))
    return "model.safetensors"


def onnx_model(trained: afterwards.Trained, path: Path, output: Path) -> dict[str, Any]:
    """Writes `model.onnx`; or says why it cannot be."""
    if importlib.util.find_spec("onnx") is None:
        return {"onnx": None, "onnx_reason": "this environment lacks the Python package onnx"}
    from . import graph

    target = output / "model.onnx"
    target.unlink(missing_ok=True)
    beside = target.with_name(f".{os.getpid()}-model.onnx")
    try:
        try:
            graph.write(trained.model, beside)
        except graph.Unknown as error:
            reason = _by_keras(path, beside, str(error))
            if reason:
                return {"onnx": None, "onnx_reason": reason}
        difference = _difference(trained, beside)
        if difference is not None and not difference <= TOLERANCE:
            return {"onnx": None, "onnx_reason": f"the predictions of the converted model differ by {difference:.2g}"}
        os.replace(beside, target)
        return {"onnx": "model.onnx", "onnx_difference": difference}
    finally:
        beside.unlink(missing_ok=True)


def _by_keras(path: Path, output: Path, unknown: str) -> str | None:
    """Has Keras write it; or says why it did not."""
    able = {"tensorflow": "tf2onnx", "torch": "onnxscript"}
    there = [name for name in able if all(importlib.util.find_spec(package) for package in (name, able[name]))]
    if not there:
        return f"{unknown}; Keras can convert it with tensorflow and tf2onnx, or with torch and onnxscript"
    env = os.environ | {
        "KERAS_BACKEND": there[0],
        "PYTHONSAFEPATH": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", _CONVERT, str(path), str(output)], env=env, capture_output=True, text=True
    )
    if done.returncode:
        return f"the conversion failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:300]}"
    return None


def _difference(trained: afterwards.Trained, path: Path) -> float | None:
    """The largest difference of any answer; `None` where ONNX Runtime is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import keras
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    pictures = np.random.default_rng(0).integers(0, 256, (4, *trained.shape.hwc)).astype(np.float32)
    answer = session.run(None, {session.get_inputs()[0].name: pictures})[0]
    with _in_float32(trained.model) as model:
        return float(np.abs(answer - keras.ops.convert_to_numpy(model(pictures, training=False))).max())


@contextlib.contextmanager
def _in_float32(model: Any) -> Iterator[Any]:
    """The model as ONNX computes it: a training in half precision has its weights in float32 as well."""
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "dtype_policy")]
    policies = [layer.dtype_policy for layer in layers]
    try:
        for layer, policy in zip(layers, policies, strict=True):
            if policy.name.startswith("mixed_"):
                layer.dtype_policy = "float32"
        yield model
    finally:
        for layer, policy in zip(layers, policies, strict=True):
            layer.dtype_policy = policy


def _card(trained: afterwards.Trained, path: Path, about: dict[str, Any]) -> str:
    """What somebody who finds the bundle in a year must know."""
    run = _json(path.parent.parent, "run.json")
    index = _json(path.parent, "index.json") if run else {}
    config = _fields(run.get("config"))
    entries = index.get("snapshots")
    entries = [_fields(entry) for entry in entries] if isinstance(entries, list) else []
    snapshot = next((entry for entry in entries if entry.get("file") == path.name), {})
    metrics = _fields(snapshot.get("metrics"))
    metrics = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    shape, what = trained.shape, "outputs" if trained.task == "regression" else "classes"
    lines = [
        f"# {config.get('name') or path.stem}",
        "",
        f"A model for {trained.task} with {len(trained.labels)} {what} (`labels.txt`, in the order of the outputs).",
        "",
        f"* Input: float32, N × {shape.height} × {shape.width} × {shape.channels}, values 0 to 255; normalisation is part of the model. Images are resized with “{shape.resize}”.",
        f"* Output: {_output(trained)}",
        f"* Files: `model.keras` (Keras 3, any backend){', `model.safetensors` (weights by name)' if about['safetensors'] else ''}{', `model.onnx`' if about['onnx'] else ''}. `sha256sum -c SHA256SUMS` checks them.",
    ]
    if run:
        lines += [
            "",
            "## Training",
            "",
            f"* Data: {run.get('source')}; images: {json.dumps(run.get('pictures'))}; manifest SHA-256: {run.get('manifest_sha256') or 'none'}.",
            f"* Network: {config.get('network')}; epoch {snapshot.get('epoch', '?')} of {config.get('epochs')}; backend {run.get('backend')}, {json.dumps(run.get('versions'))}.",
            f"* Validation: {', '.join(f'{name} {value:.4f}' for name, value in metrics.items()) or 'not measured'}.",
        ]
    lines += [
        "",
        "## Limits",
        "",
        "The performance on images unlike the training images is unknown. Complete this card before you share the model.",
        "",
    ]
    return "\n".join(lines)


def _output(trained: afterwards.Trained) -> str:
    return {
        "classification": "a probability for each class.",
        "segmentation": "a probability for each class at each pixel.",
        "regression": f"{len(trained.labels)} numbers, named in `labels.txt`.",
        "reconstruction": "the image, values 0 to 1.",
        "detection": "for each cell of 4 × 4 pixels a peak for each class, then the position in the cell (x, y) and the logarithms of width and height in cells.",
    }[trained.task]


def _json(path: Path, name: str) -> dict[str, Any]:
    """What a file says; nothing where there is none."""
    try:
        with folder.opened(path) as place:
            return _fields(place.json(name))
    except (OSError, folder.Unfit):
        return {}


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
