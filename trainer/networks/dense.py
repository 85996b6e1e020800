"""Networks that say something of every place: U-Net for segmentation, an autoencoder, and a detector that finds
objects as peaks at their centres (in the manner of CenterNet): no anchors, no suppression step.
"""

from __future__ import annotations

from typing import Any

from keras import layers

STRIDE = 4  # pixels a cell of the detector's map, along each side


def u_net(x: Any, classes: int, dropout: float = 0.0, width: float = 1) -> Any:
    """Three times down and up again, with what was seen on the way down beside it."""
    _divisible(x, 8)
    base = max(4, round(16 * width))
    seen = []
    for level in range(3):
        x = _twice(x, base << level)
        seen.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = _twice(x, base << 3)
    if dropout:
        x = layers.SpatialDropout2D(dropout)(x)
    for level in (2, 1, 0):
        x = layers.UpSampling2D(2)(x)
        x = layers.Concatenate()([_conv(x, base << level), seen[level]])
        x = _twice(x, base << level)
    return layers.Conv2D(classes, 1, name="logits")(x)


def autoencoder(x: Any, channels: int, dropout: float = 0.0, width: float = 1) -> Any:
    """Down to a short code and up to the picture again, with nothing beside it."""
    height, across = x.shape[1:3]
    base = max(4, round(16 * width))
    for level in range(2):
        x = layers.Conv2D(base << level, 3, strides=2, padding="same", activation="relu")(x)
    shape = x.shape[1:]
    x = layers.Flatten()(x)
    if dropout:
        x = layers.Dropout(dropout)(x)
    x = layers.Dense(4 * base, activation="relu", name="code")(x)
    x = layers.Dense(shape[0] * shape[1] * shape[2], activation="relu")(x)
    x = layers.Reshape(shape)(x)
    for level in (1, 0):
        x = layers.Conv2DTranspose(base << level, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2D(channels, 3, padding="same", activation="sigmoid", name="logits")(x)
    return layers.Cropping2D(((0, x.shape[1] - height), (0, x.shape[2] - across)))(x)


def centres(x: Any, classes: int, dropout: float = 0.0, width: float = 1) -> Any:
    """Features at a quarter of the size, mixed with what is seen at an eighth and a sixteenth."""
    _divisible(x, 16)
    base = max(8, round(32 * width))
    x = _conv(x, base // 2, 2)
    fine = _twice(_conv(x, base, 2), base)
    middle = _twice(_conv(fine, 2 * base, 2), 2 * base)
    coarse = _twice(_conv(middle, 4 * base, 2), 4 * base)
    x = layers.Add()([_conv(middle, 2 * base), layers.UpSampling2D(2)(_conv(coarse, 2 * base))])
    x = layers.Add()([_conv(fine, base), layers.UpSampling2D(2)(_conv(x, base))])
    if dropout:
        x = layers.SpatialDropout2D(dropout)(x)
    return _conv(x, 2 * base)


def heads(x: Any, classes: int) -> Any:
    """For each cell: how much it is the centre of each class; where in the cell, and how large."""
    # A network that has seen nothing expects a centre in one cell of a hundred.
    rare = {"bias_initializer": _constant(-4.6)}
    heat = layers.Conv2D(classes, 1, name="heat_logits", **rare)(x)
    heat = layers.Activation("sigmoid", dtype="float32", name="heat")(heat)
    box = layers.Conv2D(4, 1, name="box", dtype="float32")(x)
    return layers.Concatenate(name="maps", dtype="float32")([heat, box])


def _constant(value: float) -> Any:
    from keras import initializers

    return initializers.Constant(value)


def _twice(x: Any, filters: int) -> Any:
    return _conv(_conv(x, filters), filters)


def _conv(x: Any, filters: int, stride: int = 1) -> Any:
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(x)


def _divisible(x: Any, by: int) -> None:
    if x.shape[1] % by or x.shape[2] % by:
        raise ValueError(f"width and height must be multiples of {by}")
