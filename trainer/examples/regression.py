"""A custom network for regression. `x` is the normalised image. Returns one number for each output."""

import keras
from keras import ops


def network(x, outputs):
    for filters in (16, 32, 64):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = keras.layers.MaxPooling2D(2, padding="same")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.layers.Dense(outputs, name="logits")(x)


# What is predicted. Without this function, it is the name of the class as a number.
# `image` is an array of bytes: height, width, channels. `label` is the name of its class.
# def target(image, label):
#     return image.mean() / 255


def loss(truth, predicted):
    """Huber: large errors count less than their squares."""
    error = ops.abs(truth - predicted)
    return ops.mean(ops.where(error < 1, error**2 / 2, error - 0.5), axis=-1)


def within_one(truth, predicted):
    """Share of predictions that are off by less than one."""
    return ops.mean(ops.cast(ops.abs(truth - predicted) < 1, "float32"), axis=-1)


metrics = [within_one, "mean_absolute_error"]
