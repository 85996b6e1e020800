"""The training itself: from a configuration to event files, checkpoints and an evaluation.

One loop over steps, the same on every backend. All randomness is a function of the seed and of
where the training stands, so a training that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import backend, checkpoints, evaluate, folder, held_gpus, loader, own, policies, program, progress, saved, sources
from . import tasks, threads, together
from .config import METRICS, Config
from .data import Data
from .errors import DIVERGED, DONE, TERMINATED, Stop, bad_config, bad_data
from .events import Nowhere, Writer
from .files import write_hyperparameters, write_json, write_program, write_rows, write_text
from .progress import say
from .speed import Speed
from .together import Place


class Terminated(Exception):
    """SIGTERM has come; what is to be kept is kept by who catches this."""


def run(config: Config) -> int:
    """The exit code; failures are raised as `Stop`."""
    with _Signals() as stopping:
        return _run(config, stopping)


def _run(config: Config, stopping: _Signals) -> int:
    name = backend.start(config["backend"])
    saved.require_keras()  # rather now than when the first checkpoint is to be loaded
    place = together.join(name)
    if not place.leads:
        progress.only_errors()
    workers = threads.allowed()
    say("start", backend=name, threads=workers, output=config["output"])
    devices = backend.prepare(config, place)
    if place.leads:
        held_gpus.report(name, devices // place.count)
    try:
        data = sources.load(config, workers)
        output = Path(config["output"])
        if place.leads:
            _prepare(output, config, data, name)
        return _Training(config, data, output, workers, devices, place, stopping).run()
    except Terminated:
        say("terminated")
        return TERMINATED


class _Signals:
    """Turns SIGTERM and SIGINT into a question that is asked where stopping is safe."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> _Signals:
        self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True


def _prepare(output: Path, config: Config, data: Data, backend_name: str) -> None:
    """The run's folder with what says what it is."""
    output.mkdir(parents=True, exist_ok=True)
    if "file" in config["network"]:
        # Where it is looked for when the model is used, whatever becomes of the file.
        write_program(output / folder.PROGRAM, program.read(Path(config["network"]["file"])))
    shape = data.shape
    counts = {split: len(part) for split, part in data.parts.items()}
    say(
        "data",
        source=data.source,
        classes=len(data.classes),
        pictures=counts,
        problems=len(data.problems),
        shape=shape.hwc,
    )
    about = {"config": config, "backend": backend_name, "versions": backend.versions(), "pictures": counts}
    write_json(output / "run.json", about | {"source": data.source, "manifest_sha256": data.fingerprint or None})
    write_text(output / "labels.txt", "".join(f"{name}\n" for name in data.classes))
    write_json(
        output / "preprocessing.json",
        {
            **{"task": data.task, "height": shape.height, "width": shape.width, "channels": shape.channels},
            **{"resize": shape.resize, "layout": "NHWC", "range": [0, 255], "normalisation": "inside the model"},
            **{"mean": data.mean, "deviation": data.deviation},
        },
    )
    write_rows(output / "problems.csv", ["path", "error"], data.problems)


class _Training:
    """Where a training stands, and the loop that takes it further."""

    def __init__(
        self,
        config: Config,
        data: Data,
        output: Path,
        workers: int,
        devices: int,
        place: Place,
        stopping: _Signals,
    ):
        self.config, self.data, self.output, self.workers = config, data, output, workers
        self.devices, self.place, self.stopping, self.speed = devices, place, stopping, Speed()
        self.task, self.own = tasks.of(data.task), own.of(config)
        self.snapshots = output / "checkpoints"
        self.steps = loader.steps_per_epoch(len(data.parts["train"]), config["batch_size"])
        updates = math.ceil(config["epochs"] * self.steps / config["accumulation"])
        self.rates = policies.rates(config["learning_rate"], updates)
        self.every = config["events"].get("every_steps", max(1, self.steps // 20))
        self.metric = config["metric"]
        self.sign = 1 if self.metric in self.task.HIGHER_IS_BETTER else -1
        if self.metric == "auto":
            usual = METRICS[data.task][0]
            direction = "max" if usual in self.task.HIGHER_IS_BETTER else "min"
            self.metric, direction = self.own.monitor or (usual, direction)
            self.sign = 1 if direction == "max" else -1
        identity = checkpoints.identity(config, data.classes, len(data.parts["train"]))
        if checkpoints.plain(place.agreed(identity)) != checkpoints.plain(identity):
            raise bad_data("the images on this machine differ from those on the first machine", "data")
        if place.leads and not config["resume"]:
            checkpoints.clear(self.snapshots)
        index = place.agreed(checkpoints.read(self.snapshots) if place.leads else None)
        if index:
            if field := checkpoints.changed(index, identity):
                raise bad_config(
                    field,
                    "differs from the configuration of the checkpoints in output; set resume to false, or use another output",
                )
            self.index = index
            self.model = self._loaded(index["snapshots"][-1]["file"])
        else:
            self.index = {
                "identity": identity,
                "metric": self.metric,
                "best": None,
                "best_value": None,
                "waited": 0,
                "snapshots": [],
            }
            self.model = self._new()
        at = self.index["snapshots"][-1] if index else {"epoch": 0, "batch": 0, "sums": {}, "window": {}}
        self.epoch, self.batch = at["epoch"], at["batch"]
        self.sums, self.window = dict(at["sums"]), dict(at["window"])
        self.seeds = [v for v in self.model.non_trainable_variables if v.path.endswith("seed_generator_state")]
        self.weights = self._class_weights()
        self.step = self.epoch * self.steps + self.batch  # steps that are done
        self.bad = 0  # steps in a row without a finite loss
        say(
            "resume" if index else "begin",
            epoch=self.epoch,
            step=self.step,
            steps=self.steps * config["epochs"],
            devices=devices,
        )

    def _new(self) -> Any:
        from . import describe, networks, optimizers

        model = networks.build(self.config, self.data)
        how = dict(self.task.COMPILE)
        if self.own.loss is not None:
            how["loss"] = self.own.loss
        if self.own.metrics:
            how["metrics"] = self.own.metrics
        model.compile(optimizer=optimizers.make(self.config), jit_compile="auto", **how)
        if self.place.leads:
            about = describe.described(model, self.config)
            write_json(self.output / "model_summary.json", about)
            for warning in about["warnings"]:
                say("warning", message=warning)
        return model

    def _loaded(self, file: str) -> Any:
        own.of(self.config)  # its layers, loss and metrics must be known
        return saved.resumed(self.snapshots / file)

    def _class_weights(self) -> dict[int, float] | None:
        if self.config["class_weights"] == "none":
            return None
        counts = np.bincount(self.data.parts["train"].labels, minlength=len(self.data.classes))
        there = counts > 0
        return {i: float(counts.sum() / (there.sum() * n)) if n else 0.0 for i, n in enumerate(counts)}

    def run(self) -> int:
        begin = self.step + 1 if self.step else 0
        writer = Writer if self.place.leads else Nowhere
        self.train_events = writer(self.output / "events" / "train", begin)
        self.val_events = writer(self.output / "events" / "validation", begin)
        if self.place.leads:
            write_hyperparameters(self.output / "events" / "train" / "hparams.yaml", self.config)
        self.began, self.begun_at, self.said = time.monotonic(), self.step, 0.0
        code = DONE
        try:
            while self.epoch < self.config["epochs"] and not self._enough():
                self._one_epoch()
            if self.epoch < self.config["epochs"]:
                say("early_stop", epoch=self.epoch, metric=self.metric, best=self.index["best_value"])
            config = self.config
            self.place.part()
            if self.place.leads:
                self.speed.write(self.output, self.devices, config["batch_size"], config["precision"])
                self._evaluated()
        except Terminated:
            # Once in the index at this very step, a snapshot need not be written again.
            last = self.index["snapshots"][-1:] or [{"step": -1}]
            if last[0]["step"] != self.step or last[0]["epoch"] != self.epoch:
                self._save(f"step-{self.step:08d}.keras", None)
            self.place.part()
            say("terminated", epoch=self.epoch, step=self.step)
            code = TERMINATED
        finally:
            self.train_events.close()
            self.val_events.close()
        return code

    def poll(self) -> None:
        """All machines stop at the same step."""
        if self.place.any(self.stopping.asked):
            raise Terminated

    def _one_epoch(self) -> None:
        config, data = self.config, self.data
        batches = loader.training(
            data.parts["train"],
            lambda samples: self.task.targets(samples, data),
            *(config["batch_size"], config["seed"], self.epoch, config["augmentation"], self.workers, self.batch),
            self.place.share,
        )
        self.poll()
        self.speed.epoch()
        for images, truth, count in batches:
            count *= self.place.count
            self._one_step(images, truth, count)
            self.speed.step(count)
            self.poll()
        split = "val" if "val" in data.parts else "test"
        with self.place.own(self.model) as model:
            measure = evaluate.measured(model, data, split, config["batch_size"], self.workers, self.poll, self.own)
        metrics = self.place.agreed(measure.metrics())
        learnt = {name: total / self.sums["count"] for name, total in self.sums.items() if name != "count"}
        self.epoch, self.batch, self.sums, self.window = self.epoch + 1, 0, {}, {}
        self.val_events.scalars(self.step, metrics | {"epoch": self.epoch})
        say("epoch", epoch=self.epoch, epochs=config["epochs"], step=self.step, train=learnt, validation=metrics)
        better = self._better(metrics)
        if better or self.epoch % config["checkpoints"]["every_epochs"] == 0 or self.epoch == config["epochs"]:
            self._save(f"epoch-{self.epoch:05d}.keras", metrics)

    def _one_step(self, images: np.ndarray, truth: np.ndarray, count: int) -> None:
        began = time.monotonic()
        rate = self.rates[self.step // self.config["accumulation"]]
        self.model.optimizer.learning_rate = rate
        for number, state in enumerate(self.seeds):  # dropout, too, depends on where we stand alone
            state.assign([self.config["seed"] + number, self.step])
        self.model.reset_metrics()
        try:
            result = self.model.train_on_batch(images, truth, class_weight=self.weights, return_dict=True)
        except Exception as error:
            raise self.own.said(error) or error from error
        values = {name: float(value) for name, value in result.items()}
        self.step, self.batch = self.step + 1, self.batch + 1
        for sums in (self.sums, self.window):
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value * count
            sums["count"] = sums.get("count", 0) + count
        self.window["seconds"] = self.window.get("seconds", 0.0) + time.monotonic() - began
        finite = math.isfinite(values["loss"])
        if self.batch % self.every == 0 or self.batch == self.steps or not finite:
            self._point(float(rate))
        self._finite(finite)

    def _point(self, rate: float) -> None:
        window, self.window = self.window, {}
        seconds, count = window.pop("seconds"), window.pop("count")
        values = {name: total / count for name, total in window.items()}
        epoch = self.epoch + self.batch / self.steps
        values |= {"learning_rate": rate, "images_per_second": count / max(seconds, 1e-9), "epoch": epoch}
        self.train_events.scalars(self.step, values)
        elapsed, done = time.monotonic() - self.began, self.step - self.begun_at
        left = (self.steps * self.config["epochs"] - self.step) * elapsed / max(1, done)
        if elapsed - self.said < 0.5 and self.batch != self.steps:
            return  # the curves have it; a person need not
        self.said = elapsed
        say("progress", step=self.step, steps=self.steps * self.config["epochs"], seconds_left=round(left, 1), epochs=self.config["epochs"], **values)

    def _finite(self, finite: bool) -> None:
        """In half precision single steps may fail: the loss scale is then lowered, and the step left out."""
        self.bad = 0 if finite else self.bad + 1
        if self.bad > (10 if self.config["precision"] == "mixed_float16" else 0):
            raise Stop(
                DIVERGED,
                f"the loss is not finite at step {self.step}: use a lower learning rate, a warm-up, or optimizer.clip_norm",
                "learning_rate.base",
            )

    def _better(self, metrics: dict[str, float]) -> bool:
        value, best = metrics[self.metric], self.index["best_value"]
        # The first is the best so far; one that only moves within min_delta is not waited for.
        if best is not None and self.sign * (value - best) <= self.config["early_stopping"]["min_delta"]:
            self.index["waited"] += 1
            return False
        self.index |= {
            "best_value": value,
            "best": f"epoch-{self.epoch:05d}.keras",
            "best_epoch": self.epoch,
            "waited": 0,
        }
        return True

    def _enough(self) -> bool:
        patience = self.config["early_stopping"]["patience"]
        return 0 < patience <= self.index["waited"]

    def _save(self, file: str, metrics: dict[str, float] | None) -> None:
        entry = {"file": file, "epoch": self.epoch, "batch": self.batch, "step": self.step, "metrics": metrics}
        entry |= {"sums": self.sums, "window": self.window}
        keep = self.config["checkpoints"]["keep_last"]
        with self.place.apart():
            checkpoints.save(self.snapshots, self.model, self.index, entry, keep, self.place.leads)
        say("checkpoint", file=f"checkpoints/{file}", epoch=self.epoch, step=self.step, best=self.index["best"] == file)

    def _evaluated(self) -> None:
        """The best snapshot, not the last, is what is judged and used."""
        best = self.index["best"]
        # What was trained among several machines is not this one's alone.
        if best != self.index["snapshots"][-1]["file"] or self.place.count > 1:
            self.model = self._loaded(best)
        found = evaluate.written(
            *(self.model, self.data, self.output / "eval", self.config["batch_size"], self.workers, self.poll, self.own)
        )
        say("done", best=f"checkpoints/{best}", best_epoch=self.index["best_epoch"], evaluation=found)
