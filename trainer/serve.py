"""A trained model as a service: pictures come by HTTP and answers go back as JSON, on a Unix socket
or a port of this machine.

    GET  BASE           a page to try it, or, for `Accept: application/json`, what it is
    GET  BASE/model     what it is
    POST BASE/predict   a picture as the body; `?top=` classes; segmentation answers a mask as a PNG in base64

ONNX Runtime answers where it is installed and the bundle has `model.onnx`, whose answers were compared
with the model's when it was made; Keras answers otherwise. Who may come is not decided here.
"""

from __future__ import annotations

import base64
import contextlib
import html
import io
import json
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import numpy as np

from . import afterwards, onnx_file, pixels, saved
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
    """What answers. One picture at a time: the libraries use all cores for one."""

    def __init__(self, folder: Path, runtime: str) -> None:
        with _opened(folder) as place:
            snapshot = _snapshot(place)
            name = _name(place)
            self.trained = afterwards.load(snapshot)
            onnx = None if runtime == "keras" else _onnx(place, runtime)
        if onnx is None:
            runtime, self._run = "keras", lambda pictures: np.asarray(self.trained.model.predict_on_batch(pictures))
        else:
            runtime, self._run = "onnx", onnx
        self._turn = threading.Lock()
        shape = self.trained.shape
        self.about = {
            "name": name,
            "task": self.trained.task,
            "classes": self.trained.labels,
            "snapshot": snapshot.name,
            "runtime": runtime,
            "input": {"width": shape.width, "height": shape.height, "channels": shape.channels, "resize": shape.resize},
        }
        # The first answer takes seconds; nobody is to wait for it.
        self._run(np.zeros((1, *shape.hwc), np.float32))

    def answer(self, picture: bytes, top: int) -> dict[str, Any]:
        """Raises `Broken` for what is no picture."""
        seen = pixels.read(io.BytesIO(picture), self.trained.shape)[np.newaxis].astype(np.float32)
        begun = time.perf_counter()
        with self._turn:
            found = self._run(seen)[0]
        took = {"milliseconds": round((time.perf_counter() - begun) * 1000, 3)}
        if self.trained.task != "segmentation":
            return afterwards.answer(self.trained, found, top) | took
        mask = afterwards.mask(found)
        drawn = io.BytesIO()
        pixels.Image.fromarray(mask).save(drawn, "PNG")
        shares = afterwards.shares(self.trained, mask)
        return {"share": shares, "mask": base64.b64encode(drawn.getvalue()).decode()} | took


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
            raise Stop(1, f"cannot listen there: {error}", "--socket") from None
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
        raise bad_data(f"{place.path} is neither a training with a snapshot nor a bundle", "MODEL")
    return place.path / "checkpoints" / str(best)


@contextlib.contextmanager
def _named(place: Folder, name: str) -> Iterator[None]:
    try:
        yield
    except Unfit as unfit:
        raise bad_data(f"{place.path}/{name} {unfit}", "MODEL") from None


def _onnx(place: Folder, runtime: str) -> Callable[[np.ndarray], np.ndarray] | None:
    """What ONNX Runtime answers by; `None` where it cannot, and need not."""
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
                f"there is no model.onnx in {place.path}: it is made where the packages for it are", "MODEL"
            ) from None
    name = session.get_inputs()[0].name
    return lambda pictures: session.run(None, {name: pictures})[0]


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
                self._send(200, "text/html; charset=utf-8", _page(model.about, base).encode())
            elif path in (base, f"{base}/model"):
                self._json(200, model.about)
            else:
                self._json(404, {"detail": "There is nothing here: GET /model or POST /predict."})

        def do_POST(self) -> None:
            asked = urlsplit(self.path)
            if asked.path.rstrip("/") != f"{base}/predict":
                return self._refused(404, "There is nothing here: POST /predict.")
            try:
                size = int(self.headers["Content-Length"])
                top = int(parse_qs(asked.query).get("top", ["5"])[0])
            except (KeyError, TypeError, ValueError):
                return self._refused(400, "Send a picture with its Content-Length; top is a whole number.")
            if not 1 <= top <= MOST_TOP:
                return self._refused(400, f"top is from 1 to {MOST_TOP}.")
            if not 0 < size <= LARGEST:
                return self._refused(413 if size > LARGEST else 400, "A picture has from 1 byte to 32 MiB.")
            picture = self.rfile.read(size)
            if len(picture) < size:
                return self._refused(400, "The picture ended too early.")
            try:
                answer = model.answer(picture, top)
            except Broken as broken:
                return self._json(422, {"detail": f"The picture {broken}."})
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


def _page(about: dict[str, Any], base: str) -> str:
    """A page to try it by hand. Addresses are relative: it does not matter where it is seen."""
    escaped = {key: html.escape(str(value)) for key, value in about.items()}
    size = about["input"]
    runtime = {"onnx": "ONNX Runtime", "keras": "Keras"}[about["runtime"]]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escaped["name"]}</title>
<style>
:root {{ color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }}
body {{ max-width: 44rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; padding: .8rem; border: 1px solid #8888; border-radius: 6px }}
table {{ border-collapse: collapse; width: 100% }} td {{ padding: .2rem .5rem .2rem 0 }} td:nth-child(2) {{ width: 60% }} meter {{ width: 100% }}
img {{ max-width: 100%; max-height: 16rem; image-rendering: pixelated }}
</style></head><body>
<h1>{escaped["name"]}</h1>
<p>{escaped["task"]}, {len(about["classes"])} classes; sees {size["width"]} × {size["height"]} pixels; {escaped["snapshot"]}, computed by {runtime}</p>
<p><label>A picture <input type="file" accept="image/*" id="picture"></label></p>
<div id="answer" aria-live="polite"></div>
<p>The same from a program, with a token of yours:</p>
<pre>curl -H "Authorization: Bearer $LYCEUM_TOKEN" --data-binary @picture.png "$LYCEUM_URL{html.escape(base)}/predict?top=3"</pre>
<script>
const here = location.href.replace(/[?#].*/, "").replace(/\\/?$/, "/");
document.getElementById("picture").addEventListener("change", async (event) => {{
  const [file] = event.target.files;
  const place = document.getElementById("answer");
  if (!file) return;
  place.textContent = "…";
  try {{
    const said = await (await fetch(`${{here}}predict`, {{ method: "POST", body: file }})).json();
    const table = document.createElement("table");
    for (const one of said.top ?? []) {{
      const row = table.insertRow();
      row.insertCell().textContent = one.class;
      const meter = document.createElement("meter");
      meter.value = one.probability;
      row.insertCell().append(meter);
      row.insertCell().textContent = `${{(100 * one.probability).toFixed(1)}} %`;
    }}
    const text = document.createElement("pre");
    text.textContent = JSON.stringify({{ ...said, mask: undefined }}, null, 2);
    place.replaceChildren(...(said.top ? [table] : [text]));
    if (said.mask) {{
      const mask = new Image();
      mask.alt = "What each pixel was taken for";
      mask.src = `data:image/png;base64,${{said.mask}}`;
      place.append(mask);
    }}
  }} catch (error) {{
    place.textContent = `No answer: ${{error.message}}`;
  }}
}});
</script></body></html>
"""
