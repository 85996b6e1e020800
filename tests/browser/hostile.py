"""A hostile app: a page, a service worker that would answer for everything it may, cookies of
names and widths that are not its own, and a WebSocket that opens for whoever asks."""

import base64
import hashlib
import http.server
import os
import socketserver
import sys

WORKER = b'self.addEventListener("fetch", (event) => event.respondWith(new Response("from the worker")));'
COOKIES = [
    "lyceum_login=evil; Path=/",
    "__Host-lyceum_login=evil; Path=/; Secure",
    "wide=1; Path=/; Domain=localhost",
    "wide=2; Path=/; Domain=lab.test",
]


class Hostile(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.endswith("/ws"):
            return self.upgrade()
        kind, body = "text/html", b"<!doctype html><title>hostile</title><p>hostile page"
        if path.endswith("/sw.js"):
            kind, body = "text/javascript", WORKER
        if path.endswith("/seen"):
            kind, body = "text/plain", str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Service-Worker-Allowed", "/")
        self.send_header("Access-Control-Allow-Origin", self.headers.get("Origin", "*"))
        self.send_header("Access-Control-Allow-Credentials", "true")
        for cookie in COOKIES:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(body)

    def upgrade(self):
        key = self.headers.get("Sec-WebSocket-Key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.rfile.read(1)
        self.close_connection = True

    def address_string(self):
        return "somebody"

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


with Server(sys.argv[1], Hostile) as server:
    os.chmod(sys.argv[1], 0o660)
    server.serve_forever()
