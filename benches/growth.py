"""How the portal grows: every list and every page at three sizes of its history, and its loop while thousands wait. Rows are
copies of ones that the portal made itself, in its own database, which is SQLite or, with --postgres, PostgreSQL; what is large
or slow, or grows faster than the history, is printed."""

import json
import os
import pathlib
import re
import sqlite3
import statistics
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from life import PAGES
from rows import result, row
from stand import until

# Bars of one answer: milliseconds, kilobytes, and how much longer it may take of ten times the history.
SLOW, LARGE, FASTER = 50, 100, 15
ROUTES = pathlib.Path(__file__).resolve().parent.parent / "src/web"
# Streams that never end, what is about files, and the page that signs in.
NOT_ASKED = ("/events", "/log", "/download", "/content", "/dataset-example", "/login", "/static/", "/favicon.ico", "/files/item")
# What a page or list asks for besides its path.
QUERIES = {"/runs/compare": "?id={run}", "/search": "?find=77", "/api/v1/runs/metrics": "?run={run}&tag=loss"}
PEOPLE = 100


def numbered(kind, number="i"):
    """The id of a copy with this number, as an expression of SQL: each kind has its own."""
    return f"'0190000{kind}-0000-7000-8000-' || (100000000000 + {number})"


class Database:
    """A database of a server, made for one portal; SQLite where no server was named."""

    def __init__(self, server, name):
        self.server, self.name = server, f"lyceum_bench_{name.replace('-', '_')}_{os.getpid()}"
        if server:
            self.url = urllib.parse.urlparse(server)._replace(path=f"/{self.name}").geturl()
            psql(server, f"CREATE DATABASE {self.name}")

    def config(self):
        return f'[database]\nurl = "{self.url}"\n' if self.server else ""

    def drop(self):
        if self.server:
            psql(self.server, f"DROP DATABASE {self.name} WITH (FORCE)")


def psql(url, sql):
    command = ["psql", url, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", sql]
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()


class History:
    """The portal's database while it is stopped, and copies of rows in it."""

    def __init__(self, portal, database):
        portal.stop()
        self.portal, self.database = portal, database
        if database.server:
            self.execute("ALTER TABLE audit DISABLE TRIGGER USER")
        else:
            self.file = next((portal.data / "data/private").glob("*.db"))
            self.db = sqlite3.connect(self.file)

    def value(self, sql):
        """The first value of the first row."""
        if self.database.server:
            return psql(self.database.url, sql)
        return self.db.execute(sql).fetchone()[0]

    def execute(self, sql):
        if self.database.server:
            psql(self.database.url, sql)
        else:
            self.db.execute(sql)

    def columns(self, table):
        if self.database.server:
            found = self.value(f"SELECT string_agg(column_name, ',') FROM information_schema.columns "
                               f"WHERE table_name = '{table}' AND table_schema = 'public'")
            return found.split(",")
        return [line[1] for line in self.db.execute(f"PRAGMA table_info({table})")]

    def copy(self, table, which, count, **changes):
        """Copies the rows that `which` describes so many times. Columns that are named get what their expression says, in
        which `i` counts from 1."""
        columns = self.columns(table)
        unknown = set(changes) - set(columns)
        if unknown:
            raise RuntimeError(f"{table} has no column {unknown}")
        values = ", ".join(str(changes.get(column, f"model.{column}")) for column in columns)
        self.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) WITH RECURSIVE n (i) AS "
            f"(SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
            f"SELECT {values} FROM {table} AS model, n WHERE {which}")

    def close(self):
        if self.database.server:
            self.execute("ALTER TABLE audit ENABLE TRIGGER USER")
            self.execute("VACUUM ANALYZE")
        else:
            self.db.commit()
            self.db.close()
            if os.geteuid() == 0:
                for one in self.file.parent.iterdir():
                    os.chown(one, self.portal.account.pw_uid, self.portal.account.pw_gid)
        self.portal.start()


def ended(portal, path, body):
    """Asks for something and waits for its end; its id."""
    made = portal.api("POST", path, body)["id"]
    until("it has ended", lambda: portal.api("GET", f"{path}/{made}")["state"] == "ended", 0.1)
    return made


def people(history, count):
    """Makes so many people; the administrator's id."""
    admin = history.value("SELECT id FROM users ORDER BY created_at LIMIT 1")
    history.copy("users", f"id = '{admin}'", count, id=numbered(1), subject="'user' || (i - 1)",
                 name="'user' || (i - 1)", role="'user'")
    return admin


def seed(portal, database, size):
    """So many people, ended sessions and ended jobs, half of the jobs the asking person's, ten times as many audit rows, and
    a tenth of runs; a hundredth of tokens and two hundredths of groups, all of them the asking person's. Answers the ids that
    addresses name."""
    small = {"gpus": 0, "cpus": 1, "memory_bytes": 1 << 30}
    job = ended(portal, "/jobs", {"name": "true", "command": ["true"], "resources": small, "time_limit_seconds": 3600})
    session = portal.session("terminal")
    portal.stop_sessions()
    run = portal.api("POST", "/runs", {"directory": portal.account.pw_dir})["id"]
    group = portal.api("POST", "/groups", {"name": "lab"})["name"]
    sweep = portal.api("POST", "/sweeps", {"job": {"command": ["true"], "resources": small, "time_limit_seconds": 3600},
                                           "array": "0-9"})["id"]
    until("the sweep has ended", lambda: portal.api("GET", f"/sweeps/{sweep}")["state"] == "ended", 0.1)
    news = portal.api("POST", "/announcements", {"text": "A new scratch is there."})["id"]
    history = History(portal, database)
    mine = people(history, size)
    now = int(time.time() * 1000)
    other = numbered(1, f"(1 + (i - 1) % {size})")
    owner = f"CASE WHEN i % 2 = 0 THEN '{mine}' ELSE {other} END"
    attempt = f"(SELECT session_id FROM jobs WHERE id = '{job}')"
    # A year of history: all that is there at once would be read as what ended just now. Ids grow with time, as the portal's do.
    ago = f"({size} - i) * {365 * 86_400_000 // size}"
    moments = ("created_at", "admitted_at", "started_at", "ready_at", "expires_at", "stopping_at", "ended_at", "last_activity_at")
    moments = {moment: f"model.{moment} - {ago}" for moment in moments}
    history.copy("sessions", f"id = '{session}'", size, id=numbered(2), owner=other, **moments)
    history.copy("sessions", f"id = {attempt}", size, id=numbered(3), owner=owner, job_id=numbered(4), **moments)
    history.copy("jobs", f"id = '{job}'", size, id=numbered(4), owner=owner, session_id=numbered(3),
                 created_at=f"model.created_at - {ago}")
    history.copy("session_events", f"session_id = '{session}'", size, session_id=numbered(2))
    end = f"{now} - {ago}"
    history.copy("intervals", f"session_id = '{session}'", size, session_id=numbered(2), owner=other,
                 number="1000000 + i", started_at=f"{end} - 3600000", ended_at=end)
    first = int(history.value("SELECT MAX(number) FROM audit"))
    history.copy("audit", f"number = {first}", 10 * size, number=f"{first} + i", at="at + i", actor=f"'user' || (i % {size})",
                 subject="'subject' || i")
    history.copy("sweeps", f"id = '{sweep}'", size // 10, id=numbered(8), owner=owner)
    history.copy("notification_events", f"session_id = {attempt}", size, session_id=numbered(3), user_id=owner, seen_at=now)
    history.copy("runs", f"id = '{run}'", size // 10, id=numbered(5), owner=other, look_at=now + 10 * 86_400_000)
    # The curves of old jobs were read long ago. The portal would otherwise begin to read all of them while it is measured.
    history.copy("runs", f"id = '{run}'", size, id=numbered(9), owner=owner, session_id=numbered(3), job_id=numbered(4),
                 name="''", complete="TRUE", look_at=0)
    token = history.value(f"SELECT id FROM tokens WHERE user_id = '{mine}' LIMIT 1")
    history.copy("tokens", f"id = '{token}'", size // 100, id=numbered(6), secret_hash="'hash' || i")
    history.copy("groups", f"name = '{group}'", size // 200, id=numbered(7), subject="'lab' || i", name="'lab' || i")
    history.execute(f"INSERT INTO group_members (group_id, user_id) SELECT id, '{mine}' FROM groups")
    history.close()
    return {"jobs": job, "sessions": session, "runs": run, "sweeps": sweep, "announcements": news, "groups": group,
            "users": "user7"}


def complete(path, ids):
    """A path with the ids of what was seeded, after the word before them; None where there is no such thing."""
    def known(found):
        return f"/{found[1]}/{ids[found[1]]}" if found[1] in ids else found[0]
    path = re.sub(r"/(\w+)/\{\w+\}", known, path)
    return None if "{" in path else path + QUERIES.get(path, "").replace("{run}", ids["runs"])


def addresses(portal, ids):
    """Returns every GET of the API and every page whose ids are known, by name; then those whose ids are not."""
    document = json.loads(urllib.request.urlopen(portal.url + "/api/v1/openapi.json").read())
    # Some features name the routes of their pages themselves.
    sources = "".join(path.read_text() for path in sorted(ROUTES.rglob("*.rs")))
    pages = re.findall(r'\.get\("(/[^"]*)"', sources)
    asked = {page: page for page in pages if not page.startswith("/api/")}
    asked |= {f"GET {path}": path for path, operations in document["paths"].items() if "get" in operations}
    asked = {what: path for what, path in asked.items() if not any(part in path for part in NOT_ASKED)}
    found = {what: complete(path, ids) for what, path in asked.items()}
    left_out = [what for what, path in found.items() if path is None]
    found = PAGES | {what: path for what, path in found.items() if path}
    found["an administrator"] = "/admin/users/admin"
    found["quotas by hours"] = "/admin/quotas?sort=hours"
    for query in ("/jobs?owner=*", "/jobs?state=running", "/jobs?tag=none", "/jobs?group=lab", "/sessions?owner=*&app=jupyter",
                  "/runs?owner=*", "/audit?actor=zzz", "/audit?actor=user", "/audit?subject=subject77", "/users?role=operator",
                  "/users?find=zzz", "/users?state=disabled", "/users/admin", "/jobs?search=zzz", "/jobs?owner=*&search=zzz",
                  "/quotas/users?find=zzz", "/quotas/users?sort=hours", "/quotas/users?sort=seen", "/sweeps?owner=*"):
        found[f"GET {query}"] = f"/api/v1{query}"
    return found, left_out


def ask(portal, path):
    """Milliseconds (the least of three), kilobytes and status of an answer."""
    took, size, status = [], 0, 0
    for _ in range(3):
        request = urllib.request.Request(portal.url + path, headers={"Authorization": f"Bearer {portal.token}"})
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                size, status = len(answer.read()), answer.status
        except urllib.error.HTTPError as error:
            size, status = len(error.read()), error.code
        took.append((time.monotonic() - began) * 1000)
    return min(took), size / 1000, status


@row("growth")
def growth(stand, options):
    """What is over 50 ms or 100 kB with the largest history, or grows faster than it."""
    found, left_out = {}, []
    for size in options.sizes:
        database = Database(options.postgres, f"growth-{size}")
        try:
            portal = stand.portal(name=f"growth-{size}", config=database.config())
            ids = seed(portal, database, size)
            asked, left_out = addresses(portal, ids)
            for what, path in asked.items():
                found.setdefault(what, []).append(ask(portal, path))
            yield result(f"memory with {size}", f"{portal.memory():.0f} MB", "", "")
            portal.stop()
        finally:
            database.drop()
    for what, of_sizes in sorted(found.items(), key=lambda one: -one[1][-1][0]):
        times, sizes = [one[0] for one in of_sizes], [one[1] for one in of_sizes]
        grows = 1 < len(times) and SLOW < times[-1] and FASTER * times[-2] < times[-1]
        faults = [word for word, is_so in (
            ("slow", SLOW < times[-1]), ("large", LARGE < sizes[-1]), ("grows faster", grows),
            (f"status {of_sizes[-1][2]}", of_sizes[-1][2] != 200)) if is_so]
        if faults:
            figure = " / ".join(f"{one:.0f}" for one in times)
            yield result(what, f"{figure} ms, {sizes[-1]:.0f} kB", ", ".join(faults), "")
    yield result("addresses asked", str(len(found)), f"left out: {', '.join(left_out)}", "")


def with_waiting(stand, database, waiting):
    """A portal with eight GPUs that eight sessions hold, while so many jobs of a hundred people wait for two each."""
    portal = stand.portal(name=f"waiting-{waiting}", gpus=8, config=database.config())
    held = [portal.session("terminal", resources={"gpus": 1, "cpus": 1, "memory_bytes": 1 << 30}) for _ in range(8)]
    if waiting:
        body = {"name": "waits", "command": ["true"], "time_limit_seconds": 3600,
                "resources": {"gpus": 2, "cpus": 1, "memory_bytes": 1 << 30}}
        job = portal.api("POST", "/jobs", body)["id"]
        history = History(portal, database)
        people(history, PEOPLE)
        owner = numbered(1, f"(1 + (i - 1) % {PEOPLE})")
        attempt = f"(SELECT session_id FROM jobs WHERE id = '{job}')"
        history.copy("sessions", f"id = {attempt}", waiting, id=numbered(3), owner=owner, job_id=numbered(4))
        history.copy("jobs", f"id = '{job}'", waiting, id=numbered(4), owner=owner, session_id=numbered(3))
        history.close()
        until("its first rounds are over", lambda: portal.api("GET", f"/sessions/{held[0]}")["state"] == "running", 0.1)
    return portal, held


@row("waiting")
def waiting(stand, options):
    """A start without GPUs right after one holder has ended, and a stop right after the queue was paused."""
    for count in options.waiting:
        database = Database(options.postgres, f"waiting-{count}")
        portal, held = with_waiting(stand, database, count)
        started, stopped, cpu = [], [], portal.cpu()
        for session in held[:3]:
            portal.api("DELETE", f"/sessions/{session}")
            until("it has ended", lambda: portal.api("GET", f"/sessions/{session}")["state"] == "ended", 0.002)
            began = time.monotonic()
            portal.session("terminal")
            started.append(time.monotonic() - began)
        cpu = portal.cpu() - cpu
        portal.api("POST", "/jobs/queue/pause", {"everybody": True, "note": "for a while"})
        for session in held[3:6]:
            began = time.monotonic()
            portal.api("DELETE", f"/sessions/{session}")
            until("it has ended", lambda: portal.api("GET", f"/sessions/{session}")["state"] == "ended", 0.002)
            stopped.append(time.monotonic() - began)
        yield result(f"{count} wait: a start behind an end · a stop behind a pause",
                     f"{statistics.median(started):.2f} · {statistics.median(stopped):.2f} s",
                     "bar: +1 s", f"{cpu:.1f} s CPU of the starts")
        stand.stop()
        database.drop()
