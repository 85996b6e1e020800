"""Makes the network that a configuration asks for: a name, a person's Python file, or a model
to go on from.

Every network is a function of the normalised picture and the number of classes that returns the
values before the softmax (for detection a map of features). Input, normalisation and the last
activation are added here, so that each saved model takes 8-bit values and gives probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from .. import own, program, saved
from ..data import Data
from ..errors import Stop, bad_config
from . import classic, dense, modern

Network = Callable[..., Any]

NAMED: dict[str, Network] = {
    "lenet": classic.lenet,
    "small-cnn": classic.small_cnn,
    "alexnet": classic.alexnet,
    "vgg-16": classic.vgg_16,
    "googlenet": classic.googlenet,
    "resnet-18": modern.resnet_18,
    "resnet-50": modern.resnet_50,
    "mobilenet-v3": modern.mobilenet_v3,
    "efficientnet-b0": modern.efficientnet_b0,
    "vit-tiny": modern.vit_tiny,
    "u-net": dense.u_net,
    "centres": dense.centres,
    "autoencoder": dense.autoencoder,
}
STRIDE = dense.STRIDE  # of the detector's map


def build(config: dict[str, Any], data: Data) -> keras.Model:
    wanted = config["network"]
    if "pretrained" in wanted:
        return _fine_tuned(Path(wanted["pretrained"]), wanted["freeze"], data)
    if "file" in wanted:
        network, field = _from_file(Path(wanted["file"])), "network.file"
        options: dict[str, Any] = {}
    else:
        network, field = NAMED[wanted["name"]], "network.name"
        options = {key: wanted[key] for key in ("dropout",) if key in wanted} | {"width": wanted["width"]}
    image = keras.Input(data.shape.hwc, name="image")
    x = _normalised(image, config["normalisation"], data)
    try:
        values = network(x, _outputs(data), **options)
    except Exception as error:
        height, width, channels = data.shape.hwc
        where = program.line_of(error, wanted["file"]) if "file" in wanted else ""
        raise bad_config(
            field, f"cannot be built for {width} × {height} × {channels}{where}: {program.whole(error)}"
        ) from error
    return _finished(image, values, data, field)


def _finished(image: Any, values: Any, data: Data, field: str) -> keras.Model:
    """Adds what makes probabilities of values, and checks that they have the right shape."""
    classes = _outputs(data)
    shape = tuple(getattr(values, "shape", ()))
    wanted = {
        "classification": (None, classes),
        "segmentation": (None, data.shape.height, data.shape.width, classes),
        "detection": (None, data.shape.height // STRIDE, data.shape.width // STRIDE, shape[-1] if shape else 0),
        "regression": (None, classes),
        "reconstruction": (None, *data.shape.hwc),
    }[data.task]
    if shape != wanted:
        raise bad_config(field, f"returns values of the shape {shape}, but {wanted} is needed")
    # In mixed precision too, probabilities are float32.
    if data.task == "detection":
        found = dense.heads(values, classes)
    elif data.task in ("regression", "reconstruction"):
        found = keras.layers.Activation("linear", dtype="float32", name="values")(values)
    else:
        found = keras.layers.Activation("softmax", dtype="float32", name="probabilities")(values)
    return keras.Model(image, found, name="network")


def _outputs(data: Data) -> int:
    """How many values the network returns, for a picture or for each of its places."""
    return data.shape.channels if data.task == "reconstruction" else len(data.classes)


def warnings(model: keras.Model, config: dict[str, Any]) -> list[str]:
    """What is probably a mistake in a network or its loss, in sentences."""
    last = next((layer for layer in model.layers if layer.name in ("probabilities", "values")), None)
    if last is None:
        return []
    before = getattr(getattr(last.input, "_keras_history", None), "operation", None)
    activation = getattr(getattr(before, "activation", None), "__name__", "") or type(before).__name__.lower()
    of_loss = own.warnings(own.of(config), config.get("task", ""), activation)
    if last.name == "values" or activation not in ("softmax", "logsoftmax", "log_softmax", "sigmoid"):
        return of_loss
    return [
        f"The last layer, “{before.name}”, already applies {activation}. The trainer adds a softmax, so that it would be"
        " applied twice: the network learns slowly and its confidence is too low. Return the values before it (logits).",
        *of_loss,
    ]


def _normalised(image: Any, how: str, data: Data) -> Any:
    match how:
        case "standard":
            mean, deviation = data.mean or [0.0], data.deviation or [1.0]
        case "scale":
            mean, deviation = [0.0] * data.shape.channels, [255.0] * data.shape.channels
        case _:
            return image
    scale = [1.0 / d for d in deviation]
    offset = [-m / d for m, d in zip(mean, deviation)]
    if len(scale) == 1:
        return keras.layers.Rescaling(scale[0], offset[0], name="normalise")(image)
    return keras.layers.Rescaling(scale, offset, name="normalise")(image)


_loaded: dict[tuple[str, bytes], Any] = {}


def load_file(path: Path) -> Any:
    """The Python file that a configuration names, as a module; run once, as long as it stays the same."""
    source = program.read(path)
    if (str(path), source) not in _loaded:
        _loaded[str(path), source] = program.run(source, str(path))
    return _loaded[str(path), source]


def _from_file(path: Path) -> Network:
    network = getattr(load_file(path), "network", None)
    if not callable(network):
        raise bad_config("network.file", f"{path.name} does not define a function network(x, classes)")
    return network


def _fine_tuned(path: Path, freeze: bool, data: Data) -> keras.Model:
    """The model of a file. Where it knows other classes, what stands before its last layer goes on."""
    field = "network.pretrained"
    try:
        model = saved.load(path)
    except Stop as stop:
        raise Stop(stop.code, f"cannot load {path.name}: {stop.message}", field) from None
    if tuple(model.input_shape[1:]) != data.shape.hwc:
        raise bad_config(
            field, f"needs images of {model.input_shape[1:]}, but the data has {data.shape.hwc} (height, width, channels)"
        )
    last = [layer for layer in model.layers if layer.name in ("logits", "heat_logits")]
    same = model.output_shape[-1] == _outputs(data) + (4 if data.task == "detection" else 0)
    if not same and (not last or data.task in ("detection", "reconstruction")):
        raise bad_config(
            field,
            f"returns {model.output_shape[-1]} values for {len(data.classes)} classes, and does not have a layer “logits” that can be replaced",
        )
    if not same:
        make = _pointwise if data.task == "segmentation" else keras.layers.Dense
        values = make(len(data.classes), name="logits")(last[0].input)
        model = _finished(model.inputs[0], values, data, field)
    if freeze:
        for layer in model.layers:
            layer.trainable = layer.name in ("logits", "heat_logits", "box")
        if not model.trainable_variables:
            raise bad_config("network.freeze", "leaves no layer to train: the model does not have a layer “logits”")
    return model


def _pointwise(classes: int, name: str) -> keras.layers.Layer:
    return keras.layers.Conv2D(classes, 1, name=name)
