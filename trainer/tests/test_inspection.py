"""What a network sees: pictures and histograms of the weights and activations of every layer."""

import json

import numpy as np
import pytest
from PIL import Image

from trainer import config, inspection, sources, tiles

from .conftest import best, call


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_histogram_of_many_blocks_is_that_of_all_values(kind):
    values = np.random.default_rng(1).normal(2, 3, 3 * inspection.BLOCK // 2).astype(kind)
    values[::7] = 0
    found = inspection.histogram(values)
    exact = values.astype(np.float64)
    assert [found["mean"], found["deviation"]] == pytest.approx([exact.mean(), exact.std()], rel=1e-9)
    assert (found["least"], found["greatest"], found["zeros"]) == (exact.min(), exact.max(), (exact == 0).mean())
    counts, edges = np.histogram(exact, inspection.BINS)
    assert (found["counts"] == counts).all() and found["edges"] == pytest.approx(edges)


def test_values_that_are_not_finite_or_all_the_same():
    found = inspection.histogram(np.array([1, np.nan, np.inf, 0, -1, 0], np.float32))
    assert (found["mean"], found["least"], found["greatest"]) == (0, -1, 1) and sum(found["counts"]) == 4
    assert (found["zeros"], found["not_finite"]) == pytest.approx((2 / 6, 2 / 6))
    none = inspection.histogram(np.full(5, np.nan))
    assert none["mean"] is None and none["counts"] == [] and none["not_finite"] == 1
    for value in (0.0, 1e8, 1e-30):
        same = inspection.histogram(np.full(9, value, np.float32))
        assert sum(same["counts"]) == 9 and same["deviation"] == pytest.approx(0, abs=1e-9)
    assert inspection.histogram(np.zeros(0))["counts"] == []


def test_filters_are_drawn_in_colour_or_by_channel_and_matrices_in_part():
    random = np.random.default_rng(2).normal(size=(5, 5, 3, 96)).astype(np.float32)
    coloured = tiles.of_weights(random)
    assert coloured.image.mode == "RGB" and coloured.shown == {"filters": [64, 96], "channels": [3, 3]}
    # 8 × 8 filters of 5 × 5 with a line between them, enlarged: the first pixel is that of the first filter.
    first = random[..., 0]
    expected = (255 * (first - first.min()) / (first.max() - first.min())).astype(np.uint8)
    scale = 640 // 47
    assert coloured.image.size == (47 * scale, 47 * scale)
    assert (np.asarray(coloured.image)[: 5 * scale : scale, : 5 * scale : scale] == expected).all()
    many = tiles.of_weights(np.zeros((3, 3, 64, 128)))
    assert many.image.mode == "L" and many.shown == {"filters": [8, 128], "channels": [8, 64]}
    assert tiles.of_weights(np.zeros((3, 3, 32, 1))).shown == {"channels": [32, 32]}, "a depthwise convolution"
    assert tiles.of_weights(np.zeros((3, 3, 1, 6))).shown == {"filters": [6, 6]}, "of a grey picture"
    assert tiles.of_weights(np.zeros((1, 1, 64, 300))).shown == {"rows": [64, 64], "columns": [256, 300]}
    dense = tiles.of_weights(np.full((4096, 10), np.nan))
    assert dense.shown == {"rows": [256, 4096], "columns": [10, 10]} and np.asarray(dense.image).max() == 0
    assert tiles.of_weights(np.zeros(7)) is None
    assert tiles.of_activations(np.arange(10.0)).shown == {"values": [10, 10]}
    assert tiles.of_activations(np.zeros((197, 384))).shown == {"rows": [197, 197], "columns": [256, 384]}
    large = tiles.of_activations(np.zeros((224, 224, 64)))
    assert large.shown == {"maps": [64, 64]} and max(large.image.size) <= 1280


def test_every_layer_of_a_network_is_looked_into(detector, tmp_path, capsys):
    import keras

    data = sources.load(config.load(detector.parent / "config.json"), 2)
    Image.fromarray(data.parts["val"].read(0).image).save(tmp_path / "one.png")
    code, [about] = call(capsys, "inspect", best(detector), tmp_path / "one.png", "--output", tmp_path / "look")
    assert code == 0
    model = keras.saving.load_model(best(detector), compile=False)
    assert [row["name"] for row in about["layers"]] == [layer.name for layer in model.layers[1:]]
    for row in about["layers"]:
        assert (tmp_path / "look" / row["image"]).is_file() and row["shown"], row
        assert sum(row["activations"]["counts"]) == np.prod(row["shape"])
    weights = [weight for layer in model.layers for weight in layer.weights]
    assert [row["name"] for row in about["weights"]] == [weight.path for weight in weights]
    for row, weight in zip(about["weights"], weights):
        value = np.asarray(weight)
        assert row["values"]["mean"] == pytest.approx(float(value.mean()), rel=1e-3, abs=1e-6)
        assert row["values"]["count"] == value.size == sum(row["values"]["counts"])
        assert ("image" in row) == (value.ndim > 1)
        assert "image" not in row or max(Image.open(tmp_path / "look" / row["image"]).size) <= 1280
    kernel = next(row for row in about["weights"] if len(row["shape"]) == 4)
    assert Image.open(tmp_path / "look" / kernel["image"]).mode == "RGB", "the first layer sees colours"
    assert {row["layer"] for row in about["weights"]} <= {layer.name for layer in model.layers}
    written = json.loads((tmp_path / "look/inspection.json").read_text())
    assert written["weights"][0]["shown"] == about["weights"][0]["shown"]


def test_of_too_many_weights_only_the_first_are_drawn(lenet, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inspection, "PICTURES", 3)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "one.png")
    code, [about] = call(capsys, "inspect", best(lenet), tmp_path / "one.png", "--output", tmp_path / "look")
    assert code == 0 and len(about["layers"]) > 3
    assert all("image" not in row and row["values"]["counts"] for row in about["weights"][3:])
    assert len(list((tmp_path / "look/activations").iterdir())) == 3


def test_where_the_answer_of_a_residual_network_comes_from(train, tmp_path, capsys):
    """No layer with weights is behind the last sum, around which a connection leads."""
    given = {"data": {"kind": "shapes", "count": 40}, "image": {"width": 48, "height": 48}, "epochs": 1}
    run = train(given | {"network": {"name": "resnet-18", "width": 0.25}})
    assert run.code == 0, run.lines
    Image.fromarray(np.full((48, 48, 3), 99, np.uint8)).save(tmp_path / "one.png")
    code, [about] = call(capsys, "inspect", best(run.output), tmp_path / "one.png", "--output", tmp_path / "look")
    assert code == 0 and len(about["layers"]) > 40 and about["grad_cam"]["map"], about.get("grad_cam_reason")
