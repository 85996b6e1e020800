"""A trained model as a service: pictures come by HTTP and answers go back as JSON, on a Unix socket
or a port of this machine.

    GET  BASE           a page to try it, or, for `Accept: application/json`, what it is
    GET  BASE/model     what it is
    GET  BASE/stats     requests, rate and latency
    POST BASE/predict   a picture as the body; `?top=` classes; `?score=` least score of a box; segmentation answers
                        a mask as a PNG in base64

Requests that come together are computed together. ONNX Runtime answers where it is installed and the bundle has `model.onnx`, whose answers were compared
with the model's when it was made; Keras answers otherwise. Who may come is not decided here.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import socketserver
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import numpy as np

from . import afterwards, batches, onnx_file, pixels, saved, service_page
from . import folder as folders
from .errors import Stop, bad_data
from .folder import Folder, Unfit
from .pixels import Broken
from .progress import plain, say

LARGEST = 32 << 20  # bytes of a picture
MOST_TOP = 100
PATIENCE = 60  # seconds for a request to come


class Place(NamedTuple):
    """Where it listens, and below which path it answers."""

    socket: Path | None
    port: int | None
    base: str


class Model:
    """What answers."""

    def __init__(self, folder: Path, runtime: str) -> None:
        with _opened(folder) as place:
            snapshot = _snapshot(place)
            name = _name(place)
            self.trained = afterwards.load(snapshot)
            onnx = None if runtime == "keras" else _onnx(place, runtime)
        run: batches.Run
        if onnx is None:
            # Each size of a batch is compiled, so that there are two.
            runtime, provider, sizes = "keras", _device(), (1, batches.MOST)
            run = lambda pictures: np.asarray(self.trained.model.predict_on_batch(pictures))  # noqa: E731
        else:
            (run, provider), runtime, sizes = onnx, "onnx", None
        self.about = {
            "name": name,
            "task": self.trained.task,
            "classes": self.trained.labels,
            "snapshot": snapshot.name,
            "runtime": runtime,
            "provider": provider,
            "batch": batches.MOST,
            "input": self.trained.input,
        }
        # The first answer takes seconds; nobody is to wait for it.
        for size in sizes or (1,):
            run(np.zeros((size, *self.trained.shape.hwc), np.float32))
        self.batches = batches.Batches(run, sizes)

    def answer(self, picture: bytes, top: int, least: float | None) -> dict[str, Any]:
        """Raises `Broken` for what is no picture."""
        begun = time.perf_counter()
        with self.batches.request() as answer:
            found, size = answer(pixels.read(io.BytesIO(picture), self.trained.shape).astype(np.float32))
        took = {"milliseconds": round((time.perf_counter() - begun) * 1000, 3), "batch": size}
        if self.trained.task == "reconstruction":
            from .tasks.reconstruction import drawn as picture

            output = io.BytesIO()
            picture(found).save(output, "PNG")
            return {"image": base64.b64encode(output.getvalue()).decode()} | took
        if self.trained.task != "segmentation":
            return afterwards.answer(self.trained, found, top, least) | took
        mask = afterwards.mask(found)
        drawn = io.BytesIO()
        pixels.Image.fromarray(mask).save(drawn, "PNG")
        shares = afterwards.shares(self.trained, mask)
        return {"share": shares, "mask": base64.b64encode(drawn.getvalue()).decode()} | took


def _device() -> str:
    """Where Keras computes."""
    import keras

    name = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}[keras.backend.backend()]
    devices = keras.distribution.list_devices() or ["cpu:0"]
    return f"{name} on {str(devices[0]).split(':')[0].upper()}"


def run(folder: Path, place: Place, runtime: str) -> int:
    """Serves until it is told to end."""
    model = Model(folder, runtime)
    handler = _handler(model, place.base.rstrip("/"))
    with contextlib.ExitStack() as stack:
        server: socketserver.BaseServer
        if place.socket is not None:
            server = stack.enter_context(_OnSocket(place.socket, handler))
        else:
            server = stack.enter_context(_OnPort(("127.0.0.1", place.port or 0), handler))

        def leave(*_: Any) -> None:
            # Nothing that a thread holds needs saving.
            if place.socket is not None:
                place.socket.unlink(missing_ok=True)
            os._exit(0)

        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        port = None if place.socket else server.server_address[1]  # type: ignore[index]
        say("ready", socket=place.socket and str(place.socket), port=port, **model.about)
        server.serve_forever()
    return 0


class _OnPort(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class _OnSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        # One that a killed process left behind.
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        # The mode comes from the umask, so that the socket is never open wider.
        umask = os.umask(0o117)
        try:
            super().__init__(str(path), handler)
        except OSError as error:
            raise Stop(1, f"cannot listen on the socket: {error}", "--socket") from None
        finally:
            os.umask(umask)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Folder]:
    """The output of a training, or a bundle."""
    try:
        with folders.opened(path) as place:
            yield place
    except FileNotFoundError:
        raise bad_data(f"{path} is not a folder", "MODEL") from None
    except Unfit as unfit:
        raise bad_data(f"{path} {unfit}", "MODEL") from None


def _snapshot(place: Folder) -> Path:
    """What is served: the model of a bundle, or the best snapshot of a training."""
    with contextlib.suppress(FileNotFoundError), _named(place, "model.keras"):
        place.open("model.keras").close()
        return place.path / "model.keras"
    best = None
    with contextlib.suppress(FileNotFoundError, KeyError, TypeError), _named(place, "checkpoints/index.json"):
        with place.below("checkpoints") as checkpoints:
            best = checkpoints.json("index.json")["best"]
    if not folders.is_plain(best, saved.ENDING):
        raise bad_data(f"{place.path} is not a training with a checkpoint or a bundle", "MODEL")
    return place.path / "checkpoints" / str(best)


@contextlib.contextmanager
def _named(place: Folder, name: str) -> Iterator[None]:
    try:
        yield
    except Unfit as unfit:
        raise bad_data(f"{place.path}/{name} {unfit}", "MODEL") from None


def _onnx(place: Folder, runtime: str) -> tuple[batches.Run, str] | None:
    """What ONNX Runtime answers by, and its provider; `None` where it cannot, and need not."""
    with contextlib.ExitStack() as stack, _named(place, f"bundle/{onnx_file.FILE}"):
        # A training's output has it in its bundle.
        try:
            where = stack.enter_context(place.below("bundle"))
            where.open(onnx_file.FILE).close()
        except FileNotFoundError:
            where = place
        try:
            if runtime == "auto" and not onnx_file.is_possible(where):
                return None
            session = onnx_file.session(where)
        except FileNotFoundError:
            if runtime == "auto":
                return None
            raise bad_data(
                f"there is no model.onnx in {place.path}: it is exported only if the required packages are installed", "MODEL"
            ) from None
    name = session.get_inputs()[0].name
    return lambda pictures: session.run(None, {name: pictures})[0], session.get_providers()[0]


def _name(place: Folder) -> str:
    try:
        return str(place.json("run.json")["config"]["name"])[:200]
    except (OSError, Unfit, KeyError, TypeError):
        return place.path.resolve().name


def _handler(model: Model, base: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "model"
        sys_version = ""
        timeout = PATIENCE

        def do_GET(self) -> None:
            path = urlsplit(self.path).path.rstrip("/")
            if path == base and "application/json" not in self.headers.get("Accept", ""):
                self._send(200, "text/html; charset=utf-8", service_page.page(model.about, base).encode())
            elif path in (base, f"{base}/model"):
                self._json(200, model.about)
            elif path == f"{base}/stats":
                self._json(200, model.batches.statistics())
            else:
                self._json(404, {"detail": "Not found. Use GET /model, GET /stats or POST /predict."})

        def do_POST(self) -> None:
            asked = urlsplit(self.path)
            if asked.path.rstrip("/") != f"{base}/predict":
                return self._refused(404, "Not found. Use POST /predict.")
            try:
                size = int(self.headers["Content-Length"])
                query = parse_qs(asked.query)
                top = int(query.get("top", ["5"])[0])
                least = float(query["score"][0]) if "score" in query else None
            except (KeyError, TypeError, ValueError):
                return self._refused(
                    400, "Send an image with its Content-Length; top must be a whole number and score a number."
                )
            if not 1 <= top <= MOST_TOP:
                return self._refused(400, f"top must be from 1 to {MOST_TOP}.")
            if least is not None and not 0 <= least <= 1:
                return self._refused(400, "score must be from 0 to 1.")
            if not 0 < size <= LARGEST:
                return self._refused(413 if size > LARGEST else 400, "The image must have 1 byte to 32 MiB.")
            picture = self.rfile.read(size)
            if len(picture) < size:
                return self._refused(400, "The image is incomplete.")
            try:
                answer = model.answer(picture, top, least)
            except Broken as broken:
                return self._json(422, {"detail": f"The image {broken}."})
            self._json(200, answer)

        def _refused(self, status: int, detail: str) -> None:
            # What was sent is not read, so nothing more can come over this connection.
            self.close_connection = True
            self._json(status, {"detail": detail})

        def _json(self, status: int, value: Any) -> None:
            self._send(status, "application/json", json.dumps(plain(value)).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "client"  # a socket has no addresses

        def log_request(self, *_: Any) -> None:
            pass

        def log_error(self, form: str, *values: Any) -> None:
            print(f"serve: {form % values}", file=sys.stderr)

    return Handler
