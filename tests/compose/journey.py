"""Somebody signs in at a portal with a password, starts a terminal and types into it.

    python3 tests/compose/journey.py PORTAL APPS NAME PASSWORD_FILE UID

Everything goes the way of a browser: the login's cookie, the hand-over to the apps' origin,
and a WebSocket there. The shell must run as UID. Only the standard library is used.
"""

import base64
import http.cookiejar
import json
import os
import socket
import struct
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

PATIENCE = 90  # seconds: the machine may be busy with other tests

portal, apps, name, password_file, uid = sys.argv[1:]
jar = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(strict_ns_domain=0))
browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
token = ""


def ask(method, path, body=None, expected=(200, 201, 202)):
    """A request of the portal's own pages; the answer's JSON document."""
    request = urllib.request.Request(portal + path, method=method)
    request.add_header("Origin", portal)
    if token:
        request.add_header("X-CSRF-Token", token)
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    try:
        answer = browser.open(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    text = answer.read().decode()
    if answer.status not in expected:
        sys.exit(f"{method} {path}: {answer.status} {text}")
    return json.loads(text)


def arrive(session, state):
    """Follows a session's history until it is in this state, and answers with it then."""
    path, deadline = f"/api/v1/sessions/{session['id']}", time.monotonic() + PATIENCE
    with browser.open(f"{portal}{path}/events", timeout=PATIENCE) as history:
        # A silent portal sends a comment every few seconds, so that the deadline is looked at.
        for line in history:
            happened = json.loads(line[6:]) if line.startswith(b"data: ") else {}
            if happened.get("state") in (state, "ended") or time.monotonic() > deadline:
                break
    session = ask("GET", path)
    if session["state"] != state:
        sys.exit(f"it is not {state}: {session}")
    return session


class Terminal:
    """The WebSocket of a terminal, as far as this journey needs it."""

    def __init__(self, path):
        address = urlsplit(apps)
        request = urllib.request.Request(apps + path)
        jar.add_cookie_header(request)
        self.socket = socket.create_connection((address.hostname, address.port), PATIENCE)
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {address.netloc}",
            f"Origin: {apps}",
            f"Cookie: {request.get_header('Cookie', '')}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.received = b""
        while b"\r\n\r\n" not in self.received:
            self.more()
        head, self.received = self.received.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            sys.exit(f"{path}: {head.decode()}")

    def more(self):
        piece = self.socket.recv(65536)
        if not piece:
            sys.exit(f"the terminal was closed after {self.received!r}")
        self.received += piece

    def types(self, line, expected):
        """Types a line and waits for what the shell makes of it."""
        text, mask = line.encode() + b"\r", os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
        self.socket.sendall(struct.pack("!BB", 0x82, 0x80 | len(text)) + mask + masked)
        deadline = time.monotonic() + PATIENCE
        # The shell's words are plain in its frames, and so short that none is split.
        while expected.encode() not in self.received:
            if time.monotonic() > deadline:
                sys.exit(f"{line}: {self.received!r}")
            self.more()


token = ask("POST", "/api/v1/login", {"username": name, "password": Path(password_file).read_text().strip()})["csrf_token"]
me = ask("GET", "/api/v1/me")
assert me["name"] == name, me
session = ask("POST", "/api/v1/sessions", {"app": "terminal"})
arrive(session, "running")
browser.addheaders = [("Accept", "text/html"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"),
                      ("Sec-Fetch-Site", "none")]
page = browser.open(f"{portal}/s/{session['id']}/", timeout=PATIENCE)
browser.addheaders = []
assert page.url.startswith(f"{apps}/s/"), page.url
Terminal(f"/s/{session['id']}/pty").types("echo $((6*7))-$(id -u)", f"42-{uid}")
ask("DELETE", f"/api/v1/sessions/{session['id']}")
session = arrive(session, "ended")
assert session["end_reason"] == "stopped_by_owner", session
print(f"{name} has signed in and typed into a terminal as {uid}")
