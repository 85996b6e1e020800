"""An app for tests on a Unix socket: it tells what it is, and misbehaves when asked to.

`app.py MODE SOCKET HOME SESSION`; each start leaves a line in `HOME/starts-SESSION`.
"""
import http.server, json, os, signal, socketserver, subprocess, sys, threading, time

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


def facts():
    with open("/proc/self/cgroup") as groups:
        return {"uid": os.getuid(), "gid": os.getgid(), "groups": sorted(os.getgroups()), "pid": os.getpid(),
                "cwd": os.getcwd(), "environment": dict(os.environ), "cgroup": groups.read()}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        verb, _, argument = self.path.strip("/").partition("-")
        answer = facts() if verb == "facts" else {}
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
