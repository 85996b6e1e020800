"""What JupyterLab is to a proxy: HTTP and a WebSocket on a Unix socket. `app.py SOCKET`."""
import base64, hashlib, http.server, json, os, socketserver, struct, sys

class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        with open(os.path.dirname(sys.argv[1]) + "/requests", "a") as requests:
            requests.write(self.path + "\n")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo()
        if "/zeros/" in self.path:
            count = int(self.path.rsplit("/", 1)[1])
            self.send_response(200)
            self.send_header("Content-Length", str(count))
            self.end_headers()
            while 0 < count:
                self.wfile.write(bytes(min(count, 1 << 16)))
                count -= min(count, 1 << 16)
            return
        self.answer(json.dumps({"path": self.path, "uid": os.getuid(), "environ": dict(os.environ),
                                "argv": open("/proc/self/cmdline").read(), "headers": dict(self.headers)}).encode())

    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while 0 < left:
            piece = self.rfile.read(min(left, 1 << 16))
            digest.update(piece)
            left -= len(piece)
        self.answer(digest.hexdigest().encode())

    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            length = head[1] & 127
            if length == 126:
                length = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            size = bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length)
            self.wfile.write(bytes([head[0]]) + size + text)

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def get_request(self):
        return super().get_request()[0], ("local", 0)

print("the app listens", flush=True)
Server(sys.argv[1], App).serve_forever()
