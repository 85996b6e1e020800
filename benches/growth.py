"""How the portal grows: every list and every page at three sizes of its history, and its loop while thousands wait. Rows are
copies of ones that the portal made itself, in its own database; what is large or slow, or grows faster than the history, is printed."""

import json
import os
import sqlite3
import statistics
import time
import urllib.error
import urllib.request

from life import PAGES, new_id
from rows import result, row
from stand import until

SIZES = (1_000, 10_000, 100_000)
# Bars of one answer: milliseconds, kilobytes, and how much longer it may take of ten times the history.
SLOW, LARGE, FASTER = 50, 100, 15
WAITING = (0, 250, 1_000, 2_000)
PEOPLE = 100


class History:
    """The portal's database while it is stopped, and copies of rows in it."""

    def __init__(self, portal):
        portal.stop()
        self.portal = portal
        self.file = next((portal.data / "data/private").glob("*.db"))
        self.db = sqlite3.connect(self.file)
        self.db.row_factory = sqlite3.Row

    def one(self, text, *values):
        return dict(self.db.execute(text, values).fetchone())

    def copy(self, table, model, changes):
        names = list(model)
        text = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        self.db.executemany(text, ([{**model, **change}[name] for name in names] for change in changes))

    def close(self):
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
    admin = history.one("SELECT * FROM users ORDER BY created_at LIMIT 1")
    made = [{"id": new_id(), "subject": f"user{n}", "name": f"user{n}", "role": "user"} for n in range(count)]
    history.copy("users", admin, made)
    return admin["id"], [one["id"] for one in made]


def seed(portal, size):
    """So many people, ended sessions and ended jobs, half of the jobs the asking person's, ten times as many audit rows, and
    a tenth of runs. Answers the ids that addresses name."""
    small = {"gpus": 0, "cpus": 1, "memory_bytes": 1 << 30}
    job = ended(portal, "/jobs", {"name": "true", "command": ["true"], "resources": small, "time_limit_seconds": 3600})
    session = portal.session("terminal")
    portal.stop_sessions()
    run = portal.api("POST", "/runs", {"directory": portal.account.pw_dir})["id"]
    group = portal.api("POST", "/groups", {"name": "lab"})["name"]
    history = History(portal)
    mine, others = people(history, size)
    now = int(time.time() * 1000)
    model = history.one("SELECT * FROM sessions WHERE id = ?", session)
    attempt = history.one("SELECT * FROM sessions WHERE job_id = ?", job)
    of_job = history.one("SELECT * FROM jobs WHERE id = ?", job)
    owners = [mine if n % 2 == 0 else others[n] for n in range(size)]
    sessions, attempts, jobs = ([new_id() for _ in range(size)] for _ in range(3))
    history.copy("sessions", model, ({"id": sessions[n], "owner": others[n]} for n in range(size)))
    history.copy("sessions", attempt, ({"id": attempts[n], "owner": owners[n], "job_id": jobs[n]} for n in range(size)))
    history.copy("jobs", of_job, ({"id": jobs[n], "owner": owners[n], "session_id": attempts[n]} for n in range(size)))
    for table in ("session_events", "intervals"):
        rows = history.db.execute(f"SELECT * FROM {table} WHERE session_id = ?", [session]).fetchall()
        for number, model in enumerate(map(dict, rows)):
            def change(n, table=table, number=number):
                own = {"session_id": sessions[n]}
                if table == "intervals":
                    end = now - n * (365 * 86_400_000 // size)
                    own |= {"owner": others[n], "ended_at": end, "started_at": end - 3_600_000,
                            "number": 1_000_000 * (number + 1) + n}
                return own
            history.copy(table, model, (change(n) for n in range(size)))
    model = history.one("SELECT * FROM audit ORDER BY number DESC LIMIT 1")
    first = model["number"] + 1
    history.copy("audit", model, ({"number": first + n, "at": model["at"] + n, "actor": f"user{n % size}"}
                                  for n in range(10 * size)))
    model = history.one("SELECT * FROM runs WHERE id = ?", run)
    history.copy("runs", model, ({"id": new_id(), "owner": others[n], "look_at": now + 10 * 86_400_000}
                                 for n in range(size // 10)))
    history.close()
    return {"job": job, "session": session, "run": run, "group": group}


def addresses(portal, ids):
    """Every GET of the API that these ids complete, and every page."""
    document = json.loads(urllib.request.urlopen(portal.url + "/api/v1/openapi.json").read())
    known = {"/jobs/{id}": ids["job"], "/sessions/{id}": ids["session"], "/runs/{id}": ids["run"]}
    found = dict(PAGES)
    for page in ("/jobs", "/jobs/new", "/sessions/new", "/runs", "/queue", "/settings", "/datasets", "/models",
                 "/admin/audit/table", "/admin/quotas/table", "/usage/table"):
        found[page] = page
    for path, operations in document["paths"].items():
        if "get" not in operations or path.endswith(("/events", "/log", "/download")):
            continue
        asked = path.replace("/api/v1", "", 1)
        for prefix, value in known.items():
            asked = asked.replace(prefix, prefix.replace("{id}", value), 1)
        asked = asked.replace("/users/{name}", "/users/user7").replace("/groups/{group}", f"/groups/{ids['group']}")
        if "{" not in asked:
            found[f"GET {path}"] = f"/api/v1{asked}"
    for query in ("/jobs?owner=*", "/jobs?state=running", "/sessions?owner=*&app=jupyter", "/runs?owner=*", "/audit?actor=zzz"):
        found[f"GET {query}"] = f"/api/v1{query}"
    return found


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
    found = {}
    for size in SIZES:
        portal = stand.portal(name=f"growth-{size}")
        ids = seed(portal, size)
        for what, path in addresses(portal, ids).items():
            found.setdefault(what, []).append(ask(portal, path))
        yield result(f"memory with {size}", f"{portal.memory():.0f} MB", "", "")
        portal.stop()
    for what, of_sizes in sorted(found.items(), key=lambda one: -one[1][-1][0]):
        times, sizes = [one[0] for one in of_sizes], [one[1] for one in of_sizes]
        faults = [word for word, is_so in (
            ("slow", SLOW < times[-1]), ("large", LARGE < sizes[-1]),
            ("grows faster", SLOW < times[-1] and FASTER * times[-2] < times[-1]),
            (f"status {of_sizes[-1][2]}", of_sizes[-1][2] != 200)) if is_so]
        if faults:
            figure = " / ".join(f"{one:.0f}" for one in times)
            yield result(what, f"{figure} ms, {sizes[-1]:.0f} kB", ", ".join(faults), "")
    yield result("addresses asked", str(len(found)), "", "")


def with_waiting(stand, waiting):
    """A portal with eight GPUs that eight sessions hold, while so many jobs of a hundred people wait for two each."""
    portal = stand.portal(name=f"waiting-{waiting}", gpus=8)
    held = [portal.session("terminal", resources={"gpus": 1, "cpus": 1, "memory_bytes": 1 << 30}) for _ in range(8)]
    if waiting:
        body = {"name": "waits", "command": ["true"], "time_limit_seconds": 3600,
                "resources": {"gpus": 2, "cpus": 1, "memory_bytes": 1 << 30}}
        job = portal.api("POST", "/jobs", body)["id"]
        history = History(portal)
        _, others = people(history, PEOPLE)
        attempt = history.one("SELECT * FROM sessions WHERE job_id = ?", job)
        of_job = history.one("SELECT * FROM jobs WHERE id = ?", job)
        attempts, jobs = ([new_id() for _ in range(waiting)] for _ in range(2))
        owner = [others[n % PEOPLE] for n in range(waiting)]
        history.copy("sessions", attempt, ({"id": attempts[n], "owner": owner[n], "job_id": jobs[n]} for n in range(waiting)))
        history.copy("jobs", of_job, ({"id": jobs[n], "owner": owner[n], "session_id": attempts[n]} for n in range(waiting)))
        history.close()
        until("its first rounds are over", lambda: portal.api("GET", f"/sessions/{held[0]}")["state"] == "running", 0.1)
    return portal, held


@row("waiting")
def waiting(stand, options):
    """A start without GPUs right after one holder has ended, and a stop right after the queue was paused."""
    for count in WAITING:
        portal, held = with_waiting(stand, count)
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
