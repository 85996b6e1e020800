"""What a model loses and gains in fewer bits: latency, throughput and metrics in float32, float16
and int8, measured here and now by ONNX Runtime on the cores that the job has.

float16 and int8 are made of the model's ONNX; int8 is quantised with ranges that some training
pictures show. What an environment cannot do is said in words, and the rest is measured all the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import afterwards, evaluate, export, files, progress, sources, threads
from .data import Data
from .errors import bad_data

FILE = "precisions.json"
NAMES = ("float32", "float16", "int8")
BATCH = 32  # for throughput and metrics
CALIBRATION = 128  # pictures
# A measurement ends with whichever comes first, but not before a few runs.
SECONDS = 3.0
RUNS = 300
FEWEST = 5


def compared(config: dict[str, Any], path: Path, output: Path) -> dict[str, Any]:
    """The same as it writes to `precisions.json`."""
    trained = afterwards.load(path)
    workers = threads.allowed()
    data = sources.load(config, workers)
    if data.classes != trained.labels:
        raise bad_data(f"the {len(trained.labels)} classes of the model differ from the classes of the data", "MODEL")
    split = data.evaluated[0]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        _said(0)
        makers = _makers(trained, path, data, Path(folder), workers)
        for name in NAMES:
            rows.append({"precision": name} | _row(makers[name], data, split, workers))
            _said(len(rows))
    found = {
        **{"snapshot": path.name, "split": split, "pictures": len(data.parts[split]), "threads": workers},
        **{"batch_size": BATCH, "metric": config["metric"], "precisions": rows},
    }
    files.write_json(output / FILE, found)
    return found


def _said(done: int) -> None:
    # Standard output is the answer.
    progress.say("progress", sys.stderr, done=done, of=len(NAMES))


class Runner:
    """A model in some precision, with what `evaluate` asks of one."""

    def __init__(self, runtime: str, size: int, answer: Callable[[np.ndarray], np.ndarray]):
        self.runtime, self.size, self.predict_on_batch = runtime, size, answer


class _Missing(Exception):
    """Why there is none."""


def _makers(
    trained: afterwards.Trained, path: Path, data: Data, folder: Path, workers: int
) -> dict[str, Callable[[], Runner]]:
    """How each precision is come to; a maker may raise."""
    lacking = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if lacking:
        reason = f"this environment lacks the Python package{'s' * (len(lacking) > 1)} {' and '.join(lacking)}"
    else:
        reason = export.onnx_model(trained, path, folder).get("onnx_reason") or ""

    def keras() -> Runner:
        import keras

        return Runner(f"Keras on {keras.backend.backend()}", path.stat().st_size, trained.model.predict_on_batch)

    def missing() -> Runner:
        raise _Missing(reason)

    if reason:
        return {"float32": keras, "float16": missing, "int8": missing}
    whole = folder / "model.onnx"
    return {
        "float32": lambda: _opened(whole, workers),
        "float16": lambda: _opened(_halved(whole), workers),
        "int8": lambda: _opened(_quantised(whole, data), workers),
    }


def _opened(path: Path, workers: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = workers
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    runtime = f"ONNX Runtime {onnxruntime.__version__}"
    # Keras makes float32 of 8-bit pictures by itself, ONNX Runtime refuses them.
    return Runner(runtime, path.stat().st_size, lambda batch: session.run(None, {name: batch.astype(np.float32)})[0])


def _halved(whole: Path) -> Path:
    """Weights and values in 16 bits; pictures and answers stay as they are."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    target = whole.with_name("float16.onnx")
    onnx.save(convert_float_to_float16(onnx.load(whole), keep_io_types=True), target)
    return target


def _quantised(whole: Path, data: Data) -> Path:
    """Weights and values in 8 bits, with the ranges that training pictures show."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    part = data.parts["train"]
    rows = np.unique(np.linspace(0, len(part) - 1, min(CALIBRATION, len(part))).astype(int))
    prepared, target = whole.with_name("prepared.onnx"), whole.with_name("int8.onnx")
    # Symbolic shapes would want another package, and pictures have one size.
    quant_pre_process(whole, prepared, skip_symbolic_shape=True)
    name = _opened_name(prepared)

    class Pictures(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(rows)

        def get_next(self) -> dict[str, np.ndarray] | None:
            row = next(self.left, None)
            return None if row is None else {name: part.read(int(row)).image[None].astype(np.float32)}

    quantization.quantize_static(prepared, target, Pictures(), per_channel=True)
    return target


def _opened_name(path: Path) -> str:
    import onnx

    return str(onnx.load(path).graph.input[0].name)


def _row(make: Callable[[], Runner], data: Data, split: str, workers: int) -> dict[str, Any]:
    """What is measured; or why nothing is."""
    try:
        with _quiet():
            runner = make()
    except _Missing as missing:
        return {"missing": str(missing)}
    except Exception as error:  # converters fail in ways of their own
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return {"missing": f"conversion failed: {last[:300]}"}
    part = data.parts[split]
    pictures = np.stack([part.read(i % len(part)).image for i in range(BATCH)]).astype(np.float32)
    one = _timed(lambda: runner.predict_on_batch(pictures[:1]))
    many = _timed(lambda: runner.predict_on_batch(pictures))
    measure = evaluate.measured(runner, data, split, BATCH, workers)
    return {
        "runtime": runner.runtime,
        "bytes": runner.size,
        "latency_ms": 1000 * float(np.median(one)),
        "latency_95_ms": 1000 * float(np.percentile(one, 95)),
        "images_per_second": BATCH / float(np.median(many)),
        "metrics": measure.metrics(),
    }


def _timed(run: Callable[[], Any]) -> list[float]:
    """Seconds of each run, after some that nobody counts."""
    for _ in range(FEWEST):
        run()
    taken: list[float] = []
    while len(taken) < FEWEST or (len(taken) < RUNS and sum(taken) < SECONDS):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return taken


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Converters print what nobody asked; standard output is the answer."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
