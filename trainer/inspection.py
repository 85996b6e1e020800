"""Looks into a network with one picture: the activations of each layer, where in the picture
the answer comes from (Grad-CAM), and how the weights are distributed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import afterwards, files, pixels
from .errors import Stop, bad_data
from .pixels import Broken

BINS = 30
MAPS = 64  # of a layer are drawn at most


def inspected(model: Path, image: Path, output: Path, label: str | None) -> dict[str, Any]:
    """Writes inspection.json and the pictures that it names; returns the same."""
    trained = afterwards.load(model)
    try:
        picture = pixels.read(image, trained.shape)
    except Broken as broken:
        raise bad_data(f"{image} {broken}", "IMAGE") from None
    batch = picture[np.newaxis].astype(np.float32)
    found = {
        "model": str(model),
        "image": afterwards.files_name(image),
        "layers": _activations(trained.model, batch, output),
        "weights": _weights(trained.model),
        "total_parameters": int(trained.model.count_params()),
    }
    files.replace(output / "picture.png", _picture(picture).save)
    if trained.task == "classification":
        found |= _grad_cam(trained, batch, picture, output, label)
    files.write_json(output / "inspection.json", found)
    return found


def _picture(values: np.ndarray) -> Image.Image:
    return Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values)


def histogram(values: np.ndarray) -> dict[str, Any]:
    flat = np.asarray(values, np.float64).ravel()
    counts, edges = np.histogram(flat, BINS)
    about = {"mean": flat.mean(), "deviation": flat.std(), "least": flat.min(), "greatest": flat.max()}
    return about | {"counts": counts, "edges": edges}


def _activations(model: Any, batch: np.ndarray, output: Path) -> list[dict[str, Any]]:
    import keras

    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    probe = keras.Model(model.inputs, [layer.output for layer in layers])
    values = probe.predict_on_batch(batch)
    rows = []
    for number, (layer, value) in enumerate(zip(layers, values)):
        value = np.asarray(value)[0].astype(np.float32)
        row = {"name": layer.name, "type": type(layer).__name__, "shape": value.shape, "activations": histogram(value)}
        if value.ndim == 3:
            row["image"] = f"activations/{number:03d}.png"
            files.replace(output / row["image"], tiled(value).save)
        rows.append(row)
    return rows


def tiled(maps: np.ndarray) -> Image.Image:
    """The first maps side by side, each over its own range, in grey."""
    maps = maps[..., :MAPS]
    height, width, count = maps.shape
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    sheet = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1), np.uint8)
    for i in range(count):
        one = maps[..., i]
        span = one.max() - one.min()
        grey = (255 * (one - one.min()) / span if span > 0 else np.zeros_like(one)).astype(np.uint8)
        y, x = i // columns * (height + 1), i % columns * (width + 1)
        sheet[y : y + height, x : x + width] = grey
    scale = max(1, 640 // max(sheet.shape))
    return Image.fromarray(sheet).resize((sheet.shape[1] * scale, sheet.shape[0] * scale), Image.Resampling.NEAREST)


def _weights(model: Any) -> list[dict[str, Any]]:
    import keras

    return [
        {
            "name": weight.path,
            "shape": tuple(weight.shape),
            "values": histogram(keras.ops.convert_to_numpy(weight.value)),
        }
        for weight in model.weights
        if "seed_generator" not in weight.path
    ]


def _grad_cam(
    trained: afterwards.Trained, batch: np.ndarray, picture: np.ndarray, output: Path, label: str | None
) -> dict[str, Any]:
    """The maps of the last layer that still knows places, weighted by how much the answer grows with them."""
    import keras

    from . import gradients

    model = trained.model
    probabilities = np.asarray(model.predict_on_batch(batch))[0]
    if label is None:
        answer = int(probabilities.argmax())
    elif label in trained.labels:
        answer = trained.labels.index(label)
    else:
        raise Stop(1, f"the model does not have a class {label!r}", "--class")
    about = {"class": trained.labels[answer], "probability": float(probabilities[answer])}
    # Before the softmax: its gradient vanishes where the network is sure.
    logits = next((layer for layer in model.layers if layer.name == "logits"), model.layers[-1])
    last, tail = _last_maps(model, logits)
    if tail is None:
        return about | {"grad_cam": None, "grad_cam_reason": "no layer keeps spatial positions"}
    head = keras.Model(model.inputs, last.output)
    values = np.asarray(head.predict_on_batch(batch), np.float32)
    weights = gradients.of_answer(tail, values, answer)[0].mean((0, 1))
    heat = np.maximum((values[0] * weights).sum(-1), 0)
    heat = heat / heat.max() if heat.max() > 0 else heat
    height, width = picture.shape[:2]
    large = (
        np.asarray(
            Image.fromarray((heat * 255).astype(np.uint8)).resize((width, height), Image.Resampling.BILINEAR),
            np.float32,
        )
        / 255
    )
    grey = np.repeat(picture, 3, -1) if picture.shape[-1] == 1 else picture
    # Red where it counts, over the picture in half its brightness.
    mixed = grey * 0.5 + np.stack([large, large * 0.35, large * 0.05], -1) * 127
    scale = max(1, 448 // max(height, width))
    drawn = Image.fromarray(mixed.clip(0, 255).astype(np.uint8)).resize(
        (width * scale, height * scale), Image.Resampling.NEAREST
    )
    files.replace(output / "grad-cam.png", drawn.save)
    return about | {"grad_cam": {"image": "grad-cam.png", "layer": last.name, "map": heat.round(4)}}


def _last_maps(model: Any, logits: Any) -> tuple[Any, Any]:
    """The last layer with weights that still knows places, or the next that everything behind depends on alone: behind
    a residual connection that is the sum. With it, the network from there on."""
    import keras

    maps = [one for one in model.layers if len(getattr(one.output, "shape", ())) == 4 and min(one.output.shape[1:3]) > 1]
    first = max((at for at, one in enumerate(maps) if one.count_params()), default=len(maps))
    for layer in maps[first:]:
        try:
            return layer, keras.Model(layer.output, logits.output)
        except ValueError:  # another way leads past this layer
            continue
    return None, None
