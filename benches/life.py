"""The rows about the portal itself: what it holds in memory, how it starts, how a session
starts, what pages and sign-ins cost with many users."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.parse
import urllib.request
import uuid

from rows import in_turns, load, median, result, row, times
from stand import Server, free_port, status_of, until


class Hub(Server):
    """JupyterHub with its usual proxy, the simple spawner and a password for everybody, unless `sign_in` says otherwise."""

    dummy = "c.JupyterHub.authenticator_class = 'dummy'\nc.DummyAuthenticator.password = 'a long password'\n"

    def __init__(self, stand, sign_in=dummy):
        directory = stand.directory("hub")
        bind, hub, api = free_port(), free_port(), free_port()
        self.token, self.url = "a-token-for-the-bench-0123456789abcdef", f"http://127.0.0.1:{bind}"
        self.light, self.header = self.url + "/hub/api/user", f"Authorization: token {self.token}"
        config = directory / "jupyterhub_config.py"
        config.write_text(
            "c = get_config()\n" + sign_in +
            "c.Authenticator.allow_all = True\nc.JupyterHub.spawner_class = 'simple'\n"
            f"c.JupyterHub.bind_url = '{self.url}'\nc.JupyterHub.hub_bind_url = 'http://127.0.0.1:{hub}'\n"
            f"c.ConfigurableHTTPProxy.command = ['{stand.chp}']\nc.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{api}'\n"
            f"c.SimpleLocalProcessSpawner.home_dir_template = '{directory}/home/{{username}}'\n"
            f"c.Spawner.cmd = ['{stand.tools}/jl/bin/jupyterhub-singleuser']\nc.Spawner.ip = '127.0.0.1'\n"
            f"c.Spawner.environment = {{'PATH': '{stand.tools}/jl/bin:/usr/bin:/bin'}}\n"
            "c.Spawner.http_timeout = 120\nc.Spawner.start_timeout = 300\n"
            "c.JupyterHub.concurrent_spawn_limit = 1000\nc.JupyterHub.cleanup_servers = True\n"
            f"c.JupyterHub.services = [{{'name': 'bench', 'api_token': '{self.token}'}}]\n"
            "c.JupyterHub.load_roles = [{'name': 'bench', 'services': ['bench'],\n"
            "  'scopes': ['admin:users', 'admin:servers', 'proxy', 'access:servers', 'list:users']}]\n")
        env = {"PATH": f"{stand.tools}/jl/bin:/usr/local/bin:/usr/bin:/bin", "HOME": stand.account.pw_dir}
        super().__init__("JupyterHub", [stand.tools / "jl/bin/jupyterhub", "-f", config], stand.account, env,
                         directory, directory / "log")
        until("the hub answers", lambda: status_of(self.url + "/hub/api/") == 200)

    def api(self, method, path, body=None):
        data = json.dumps(body).encode() if body else b"" if method == "POST" else None
        request = urllib.request.Request(self.url + "/hub/api" + path, data,
                                         {"Authorization": f"token {self.token}"}, method=method)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read() or b"null")

    def sign_in(self, name, password):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(self.url.rsplit(":", 1)[1]), timeout=300)) as hub:
            hub.request("GET", "/hub/login")
            page = hub.getresponse()
            page.read()
            cookies = [line.split(";")[0] for line in page.headers.get_all("Set-Cookie")]
            proof = next(cookie.removeprefix("_xsrf=") for cookie in cookies if cookie.startswith("_xsrf="))
            form = urllib.parse.urlencode({"username": name, "password": password, "_xsrf": proof})
            hub.request("POST", "/hub/login", form, {"Content-Type": "application/x-www-form-urlencoded",
                                                     "Cookie": "; ".join(cookies)})
            answer = hub.getresponse()
            answer.read()
            if answer.status != 302:
                raise RuntimeError(f"{name} is not let in: {answer.status}")

    def start_server(self, user):
        self.api("POST", f"/users/{user}/server")
        until("the server answers", lambda: status_of(
            f"{self.url}/user/{user}/api/status", {"Authorization": f"token {self.token}"}) == 200, 0.005)


class Bare(Server):
    """`jupyter lab` on a socket, as the portal starts it, and nothing else."""

    def __init__(self, stand, name):
        directory = stand.directory(name)
        self.port, token = free_port(), "a-token"
        self.headers = {"Authorization": f"token {token}"}
        env = {"HOME": stand.account.pw_dir, "PATH": f"{stand.tools}/jl/bin:/usr/local/bin:/usr/bin:/bin",
               "JUPYTER_TOKEN": token, "JUPYTER_RUNTIME_DIR": str(directory), "LANG": "C.UTF-8"}
        super().__init__("jupyter", [stand.python, stand.tools / "jl/bin/jupyter-lab", "--no-browser", "--ip=127.0.0.1",
                                     f"--port={self.port}", f"--ServerApp.root_dir={stand.account.pw_dir}"],
                         stand.account, env, stand.account.pw_dir, directory / "log")

    def answers(self):
        return status_of(f"http://127.0.0.1:{self.port}/api/status", self.headers, 30) == 200


@row("start")
def start(stand, options):
    """From the request to the app's first answer."""
    portal, hub = stand.portal(environment=True), stand.keep(Hub(stand))
    for user in range(options.rounds):
        hub.api("POST", f"/users/u{user}")
    users = iter(range(options.rounds))

    def measure(name, _):
        began = time.monotonic()
        if name == "bare":
            server = Bare(stand, "bare")
            until("jupyter answers", server.answers, 0.005)
            took = time.monotonic() - began
            server.stop()
        elif name == "JupyterHub":
            user = f"u{next(users)}"
            began = time.monotonic()
            hub.start_server(user)
            took = time.monotonic() - began
            hub.api("DELETE", f"/users/{user}/server")
        else:
            session = portal.ask("jupyter")
            url = f"{portal.url}/s/{session}/api/status"
            until("jupyter answers", lambda: status_of(url, {"Authorization": f"Bearer {portal.token}"}) == 200, 0.005)
            took = time.monotonic() - began
            portal.stop_sessions()
        return took

    results = in_turns(options.rounds, {"bare": None, "Lyceum": None, "JupyterHub": None}, measure)
    middle = {name: median(found) for name, found in results.items()}
    for other in ("bare", "JupyterHub"):
        over = median([mine - theirs for mine, theirs in zip(results["Lyceum"], results[other])])
        yield result("start request to usable Jupyter", f"{middle['Lyceum']:.2f} s",
                     f"{other} {middle[other]:.2f} s", f"{over * 1000:+,.0f} ms")


@row("many-starts")
def many_starts(stand, options):
    """50 starts at once."""
    # A machine that is full of starts is slow to start each.
    portal, count = stand.portal(environment=True, config='[sessions]\nstart_timeout = "1h"\n'), 50
    rounds = min(options.rounds, 3)

    def measure(name, _):
        began = time.monotonic()
        if name == "bare":
            servers = [Bare(stand, f"bare{number}") for number in range(count)]
            waiting = list(servers)
            while waiting:
                waiting = [server for server in waiting if not server.answers()]
                time.sleep(0.05)
            took = time.monotonic() - began
            for server in servers:
                server.process.terminate()
            for server in servers:
                server.stop()
        else:
            sessions = [None] * count

            def ask(number):
                sessions[number] = portal.ask("jupyter")

            threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            waiting = [f"{portal.url}/s/{session}/api/status" for session in sessions]
            while waiting:
                waiting = [url for url in waiting
                           if status_of(url, {"Authorization": f"Bearer {portal.token}"}, 30) != 200]
                time.sleep(0.05)
            took = time.monotonic() - began
            portal.stop_sessions()
        return took

    results = in_turns(rounds, {"bare": None, "Lyceum": None}, measure)
    each = [mine / theirs for mine, theirs in zip(results["Lyceum"], results["bare"])]
    yield result(f"{count} starts at once, all answer (median of {rounds})", f"{median(results['Lyceum']):.1f} s",
                 f"bare {median(results['bare']):.1f} s", f"{median(each):.2f}")


@row("memory")
def memory(stand, options):
    """Memory of a server on which nothing happens."""
    portal, hub = stand.portal(environment=True), stand.keep(Hub(stand))
    time.sleep(5)
    yield result("idle server, RSS", f"{portal.memory():.0f} MB", f"JupyterHub + CHP {hub.memory():.0f} MB",
                 times(portal.memory(), hub.memory()))


def new_id():
    """A UUIDv7, now."""
    return str(uuid.UUID(int=(int(time.time() * 1000) << 80) | (0x7 << 76) | (int.from_bytes(os.urandom(2)) & 0xfff) << 64
                         | (0b10 << 62) | int.from_bytes(os.urandom(8)) >> 2))


def fill(portal, users, ended):
    """Rows like those that users and ended sessions leave, made of one that the portal made."""
    session = portal.session("terminal")
    portal.stop_sessions()
    portal.stop()
    file = next((portal.data / "data/private").glob("*.db"))
    with sqlite3.connect(file) as db:
        db.row_factory = sqlite3.Row

        def copies(table, model, changes):
            names = model.keys()
            text = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            db.executemany(text, ([{**dict(model), **change}[name] for name in names] for change in changes))

        admin = db.execute("SELECT * FROM users").fetchone()
        people = [{"id": new_id(), "subject": f"user{n}", "name": f"user{n}", "role": "user"} for n in range(users)]
        copies("users", admin, people)
        model = db.execute("SELECT * FROM sessions WHERE id = ?", [session]).fetchone()
        ids = [new_id() for _ in range(ended)]
        owner = [admin["id"] if n % 100 == 0 else people[n % users]["id"] for n in range(ended)]
        copies("sessions", model, ({"id": one, "owner": whose} for one, whose in zip(ids, owner)))
        for table in ("session_events", "intervals"):
            for model in db.execute(f"SELECT * FROM {table} WHERE session_id = ?", [session]).fetchall():
                # What was held was held for some hours, spread over a year.
                def change(n):
                    if table == "session_events":
                        return {"session_id": ids[n]}
                    end = int(time.time() * 1000) - n * (365 * 86_400_000 // ended)
                    return {"session_id": ids[n], "owner": owner[n], "ended_at": end,
                            "started_at": end - (n % 8 + 1) * 3_600_000, "number": n + 2}
                copies(table, model, (change(n) for n in range(ended)))
    if os.geteuid() == 0:
        for one in file.parent.iterdir():
            os.chown(one, portal.account.pw_uid, portal.account.pw_gid)
    portal.start()


@row("portal-start")
def portal_start(stand, options):
    """To the first answered request, with 10 000 users and 500 live sessions."""
    portal = stand.portal()
    fill(portal, 10_000, 100_000)
    sessions = []
    try:
        # Real sessions and agents. Each batch is frozen once it runs: without control groups
        # 500 agents that sample all day are the whole machine's work.
        while len(sessions) < 500:
            sessions += [portal.ask("terminal") for _ in range(25)]
            until("all run", lambda: len(running(portal)) == len(sessions), 0.2)
            signal_agents(portal, signal.SIGSTOP)
        took = []
        for _ in range(options.rounds):
            portal.stop()
            took.append(portal.start())
        yield result("portal start, 10 000 users, 100 000 ended and 500 live sessions", f"{median(took):.2f} s",
                     "bar 1 s", "")
        yield result("memory then, RSS", f"{portal.memory():.0f} MB", "", "")
        time.sleep(5)
        before, began = portal.cpu(), time.monotonic()
        time.sleep(20)
        yield result("CPU with 500 live sessions and nobody there",
                     f"{(portal.cpu() - before) / (time.monotonic() - began) * 100:.1f} % of a core", "", "")
    finally:
        signal_agents(portal, signal.SIGKILL)


def signal_agents(portal, number):
    """Signals the agents that run from this portal's data directory."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(bytes(portal.data) + b"/") and \
                    b"\0agent\0" in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), number)


def running(portal):
    found, cursor = [], ""
    while True:
        page = portal.api("GET", f"/sessions?state=running&limit=200{cursor}")
        found += [one["id"] for one in page["items"]]
        if not page["next_cursor"]:
            return found
        cursor = f"&cursor={page['next_cursor']}"


# Bars of a p95: 25 ms for a page, 5 ms for an answer of the API.
PAGES = {
    "home page": "/", "usage page": "/usage", "who used it, 30 days": "/usage/compare",
    "who used it, 90 days": "/usage/compare?range=90d", "cluster": "/cluster",
    "people by name": "/admin/users", "people last seen": "/admin/users?sort=seen",
    "people called …77…": "/admin/users?find=77", "a person": "/admin/users/user77", "groups": "/admin/groups",
    "quotas by name": "/admin/quotas", "quotas by GPUs": "/admin/quotas?sort=gpus",
    "quotas of a person": "/admin/quotas/users/user77", "quotas of the cluster": "/admin/quotas/cluster",
    "announcements": "/admin/announcements", "health": "/admin/health", "audit log": "/admin/audit",
}
ANSWERS = {
    "GET /me": "/api/v1/me", "GET /sessions?limit=200": "/api/v1/sessions?limit=200", "GET /users": "/api/v1/users",
    "GET /users?limit=200": "/api/v1/users?limit=200", "GET /users/{name}": "/api/v1/users/user77",
    "GET /groups": "/api/v1/groups", "GET /quotas": "/api/v1/quotas", "GET /quotas/users": "/api/v1/quotas/users",
    "GET /quotas/users/{name}": "/api/v1/quotas/users/user77", "GET /usage": "/api/v1/usage",
    "GET /audit": "/api/v1/audit",
}


@row("pages")
def pages(stand, options):
    """Pages and lists at 10 000 users and 100 000 ended sessions; 1 000 of them are the asking person's."""
    portal, hub = stand.portal(), stand.keep(Hub(stand))
    fill(portal, 10_000, 100_000)
    for bar, asked in ((25, PAGES), (5, ANSWERS)):
        for what, path in asked.items():
            # Whoever manages people asks now and then: nothing queues up.
            results = [load(stand, "rate", portal.url + path, 1, 10, options.seconds, headers=[portal.header])
                       for _ in range(options.rounds)]
            p50, p95 = (median([one[percent] for one in results]) / 1000 for percent in ("p50_us", "p95_us"))
            yield result(what, f"p50 {p50:.1f} ms, p95 {p95:.1f} ms", f"bar {bar} ms", times(p95, bar))
    for begin in range(0, 10_000, 1_000):
        hub.api("POST", "/users", {"usernames": [f"user{n}" for n in range(begin, begin + 1_000)]})
    lists = {"Lyceum": (portal.url + "/api/v1/users?limit=50", portal.header),
             "JupyterHub": (hub.url + "/hub/api/users?limit=50", hub.header)}
    found = in_turns(options.rounds, lists, lambda _, asked: load(
        stand, "rate", asked[0], 1, 10, options.seconds, headers=[asked[1]])["p95_us"] / 1000)
    ours, theirs = (median(found[name]) for name in lists)
    yield result("50 of 10 000 people, as JSON", f"p95 {ours:.1f} ms", f"JupyterHub {theirs:.1f} ms", times(ours, theirs))


@row("logins")
def logins(stand, options):
    """Sign-ins by password as fast as they go, and what others notice of them."""
    people = [("admin", "a long password")] * 16
    yield from sign_ins(stand, options, stand.portal(), people, "sign-ins by password")


def sign_ins(stand, options, server, people, what):
    """All of these people sign in again and again; the rate, and others' waiting beside it."""
    ended, count = threading.Event(), []

    def sign_in(name, password):
        while not ended.is_set():
            server.sign_in(name, password)
            count.append(time.monotonic())

    def others(_, storm):
        if not storm:
            found = load(stand, "rate", server.light, 20, 200, options.seconds, headers=[server.header])
            return found["p50_us"], found["p99_us"], 0
        ended.clear()
        count.clear()
        threads = [threading.Thread(target=sign_in, args=person) for person in people]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        begun, before = time.monotonic(), len(count)
        found = load(stand, "rate", server.light, 20, 200, options.seconds, headers=[server.header])
        rate = (len(count) - before) / (time.monotonic() - begun)
        ended.set()
        for thread in threads:
            thread.join()
        return found["p50_us"], found["p99_us"], rate

    results = in_turns(options.rounds, {"quiet": False, "storm": True}, others)
    p50, p99 = ({name: median([one[at] for one in found]) / 1000 for name, found in results.items()} for at in (0, 1))
    yield result(f"{what}, {server.name}, {len(people)} at once",
                 f"{median([one[2] for one in results['storm']]):.1f}/s", "", "")
    yield result(f"others' p50, p99 meanwhile (GET {server.light[len(server.url):]}, 200/s), {server.name}",
                 f"{p50['storm']:.1f} ms, {p99['storm']:.1f} ms",
                 f"without sign-ins {p50['quiet']:.1f} ms, {p99['quiet']:.1f} ms", times(p99["storm"], p99["quiet"]))


@row("soak")
def soak(stand, options):
    """What is left of a portal's work: memory, files and threads after so many minutes of everything."""
    echo = f'[[apps]]\nname = "echo"\ncommand = ["{stand.load}", "app", "unix:{{socket}}"]\nidle = "none"\n'
    portal = stand.portal(config=echo)
    app = f"{portal.url}/s/{portal.session('echo')}/"
    body = json.dumps({"username": "admin", "password": "a long password"}).encode()
    done = dict.fromkeys(("requests", "messages", "sockets", "sign-ins", "streams", "sessions"), 0)

    def sign_in():
        request = urllib.request.Request(portal.url + "/api/v1/login", body,
                                         {"Content-Type": "application/json", "Origin": portal.url})
        with urllib.request.urlopen(request, timeout=60) as answer:
            csrf, cookie = json.loads(answer.read())["csrf_token"], answer.headers["Set-Cookie"].split(";")[0]
        ending = urllib.request.Request(portal.url + "/api/v1/logout", b"", {"Cookie": cookie, "X-CSRF-Token": csrf,
                                                                         "Origin": portal.url})
        urllib.request.urlopen(ending, timeout=60).close()

    def stream():
        asked = urllib.request.Request(portal.url + "/events", headers={"Authorization": f"Bearer {portal.token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answer.readline()

    def everything():
        for path, rate in ((app, 2000), (portal.url + "/", 20), (portal.url + "/api/v1/sessions?limit=200", 20)):
            done["requests"] += load(stand, "rate", path, 20, rate, options.seconds, headers=[portal.header])["count"]
        done["messages"] += load(stand, "ws", app, 100, options.seconds, headers=[portal.header])["count"]
        done["sockets"] += 100
        for what, times in ((sign_in, 20), (stream, 40)):
            for _ in range(times):
                what()
        done["sign-ins"] += 20
        done["streams"] += 40
        live = [portal.session("terminal") for _ in range(3)]
        for session in live:
            portal.api("DELETE", f"/sessions/{session}")
            until("it has ended", lambda: portal.api("GET", f"/sessions/{session}")["state"] == "ended")
        done["sessions"] += len(live)

    def held():
        """When nothing is under way: MB of its own (the program's pages are the kernel's to keep), open files, threads."""
        # Connections to apps are kept for a minute.
        time.sleep(75)
        proc = pathlib.Path(f"/proc/{portal.process.pid}")
        return portal.memory("RssAnon"), len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir()))

    for _ in range(2):
        everything()
    before = held()
    done.update(dict.fromkeys(done, 0))
    began, on_the_way = time.monotonic(), []
    while time.monotonic() - began < options.minutes * 60:
        everything()
        # Growth that goes on is told from a level that is reached by what lies between.
        if len(on_the_way) < 6 * (time.monotonic() - began) / (options.minutes * 60):
            on_the_way.append(portal.memory("RssAnon"))
    minutes = (time.monotonic() - began) / 60
    after = held()
    told = [f"{memory:.1f} MB, {files} files, {threads} threads" for memory, files, threads in (before, after)]
    work = ", ".join(f"{count:,} {what}" for what, count in done.items())
    way = ", ".join(f"{memory:.1f}" for memory in on_the_way)
    yield result(f"soak, {minutes:.0f} min: {work}", told[1], f"before {told[0]}; on the way {way} MB",
                 f"{after[0] - before[0]:+.1f} MB")
