"""What the rows of automation.py act by: a user's shell in front of a real portal, whose programs note that they were
started; a relay that cuts connections; and a root of its own that has the wheel of the Python package alone.
"""

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

SMALL = {"cpus": 1, "memory_bytes": 64 << 20}


class Site:
    """The portal, and a folder in which a user's shell runs the commands of a row."""

    def __init__(self, url, chief, user, work, account):
        self.url, self.chief, self.user, self.work, self.account = url, chief, user, Path(work), account
        self.folder = f"~/{self.work.name}-automation"
        self.place = self.work / "automation"
        self.programs = self.place / "bin"
        self.programs.mkdir(parents=True)
        self.count = self.place / "count"
        for name, path in (("lyceum", self.work / "lyceum"), ("curl", "curl")):
            self.counted(self.programs / name, f'PATH=${{PATH#*:}} exec {path} "$@"', self.count)
        if account:
            subprocess.run(["chown", "-R", account, self.place], check=True)
        self.line = None

    def counted(self, file, action, count):
        """Writes a program that notes that it was started."""
        file.write_text(f'#!/bin/sh\necho "$0 $*" >>{count} || exit 99\n{action}\n')
        file.chmod(0o755)

    def run(self, runner=None, **variables):
        """Runs the commands of the row, and returns what the last of them printed."""
        self.count.write_text("")
        if self.account:
            os.chown(self.count, *self.owner())
        token = self.chief if self.line.is_admin else self.user
        variables = {"LYCEUM_TOKEN": token, "LYCEUM_URL": self.url} | variables
        done = (runner or self.shell)("\n".join(self.line.commands), variables)
        assert done.returncode == self.line.status, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
        counted = self.count.read_text().splitlines()
        assert len(counted) == self.line.number, f"the page says {self.line.number}, but these were started: {counted}"
        return done.stdout

    def shell(self, text, variables):
        """Runs a text in bash, in the folder and as the account of the portal."""
        env = {key: os.environ[key] for key in ("LYCEUM_CONFIG", "LYCEUM_DATA")}
        env |= {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.place)} | variables
        user, group = self.owner() if self.account else (None, None)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=self.place, text=True, capture_output=True, timeout=120,
            env={key: value for key, value in env.items() if value is not None},
            user=user, group=group, extra_groups=[] if self.account else None,
        )

    def owner(self):
        facts = (self.place / "bin").stat()
        return facts.st_uid, facts.st_gid

    def lyceum(self, *words, token=None):
        """Runs one command that is not counted."""
        variables = {"LYCEUM_URL": self.url, "LYCEUM_TOKEN": token or self.chief}
        done = self.shell(shlex.join(["lyceum", *words]), variables)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def write(self, name, content):
        (self.place / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def read(self, name):
        return (self.place / name).read_text()

    def call(self, method, path, body=None, token=None):
        """Returns the status and the body of an answer."""
        headers = {"Authorization": f"Bearer {token or self.chief}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def raw(self, path, body=None, token=None):
        status, answer = self.call("GET" if body is None else "POST", path, body, token)
        assert status < 300, f"{path}: {status} {answer.decode()}"
        return answer

    def ask(self, path, body=None, token=None):
        return json.loads(self.raw(path, body, token))

    def fails(self, status, path, token):
        assert self.call("GET", path, token=token)[0] == status, path

    def last_audit(self):
        return self.ask("/audit?limit=1")["items"][0]["number"]

    def token_of(self, name):
        return self.lyceum("admin", "token", "create", "--user", name).strip()

    def sleeper(self, token, **more):
        """Submits a job that does not end by itself."""
        return self.ask("/jobs", {"command": ["sleep", "600"], "resources": SMALL, **more}, token=token)["id"]

    def submit(self, script):
        return self.ask("/jobs", {"script": f"#!/bin/sh\n{script}\n", "resources": SMALL}, token=self.user)["id"]

    def ended(self, job):
        self.until(lambda: self.ask(f"/jobs/{job}")["state"] == "ended")
        return job

    def live(self, token, more=""):
        """Returns the names of a user's sessions and jobs that have not ended."""
        lists = [
            self.ask(f"/{kind}?state={state}{more}", token=token)["items"]
            for kind in ("sessions", "jobs")
            for state in ("queued", "starting", "running", "stopping")
        ]
        return [item["name"] for items in lists for item in items]

    @staticmethod
    def until(holds, seconds=60):
        deadline = time.monotonic() + seconds
        while not (answer := holds()):
            assert time.monotonic() < deadline, "it did not become so"
            time.sleep(0.1)
        return answer


class Relay:
    """A relay to the portal that cuts the connection each time when so many bytes have come from the client."""

    def __init__(self, url, cuts):
        host, port = url.removeprefix("http://").split(":")
        self.target, self.cuts, self.sent = (host, int(port)), cuts, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            portal = socket.create_connection(self.target)
            for pair in ((client, portal, True), (portal, client, False)):
                threading.Thread(target=self.pump, args=pair, daemon=True).start()

    def pump(self, source, sink, is_from_client):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
                if is_from_client:
                    self.sent += len(data)
                    if self.cuts and self.sent > self.cuts[0]:
                        del self.cuts[0]
                        break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Container:
    """A root of its own in which there is a Python with the package's wheel beside it, but no `lyceum`. What the wheel
    needs lies beside it too, in place of a package index; the network is the machine's."""

    def __init__(self, site):
        self.site, self.image = site, site.place / "image"
        wheel = site.work / "wheel"
        subprocess.run([sys.executable, "-m", "venv", self.image], check=True)
        (package,) = wheel.glob("lyceum-*.whl")
        download = [self.image / "bin/python", "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        subprocess.run([*download, "--dest", site.place / "wheels", package], check=True)
        programs = self.image / "counted"
        programs.mkdir()
        for name, module in (("python", ""), ("pip", "-m pip ")):
            site.counted(programs / name, f'exec /image/bin/python {module}"$@"', "/image/count")

    def __call__(self, text, variables):
        place = self.site.place
        options = ["--unshare-all", "--share-net", "--die-with-parent", "--clearenv"]
        options += ["--proc", "/proc", "--dev", "/dev"]
        for folder in {"/usr", sys.base_prefix}:
            options += ["--ro-bind", folder, folder]
        for folder in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{folder}"):
                options += ["--symlink", f"usr/{folder}", f"/{folder}"]
            elif os.path.isdir(f"/{folder}"):
                options += ["--ro-bind", f"/{folder}", f"/{folder}"]
        options += ["--tmpfs", "/tmp", "--bind", self.image, "/image", "--dir", "/ci", "--chdir", "/ci"]
        for name in ("ci.py", "train.sh"):
            options += ["--ro-bind", place / name, f"/ci/{name}"]
        for wheel in (place / "wheels").iterdir():
            options += ["--ro-bind", wheel, f"/ci/{wheel.name}"]
        env = {"PATH": "/image/counted:/usr/bin:/bin", "HOME": "/ci", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/ci"}
        env |= {"PIP_QUIET": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | variables
        for name, value in env.items():
            options += ["--setenv", name, value]
        text = f"if command -v lyceum; then exit 98; fi\n{text}"
        done = subprocess.run(
            ["bwrap", *options, "bash", "-euo", "pipefail", "-c", text], text=True, capture_output=True, timeout=120
        )
        self.site.count.write_text((self.image / "count").read_text())
        return done
