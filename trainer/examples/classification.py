"""A custom network. `x` is the normalised image. Returns the logits (values before the softmax)."""

import keras


def network(x, classes):
    for filters in (16, 32, 64):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.ReLU()(x)
        x = keras.layers.MaxPooling2D(2, padding="same")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    # With this name, the model can be fine-tuned for other classes.
    return keras.layers.Dense(classes, name="logits")(x)
