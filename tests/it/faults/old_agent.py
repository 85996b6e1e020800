"""An agent that speaks the protocol before this one: `old_agent.py RUN_DIRECTORY`.

Its events know nothing of steps, samples and terminals, its exit record has no sentence.
No such program was ever released: this is what protocol 0 would have said, with less in it.
"""
import json, os, signal, socketserver, sys, threading, time

run = sys.argv[1]
EVENTS = [b'{"protocol":0,"phase":"preparing"}\n', b'{"protocol":0,"phase":"starting"}\n', b'{"protocol":0,"phase":"ready"}\n']
RECORD = {"cause": "asked", "exit_code": None, "signal": None, "ended_at_ms": 1700000000000}


def end(*_):
    with open(f"{run}/exit.json.part", "w") as record:
        json.dump(RECORD, record)
        record.flush()
        os.fsync(record.fileno())
    os.rename(f"{run}/exit.json.part", f"{run}/exit.json")
    os._exit(0)


class Agent(socketserver.StreamRequestHandler):
    def handle(self):
        path = self.rfile.readline().split()[1]
        while self.rfile.readline().strip():
            pass
        if path != b"/v1/events":
            return self.wfile.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        self.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for line in EVENTS:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        while True:
            time.sleep(1)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(EVENTS[-1]), EVENTS[-1]))


class App(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nold")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


signal.signal(signal.SIGTERM, end)
for name, handler in [("agent.sock", Agent), ("app.sock", App)]:
    server = Server(f"{run}/{name}", handler)
    os.chmod(f"{run}/{name}", 0o660)
    threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    signal.pause()
