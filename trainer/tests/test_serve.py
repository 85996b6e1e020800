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
        assert status == 200 and b"Keras, JAX on CPU" in body and b"[[" not in body
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
        status, said = ask(connection, "GET", "/stats")
        counted = json.loads(said)
        # Those that came without a picture of their own size are refused before they count.
        assert (counted["requests"], counted["failed"], counted["answered"]) == (3, 2, 1)
        assert counted["latency_95_ms"] >= counted["latency_ms"] > 0 < counted["per_second"]


def test_requests_that_come_together_are_computed_together():
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier, Event

    from trainer.batches import MOST, Batches

    sizes, go = [], Event()

    def run(pictures):
        go.wait(30)
        sizes.append(len(pictures))
        return pictures * 2

    batches, together = Batches(run, (1, MOST)), Barrier(12)

    def one(number):
        with batches.request() as answer:
            together.wait(30)  # all are on their way before the first is computed
            return answer(np.full((1, 1), number, np.float32))

    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(one, number) for number in range(12)]
        go.set()
        found = [future.result(30) for future in futures]
    assert [float(value[0, 0]) for value, _ in found] == [2.0 * number for number in range(12)]
    assert set(sizes) <= {1, MOST}, "no other size is compiled"
    assert max(size for _, size in found) > 1 and len(sizes) < 12
    said = batches.statistics()
    assert said["answered"] == 12 and 1 < said["batch"] <= MOST


def test_a_failure_is_told_to_all_who_wait():
    from trainer.batches import Batches

    def run(pictures):
        raise ValueError("no memory")

    batches = Batches(run)
    for _ in range(2):
        with pytest.raises(ValueError, match="no memory"), batches.request() as answer:
            answer(np.zeros((1, 1), np.float32))
    assert batches.statistics()["failed"] == 2


def test_onnx_answers_the_same(lenet, picture, tmp_path, capsys):
    assert call(capsys, "export", best(lenet), "--output", tmp_path)[0] == 0
    code, [said] = call(capsys, "predict", best(lenet), picture, "--top", "10")
    with served(tmp_path, "--port", "0") as ready:
        assert ready["runtime"] == "onnx" and ready["provider"] == "CPUExecutionProvider"
        connection = http.client.HTTPConnection("127.0.0.1", ready["port"])
        status, body = ask(connection, "POST", "/predict?top=10", picture.read_bytes())
        found = [p for _, p in probabilities(json.loads(body))]
        assert status == 200 and np.allclose(found, [p for _, p in probabilities(said["images"][0])], atol=1e-4)


def test_nothing_to_serve(lenet, tmp_path, capsys):
    code, [error] = call(capsys, "serve", tmp_path, "--port", "0")
    assert code == 2 and "not a training with a checkpoint or a bundle" in error["message"]
    code, [error] = call(capsys, "serve", lenet, "--port", "0", "--runtime", "onnx")
    assert code == 2 and "no model.onnx" in error["message"]
