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
    *("predict", "inspect", "export", "serve", "schema"),
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
        print(f"trainer: {where}{stop.message}", file=sys.stderr)
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

    one = command("train", _train, "trains; the same as a configuration alone")
    one.add_argument("config", type=Path)
    one = command("lr", _lr, "the learning rate over the training, as JSON")
    one.add_argument("config", type=Path)
    one.add_argument("--steps", type=int, default=1000, help="updates of the whole training")
    one = command("preview", _preview, "eight training pictures, as they are and augmented, as PNG files")
    one.add_argument("config", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("describe", _describe, "the network's layers, parameters, MACs and memory, as JSON")
    one.add_argument("config", type=Path)
    one.add_argument("--shape", help="HEIGHTxWIDTHxCHANNELS, instead of looking at the data")
    one.add_argument("--classes", type=int, help="with --shape: how many")
    one = command("evaluate", _evaluate, "a snapshot over the data of a configuration, as after a training")
    one.add_argument("config", type=Path)
    one.add_argument("model", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("precisions", _precisions, "a snapshot in 32, 16 and 8 bits: latency, throughput, metrics, as JSON")
    one.add_argument("config", type=Path)
    one.add_argument("model", type=Path)
    one.add_argument("--output", type=Path, required=True, help="where precisions.json goes")
    one = command("predict", _predict, "what a model says of pictures, as JSON")
    one.add_argument("model", type=Path)
    one.add_argument("images", type=Path, nargs="+")
    one.add_argument("--top", type=int, default=5)
    one.add_argument("--output", type=Path, help="segmentation: where the masks go, as PNG files")
    one = command("inspect", _inspect, "activations, Grad-CAM and weights for one picture, as JSON and PNG files")
    one.add_argument("model", type=Path)
    one.add_argument("image", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one.add_argument("--class", dest="label", help="the class to explain; the first answer if not said")
    one = command("export", _export, "a bundle: .keras, safetensors, ONNX, labels, preprocessing, card, checksums")
    one.add_argument("model", type=Path)
    one.add_argument("--output", type=Path, required=True)
    one = command("serve", _serve, "answers pictures over HTTP, on a Unix socket or a port of this machine")
    one.add_argument("folder", type=Path, metavar="MODEL", help="the output of a training, or a bundle")
    where = one.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", type=Path)
    where.add_argument("--port", type=int, help="of 127.0.0.1; 0 takes a free one, and says which")
    one.add_argument("--base", default="", help="the path below which it answers")
    one.add_argument("--runtime", choices=("auto", "keras", "onnx"), default="auto")
    command("schema", _schema, "the JSON schema of a configuration")
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
    from . import precisions

    return _print(precisions.compared(configuration.load(options.config), options.model, options.output))


def _predict(options: Any) -> int:
    from . import afterwards

    return _print(afterwards.predicted(options.model, options.images, options.top, options.output))


def _inspect(options: Any) -> int:
    from . import inspection

    return _print(inspection.inspected(options.model, options.image, options.output, options.label))


def _export(options: Any) -> int:
    from . import export

    return _print(export.exported(options.model, options.output))


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
