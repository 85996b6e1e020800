"""Networks: each has the size that its paper says, takes what it should, and refuses what it cannot."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from trainer import config, describe, networks
from trainer.data import Data
from trainer.errors import Stop
from trainer.pixels import Shape

from .conftest import LENET, ROOT, best, call, config_file


def data(height, width, channels, classes, task="classification"):
    return Data(
        task,
        [str(i) for i in range(classes)],
        Shape(height, width, channels),
        {},
        mean=[120.0] * channels,
        deviation=[60.0] * channels,
    )


def built(tmp_path, shape, network, task="classification", **more):
    kind = "digits" if task == "classification" else "shapes"
    given = config.check({"output": "o", "data": {"kind": kind}, "task": task, "network": network} | more, tmp_path)
    model = networks.build(given, data(*shape, task))
    return model, describe.described(model, given)


@pytest.mark.parametrize(
    ("name", "shape", "trainable"),
    [
        # 20 and 50 filters of 5 × 5, then 4 · 4 · 50 values, 500 and the classes.
        ("lenet", (28, 28, 1, 10), 520 + 25_050 + 800 * 500 + 500 + 5_010),
        ("resnet-18", (224, 224, 3, 1000), 11_689_512),
        # The paper's 25 557 032, and a bias for each of the 53 convolutions, which the application keeps.
        ("resnet-50", (64, 64, 3, 1000), 25_557_032 + 26_560),
        # The paper's 5 717 416 without the class token and its position: the mean is taken instead.
        ("vit-tiny", (224, 224, 3, 1000), 5_717_032),
    ],
)
def test_the_number_of_parameters(tmp_path, name, shape, trainable):
    _, about = built(tmp_path, shape, {"name": name})
    assert about["parameters"]["trainable"] == trainable


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("lenet", (8, 8, 1, 4)),
        ("small-cnn", (20, 30, 3, 4)),
        ("resnet-18", (16, 16, 1, 4)),
        ("vit-tiny", (28, 28, 1, 4)),
    ],
)
def test_probabilities_come_out(tmp_path, name, shape):
    model, about = built(tmp_path, shape, {"name": name})
    found = model.predict_on_batch(np.random.default_rng(0).integers(0, 256, (2, *shape[:3])).astype("float32"))
    assert found.shape == (2, 4) and np.allclose(found.sum(1), 1, atol=1e-5)
    assert about["macs"] > 0 and about["memory"]["total"] > 4 * about["parameters"]["total"]
    assert sum(row["parameters"] for row in about["layers"]) == about["parameters"]["total"] - _seeds(model)


def _seeds(model):
    return sum(2 for v in model.non_trainable_variables if v.path.endswith("seed_generator_state"))


# JAX compiles each weight's first value by itself, which takes long with so many; TensorFlow does not.
LARGE = """
import sys, pathlib, numpy
from trainer.tests.test_networks import built
for name, trainable in (("efficientnet-b0", 5_288_548), ("mobilenet-v3", None), ("googlenet", None), ("alexnet", None)):
    model, about = built(pathlib.Path(), (64, 64, 3, 1000), {"name": name})
    found = model.predict_on_batch(numpy.random.default_rng(0).integers(0, 256, (1, 64, 64, 3)).astype("float32"))
    assert found.shape == (1, 1000) and abs(found.sum() - 1) < 1e-4, (name, found.shape)
    assert trainable in (None, about["parameters"]["trainable"]), (name, about["parameters"])
    print(name)
# 224 pixels would take the paper's 138 357 544, nearly all of them in one dense layer.
model, about = built(pathlib.Path(), (64, 64, 3, 1000), {"name": "vgg-16"})
convolutions = sum(row["parameters"] for row in about["layers"] if row["type"] == "Conv2D")
assert convolutions == 14_714_688 and about["parameters"]["total"] == convolutions + 2048 * 4096 + 4096 * 4096 + 8192 + 4_097_000 + 4
print("vgg-16")
"""


def test_the_large_ones():
    env = os.environ | {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LARGE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["efficientnet-b0", "mobilenet-v3", "googlenet", "alexnet", "vgg-16"]


def test_macs_by_hand(tmp_path):
    _, about = built(tmp_path, (28, 28, 1, 10), {"name": "lenet"})
    assert about["macs"] == 24 * 24 * 25 * 20 + 8 * 8 * 25 * 20 * 50 + 800 * 500 + 500 * 10


@pytest.mark.parametrize(
    ("name", "task", "shape"),
    [
        ("alexnet", "classification", (32, 32, 3, 4)),
        ("u-net", "segmentation", (20, 20, 3, 4)),
        ("centres", "detection", (40, 40, 3, 4)),
    ],
)
def test_a_picture_of_the_wrong_size_is_refused(tmp_path, name, task, shape):
    with pytest.raises(Stop, match="cannot be built for .* × .*: .*(at least|multiples)") as stopped:
        built(tmp_path, shape, {"name": name}, task)
    assert (stopped.value.code, stopped.value.field) == (1, "network.name")


def test_a_network_of_a_persons_own(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "import keras\n\ndef network(x, classes):\n    x = keras.layers.Conv2D(4, 3, strides=2)(x)\n"
        "    return keras.layers.Dense(classes)(keras.layers.Flatten()(x))\n"
    )
    given = LENET | {"network": {"file": "mine.py"}}
    code, [about] = call(capsys, "describe", config_file(tmp_path, given), "--shape", "9x9x1", "--classes", "3")
    assert code == 0
    assert [(row["type"], row["shape"], row["parameters"]) for row in about["layers"][2:5]] == [
        ("Conv2D", [4, 4, 4], 40),
        ("Flatten", [64], 0),
        ("Dense", [3], 195),
    ]
    assert about["macs"] == 16 * 9 * 4 + 64 * 3


@pytest.mark.parametrize("task", ["classification", "segmentation", "detection"])
def test_the_examples_to_begin_with(tmp_path, task):
    example = ROOT / "trainer" / "examples" / f"{task}.py"
    model, about = built(tmp_path, (32, 48, 3, 4), {"file": str(example)}, task)
    assert about["macs"] > 0
    seen = model.predict_on_batch(np.zeros((1, 32, 48, 3), "float32"))
    assert np.isfinite(np.asarray(seen)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def network(x, classes)\n", r"line 1: SyntaxError: .*"),
        ("import nothing_like_this\n", r"line 1: ModuleNotFoundError.*"),
        ("net = 1\n", "does not define a function network"),
        (
            "def network(x, classes):\n    import keras\n    return keras.layers.Conv2D(3, 99)(x)\n",
            r"cannot be built for 8 × 8 × 1 \(line 3\): ValueError: .*`padding=valid`",
        ),
        (
            "def network(x, classes):\n    raise ValueError('It does not fit.\\n\\nArguments received:\\n  • x=1')\n",
            r"\(line 2\): ValueError: It does not fit.\nArguments received:\n  • x=1$",
        ),
        ("def network(x, classes):\n    return x\n", "returns values of the shape"),
        ("def network(x, classes):\n    return None\n", "returns values of the shape"),
    ],
)
def test_a_mistake_in_it_is_told_with_its_line(tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(Stop, match=message) as stopped:
        built(tmp_path, (8, 8, 1, 3), {"file": "mine.py"})
    assert (stopped.value.code, stopped.value.field) == (1, "network.file")


@pytest.mark.parametrize(
    ("last", "activation"),
    [
        ("keras.layers.Dense(classes, activation='softmax', name='out')", "softmax"),
        ("keras.layers.Dense(classes, activation='sigmoid', name='out')", "sigmoid"),
        ("keras.layers.Softmax(name='out')", "softmax"),
        ("keras.layers.Dense(classes, name='out')", None),
        ("keras.layers.Dense(classes, activation='tanh', name='out')", None),
    ],
)
def test_a_softmax_at_the_end_is_noticed(tmp_path, last, activation):
    program = "import keras\n\ndef network(x, classes):\n    x = keras.layers.Flatten()(x)\n"
    program += "    x = keras.layers.Dense(classes)(x)\n"
    (tmp_path / "mine.py").write_text(program + f"    return {last}(x)\n")
    _, about = built(tmp_path, (8, 8, 1, 3), {"file": "mine.py"})
    if activation is None:
        assert about["warnings"] == []
    else:
        [warning] = about["warnings"]
        assert f"“out”, already applies {activation}" in warning


def test_going_on_from_a_model(lenet, train):
    """With the same classes everything is taken over; with others all but the last layer."""
    given = {
        "data": {"kind": "digits"},
        "network": {"pretrained": str(best(lenet))},
        "epochs": 1,
        "learning_rate": {"base": 1e-6},
    }
    tuned = train(given, "same")
    assert tuned.code == 0 and tuned.lines[-1]["evaluation"]["val"]["accuracy"] > 0.9, "it knows digits from the start"
    frozen = train(given | {"network": given["network"] | {"freeze": True}}, "frozen")
    summary = json.loads((frozen.output / "model_summary.json").read_text())
    assert frozen.code == 0 and summary["parameters"]["trainable"] == 5_010
    model = networks.build(config.check({"output": "o"} | given, lenet), data(8, 8, 1, 4))
    assert model.output_shape == (None, 4) and model.get_layer("conv2d").trainable
    other = train(given | {"image": {"width": 16, "height": 16}}, "other")
    assert other.code == 1 and other.error["field"] == "network.pretrained" and "(8, 8, 1)" in other.error["message"]


def test_a_model_that_is_none(tmp_path):
    (tmp_path / "m.keras").write_bytes(b"PK")
    with pytest.raises(Stop, match="cannot load m.keras"):
        built(tmp_path, (8, 8, 1, 3), {"pretrained": "m.keras"})
