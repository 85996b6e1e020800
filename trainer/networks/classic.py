"""Networks for classification from LeNet to GoogLeNet, in sizes that also take small pictures."""

from __future__ import annotations

from typing import Any

from keras import layers


def lenet(x: Any, classes: int, dropout: float = 0.5, width: float = 1) -> Any:
    """LeNet-5 in today's dress: ReLU, and max pooling as long as there is something to pool."""
    # On pictures as small as scikit-learn's digits the border counts.
    padding = "valid" if min(x.shape[1:3]) >= 20 else "same"
    for filters in (20, 50):
        x = layers.Conv2D(filters, 5, padding=padding, activation="relu")(x)
        x = layers.MaxPooling2D(2)(x)
    x = layers.Flatten()(x)
    x = layers.Dense(500, activation="relu")(x)
    x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, name="logits")(x)


def small_cnn(x: Any, classes: int, dropout: float = 0.3, width: float = 1) -> Any:
    """Up to four stages of two convolutions with batch normalisation, then the mean over the picture."""
    for stage in range(4):
        for _ in range(2):
            x = layers.Conv2D(round(32 * width) << stage, 3, padding="same", use_bias=False)(x)
            x = layers.BatchNormalization(momentum=0.9)(x)
            x = layers.ReLU()(x)
        if min(x.shape[1:3]) < 8:
            break
        x = layers.MaxPooling2D(2)(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, name="logits")(x)


def alexnet(x: Any, classes: int, dropout: float = 0.5, width: float = 1) -> Any:
    """One tower, with batch normalisation instead of local response normalisation. From 63 × 63 pixels on."""
    _at_least(x, 63)
    for filters, size, stride, pool in (
        (96, 11, 4, True),
        (256, 5, 1, True),
        (384, 3, 1, False),
        (384, 3, 1, False),
        (256, 3, 1, True),
    ):
        x = layers.Conv2D(filters, size, strides=stride, padding="valid" if stride > 1 else "same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.9)(x)
        x = layers.ReLU()(x)
        if pool:
            x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dense(4096, activation="relu")(x)
        x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, name="logits")(x)


def vgg_16(x: Any, classes: int, dropout: float = 0.5, width: float = 1) -> Any:
    """Thirteen convolutions of 3 × 3 and three dense layers, as published. From 32 × 32 pixels on."""
    _at_least(x, 32)
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            # Without normalisation so many layers learn only from weights that keep the size of values.
            x = layers.Conv2D(filters, 3, padding="same", activation="relu", kernel_initializer="he_normal")(x)
        x = layers.MaxPooling2D(2)(x)
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dense(4096, activation="relu", kernel_initializer="he_normal")(x)
        x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, name="logits")(x)


# The four branches of each inception block: 1×1; 3×3 reduced and full; 5×5 reduced and full; pooled.
_INCEPTIONS = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def googlenet(x: Any, classes: int, dropout: float = 0.4, width: float = 1) -> Any:
    """Inception v1 with batch normalisation, which makes its side outputs needless. From 32 × 32 pixels on."""
    _at_least(x, 32)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(_conv(x, 64, 7, 2))
    x = _conv(_conv(x, 64, 1), 192, 3)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for block in _INCEPTIONS:
        if block is None:
            x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
            continue
        one, three_in, three, five_in, five, pooled = block
        x = layers.Concatenate()(
            [
                _conv(x, one, 1),
                _conv(_conv(x, three_in, 1), three, 3),
                _conv(_conv(x, five_in, 1), five, 5),
                _conv(layers.MaxPooling2D(3, strides=1, padding="same")(x), pooled, 1),
            ]
        )
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, name="logits")(x)


def _conv(x: Any, filters: int, size: int, stride: int = 1) -> Any:
    x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(x)


def _at_least(x: Any, side: int) -> None:
    if min(x.shape[1:3]) < side:
        raise ValueError(f"images must have at least {side} × {side} pixels")
