"""`python -m diagnostics --level medium --output result.json`: measures the GPUs that this process may use.

The exit status is 0 if a result was written, whatever it says, and 2 if the arguments are wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from . import VERSION, devices, faults
from .report import INSTALLED, PARTS, not_tested, say, write

NO_LOAD = "not part of the level quick"


def main() -> int:
    parser = argparse.ArgumentParser(prog="diagnostics", description="Measures GPUs with JAX.")
    parser.add_argument("--level", choices=("quick", "medium", "long"), default="medium")
    parser.add_argument("--output", type=Path, required=True, help="the JSON document to write")
    # For tests: measures the devices of this platform as if they were GPUs, and makes one of them fail.
    parser.add_argument(
        "--platform", default=os.environ.get("LYCEUM_DIAGNOSTICS_PLATFORM", "gpu"), help=argparse.SUPPRESS
    )
    parser.add_argument("--fault", action="append", default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        injected = faults.parse(arguments.fault + os.environ.get("LYCEUM_DIAGNOSTICS_FAULTS", "").split())
    except ValueError as error:
        parser.error(str(error))

    began = time.time()
    document = measure(arguments.level, arguments.platform, injected)
    document["started_at"] = round(began, 3)
    document["seconds"] = round(time.time() - began, 3)
    write(arguments.output, document)
    say("done", seconds=document["seconds"])
    return 0


def measure(level: str, platform: str, injected: faults.Faults) -> dict:
    """The whole document, except its times."""
    held = devices.held()
    opened = devices.open_all(platform)
    document = {
        "version": VERSION,
        "level": level,
        "held": held,
        "software": opened.software,
        "devices": opened.table(),
        "fault": opened.fault,
    }
    say("devices", held=held, seen=len(opened.all), fault=opened.fault)
    missing = opened.fault or ("no GPU was found" if not opened.all else "")
    # The program for what is installed goes on from there.
    of = len(PARTS) + (len(INSTALLED) if level == "long" else 0)
    for number, name in enumerate(PARTS):
        say("progress", part=name, done=number, of=of)
        if level == "quick":
            document[name] = not_tested(NO_LOAD)
        elif missing:
            document[name] = not_tested(missing)
        else:
            document[name] = part(name, opened, injected)
    say("progress", part="", done=len(PARTS), of=of)
    return document


def part(name: str, opened: devices.Opened, injected: faults.Faults) -> dict:
    """One part. What fails in it is written down, and the other parts go on."""
    from . import collectives, compute, memory, transfers

    run = {
        "host": transfers.host,
        "links": transfers.links,
        "collectives": collectives.collectives,
        "matmul": compute.matmul,
        "bits": compute.bits,
        "memory": memory.memory,
    }[name]
    if name in ("links", "collectives") and len(opened.all) < 2:
        return not_tested("one GPU, no peers")
    began = time.perf_counter()
    try:
        measured = run(opened, injected)
    except Exception as error:  # Whatever a broken GPU makes of it.
        message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        say("failed", part=name, message=message)
        return {"state": "failed", "reason": message}
    seconds = round(time.perf_counter() - began, 3)
    say("measured", part=name, seconds=seconds)
    return {"state": "measured", "reason": "", "seconds": seconds} | measured


if __name__ == "__main__":
    sys.exit(main())
