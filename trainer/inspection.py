"""Looks into a network with one picture: the activations and weights of each layer, as pictures and
histograms, and where in the picture the answer comes from (Grad-CAM). How values become a picture is in
tiles.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import afterwards, files, pixels, tiles
from .errors import Stop, bad_data
from .pixels import Broken

BINS = 30
BLOCK = 1 << 20  # values that are looked at in one go: the largest layers have a hundred million
PICTURES = 400  # of activations, and of weights, that are drawn; of further ones there are histograms


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
        "weights": _weights(trained.model, output),
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
    """Of all finite values: mean, deviation, range and counts; and which share is zero, or not finite."""
    flat = np.asarray(values).ravel()
    blocks = [flat[at : at + BLOCK] for at in range(0, flat.size, BLOCK)]
    count = zeros = 0
    total, least, greatest = 0.0, np.inf, -np.inf
    for block in map(_finite, blocks):
        if len(block):
            count, zeros = count + len(block), zeros + int((block == 0).sum())
            total += float(block.sum())
            least, greatest = min(least, float(block.min())), max(greatest, float(block.max()))
    about = {"count": flat.size, "zeros": zeros / max(1, flat.size), "not_finite": 1 - count / max(1, flat.size)}
    if count == 0:
        return about | {"mean": None, "deviation": None, "least": None, "greatest": None, "counts": [], "edges": []}
    mean, square, counts = total / count, 0.0, np.zeros(BINS, np.int64)
    span = _span(least, greatest)
    for block in map(_finite, blocks):
        square += float(((block - mean) ** 2).sum())
        counts += np.histogram(block, BINS, span)[0]
    about |= {"mean": mean, "deviation": float(np.sqrt(square / count)), "least": least, "greatest": greatest}
    return about | {"counts": counts, "edges": np.linspace(*span, BINS + 1)}


def _span(least: float, greatest: float) -> tuple[float, float]:
    """A range that can be divided: values that are all the same have none."""
    most = max(abs(least), abs(greatest))
    if greatest - least > 1e3 * np.spacing(most):
        return least, greatest
    half = max(0.5, most / 2)
    return least - half, greatest + half


def _finite(block: np.ndarray) -> np.ndarray:
    block = block.astype(np.float64)
    return block[np.isfinite(block)]


def _activations(model: Any, batch: np.ndarray, output: Path) -> list[dict[str, Any]]:
    import keras

    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    probe = keras.Model(model.inputs, [layer.output for layer in layers])
    values = probe.predict_on_batch(batch)
    rows = []
    for number, (layer, value) in enumerate(zip(layers, values)):
        # Of a layer with several outputs, the first is shown.
        value = np.asarray(value[0] if isinstance(value, (list, tuple)) else value)[0].astype(np.float32)
        row = {"name": layer.name, "type": type(layer).__name__, "shape": value.shape}
        row |= {"parameters": layer.count_params(), "activations": histogram(value)}
        rows.append(row | _drawn(tiles.of_activations(value), output, f"activations/{number:03d}.png", number))
    return rows


def _weights(model: Any, output: Path) -> list[dict[str, Any]]:
    import keras

    rows: list[dict[str, Any]] = []
    for layer in model.layers:
        for weight in layer.weights:
            if "seed_generator" in weight.path:
                continue
            value = keras.ops.convert_to_numpy(weight.value)
            if isinstance(layer, keras.layers.Conv2DTranspose) and value.ndim == 4:
                value = value.swapaxes(2, 3)  # filters behind channels, as in other convolutions
            number = len(rows)
            row = {"layer": layer.name, "name": weight.path, "shape": tuple(weight.shape), "values": histogram(value)}
            rows.append(row | _drawn(tiles.of_weights(value), output, f"weights/{number:03d}.png", number))
    return rows


def _drawn(sheet: tiles.Sheet | None, output: Path, name: str, number: int) -> dict[str, Any]:
    if sheet is None or number >= PICTURES:
        return {}
    files.replace(output / name, sheet.image.save)
    return {"image": name, "shown": sheet.shown}


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
