"""Curves: event files beside TensorBoard's own data server, and questions about millions of
points. The programs are those of benches/curves.rs."""

import json
import os
import pathlib
import re
import subprocess
import time

from rows import in_turns, median, result, row
from stand import free_port

RUNS, TAGS, STEPS = 20, 10, 5000


def newest(options):
    """The program of benches/curves.rs."""
    built = [path for path in pathlib.Path(options.load).parent.glob("curves-*") if not path.suffix]
    return max(built, key=lambda path: path.stat().st_mtime)


def ours(options, *arguments):
    return json.loads(subprocess.run([newest(options), *map(str, arguments)], check=True, capture_output=True).stdout or "null")


def data_server(options, directory):
    """TensorBoard's reader in Rust, until it says that it has read everything once."""
    found = sorted(pathlib.Path(options.tools).glob("jl/lib/python3*/site-packages/tensorboard_data_server/bin/server"))
    begin = time.monotonic()
    process = subprocess.Popen(
        [found[-1], "--logdir", directory, "--port", str(free_port()), "--reload", "once", "--verbose"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    try:
        for line in process.stdout:
            if "Finished load cycle" in line:
                told = re.search(r"\(([0-9.]+)(ms|s)\)", line)
                seconds = float(told[1]) / (1000 if told[2] == "ms" else 1) if told else time.monotonic() - begin
                return {"seconds": seconds}
        raise RuntimeError("the data server ended")
    finally:
        process.kill()
        process.wait()


LINES, CHARTS, POINTS = 100, 10, 1000


@row("page")
def page(stand, options):
    program = pathlib.Path(__file__).with_name("page.mjs")
    words = [newest(options), LINES, CHARTS, POINTS, options.rounds]
    env = {**os.environ, "LYCEUM_BIN": str(options.binary)}
    told = subprocess.run(["node", program, *map(str, words)], check=True, capture_output=True, env=env).stdout
    rounds = json.loads(told)
    drawn, busy = (median([one[name] for one in rounds]) / 1000 for name in ("drawn", "busy"))
    yield result(
        f"a page of {LINES} runs with {CHARTS} tags of {POINTS:,} points, to the first chart in Chromium",
        f"{drawn:.1f} s, of which {busy:.1f} s without an answer to keys", "", "")


@row("curves")
def curves(stand, options):
    directory = stand.work / "events"
    ours(options, "write", directory, RUNS, TAGS, STEPS)
    compared = {"Lyceum": lambda: ours(options, "read", directory), "data server": lambda: data_server(options, directory)}
    found = in_turns(options.rounds, compared, lambda _, measure: measure())
    seconds = {name: median([one["seconds"] for one in rounds]) for name, rounds in found.items()}
    points, memory = found["Lyceum"][0]["points"], median([one["bytes"] for one in found["Lyceum"]])
    assert points == RUNS * TAGS * STEPS
    ratios = [theirs["seconds"] / one["seconds"] for one, theirs in zip(found["Lyceum"], found["data server"])]
    yield result(
        f"{points:,} scalars in {RUNS} runs, every point kept",
        f"{seconds['Lyceum'] * 1000:.0f} ms, {points / seconds['Lyceum'] / 1e6:.1f} M/s, {memory / 1e6:.0f} MB",
        f"TensorBoard's data server, 1,000 points a curve kept: {seconds['data server'] * 1000:.0f} ms",
        f"{median(ratios):.1f}",
    )
    query = ours(options, "query", 10, 1_000_000, 1000, 5 * options.rounds)
    yield result("10 curves of 1,000,000 points to 1,000 buckets each", f"{query['seconds'] * 1000:.1f} ms", "", "")
