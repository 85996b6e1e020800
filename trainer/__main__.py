"""The command line: `python -m trainer CONFIG.json`, and what can be asked before and afterwards."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import config as configuration
from .errors import INTERNAL, Stop, as_stop
from .progress import plain, say

_COMMANDS = (
    *("train", "lr", "preview", "describe", "evaluate", "precisions"),
    *("predict", "inspect", "export", "import", "serve", "schema"),
)


def main(arguments: list[str]) -> int:
    # What is made here may be run again, so that nobody else may write to it.
    os.umask(os.umask(0o022) | 0o022)
    # A file alone is a training.
    if arguments and arguments[0] not in _COMMANDS and not arguments[0].startswith("-"):
        arguments = ["train", *arguments]
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except Exception as error:
        stop = as_stop(error)
        if stop is None:
            traceback.print_exc()
            stop = Stop(INTERNAL, f"{type(error).__name__}: {error}")
        say("error", field=stop.field or None, message=stop.message, code=stop.code)
        where = f"{stop.field}: " if stop.field else ""
        # Further lines are indented, so that a reader of the log knows that they belong to it.
        print(f"trainer: {where}{stop.message}".replace("\n", "\n  "), file=sys.stderr)
        return stop.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m trainer", description="Trains image models with Keras 3. See docs/trainer.md."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Any], int], about: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about)
        made.set_defaults(run=run)
        return made

    one = command("train", _train, "train a model; the default if only a configuration is given")
    one.add_argument("config", type=Path)
    one = command("lr", _lr, "print the learning rate over the training as JSON")
    one.add_argument("config", type=Path)
    one.add_argument("--steps", type=int, default=1000, help="number of updates in the whole training")
    one = command("preview", _preview, "write eight training images as PNG files, original and augmented")
    one.add_argument("config", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("describe", _describe, "print layers, parameters, MACs and memory of the network as JSON")
    one.add_argument("config", type=Path)
    one.add_argument("--shape", help="HEIGHTxWIDTHxCHANNELS, instead of reading the data")
    one.add_argument("--classes", type=int, help="number of classes, with --shape")
    one = command("evaluate", _evaluate, "evaluate a checkpoint on the data of a configuration, as after a training")
    one.add_argument("config", type=Path)
    one.add_argument("model", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("precisions", _precisions, "measure a checkpoint in FP32, FP16 and INT8; print latency, throughput and metrics as JSON")
    one.add_argument("config", type=Path)
    one.add_argument("model", type=Path)
    one.add_argument("--output", type=Path, required=True, help="folder for precisions.json")
    one = command("predict", _predict, "print predictions for images as JSON")
    one.add_argument("model", type=Path)
    one.add_argument("images", type=Path, nargs="+")
    one.add_argument("--top", type=int, default=5)
    one.add_argument("--output", type=Path, help="folder for masks (PNG files), and for the evaluation of labelled images")
    one.add_argument("--labels", type=Path, help="detection, segmentation: evaluation set of the images, to score the predictions")
    one.add_argument("--least", type=float, help="detection: lowest score of a box (default: 0.3)")
    one = command("inspect", _inspect, "write activations, Grad-CAM and weights for one image as JSON and PNG files")
    one.add_argument("model", type=Path)
    one.add_argument("image", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one.add_argument("--class", dest="label", help="class to explain (default: the predicted class)")
    one = command("export", _export, "export a bundle: .keras, safetensors, ONNX, labels, preprocessing, model card, checksums")
    one.add_argument("model", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("import", _import, "make a model of a bundle: a folder or a tar archive")
    one.add_argument("bundle", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("serve", _serve, "serve predictions over HTTP on a Unix socket or a port of this machine")
    one.add_argument("folder", type=Path, metavar="MODEL", help="output of a training, or a bundle")
    where = one.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", type=Path)
    where.add_argument("--port", type=int, help="port on 127.0.0.1; 0 chooses a free port and prints it")
    one.add_argument("--base", default="", help="base path of the service")
    one.add_argument("--runtime", choices=("auto", "keras", "onnx"), default="auto")
    command("schema", _schema, "print the JSON schema of a configuration")
    return parser


def _print(value: Any) -> int:
    print(json.dumps(plain(value)))
    return 0


def _train(options: Any) -> int:
    from . import train

    return train.run(configuration.load(options.config))


def _lr(options: Any) -> int:
    from . import policies

    if options.steps < 1:
        raise Stop(1, "must be at least 1", "--steps")
    return _print(policies.drawing(configuration.load(options.config)["learning_rate"], options.steps))


def _preview(options: Any) -> int:
    from . import preview

    return _print(preview.drawn(configuration.load(options.config), options.output))


def _describe(options: Any) -> int:
    from . import backend, describe, sources, threads
    from .data import Data
    from .pixels import Shape

    config = configuration.load(options.config)
    backend.start(config["backend"])
    if options.shape:
        try:
            height, width, channels = (int(part) for part in options.shape.split("x"))
        except ValueError:
            raise Stop(1, f"must look like 28x28x1, not {options.shape}", "--shape") from None
        classes = [str(i) for i in range(options.classes or 10)]
        data = Data(
            config["task"],
            classes,
            Shape(height, width, channels),
            {},
            mean=[0.0] * channels,
            deviation=[1.0] * channels,
        )
    else:
        data = sources.load(config, threads.allowed())
    from . import networks

    return _print(describe.described(networks.build(config, data), config))


def _evaluate(options: Any) -> int:
    from . import afterwards

    return _print(afterwards.evaluated(configuration.load(options.config), options.model, options.output))


def _precisions(options: Any) -> int:
    from . import export, precisions

    export.on_cpu()
    return _print(precisions.compared(configuration.load(options.config), options.model, options.output))


def _predict(options: Any) -> int:
    from . import afterwards

    found = afterwards.predicted(
        options.model, options.images, options.top, options.output, options.least, options.labels
    )
    return _print(found)


def _inspect(options: Any) -> int:
    from . import inspection

    return _print(inspection.inspected(options.model, options.image, options.output, options.label))


def _export(options: Any) -> int:
    from . import export

    export.on_cpu()
    return _print(export.exported(options.model, options.output))


def _import(options: Any) -> int:
    from . import bundle

    return _print(bundle.imported(options.bundle, options.output))


def _serve(options: Any) -> int:
    from . import serve

    return serve.run(options.folder, serve.Place(options.socket, options.port, options.base), options.runtime)


def _schema(options: Any) -> int:
    print(json.dumps(configuration.SCHEMA, indent=2))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the numerical libraries may outlive their work; everything of ours is on the disk.
    os._exit(code)
