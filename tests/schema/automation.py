"""Runs each row of the tables in docs/automation.md on a real portal, with the real program, and counts the commands
that were started. A row fails if its number in the table is another one, if its exit status is another one, or if its
effect is missing. The commands are those of the page: a row here only prepares what they need and looks at the effect.
"""

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from shell import SMALL, Container, Relay, Site

PAGE = Path(__file__).parents[2] / "docs/automation.md"
UPLOAD_BYTES = 24 << 20
TRAIN = """#!/bin/sh
for step in 1 2 3; do
  echo "{\\"step\\": $step, \\"val/loss\\": 0.$step$lr}"
done > "$LYCEUM_LOG_DIRECTORY/metrics.jsonl"
"""

ROWS = {}


def row(task):
    """Registers what walks the row of this task."""

    def register(walk):
        assert task not in ROWS, task
        ROWS[task] = walk
        return walk

    return register


# Administrators


@row("Thirty students, their group, limits and an end")
def thirty_students(site):
    names = [f"student{number:02}" for number in range(1, 31)]
    users = [{"name": name, "expires_at": "2099-02-01T00:00:00Z"} for name in names]
    each = {"gpus": {"value": 1, "expires_at": "2099-02-01T00:00:00Z"}, "jobs": 4}
    group = {"name": "course", "members": names, "each": each, "total": {"gpus": 8}, "chargeable": True}
    site.write("course.yaml", json.dumps({"users": users, "groups": [group]}))
    said = site.run()
    assert said.count("/welcome#") == 30, said
    assert [user["name"] for user in site.ask("/users?find=student&limit=100")["items"]] == names
    quota = site.ask("/quotas/users/student30")["effective"]
    assert quota["gpus"]["limit"] == 1, quota


@row("The same file again: no change")
def again(site):
    before = site.last_audit()
    assert site.run() == "No change.\n"
    assert site.last_audit() == before, "a second run writes nothing"


@row("What a file would change")
def difference(site):
    site.write("course.yaml", site.read("course.yaml").replace('"gpus": 8', '"gpus": 12'))
    before = site.last_audit()
    assert re.search(r"quota of group course: .*gpus=12", site.run())
    assert site.last_audit() == before


@row("The current site as a file")
def export(site):
    site.run()
    assert site.lyceum("apply", "-f", "site.yaml") == "No change.\n"


@row("Four GPUs for a user until a date")
def more_gpus(site):
    site.run()
    gpus = site.ask("/quotas/users/student01")["effective"]["gpus"]
    assert gpus["limit"] == 4 and "2099-12-31" in json.dumps(site.ask("/quotas/users/student01")), gpus


@row("Four GPUs for a user until a date, from any machine")
def more_gpus_by_api(site):
    site.run()
    assert site.ask("/quotas/users/student02")["effective"]["gpus"]["limit"] == 4


@row("Announce and schedule a maintenance")
def maintenance(site):
    site.run()
    assert "2099-01-31T18:00:00Z" in json.dumps(site.ask("/maintenance"))
    assert [entry["text"] for entry in site.ask("/announcements")["items"]] == ["New disks on 31 January"]
    site.lyceum("admin", "maintenance", "off")


@row("Stop everything of a group")
def stop_group(site):
    student = site.token_of("student03")
    session = site.ask("/sessions", {"app": "terminal", "resources": SMALL}, token=student)
    job = site.sleeper(token=student)
    site.ask("/sweeps", {"job": {"command": ["sleep", "600"], "resources": SMALL}, "array": "0-2"}, token=student)
    site.run()
    site.until(lambda: not site.live(student))
    assert site.ask(f"/sessions/{session['id']}", token=student)["end_reason"] == "stopped_by_admin"
    assert site.ask(f"/jobs/{job}", token=student)["end_reason"] == "stopped_by_admin"


@row("Cancel another user's job by the id that a list prints")
def other_users_job(site):
    job = site.sleeper(token=site.user)
    listed = site.lyceum("job", "list", "--owner", "*").split("\n")[1].split()[0]
    assert job.endswith(listed) and len(listed) == 8, listed
    site.run(JOB=listed)
    site.until(lambda: site.ask(f"/jobs/{job}")["state"] == "ended")


@row("Usage of each group by month, as CSV")
def usage(site):
    student = site.token_of("student04")
    request = {"command": ["sleep", "1"], "resources": SMALL, "group": "course"}
    job = site.ask("/jobs", request, token=student)["id"]
    site.until(lambda: site.ask(f"/jobs/{job}")["state"] == "ended")
    rows = list(csv.DictReader(io.StringIO(site.run())))
    charged = [entry for entry in rows if entry["group"] == "course" and int(entry["cpu_seconds"]) > 0]
    assert len(charged) == 1 and re.fullmatch(r"\d{4}-\d\d", charged[0]["month"]), rows


@row("Create a service account and its token")
def service_account(site):
    token = site.run().strip().split("\n")[-1]
    assert site.ask("/me", token=token)["name"] == "ci"
    site.fails(403, "/files", token=token)


@row("Rotate a token")
def rotate(site):
    old = site.lyceum("token", "create", "nightly").strip()
    new = site.run().strip()
    site.fails(401, "/me", token=old)
    assert site.ask("/me", token=new)["name"] == "chief"


@row("The audit log from a number on, as JSON lines")
def audit(site):
    site.run()
    numbers = [json.loads(line)["number"] for line in site.read("audit.jsonl").splitlines()]
    assert numbers == list(range(20, site.last_audit() + 1)), numbers


@row("Every job that ends, as JSON lines")
def events(site):
    job = site.ended(site.submit("exit 7"))
    site.run()
    events = [json.loads(line) for line in site.read("ended.jsonl").splitlines()]
    assert {event["type"] for event in events} == {"job.ended"}
    ended = [event for event in events if event["job"] == job]
    assert [event["exit_code"] for event in ended] == [7], ended


@row("Call an address for each job that ends")
def webhook(site):
    site.run()
    (hook,) = site.ask("/webhooks")["items"]
    assert (hook["url"], hook["types"], hook["active"]) == ("https://hooks.example.org/x", ["job.ended"], True)


@row("Close an account and stop its work")
def offboard(site):
    student = site.token_of("student05")
    session = site.ask("/sessions", {"app": "terminal", "resources": SMALL}, token=student)["id"]
    job = site.sleeper(token=student)
    site.run()
    site.until(lambda: site.ask("/users/student05")["state"] == "expired")
    site.until(lambda: site.ask(f"/sessions/{session}")["state"] == site.ask(f"/jobs/{job}")["state"] == "ended")
    site.fails(401, "/me", token=student)


@row("Offboard a user, and give what they made to another")
def handed_over(site):
    student = site.token_of("student06")
    job = site.sleeper(token=student)
    site.run()
    site.fails(401, "/me", token=student)
    contents = site.ask("/users/student06/contents")
    assert (contents["state"], contents["groups"], contents["jobs"]) == ("disabled", [], 0), contents
    assert site.ask(f"/jobs/{job}")["owner"] == "student07"


@row("Back up")
def backup(site):
    site.run()


@row("Restore into the data directory of a stopped portal")
def restore(site):
    site.shell("mkdir -p restored && mkdir -m 700 restored/private", {})
    site.run()
    assert "student30" in site.lyceum("admin", "user", "list", "--data", "restored")


@row("Is the portal ready?")
def ready(site):
    assert site.run().startswith("ready\n")


@row("Metrics for Prometheus")
def metrics(site):
    assert "\nlyceum_queue_length" in site.run()


@row("Check the installation, as JSON")
def check(site):
    report = json.loads(site.run())
    assert report["faults"] == 0 and report["findings"], report


# Data scientists


@row("Submit a job and wait for it: exit status 7 of the program")
@row("Submit a job and wait for it: exit status 137 after SIGKILL")
def submit(site):
    site.run()


@row("Wait for at most a second: exit status 124")
def timeout(site):
    site.run()
    assert site.live(site.user) == ["slow"], "what was started goes on"
    site.lyceum("job", "cancel", "slow", token=site.user)


@row("Wait for an earlier job and print its log: exit status 7 of the program")
def wait(site):
    job = site.submit("echo begin; sleep 1; echo end; exit 7")
    assert site.run(JOB=job[-8:]) == "begin\nend\n"


@row("Follow a log whose lines are all the same")
def follow(site):
    job = site.submit("for part in 1 2 3 4; do yes 'loss: nan' | head -n 600; sleep 0.4; done")
    site.run(JOB=job[-8:])
    assert site.read("log.txt") == "loss: nan\n" * 2400


@row("All 60 000 lines of a log")
def whole_log(site):
    job = site.ended(site.submit("seq 60000"))
    site.run(JOB=job[-8:])
    assert site.read("log.txt").split() == [str(number) for number in range(1, 60001)]


@row("Copy the artifacts of a job")
def artifacts(site):
    job = site.ended(site.submit('mkdir "$LYCEUM_LOG_DIRECTORY/x"; echo weights > "$LYCEUM_LOG_DIRECTORY/x/model.pt"'))
    site.run(JOB=job[-8:])
    assert site.read("results/x/model.pt") == "weights\n"


@row("Submit a sweep of 12 jobs and wait for it")
def sweep(site):
    site.write("train.sh", TRAIN)
    site.run()
    (made,) = site.ask("/sweeps", token=site.user)["items"]
    assert (made["name"], made["tasks"], made["state"]) == ("lr", 12, "ended"), made


@row("Submit a sweep, and wait for it by its id")
def sweep_by_id(site):
    said = site.run()
    assert "ended: 3 of 3 tasks submitted" in said, said


@row("The best task of a sweep")
def best(site):
    made = next(made for made in site.ask("/sweeps", token=site.user)["items"] if made["name"] == "lr")
    site.until(lambda: site.ask(f"/sweeps/{made['id']}", token=site.user).get("best"))
    assert "best val/loss: 0.11 by task 0\n" in site.run()


@row("The artifacts of the best task of a sweep")
def best_artifacts(site):
    site.run()
    assert json.loads(site.read("best/metrics.jsonl").split("\n")[0])["val/loss"] == 0.11


@row("Compare runs with a filter, as CSV")
def compare(site):
    # The sweep has four learning rates, each three times.
    rows = list(csv.DictReader(io.StringIO(site.run())))
    values = [float(entry["val/loss"]) for entry in rows]
    assert values == sorted(values) and len(values) == 6 and values[-1] < 0.13, rows
    assert all(float(entry["lr"]) > 0 for entry in rows), "the sweep's parameter is a column"


@row("Wait for a sweep in which a task fails: exit status 1")
def failed_sweep(site):
    command = ["sh", "-c", 'test "$LYCEUM_ARRAY_INDEX" != 1']
    made = site.ask("/sweeps", {"job": {"command": command, "resources": SMALL}, "array": "0-2"}, token=site.user)
    site.run(SWEEP=made["id"][-8:])


@row("Cancel all jobs with a tag")
def cancel_tag(site):
    jobs = [site.sleeper(token=site.user, tags=["paper"]) for _ in range(2)]
    other = site.sleeper(token=site.user)
    site.run()
    site.until(lambda: all(site.ask(f"/jobs/{job}")["state"] == "ended" for job in jobs))
    assert site.ask(f"/jobs/{other}")["state"] != "ended"
    site.lyceum("job", "cancel", other, token=site.user)


@row("Cancel several jobs of which one does not exist: exit status 1")
def cancel_several(site):
    jobs = [site.sleeper(token=site.user) for _ in range(2)]
    site.run(FIRST=jobs[0][-8:], LAST=jobs[1][-8:])
    site.until(lambda: all(site.ask(f"/jobs/{job}")["state"] == "ended" for job in jobs))


@row("Upload a file through a connection that breaks")
def upload(site):
    content = os.urandom(1 << 20) * (UPLOAD_BYTES >> 20)
    site.write("data.bin", content)
    site.ask("/files/folders", {"path": site.folder}, token=site.user)
    with Relay(site.url, [UPLOAD_BYTES * 3 // 10, UPLOAD_BYTES * 8 // 10]) as relay:
        site.run(LYCEUM_URL=relay.url, FOLDER=site.folder)
    assert relay.cuts == [] and relay.sent < UPLOAD_BYTES * 3 // 2, f"it began anew: {relay.sent} bytes"
    answer = site.raw(f"/files/content?path={site.folder}/data.bin", token=site.user)
    assert hashlib.sha256(answer).digest() == hashlib.sha256(content).digest()


@row("Download a folder")
def download(site):
    site.run(FOLDER=site.folder)
    assert (site.place / "copy/data.bin").stat().st_size == UPLOAD_BYTES
    assert site.call("DELETE", f"/files?path={site.folder}&recursive=true", token=site.user)[0] == 204


@row("Rejected, such as above a limit: exit status 65")
@row("Not found: exit status 66")
@row("The portal cannot be reached: exit status 69")
@row("Not allowed: exit status 77")
def refused(site):
    site.run()


@row("Sign in on a machine")
def sign_in(site):
    site.write("token.txt", site.lyceum("token", "create", "laptop", token=site.user))
    site.run(LYCEUM_TOKEN=None)
    assert (site.place / ".config/lyceum/contexts.toml").stat().st_mode & 0o077 == 0


@row("Ask one of several portals")
def context(site):
    assert json.loads(site.run(LYCEUM_TOKEN=None, LYCEUM_URL=None))["name"] == "somebody"


@row("A program rotates its own token")
def rotate_own(site):
    old = site.lyceum("token", "create", "program", "--scope", "token:rotate", token=site.user).strip()
    new = site.run(LYCEUM_TOKEN=old).strip()
    site.fails(401, "/me", token=old)
    assert site.ask("/me", token=new)["name"] == "somebody"


@row("Any request to the API, as CSV")
def api(site):
    rows = list(csv.DictReader(io.StringIO(site.run())))
    assert len(rows) > 12 and {entry["state"] for entry in rows} == {"ended"}, rows


@row("Completions of a shell")
def completions(site):
    site.run()
    subprocess.run(["bash", "-n", site.place / "lyceum.bash"], check=True)


@row("Manual pages")
def manual(site):
    site.run()
    assert (site.place / "man1/lyceum-job-submit.1").read_text().startswith(".")


@row("A CI job in a container that has the wheel alone: exit status 7 of the program")
def container(site):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    site.write("ci.py", program)
    site.write("train.sh", "#!/bin/sh\necho from a container\nexit 7\n")
    assert site.run(runner=Container(site)).endswith("from a container\n")


@dataclass
class Line:
    """A row of the page."""

    task: str
    commands: list[str]
    number: int
    is_admin: bool

    @property
    def status(self):
        """The exit status of the last command, which the task names if it is not 0."""
        named = re.search(r"exit status (\d+)", self.task)
        return int(named[1]) if named else 0


def read_page():
    """Returns the rows of both tables by their tasks."""
    lines = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        if not part.startswith(("Administrators", "Data scientists")):
            continue
        rows = [line for line in part.split("\n") if line.startswith("| ")]
        for line in rows[1:]:
            task, commands, number = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:4])
            commands = [text.replace("\\|", "|") for text in re.findall(r"`([^`]+)`", commands)]
            assert 0 < len(commands) <= int(number), f"{task}: the page shows more commands than it counts"
            lines[task] = Line(task, commands, int(number), part.startswith("Administrators"))
    return lines


def main(url, chief, user, work, account):
    lines = read_page()
    assert set(lines) == set(ROWS), f"on the page alone or in this file alone: {set(lines) ^ set(ROWS)}"
    site, failed, begin = Site(url, chief, user, work, account), 0, time.monotonic()
    for task, line in lines.items():
        site.line = line
        try:
            ROWS[task](site)
        except Exception as error:
            failed += 1
            print(f"FAILED: {task}: {type(error).__name__}: {error}", file=sys.stderr)
    # Sessions and jobs outlive a portal.
    site.lyceum("session", "stop", "--owner", "*")
    site.lyceum("job", "cancel", "--owner", "*")
    site.until(lambda: not site.live(chief, "&owner=*"))
    assert failed == 0, f"{failed} of {len(lines)} rows failed"
    print(f"{len(lines)} rows of docs/automation.md, as many commands as it says, in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
