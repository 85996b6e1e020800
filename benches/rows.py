"""The rows of the table: what is done to each of the compared, in turns, and what comes out.
Every figure is the median over the rounds; in each round all are measured one after another,
beginning with another one each time, so that other work on the machine hits all alike."""

import contextlib
import json
import os
import re
import statistics
import subprocess
import threading
import time

from stand import Server, free_port, status_of, until

ROWS = {}


def row(name):
    def enter(function):
        ROWS[name] = function
        return function

    return enter


def median(values):
    return statistics.median(values)


def in_turns(rounds, compared, measure):
    """`measure(name, what)` for each, in every round; the list of results by name."""
    results = {name: [] for name in compared}
    names = list(compared)
    for turn in range(rounds):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            results[name].append(measure(name, compared[name]))
    return results


def result(what, figure, against, ratio, **more):
    return {"what": what, "figure": figure, "against": against, "ratio": ratio, **more}


def times(one, other):
    return f"{one / other:.2f}"


# HTTP ------------------------------------------------------------------------------------------


def web(stand, chp=True):
    """An app behind all of them; each as (url, headers, server whose cost it is)."""
    port = free_port()
    big = stand.work / "big"
    with open(big, "wb") as file:
        file.truncate(1 << 30)
    portal = stand.portal(config=stand.app("app.sock", port, big))
    session = portal.session("ok")
    socket = next(path for path in run_directories(portal) if path.endswith("app.sock"))
    path = f"/s/{session}/"
    compared = {
        "direct": (f"http://127.0.0.1:{port}{path}", [], None),
        "nginx": None,
        "CHP": None,
        "Lyceum, token": (portal.url + path, [portal.header], portal),
        "Lyceum, cookie": (portal.apps + path, [portal.app_cookie(session)], portal),
    }
    nginx_port = free_port()
    nginx = stand.nginx(f"unix:{socket}", nginx_port)
    compared["nginx"] = (f"http://127.0.0.1:{nginx_port}{path}", [], nginx)
    if chp:
        proxy = stand.chp_to(f"http://127.0.0.1:{port}")
        compared["CHP"] = (proxy.url + path, [], proxy)
    else:
        del compared["CHP"]
    return compared


def run_directories(portal):
    """The sockets of the sessions of a portal that is not root's."""
    base = f"/tmp/lyceum-{portal.account.pw_uid}"
    return [os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names]


def wrk(what, connections, seconds):
    """Requests a second, p99 in ms, microseconds of the proxy's CPU a request."""
    url, headers, server = what
    before = server.cpu() if server else 0
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "30s"]
    for header in headers:
        command += ["-H", header]
    text = subprocess.run([*command, url], capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"{url}: {text}")
    spent = (server.cpu() if server else 0) - before
    requests = int(re.search(r"(\d+) requests in", text)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    found = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    p99 = float(found[1]) * {"us": 0.001, "ms": 1, "s": 1000}[found[2]]
    return rate, p99, spent / requests * 1e6


def told(rates):
    return f"{median([rate for rate, *_ in rates]):,.0f}/s"


@row("http")
def http(stand, options):
    """Small answers over kept connections, with the login check."""
    compared = web(stand)
    for connections in (1, 50, 200):
        for what in compared.values():
            wrk(what, connections, 1)
        results = in_turns(options.rounds, compared, lambda _, what: wrk(what, connections, options.seconds))
        rate = {name: median([one[0] for one in found]) for name, found in results.items()}
        cpu = {name: median([one[2] for one in found]) for name, found in results.items()}
        for name in ("Lyceum, token", "Lyceum, cookie"):
            for other in ("nginx", "CHP", "direct"):
                each = [mine[0] / theirs[0] for mine, theirs in zip(results[name], results[other])]
                yield result(
                    f"small HTTP, {connections} connections, {name}",
                    f"{rate[name]:,.0f}/s, {cpu[name]:.1f} µs CPU",
                    f"{other} {rate[other]:,.0f}/s, {cpu[other]:.1f} µs CPU",
                    f"{median(each):.2f}")


def load(stand, verb, url, *words, headers=()):
    address, path = url.removeprefix("http://").split("/", 1)
    text = subprocess.run([stand.load, verb, address, "/" + path, *map(str, words), *headers], capture_output=True,
                          text=True, check=True).stdout
    return json.loads(text)


@row("latency")
def latency(stand, options):
    """The 99th percentile at half of the load that nginx can bear."""
    compared = web(stand, chp=False)
    most = median([wrk(compared["nginx"], 50, 2)[0] for _ in range(3)])
    rate = int(most / 2 / 1000) * 1000

    def measure(_, what):
        url, headers, _ = what
        return load(stand, "rate", url, 50, rate, options.seconds, headers=headers)

    results = in_turns(options.rounds, compared, measure)
    at = {name: {percent: median([one[percent] for one in found]) for percent in ("p50_us", "p99_us")}
          for name, found in results.items()}
    for name in ("Lyceum, token", "Lyceum, cookie"):
        for percent in ("p50_us", "p99_us"):
            mine, theirs = (at[one][percent] - at["direct"][percent] for one in (name, "nginx"))
            yield result(
                f"added latency at {rate:,}/s, {percent.removesuffix('_us')}, {name}",
                f"{mine:+,.0f} µs (direct {at['direct'][percent]:,.0f})", f"nginx {theirs:+,.0f} µs",
                times(at[name][percent], at["nginx"][percent]) + " of the whole")


@row("transfer")
def transfer(stand, options):
    """1 GB down and up, and what memory that takes."""

    def curl(what, *words):
        url, headers, server = what
        words = [word.replace("URL", url) for word in words] + [word for header in headers for word in ("-H", header)]
        if server:
            server.forget_peak()
        before = server.memory() if server else 0
        began = time.monotonic()
        subprocess.run(["curl", "-sfS", "-o", "/dev/null", *words], check=True)
        return time.monotonic() - began, (server.memory("VmHWM") - before) if server else 0

    for way in ("down", "up"):
        if way == "down":
            compared, words = web(stand, chp=False), ["URLbig"]
        else:
            stand.stop()
            compared, _ = sockets(stand)
            words = ["-H", "Expect:", "-T", str(stand.work / "big"), "URLup"]
        results = in_turns(options.rounds, compared, lambda _, what: curl(what, *words))
        for name in (name for name in results if name.startswith("Lyceum")):
            mine = median([took for took, _ in results[name]])
            grown = max(grown for _, grown in results[name])
            for other in (other for other in ("direct", "nginx", "CHP") if other in results):
                theirs = median([took for took, _ in results[other]])
                each = [b[0] / a[0] for a, b in zip(results[name], results[other])]
                yield result(f"1 GB {way}, {name}", f"{1.0737 / mine:.2f} GB/s, RSS {grown:+.1f} MB",
                             f"{other} {1.0737 / theirs:.2f} GB/s", f"{median(each):.2f}")


# WebSockets ------------------------------------------------------------------------------------


def sockets(stand, sessions=1, port=None):
    """An app that echoes, and all of them before it."""
    port = port or free_port()
    config = f'[[apps]]\nname = "echo"\ncommand = ["{stand.load}", "app", "unix:{{socket}}"]\nidle = "none"\n'
    portal = stand.portal(config=config)
    ids = [portal.session("echo") for _ in range(sessions)]
    socket = next(path for path in run_directories(portal) if path.endswith("app.sock"))
    stand.keep(Server("app", [stand.load, "app", f"127.0.0.1:{port}"]))
    until("the app answers", lambda: status_of(f"http://127.0.0.1:{port}/") == 200)
    nginx_port = free_port()
    nginx = stand.nginx(f"unix:{socket}" if sessions == 1 else f"127.0.0.1:{port}", nginx_port)
    proxy = stand.chp_to(f"http://127.0.0.1:{port}")
    path = f"/s/{ids[0]}/"
    return {
        "direct": (f"http://127.0.0.1:{port}{path}", [], None),
        "nginx": (f"http://127.0.0.1:{nginx_port}{path}", [], nginx),
        "CHP": (proxy.url + path, [], proxy),
        "Lyceum": (portal.url + path, [portal.header], portal),
    }, ids


@row("websocket")
def websocket(stand, options):
    """Messages of 100 bytes, back and forth."""
    compared, _ = sockets(stand)

    def measure(_, what, connections):
        url, headers, server = what
        before = server.cpu() if server else 0
        told = load(stand, "ws", url, connections, options.seconds, headers=headers)
        return told["per_second"], told["p99_us"], ((server.cpu() if server else 0) - before) / told["count"] * 1e6

    for connections in (1, 50, 500):
        results = in_turns(options.rounds, compared, lambda name, what: measure(name, what, connections))
        rate = {name: median([one[0] for one in found]) for name, found in results.items()}
        p99 = {name: median([one[1] for one in found]) for name, found in results.items()}
        cpu = {name: median([one[2] for one in found]) for name, found in results.items()}
        for other in ("CHP", "nginx", "direct"):
            each = [mine[0] / theirs[0] for mine, theirs in zip(results["Lyceum"], results[other])]
            yield result(
                f"WebSocket echo, {connections} connections",
                f"{rate['Lyceum']:,.0f}/s, p99 {p99['Lyceum']:,.0f} µs, {cpu['Lyceum']:.1f} µs CPU",
                f"{other} {rate[other]:,.0f}/s, p99 {p99[other]:,.0f} µs, {cpu[other]:.1f} µs CPU", f"{median(each):.2f}")


@row("idle-sockets")
def idle_sockets(stand, options):
    """Memory of 5 000 WebSockets on which nothing happens."""
    each, found = 500, {}
    compared, ids = sockets(stand, sessions=10)
    for name in ("CHP", "nginx", "Lyceum"):
        url, headers, server = compared[name]
        before = server.memory()
        with contextlib.ExitStack() as held:
            for session in ids:
                address, path = url.removeprefix("http://").split("/", 1)
                path = path.replace(ids[0], session)
                holder = subprocess.Popen([stand.load, "hold", address, "/" + path, str(each), *headers],
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                held.callback(lambda holder=holder: (holder.stdin.close(), holder.wait()))
                if b"open" not in holder.stdout.readline():
                    raise RuntimeError(f"{name} does not hold {each} connections")
            time.sleep(2)
            found[name] = (before, server.memory())
    mine = found["Lyceum"]
    for other in ("CHP", "nginx"):
        before, after = found[other]
        yield result("5 000 idle WebSockets", f"{mine[1]:.0f} MB (+{mine[1] - mine[0]:.0f})",
                     f"{other} {after:.0f} MB (+{after - before:.0f})", times(mine[1], after))
