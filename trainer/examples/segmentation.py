"""A custom network. `x` is the normalised image. Returns the logits of each pixel: the height and
width of the image, and one channel for each class."""

import keras


def network(x, classes):
    seen = []
    for filters in (16, 32):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        seen.append(x)
        x = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    for before in reversed(seen):
        x = keras.layers.UpSampling2D(2)(x)
        x = keras.layers.Concatenate()([x, before])
        x = keras.layers.Conv2D(before.shape[-1], 3, padding="same", activation="relu")(x)
    return keras.layers.Conv2D(classes, 1, name="logits")(x)
