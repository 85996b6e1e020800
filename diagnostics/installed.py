"""`python -m diagnostics.installed --report before.json --output installed.json`: the tests that the node has installed.

Runs NVIDIA's `dcgmi diag`, `nvbandwidth` and nccl-tests' `all_reduce_perf` on the GPUs of this job, one after the other
and each within its time. What they print stays beside the document. A program that is missing, fails or prints what its
parser does not understand was not tested. The process has no JAX: a program must have the memory of the GPUs to itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import VERSION, dcgm, nccl, nvbandwidth
from .report import INSTALLED, PARTS, not_tested, say, write

# Where programs are, beside `PATH`.
FOLDERS = ("/usr/bin", "/usr/local/bin")
# In seconds. The job has more (`crates/services/src/diagnostics`).
LIMITS = {"dcgm": 2400, "nvbandwidth": 600, "nccl_tests": 600}
# How long a program may clean up after SIGINT; `dcgmi` asks its engine to stop the tests.
GRACE_SECONDS = 20
# More of an output is not read (bytes).
MAX_OUTPUT = 4 << 20


class NotTested(Exception):
    """Why a program tested nothing."""


class NotUnderstood(NotTested):
    """What a program printed instead of a result."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this job, as the driver names it. Empty where it is not known."""

    uuid: str = ""
    pci: str = ""


@dataclass(frozen=True)
class Done:
    """A program that ended by itself."""

    output: str
    status: int
    last_line: str


@dataclass
class Node:
    """What the programs are run with."""

    gpus: list[Gpu]
    folder: Path
    limits: dict[str, float]
    begun: float = 0.0

    def run(self, part: str, name: str, *arguments: str) -> Done:
        """Runs a program; `NotTested` if it is missing or does not end within what is left of the part's time."""
        left = self.limits[part] - (time.monotonic() - self.begun)
        return run(find(name), list(arguments), max(left, 1), self.folder / part)


def find(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS]))
    if not found:
        raise NotTested(f"{name} is not installed on this node")
    return found


def run(program: str, arguments: list[str], seconds: float, output: Path) -> Done:
    """Runs a program in a process group of its own and keeps what it prints in `output`.out and .err."""
    name = Path(program).name
    out, err = output.with_suffix(".out"), output.with_suffix(".err")
    with out.open("wb") as to_out, err.open("wb") as to_err:
        try:
            child = subprocess.Popen(
                [program, *arguments], stdin=subprocess.DEVNULL, stdout=to_out, stderr=to_err, process_group=0
            )
        except OSError as error:
            raise NotTested(f"{name} cannot be run: {error.strerror}") from None
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            end(child)
            raise NotTested(f"{name} did not end within {round(seconds)} s") from None
        except BaseException:
            end(child)
            raise
    text, complaint = head(out), head(err)
    last = next(
        (line.strip() for text in (complaint, text) for line in reversed(text.splitlines()) if line.strip()), ""
    )
    return Done(
        text, status, f"{name}: {last[:300]}" if last else f"{name} printed nothing; its exit status is {status}"
    )


def end(child: subprocess.Popen) -> None:
    """Ends a program with all that it started."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(child.pid, signal.SIGINT)
        child.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_OUTPUT).decode(errors="replace")


def held(report: Path | None) -> list[Gpu]:
    """The GPUs of this job in the order of `CUDA_VISIBLE_DEVICES`, with what the driver's report says of them."""
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    names = [name for name in names if name and name not in ("-1", "NoDevFiles")]
    try:
        listed = json.loads(report.read_text(encoding="utf-8"))["gpus"] if report else []
        reported = [Gpu(gpu["gpu"]["uuid"] or "", gpu["facts"].get("pci") or "") for gpu in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        reported = []
    by_uuid = {gpu.uuid: gpu for gpu in reported}
    if all(name.startswith(("GPU-", "MIG-")) for name in names):
        return [by_uuid.get(name, Gpu(name)) for name in names]
    # Numbers: the report has them in the same order, if it has all of them.
    return reported if len(reported) == len(names) else [Gpu()] * len(names)


def understood(done: Done, read: Callable[[str], dict], has_failed: Callable[[dict], bool]) -> dict:
    """What a parser makes of an output. A program that failed is believed only if its output says what failed."""
    try:
        found = read(done.output)
    except ValueError as error:
        raise NotUnderstood(f"{error}; {done.last_line}") from None
    if done.status != 0 and not has_failed(found):
        raise NotTested(f"it failed with the exit status {done.status}; {done.last_line}")
    return found


def run_dcgm(node: Node) -> dict:
    """`dcgmi diag` at the highest level that this hardware has, on the GPUs of this job only."""
    find("dcgmi")
    if any(gpu.uuid.startswith("MIG-") for gpu in node.gpus):
        raise NotTested("DCGM does not test MIG slices")
    listed = node.run("dcgm", "dcgmi", "discovery", "-l")
    ids = dcgm.discovered(listed.output)
    if not ids:
        raise NotTested(f"DCGM lists no GPU; {listed.last_line}")
    # The engine sees all GPUs of the node. Without this list it would test those of other jobs.
    own = [ids.get(gpu.uuid) for gpu in node.gpus]
    if None in own:
        missing = ", ".join(gpu.uuid or "one without a UUID" for gpu, number in zip(node.gpus, own) if number is None)
        raise NotTested(f"GPUs of this job cannot be matched with DCGM's: {missing}")
    refusals = []
    for level in ("3", "2", "1"):
        done = node.run("dcgm", "dcgmi", "diag", "-r", level, "-j", "-i", ",".join(own))
        try:
            found = understood(done, dcgm.read, dcgm.has_failed)
            break
        except NotUnderstood as reason:
            refusals.append(reason)
    else:
        raise refusals[0]
    places = {number: place for place, number in enumerate(own)}
    rows = [row | {"device": places.get(row["id"])} for row in found["rows"]]
    return {"level": level, "version": found["version"], "rows": rows}


def run_nvbandwidth(node: Node) -> dict:
    done = node.run("nvbandwidth", "nvbandwidth", "-j", "-t", *nvbandwidth.TESTS)
    found = understood(done, nvbandwidth.read, nvbandwidth.has_failed)
    places = nvbandwidth.places(found["devices"], [gpu.pci for gpu in node.gpus])
    return {"version": found["version"], **nvbandwidth.by_gpu(found, places, len(node.gpus))}


def run_nccl(node: Node) -> dict:
    find("all_reduce_perf")
    if len(node.gpus) < 2:
        raise NotTested("one GPU, no peers")
    sizes = ("-b", "8", "-e", "512M", "-f", "4")
    done = node.run("nccl_tests", "all_reduce_perf", *sizes, "-g", str(len(node.gpus)))
    found = understood(done, nccl.read, nccl.has_failed)
    if found["ranks"] != len(node.gpus):
        raise NotTested(f"all_reduce_perf ran on {found['ranks']} of {len(node.gpus)} GPUs")
    return found


PROGRAMS = dict(zip(INSTALLED, (run_dcgm, run_nvbandwidth, run_nccl)))


def measure(node: Node) -> dict:
    """The whole document."""
    document: dict = {"version": VERSION, "gpus": [gpu.uuid for gpu in node.gpus]}
    done, of = len(PARTS), len(PARTS) + len(PROGRAMS)
    for number, (name, test) in enumerate(PROGRAMS.items()):
        say("progress", part=name, done=done + number, of=of)
        node.begun = time.monotonic()
        try:
            measured = test(node) if node.gpus else not_tested("this job holds no GPU")
        except NotTested as reason:
            measured = not_tested(str(reason))
        seconds = round(time.monotonic() - node.begun, 3)
        document[name] = {"state": "measured", "reason": "", "seconds": seconds} | measured
        say(document[name]["state"], part=name, seconds=seconds, reason=document[name]["reason"])
    say("progress", part="", done=of, of=of)
    return document


def main() -> int:
    parser = argparse.ArgumentParser(prog="diagnostics.installed", description="Runs the installed tests of GPUs.")
    parser.add_argument("--report", type=Path, help="what the driver says of the GPUs (JSON)")
    parser.add_argument("--output", type=Path, required=True, help="the JSON document to write")
    arguments = parser.parse_args()
    # A cancelled job must not leave a program behind that loads the GPUs.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    node = Node(held(arguments.report), arguments.output.resolve().parent, LIMITS)
    write(arguments.output, measure(node))
    return 0


if __name__ == "__main__":
    sys.exit(main())
