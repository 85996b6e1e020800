"""A look into a network: where its answer comes from."""

import numpy as np
from PIL import Image

from .conftest import best, call


def test_where_the_answer_of_a_residual_network_comes_from(train, tmp_path, capsys):
    """No layer with weights is behind the last sum, around which a connection leads."""
    given = {"data": {"kind": "shapes", "count": 40}, "image": {"width": 48, "height": 48}, "epochs": 1}
    run = train(given | {"network": {"name": "resnet-18", "width": 0.25}})
    assert run.code == 0, run.lines
    Image.fromarray(np.full((48, 48, 3), 99, np.uint8)).save(tmp_path / "one.png")
    code, [about] = call(capsys, "inspect", best(run.output), tmp_path / "one.png", "--output", tmp_path / "look")
    assert code == 0 and len(about["layers"]) > 40 and about["grad_cam"]["map"], about.get("grad_cam_reason")
