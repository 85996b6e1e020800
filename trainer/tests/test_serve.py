"""A model as a service: its answers are those of `predict`, on a socket and on a port, by Keras and by ONNX."""

import contextlib
import http.client
import json
import socket
import stat

import numpy as np
import pytest
from PIL import Image

from .conftest import best, call, spawn


class OverSocket(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("model")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


@contextlib.contextmanager
def served(*arguments):
    """A service that is ready, with what it said; it ends by SIGTERM, with 0."""
    process = spawn("serve", *arguments)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)
    finally:
        process.terminate()
        _, err = process.communicate()
    assert process.returncode == 0, err


def ask(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    from sklearn.datasets import load_digits

    path = tmp_path_factory.mktemp("picture") / "three.png"
    digits = load_digits()
    Image.fromarray((digits.images[3] * 15.9375).astype("uint8")).save(path)
    return path


def probabilities(answer):
    return sorted((one["class"], one["probability"]) for one in answer["top"])


def test_answers_over_a_socket_are_those_of_predict(lenet, picture, tmp_path, capsys):
    place = tmp_path / "app.sock"
    place.touch()  # what an earlier one left
    code, [said] = call(capsys, "predict", best(lenet), picture, "--top", "10")
    with served(lenet, "--socket", place, "--base", "/s/1/") as ready:
        assert ready["task"] == "classification" and ready["runtime"] == "keras" and ready["snapshot"] == best(lenet).name
        assert stat.S_IMODE(place.stat().st_mode) == 0o660
        connection = OverSocket(place)
        status, body = ask(connection, "POST", "/s/1/predict?top=10", picture.read_bytes())
        answer = json.loads(body)
        assert status == 200 and answer["milliseconds"] > 0
        assert np.allclose(
            [p for _, p in probabilities(answer)], [p for _, p in probabilities(said["images"][0])], atol=1e-5
        )
        status, body = ask(connection, "GET", "/s/1/model")
        assert status == 200 and json.loads(body)["classes"] == [str(digit) for digit in range(10)]
        status, body = ask(connection, "GET", "/s/1", headers={"Accept": "text/html"})
        assert status == 200 and b"computed by " in body
        assert ask(connection, "GET", "/s/2/model")[0] == 404
    assert not place.exists()


def test_what_is_no_picture_is_told_and_the_next_is_answered(lenet, picture):
    with served(lenet, "--port", "0") as ready:
        for body, path, status, words in [
            (b"<html></html>", "/predict", 422, "web page"),
            (picture.read_bytes()[:60], "/predict", 422, "cannot be decoded"),
            (b"", "/predict", 400, "1 byte"),
            (b"x", "/predict?top=0", 400, "top"),
            (b"x", "/predict?top=many", 400, "whole number"),
            (b"x", "/elsewhere", 404, "/predict"),
        ]:
            connection = http.client.HTTPConnection("127.0.0.1", ready["port"])
            found, said = ask(connection, "POST", path, body)
            assert (found, words in json.loads(said)["detail"]) == (status, True), said
        connection = http.client.HTTPConnection("127.0.0.1", ready["port"])
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Length", str(33 << 20))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection = http.client.HTTPConnection("127.0.0.1", ready["port"])
        status, said = ask(connection, "POST", "/predict?top=1", picture.read_bytes())
        assert status == 200 and len(json.loads(said)["top"]) == 1


def test_onnx_answers_the_same(lenet, picture, tmp_path, capsys):
    assert call(capsys, "export", best(lenet), "--output", tmp_path)[0] == 0
    code, [said] = call(capsys, "predict", best(lenet), picture, "--top", "10")
    with served(tmp_path, "--port", "0") as ready:
        assert ready["runtime"] == "onnx"
        connection = http.client.HTTPConnection("127.0.0.1", ready["port"])
        status, body = ask(connection, "POST", "/predict?top=10", picture.read_bytes())
        found = [p for _, p in probabilities(json.loads(body))]
        assert status == 200 and np.allclose(found, [p for _, p in probabilities(said["images"][0])], atol=1e-4)


def test_nothing_to_serve(lenet, tmp_path, capsys):
    code, [error] = call(capsys, "serve", tmp_path, "--port", "0")
    assert code == 2 and "neither a training with a snapshot nor a bundle" in error["message"]
    code, [error] = call(capsys, "serve", lenet, "--port", "0", "--runtime", "onnx")
    assert code == 2 and "no model.onnx" in error["message"]
