"""Networks for classification from residual networks on. The larger ones are those of
keras.applications, with new weights; nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from .classic import _at_least


def resnet_18(x: Any, classes: int, dropout: float = 0.0, width: float = 1) -> Any:
    """Four stages of two basic blocks. Pictures below 64 pixels keep their size in the stem, as is usual for CIFAR."""
    base = round(64 * width)
    small = min(x.shape[1:3]) < 64
    x = _conv(x, base, 3 if small else 7, 1 if small else 2)
    x = layers.ReLU()(x)
    if not small:
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            filters = base << stage
            straight = x if x.shape[-1] == filters and stride == 1 else _conv(x, filters, 1, stride)
            x = layers.ReLU()(_conv(x, filters, 3, stride))
            x = layers.ReLU()(layers.Add()([_conv(x, filters, 3, 1), straight]))
    return _head(x, classes, dropout)


def resnet_50(x: Any, classes: int, dropout: float = 0.0, width: float = 1) -> Any:
    _at_least(x, 32)
    base = keras.applications.ResNet50(include_top=False, weights=None, input_tensor=x)
    return _head(base.output, classes, dropout)


def mobilenet_v3(x: Any, classes: int, dropout: float = 0.2, width: float = 1) -> Any:
    """The small one."""
    _at_least(x, 32)
    base = keras.applications.MobileNetV3Small(
        include_top=False, weights=None, input_tensor=x, include_preprocessing=False, input_shape=tuple(x.shape[1:])
    )
    return _head(base.output, classes, dropout)


def efficientnet_b0(x: Any, classes: int, dropout: float = 0.2, width: float = 1) -> Any:
    _at_least(x, 32)
    # The application itself divides by 255 first.
    base = keras.applications.EfficientNetB0(include_top=False, weights=None, input_tensor=layers.Rescaling(255.0)(x))
    return _head(base.output, classes, dropout)


@keras.saving.register_keras_serializable("lyceum")
class Positions(layers.Layer):
    """Adds to each patch what says where it is; learnt."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.table = self.add_weight(
            shape=(1, *shape[1:]), initializer=keras.initializers.RandomNormal(stddev=0.02), name="table"
        )

    def call(self, x: Any) -> Any:
        return x + ops.cast(self.table, x.dtype)


def vit_tiny(x: Any, classes: int, dropout: float = 0.1, width: float = 1) -> Any:
    """A vision transformer: 12 layers of 192 values and 3 heads; about 14 patches along the longer side."""
    size, heads = 64 * max(1, round(3 * width)), max(1, round(3 * width))
    patch = max(2, max(x.shape[1:3]) // 14)
    x = layers.Conv2D(size, patch, strides=patch)(x)
    x = layers.Reshape((-1, size))(x)
    x = layers.Dropout(dropout)(Positions(name="positions")(x))
    for _ in range(12):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(heads, size // heads, dropout=dropout)(y, y)])
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Dense(4 * size, activation="gelu")(y)
        x = layers.Add()([x, layers.Dropout(dropout)(layers.Dense(size)(y))])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return layers.Dense(classes, name="logits")(x)


def _conv(x: Any, filters: int, size: int, stride: int) -> Any:
    x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def _head(x: Any, classes: int, dropout: float) -> Any:
    x = layers.GlobalAveragePooling2D()(x)
    if dropout:
        x = layers.Dropout(dropout)(x)
    return layers.Dense(classes, name="logits")(x)
