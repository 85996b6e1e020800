"""Reconstruction: the network returns the picture that it was given, in values from 0 to 1 (an
autoencoder); or the one that the function `target` of its file makes of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..data import Data, Part, Sample
from ..errors import bad_data
from ..files import replace, write_json, write_rows
from ..own import Own

HIGHER_IS_BETTER = ("psnr",)
COMPILE: dict[str, Any] = {"loss": "mean_squared_error", "metrics": ["mae"]}
KEPT = 200  # outputs that are stored: the worst


def prepared(data: Data, own: Own) -> Data:
    """The same pictures, each of which is its own truth."""
    classes, shape = data.classes, data.shape.hwc

    def picture(sample: Sample) -> np.ndarray:
        if own.target is None:
            return sample.image.astype(np.float32) / 255.0
        label = classes[sample.label] if sample.label >= 0 else ""
        found = own.call(lambda: np.asarray(own.target(sample.image, label), np.float32))  # type: ignore[misc]
        if found.shape != shape or not np.isfinite(found).all():
            raise bad_data(f"target returned an array of the shape {found.shape}: finite values of {shape} are required", "network.file")
        return found

    data.target = picture
    data.parts = {split: Part(part.names, part.read, None, part.array) for split, part in data.parts.items()}
    return data


def targets(samples: list[Sample], data: Data) -> np.ndarray:
    assert data.target is not None
    return np.stack([data.target(sample) for sample in samples])


def drawn(found: np.ndarray) -> Image.Image:
    """The picture of values from 0 to 1; what is outside is cut off."""
    values = np.round(np.clip(np.nan_to_num(found), 0.0, 1.0) * 255.0).astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values)


class Measure:
    """Keeps the error of each picture, and the outputs as 8-bit pictures."""

    def __init__(self, data: Data):
        self.data = data
        self.errors: list[tuple[float, float]] = []  # mean square and mean absolute
        self.outputs: list[Image.Image] = []

    def take(self, predicted: np.ndarray, truth: np.ndarray) -> None:
        for found, there in zip(np.asarray(predicted, np.float64), np.asarray(truth, np.float64)):
            self.errors.append((float(((found - there) ** 2).mean()), float(np.abs(found - there).mean())))
            self.outputs.append(drawn(found))

    def metrics(self) -> dict[str, float]:
        square, absolute = np.array(self.errors).mean(0)
        return {"loss": float(square), "mse": float(square), "mae": float(absolute), "psnr": psnr(float(square))}

    def write(self, folder: Path, part: Part) -> None:
        worst = sorted(range(len(self.errors)), key=lambda i: -self.errors[i][0])[:KEPT]
        names = {i: f"masks/{number:03d}.png" for number, i in enumerate(worst)}
        for i, name in names.items():
            replace(folder / name, self.outputs[i].save)
        write_rows(
            folder / "predictions.csv",
            ["path", "mse", "psnr", "image"],
            ([part.names[i], f"{e[0]:.6g}", f"{psnr(e[0]):.6g}", names.get(i, "")] for i, e in enumerate(self.errors)),
        )
        write_json(folder / "metrics.json", {"pictures": len(self.errors)} | self.metrics() | {"classes": []})
        listed = [
            {"path": part.names[i], "mse": self.errors[i][0], "psnr": psnr(self.errors[i][0]), "image": names[i]}
            for i in worst[:100]
        ]
        write_json(folder / "worst.json", listed)


def psnr(square: float) -> float:
    """Peak signal-to-noise ratio of values from 0 to 1, in dB; at most 100."""
    return float(min(100.0, -10.0 * np.log10(max(square, 1e-10))))
