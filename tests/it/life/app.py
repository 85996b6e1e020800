"""An app for tests on a Unix socket: it tells what it is, and misbehaves when asked to.

`app.py MODE SOCKET HOME SESSION`; each start leaves a line in `HOME/starts-SESSION`.
"""
import http.server, json, os, signal, socket, socketserver, subprocess, sys, threading, time

mode, path, home, session = sys.argv[1:5]
with open(f"{home}/starts-{session}", "a") as starts:
    starts.write(f"{os.getpid()}\n")
print("a line of the log", flush=True)


def stay(tag, detached):
    """A process that ignores SIGTERM; detached, its parent is gone and it leads a session."""
    code = f"import os,signal,time\nsignal.signal(signal.SIGTERM,signal.SIG_IGN)\nopen({f'{home}/pid-{tag}'!r},'w').write(str(os.getpid()))\ntime.sleep(600)"
    if detached:
        if os.fork() == 0:
            os.setsid()
            subprocess.Popen([sys.executable, "-c", code], env={})
            os._exit(0)
    else:
        subprocess.Popen([sys.executable, "-c", code])


def eat():
    hoard = []
    while True:
        hoard.append(b"x" * (1 << 20))
        time.sleep(0.004)


def spin():
    while True:
        pass


def flood(lines_a_second):
    line = "flood " + "x" * 93
    begin = time.monotonic()
    written = 0
    while True:
        due = int((time.monotonic() - begin) * lines_a_second)
        if written < due:
            print("\n".join([line] * (due - written)), flush=True)
            written = due
            with open(f"{home}/flooded.new", "w") as told:
                told.write(str(written))
            os.rename(f"{home}/flooded.new", f"{home}/flooded")
        time.sleep(0.05)


def facts():
    with open("/proc/self/cgroup") as groups:
        return {"uid": os.getuid(), "gid": os.getgid(), "groups": sorted(os.getgroups()), "pid": os.getpid(),
                "cwd": os.getcwd(), "environment": dict(os.environ), "cgroup": groups.read()}


def errno_of(attempt):
    try:
        attempt()
        return 0
    except OSError as error:
        return error.errno


def attempt(device):
    return {"errno": errno_of(lambda: os.close(os.open("/" + device, os.O_RDWR)))}


def reach(pid, directory):
    """What somebody else's run directory and process let us do."""
    def connect():
        socket.socket(socket.AF_UNIX).connect(directory + "/agent.sock")

    return {"list": errno_of(lambda: os.listdir(directory)), "connect": errno_of(connect),
            "read": errno_of(lambda: open(directory + "/log")),
            "write": errno_of(lambda: open(directory + "/exit.json", "w")),
            "environment": errno_of(lambda: open(f"/proc/{pid}/environ").read()),
            "signal": errno_of(lambda: os.kill(pid, 0))}


def link(target):
    """In the place of our own socket."""
    os.rename(path, path + ".away")
    os.symlink(target, path)


def lie():
    """In the place of the agent: news that no agent would send, and then no end of bytes."""
    agent = os.path.dirname(path) + "/agent.sock"
    os.rename(agent, agent + ".away")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(agent)
    os.chmod(agent, 0o660)
    listener.listen()
    status = {"protocol": 1, "phase": "ready", "step": "<script>alert(1)</script>" * 100, "terminals": 4294967295,
              "sample": {"memory_bytes": -9223372036854775808, "cpus": 1e308, "processes": -1},
              "terminal_activity": 9223372036854775807}

    def tell(peer):
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for line in (status, dict(status, phase="ending"), {"protocol": "no"}, dict(status, phase="promoted")):
            peer.sendall(json.dumps(line).encode() + b"\n")
        with open(f"{home}/told", "a") as told:
            told.write("x\n")
        try:
            while True:
                peer.sendall(b"x" * 65536)
        except OSError:
            peer.close()

    def serve():
        while True:
            threading.Thread(target=tell, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with open(os.path.dirname(path) + "/exit.json", "w") as record:
        json.dump({"cause": "out_of_memory", "exit_code": None, "signal": None, "ended_at_ms": 0, "detail": "<b>no"}, record)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        verb, _, argument = self.path.strip("/").partition("-")
        answer = facts() if verb == "facts" else attempt(argument) if verb == "open" else {}
        if verb == "reach":
            pid, _, directory = argument.partition("/")
            answer = reach(int(pid), "/" + directory)
        elif verb == "link":
            link("/" + argument)
        elif verb == "lie":
            lie()
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        if verb == "exit":
            print("last words", flush=True)
            os._exit(int(argument))
        elif verb == "signal":
            os.kill(os.getpid(), int(argument))
        elif verb == "eat":
            threading.Thread(target=eat).start()
        elif verb == "spin":
            for _ in range(4):
                if os.fork() == 0:
                    spin()
        elif verb == "flood":
            threading.Thread(target=flood, args=(int(argument),)).start()
        elif verb == "stubborn":
            stay("child", False)
            stay("orphan", True)

    def address_string(self):
        return "socket"


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


if mode == "crash":
    print("no such model: resnet-51", flush=True)
    sys.exit(7)
if mode == "silent":
    print("waiting for a licence that never comes", flush=True)
    time.sleep(600)
if mode == "slow":
    while not os.path.exists(f"{home}/go"):
        time.sleep(0.05)
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
Server(path, Handler).serve_forever()
