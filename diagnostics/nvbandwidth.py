"""Reads the JSON of NVIDIA's `nvbandwidth`: copies by the copy engines to and from the host, and between GPUs.

CUDA numbers the devices of a matrix, in the order of `CUDA_VISIBLE_DEVICES`. Newer versions list their PCI addresses,
which are believed more than the order. The program checks the contents of its copies and fails if one is wrong.
"""

from __future__ import annotations

import re

from .dcgm import json_in, listed, one_line

TO_DEVICE, TO_HOST = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce"
BETWEEN = ("device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce")
TESTS = (TO_DEVICE, TO_HOST, *BETWEEN)


def read(text: str) -> dict:
    """The version, the devices if they are listed, and the tests. ValueError if the output has no tests."""
    root = json_in(text).get("nvbandwidth")
    if not isinstance(root, dict):
        raise ValueError("the output of nvbandwidth is not a result of it")
    tests = [test_of(test) for test in listed(root, "testcases")]
    if error := root.get("error"):
        raise ValueError(f"nvbandwidth: {one_line(error)}")
    if not tests:
        raise ValueError("the output of nvbandwidth has no tests")
    devices = root.get("GPU Device list")
    devices = [pci_in(str(line)) for line in devices] if isinstance(devices, list) else []
    return {"version": str(root.get("version") or root.get("git_version") or ""), "devices": devices, "tests": tests}


def has_failed(found: dict) -> bool:
    return any(test["state"] == "failed" for test in found["tests"])


def test_of(test: dict) -> dict:
    name, status = str(test.get("name", "")), str(test.get("status", "")).strip().lower()
    description = str(test.get("bandwidth_description", ""))
    try:
        matrix = [[number(cell) for cell in row] for row in test.get("bandwidth_matrix") or []]
    except TypeError:
        matrix = []
    reason = one_line(test.get("error") or "")
    if status == "passed" and matrix:
        state = "measured"
    elif status in ("waived", "not found", "running", "passed"):
        state = "not_tested"
        reason = reason or {"waived": "it does not apply to these GPUs"}.get(status, f"its status is “{status}”")
    else:
        state, reason = "failed", reason or f"its status is “{status or 'missing'}”"
    # From the row to the column, unless the arrow points back.
    is_backward = "<-" in description and "->" not in description
    return {"name": name, "state": state, "reason": reason, "matrix": matrix, "is_backward": is_backward}


def number(cell: object) -> float | None:
    try:
        value = float(str(cell))
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def pci_in(line: str) -> str:
    """A PCI address as the driver's report spells it, `0000:3b:00`; empty if there is none."""
    match = re.search(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})", line)
    return f"{match[1][-4:]}:{match[2]}:{match[3]}".lower() if match else ""


def places(devices: list[str], held: list[str]) -> list[int | None]:
    """The place among the GPUs of this job of each device that the program numbers; None if it is not one of them."""
    if not devices or not all(devices) or not all(held):
        return list(range(len(held)))
    return [held.index(pci) if pci in held else None for pci in devices]


def by_gpu(found: dict, places: list[int | None], count: int) -> dict:
    """Rates of each GPU, matrices between them from row to column in GB/s, and what was not measured."""
    tests = {test["name"]: test for test in found["tests"]}
    rows = [{"device": device, "to_device_gb_s": None, "to_host_gb_s": None} for device in range(count)]
    links, missing = [], []
    for name in TESTS:
        test = tests.get(name, {"state": "not_tested", "reason": "it is not in the output"})
        if test["state"] != "measured":
            missing.append({"test": name, "state": test["state"], "reason": test["reason"]})
            continue
        matrix, width = test["matrix"], len(places)
        if any(len(row) != width for row in matrix) or len(matrix) not in (1, width):
            reason = f"its matrix is not one of the {width} GPUs"
            missing.append({"test": name, "state": "not_tested", "reason": reason})
        elif None in places or sorted(places) != list(range(count)):
            reason = "its devices cannot be matched with the GPUs of this job"
            missing.append({"test": name, "state": "not_tested", "reason": reason})
        elif name in BETWEEN:
            between = [[None] * count for _ in range(count)]
            for row, cells in enumerate(matrix if len(matrix) == count else []):
                for column, rate in enumerate(cells):
                    one, other = (column, row) if test["is_backward"] else (row, column)
                    if one != other:
                        between[places[one]][places[other]] = rate
            links.append({"test": name, "bandwidth_gb_s": between})
        else:
            field = "to_device_gb_s" if name == TO_DEVICE else "to_host_gb_s"
            for column, rate in enumerate(matrix[0]):
                rows[places[column]][field] = rate
    return {"rows": rows, "links": links, "missing": missing}
