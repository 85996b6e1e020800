"""A custom network. `x` is the normalised image. Returns features at a quarter of its height and
width, in which the trainer looks for the centres and sizes of objects."""

import keras


def network(x, classes):
    for filters, stride in ((16, 2), (32, 2), (64, 1), (64, 1)):
        x = keras.layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.ReLU()(x)
    return x
