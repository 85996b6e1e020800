"""Drives a real portal with the Python package `lyceum`, installed from its wheel alone: a job from its submission to
its results, its log, files in both directions, and what is wrong with a request or the connection."""

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lyceum

SCRIPT = """#!/bin/sh
mkdir -p "$LYCEUM_LOG_DIRECTORY"
for step in 1 2 3; do echo "{\\"step\\": $step, \\"val/loss\\": 0.$step}"; done > "$LYCEUM_LOG_DIRECTORY/metrics.jsonl"
echo "seed $SEED"
printf 'no end of line'
exit 3
"""


def job():
    submitted = lyceum.submit(script=SCRIPT, name="package", gpus=0, cpus=1, memory="256MiB", variables={"SEED": "7"})
    assert submitted.name == "package" and submitted.resources.memory_bytes == 256 << 20, submitted
    log = "".join(lyceum.follow(submitted))
    assert log.endswith("seed 7\nno end of line"), repr(log)
    ended = lyceum.wait(submitted, timeout=60)
    assert (ended.exit_code, str(ended.outcome)) == (3, "failed"), ended
    assert lyceum.wait(str(submitted.id), timeout=1).id == submitted.id, "what has ended is not waited for"
    points = lyceum.results(ended)
    assert list(points) == ["val/loss"], points
    assert [point.step for point in points["val/loss"]] == [1, 2, 3]
    assert math.isclose(points["val/loss"][-1].value, 0.3), points

    slow = lyceum.submit(["sleep", "600"], cpus=1, memory="64MiB")
    try:
        lyceum.wait(slow, timeout=1)
    except TimeoutError:
        pass
    else:
        raise AssertionError("it waited longer than its timeout")
    lyceum.cancel(slow)
    assert lyceum.wait(slow, timeout=60).outcome == "cancelled"


def files(folder, work):
    lyceum.files.make_folder(folder)
    source = work / "source.bin"
    source.write_bytes(os.urandom(9 * 2**20))
    entry = lyceum.files.upload(source, f"{folder}/data.bin")
    assert entry.size_bytes == source.stat().st_size, entry
    assert [entry.name for entry in lyceum.files.list(folder)] == ["data.bin"]
    copy = lyceum.files.download(f"{folder}/data.bin", work / "copy.bin")
    assert copy.read_bytes() == source.read_bytes()
    assert lyceum.files.upload(os.devnull, f"{folder}/empty").size_bytes == 0
    try:
        lyceum.files.download(f"{folder}/missing", work / "copy.bin")
    except lyceum.PortalError as error:
        assert error.status == 404, error
    assert copy.read_bytes() == source.read_bytes() and sorted(os.listdir(work)) == ["copy.bin", "source.bin"]
    lyceum.files.delete(folder, recursive=True)


def faults(url, token, work):
    try:
        lyceum.submit([], cpus=0)
    except lyceum.PortalError as error:
        assert error.status == 422 and error.fields, error
    else:
        raise AssertionError("a job without a command was submitted")
    for made, status in ((lambda: lyceum.Portal(url, "lyc_wrong"), 401), (lambda: lyceum.Portal(url + "/x", token), 404)):
        try:
            list(made().files.list())
        except lyceum.PortalError as error:
            assert error.status == status, error
        else:
            raise AssertionError("a wrong connection was accepted")
    # The contexts of the command line, in a process of its own because the variables win over them.
    config = work / "lyceum"
    config.mkdir()
    contexts = config / "contexts.toml"
    contexts.write_text(f'current = "lab"\n[contexts.lab]\nurl = "{url}/api/v1"\ntoken = "{token}"\n')
    contexts.chmod(0o600)
    program = "import lyceum; print(len(list(lyceum.files.list())) >= 0)"
    known = {"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(work)}
    assert subprocess.check_output([sys.executable, "-c", program], env=known, text=True) == "True\n"
    for change in (lambda: contexts.chmod(0o644), contexts.unlink):
        change()
        failed = subprocess.run([sys.executable, "-c", program], env=known, text=True, capture_output=True)
        assert failed.returncode == 1 and "NotConfigured" in failed.stderr, failed.stderr


def main(folder):
    with tempfile.TemporaryDirectory() as work:
        job()
        files(folder, Path(work))
    with tempfile.TemporaryDirectory() as work:
        faults(os.environ["LYCEUM_URL"], os.environ["LYCEUM_TOKEN"], Path(work))
    print("the package drove a job to its end")


if __name__ == "__main__":
    main(*sys.argv[1:])
