"""ONNX written layer by layer: every network, and what people put beside it, answers there as it does in Keras."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from trainer import afterwards, export, graph, networks
from trainer.networks import dense


def answers_the_same(model, tmp_path):
    """For one picture and for three; weights are made unlike those of the beginning, whose averages are 0 and 1."""
    import onnxruntime

    random = np.random.default_rng(1)
    for weight in model.weights:
        if weight.path.rsplit("/")[-1] in ("moving_mean", "moving_variance", "gamma", "beta", "bias"):
            weight.assign(np.abs(random.normal(1, 0.2, weight.shape)))
    graph.write(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    [given] = session.get_inputs()
    pictures = random.integers(0, 256, (3, *model.input_shape[1:])).astype(np.float32)
    wanted = np.asarray(model.predict_on_batch(pictures))
    for count in (3, 1):
        [answer] = session.run(None, {given.name: pictures[:count]})
        assert np.abs(answer - wanted[:count]).max() < 1e-5


@pytest.mark.parametrize("name", networks.NAMED)
def test_every_network(name, tmp_path):
    size = {"lenet": 28, "small-cnn": 20, "alexnet": 96}.get(name, 64)
    image = keras.Input((size, size, 3), name="image")
    values = networks.NAMED[name](layers.Rescaling([1 / 255] * 3, [0.1, -0.2, 0.3])(image), 5, width=0.25)
    last = dense.heads(values, 5) if name == "centres" else layers.Activation("softmax", dtype="float32")(values)
    answers_the_same(keras.Model(image, last), tmp_path)


def beside(x):
    """Layers that no network here has."""
    x = layers.Conv2D(8, 3, strides=2, padding="same", groups=2, activation="silu")(layers.Conv2D(4, 1)(x))
    x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="tanh")(x)
    x = layers.Cropping2D(((1, 0), (0, 2)))(layers.ZeroPadding2D(((2, 0), (1, 1)))(x))
    x = layers.DepthwiseConv2D(3, depth_multiplier=2, activation="relu6")(x)
    x = layers.UpSampling2D((2, 3), interpolation="bilinear")(layers.AveragePooling2D(2, padding="same")(x))
    x = layers.LeakyReLU()(layers.Conv2D(4, 3, dilation_rate=2, activation="gelu")(x))
    return layers.Multiply()([x, layers.Activation("hard_silu")(x), layers.ReLU(max_value=4)(x)])


def twice(x):
    """One layer at two places, a model in a model, and arithmetic between them."""
    same = layers.Conv2D(3, 3, padding="same", activation="elu")
    inner = keras.Input((16, 16, 3))
    within = keras.Model(inner, layers.Conv2D(3, 1)(inner) * 0.5 + inner)
    first = same(x)
    again = keras.Sequential([layers.Conv2D(3, 1, activation="sigmoid"), layers.SpatialDropout2D(0.5)])
    return layers.Subtract()([within(same(first)), again(within(first / 2.0))])


def seen_at_once(x):
    """Attention of one thing to another."""
    x = layers.Reshape((-1, 12))(x)
    other = layers.LayerNormalization()(layers.Dense(12, activation="selu")(x))
    return layers.MultiHeadAttention(2, 5)(x, other, other)


@pytest.mark.parametrize("made", [beside, twice, seen_at_once])
def test_layers_of_ones_own(made, tmp_path):
    image = keras.Input((16, 16, 3))
    values = layers.Flatten()(made(layers.Rescaling(1 / 255)(image)))
    answers_the_same(keras.Model(image, layers.Dense(4, activation="softmax")(values)), tmp_path)


class Doubled(layers.Dense):
    def call(self, x):
        return 2 * super().call(x)


def relu(x):
    return -x


def causal(x):
    x = layers.Reshape((-1, 3))(x)
    return layers.MultiHeadAttention(1, 3)(x, x, use_causal_mask=True)


def in_another_order(x):
    x = layers.Reshape((-1, 3))(x)
    return layers.MultiHeadAttention(1, 3)(x, key=x, value=layers.Dense(3)(x))


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (causal, "called with additional arguments"),
        (in_another_order, "called with additional arguments"),
        (lambda x: layers.Dropout(0.5)(x, training=True), "called with additional arguments"),
        (lambda x: layers.Add()([x, layers.GlobalAveragePooling2D()(x)]), "of different rank"),
        (layers.LayerNormalization(axis=1), "does not normalise the last axis"),
        (layers.Conv2D(3, 1, activation=relu), "activation relu"),
        (Doubled(3), "unsupported layer Doubled"),
        (layers.UpSampling2D(2, interpolation="bicubic"), "interpolates by bicubic"),
        (layers.Conv2D(3, 1, activation=lambda x: ops.sin(x)), "activation <lambda>"),
        (layers.Lambda(lambda x: x), "unsupported layer Lambda"),
    ],
)
def test_what_is_not_known_is_named(layer, why, tmp_path):
    image = keras.Input((8, 8, 3))
    with pytest.raises(graph.Unknown, match=why):
        graph.write(keras.Model(image, layer(image)), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_what_is_not_known_is_left_to_keras(lenet, tmp_path, monkeypatch):
    """On another backend, where one is; else the reason says what it would need."""
    from .conftest import best

    def unknown(model, path):
        raise graph.Unknown("unsupported layer")

    monkeypatch.setattr(graph, "write", unknown)
    trained = afterwards.load(best(lenet))
    found = export.onnx_model(trained, best(lenet), tmp_path)
    assert found["onnx"] == "model.onnx" and found["onnx_difference"] < 1e-4, found
    there = export.importlib.util.find_spec
    away = ("tensorflow", "torch")
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None if name in away else there(name))
    found = export.onnx_model(trained, best(lenet), tmp_path)
    assert found["onnx"] is None and found["onnx_reason"].startswith("unsupported layer; Keras can"), found
    assert not (tmp_path / "model.onnx").exists()
