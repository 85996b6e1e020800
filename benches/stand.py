"""What the measurements stand on: the portal, nginx, configurable-http-proxy, JupyterHub and
JupyterLab, each started by its own command on free ports of the loopback, and ended with it.
The CPU time and memory of each are read from /proc, because they say more than a wall clock
does on a machine that has other work."""

import http.client
import http.cookiejar
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_free_ports():
    """A port whose next one is free too: the portal's, and its apps'."""
    while True:
        port = free_port()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue


def until(what, condition, pause=0.01, patience=PATIENCE):
    """Waits for a condition and returns what it gave."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(pause)
    raise RuntimeError(f"waited in vain: {what}")


def status_of(url, headers=None, timeout=5):
    """The status that a URL answers with, or None."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, http.client.HTTPException):
        return None


class Server:
    """A process, with all that it started, in a group of its own."""

    def __init__(self, name, command, account=None, env=None, cwd=None, log=None):
        self.name, self.command = name, [str(word) for word in command]
        options = {}
        if account and os.geteuid() == 0:
            options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.log = open(log, "ab") if log else subprocess.DEVNULL
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env, cwd=cwd,
            start_new_session=True, **options)

    def pids(self):
        """This process and its descendants."""
        children = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    parent = int(pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
                except (OSError, IndexError):
                    continue
                children.setdefault(parent, []).append(int(entry))
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children.get(pid, [])
        return found

    def own_pids(self):
        """Those whose cost is measured."""
        return self.pids()

    def cpu(self):
        """Seconds of CPU, user and system."""
        total = 0
        for pid in self.own_pids():
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def memory(self, field="VmRSS"):
        """MB of memory: VmRSS, or VmHWM for the most there was."""
        total = 0
        for pid in self.own_pids():
            try:
                lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith(field + ":"))
        return total / 1024

    def forget_peak(self):
        for pid in self.own_pids():
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


class Portal(Server):
    """`lyceum serve`, not started by root: it serves one person, as that person."""

    def __init__(self, stand, name="portal", config="", environment=False, gpus=0):
        self.stand, self.account = stand, stand.account
        self.data = stand.directory(name)
        self.port = two_free_ports()
        self.url, self.apps = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.port + 1}"
        # What costs the least of what wants a login.
        self.light = self.url + "/api/v1/me"
        python = f'[[environments.list]]\nname = "default"\ntitle = "Python"\npython = "{stand.python}"\n'
        (self.data / "lyceum.toml").write_text(
            f'[server]\nlisten = "127.0.0.1:{self.port}"\n'
            f'[scheduler.local]\ngpus = {gpus}\ncpus = 4000\nmemory = "4000GiB"\ngrace = "5s"\n'
            f'[environments]\nbuild = "never"\n{python if environment else ""}{config}')
        self.env = {"HOME": self.account.pw_dir, "PATH": "/usr/local/bin:/usr/bin:/bin", "LYCEUM_LOG": "warn"}
        self.place = ["--config", self.data / "lyceum.toml", "--data", self.data / "data"]
        self.start()
        self.admin("user", "password", "admin", "--password-stdin", text="a long password")
        self.token = self.admin("token", "create", "--user", "admin").strip()
        self.admin("quota", "set", "default", *(f"{field}=unlimited" for field in (
            "cpus", "memory_bytes", "sessions", "light", "pending", "max_session_seconds", "idle_timeout_seconds")))
        self.header = f"Authorization: Bearer {self.token}"

    def start(self):
        """Seconds until the first answered request."""
        began = time.monotonic()
        super().__init__("lyceum", [self.stand.binary, "serve", *self.place], self.account, self.env, "/",
                         self.data / "log")
        until("the portal answers", lambda: status_of(self.url + "/healthz") == 200, 0.002)
        return time.monotonic() - began

    def own_pids(self):
        return [self.process.pid]

    def admin(self, *words, text=""):
        options = {}
        if os.geteuid() == 0:
            options = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        command = [str(word) for word in [self.stand.binary, "admin", *words, *self.place]]
        return subprocess.run(command, input=text, text=True, capture_output=True, check=True, env=self.env, cwd="/",
                              **options).stdout

    def api(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            self.url + "/api/v1" + path, json.dumps(body).encode() if body is not None else None, headers,
            method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def ask(self, app, **more):
        """Asks for a session; its id."""
        body = {"app": app, "resources": {"gpus": 0, "cpus": 1, "memory_bytes": 1 << 30}, "duration_seconds": 86400}
        return self.api("POST", "/sessions", {**body, **more})["id"]

    def session(self, app, **more):
        """Starts a session and waits until it runs; its id."""
        session = self.ask(app, **more)

        def runs():
            found = self.api("GET", f"/sessions/{session}")
            if found["state"] == "ended":
                raise RuntimeError(f"the session ended: {found}")
            return found["state"] == "running"

        until("the session runs", runs)
        return session

    def stop_sessions(self):
        live = [one["id"] for one in self.api("GET", "/sessions?limit=200")["items"] if one["state"] != "ended"]
        while live:
            for session in live:
                self.api("DELETE", f"/sessions/{session}")
            until("they have ended", lambda: all(
                self.api("GET", f"/sessions/{session}")["state"] == "ended" for session in live), 0.2)
            live = [one["id"] for one in self.api("GET", "/sessions?limit=200")["items"] if one["state"] != "ended"]

    def sign_in(self, name, password):
        body = json.dumps({"username": name, "password": password}).encode()
        headers = {"Content-Type": "application/json", "Origin": self.url}
        with urllib.request.urlopen(urllib.request.Request(self.url + "/api/v1/login", body, headers), timeout=60) as answer:
            answer.read()

    def app_cookie(self, session):
        """Goes the way of a browser, from sign-in to the app's own cookie."""
        jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        login = urllib.request.Request(
            self.url + "/api/v1/login", json.dumps({"username": "admin", "password": "a long password"}).encode(),
            {"Content-Type": "application/json", "Origin": self.url})
        opener.open(login).read()
        opener.open(urllib.request.Request(f"{self.apps}/s/{session}/", headers={"Accept": "text/html"})).read()
        return "Cookie: " + "; ".join(f"{one.name}={one.value}" for one in jar if one.name != "lyceum_hand")


class Stand:
    """Where everything lies, and everything that was started."""

    def __init__(self, options):
        self.binary, self.load = pathlib.Path(options.binary).resolve(), pathlib.Path(options.load).resolve()
        self.work = pathlib.Path(options.work)
        self.tools = pathlib.Path(options.tools)
        self.python = self.tools / "jl/bin/python"
        self.chp = self.tools / "chp/node_modules/.bin/configurable-http-proxy"
        self.started = []
        self.made_account = False
        self.account = self.find_account()
        self.work.mkdir(mode=0o755, exist_ok=True)

    def find_account(self):
        if os.geteuid() != 0:
            return pwd.getpwuid(os.geteuid())
        try:
            return pwd.getpwnam("lyceum-bench")
        except KeyError:
            home = self.work / "home"
            self.work.mkdir(mode=0o755, exist_ok=True)
            subprocess.run(["useradd", "--create-home", "--home-dir", home, "--shell", "/bin/sh", "lyceum-bench"],
                           check=True, capture_output=True)
            self.made_account = True
            return pwd.getpwnam("lyceum-bench")

    def directory(self, name):
        path = self.work / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        if os.geteuid() == 0:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)
        return path

    def keep(self, server):
        self.started.append(server)
        return server

    def stop(self):
        for server in reversed(self.started):
            if isinstance(server, Portal) and server.process.poll() is None:
                server.stop_sessions()
            server.stop()
        self.started.clear()

    def remove(self):
        """Removes what was made, the account included if it was made here."""
        self.stop()
        shutil.rmtree(self.work, ignore_errors=True)
        if self.made_account:
            subprocess.run(["userdel", "lyceum-bench"], capture_output=True, check=False)

    def portal(self, **options):
        return self.keep(Portal(self, **options))

    def app(self, socket, port, big=None):
        """The configuration of the nginx that stands behind the proxies: one worker, answers `ok`."""
        directory = self.directory("upstream")
        temporary = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        file = directory / "nginx.conf"
        file.write_text(
            f"daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/errors;\n"
            "events { worker_connections 8192; }\n"
            f"http {{ access_log off; keepalive_requests 100000000; client_max_body_size 0; {temporary}\n"
            f"  server {{ listen unix:{socket}; listen 127.0.0.1:{port};\n"
            f"    location ~ /big$ {{ sendfile on; alias {big}; }}\n"
            "    location / { default_type text/plain; return 200 'ok'; } } }\n")
        return f'[[apps]]\nname = "ok"\ncommand = ["/bin/sh", "-c", ' \
               f'"cd ${{LYCEUM_SOCKET%/*}} && exec /usr/sbin/nginx -e stderr -c {file}"]\nidle = "none"\n'

    def nginx(self, target, port, name="nginx"):
        """nginx as a proxy, one worker a core, keeping its connections to the app."""
        directory = self.directory(name)
        temporary = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        file = directory / "nginx.conf"
        file.write_text(
            f"daemon off; worker_processes {os.cpu_count()}; pid {directory}/pid; error_log {directory}/errors;\n"
            "worker_rlimit_nofile 20000; events { worker_connections 16384; }\n"
            f"http {{ access_log off; keepalive_requests 100000000; client_max_body_size 0; {temporary}\n"
            f"  upstream app {{ server {target}; keepalive 256; keepalive_requests 100000000; }}\n"
            "  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }\n"
            f"  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://app; proxy_http_version 1.1;\n"
            "    proxy_read_timeout 1h; proxy_set_header Host $host;\n"
            "    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade; } } }\n")
        server = Server("nginx", ["/usr/sbin/nginx", "-e", directory / "errors", "-c", file], self.account)
        until("nginx answers", lambda: status_of(f"http://127.0.0.1:{port}/"))
        return self.keep(server)

    def chp_to(self, target):
        """configurable-http-proxy with everything led to one target."""
        port = two_free_ports()
        server = Server("CHP", [self.chp, "--ip", "127.0.0.1", "--port", port, "--api-ip", "127.0.0.1",
                                "--api-port", port + 1, "--default-target", target, "--log-level", "error"])
        until("CHP answers", lambda: status_of(f"http://127.0.0.1:{port}/"))
        server.url = f"http://127.0.0.1:{port}"
        return self.keep(server)
