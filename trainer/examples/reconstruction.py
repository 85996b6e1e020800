"""An autoencoder. `x` is the normalised image. Returns the image in values from 0 to 1."""

import keras
from keras import ops

CODE = 32  # numbers that an image is squeezed into


def network(x, channels):
    height, width = x.shape[1:3]
    for filters in (16, 32):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    rows, columns, depth = x.shape[1:]
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(CODE, activation="relu", name="code")(x)
    x = keras.layers.Dense(rows * columns * depth, activation="relu")(x)
    x = keras.layers.Reshape((rows, columns, depth))(x)
    for filters in (32, 16):
        x = keras.layers.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
    x = keras.layers.Conv2D(channels, 3, padding="same", activation="sigmoid")(x)
    # Sizes that 4 does not divide became larger on the way.
    return keras.layers.Cropping2D(((0, x.shape[1] - height), (0, x.shape[2] - width)))(x)


def loss(truth, predicted):
    return ops.mean(ops.square(truth - predicted), axis=(1, 2, 3))


def largest_error(truth, predicted):
    return ops.max(ops.abs(truth - predicted), axis=(1, 2, 3))


metrics = [largest_error]
# The metric that selects the best checkpoint, and whether less (min) or more (max) of it is better.
monitor = ("loss", "min")
