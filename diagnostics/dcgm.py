"""Reads what NVIDIA's DCGM prints: `dcgmi discovery -l`, and `dcgmi diag -j` in the forms of DCGM 3 and DCGM 4.

DCGM numbers GPUs by itself: neither as the driver does nor as `CUDA_VISIBLE_DEVICES`. Only the list of the discovery
has UUIDs. A test that DCGM skipped is not one that passed.
"""

from __future__ import annotations

import json
import re

STATUSES = {
    "pass": "pass",
    "passed": "pass",
    "fail": "fail",
    "failed": "fail",
    "warn": "warn",
    "warning": "warn",
    "skip": "skip",
    "skipped": "skip",
    "not run": "skip",
    "notrun": "skip",
}
# `dcgmErrorSeverity_t`
SEVERITIES = {1: "monitor", 2: "isolate", 4: "triage", 5: "config", 6: "reset"}


def discovered(text: str) -> dict[str, str]:
    """The number of each GPU that DCGM lists, by UUID."""
    found, number = {}, None
    for line in text.splitlines():
        if match := re.match(r"\|\s*(\d+)\s*\|", line) or re.match(r"\s*GPU ID:\s*(\d+)\s*$", line):
            number = match[1]
        if (match := re.search(r"Device UUID:\s*(GPU-[0-9a-fA-F-]+)", line)) and number is not None:
            found[match[1]] = number
            number = None
    return found


def read(text: str) -> dict:
    """The version and one row for each test and GPU. ValueError if the output says nothing about tests."""
    document = json_in(text)
    root = document.get("DCGM Diagnostic") or document.get("DCGM GPU Diagnostic")
    if not isinstance(root, dict):
        raise ValueError("the output of dcgmi is not a diagnostic")
    metadata = document.get("metadata")
    version = root.get("version") or (metadata.get("version") if isinstance(metadata, dict) else None)
    rows = []
    for category in listed(root, "test_categories"):
        for test in listed(category, "tests"):
            name = str(test.get("name") or "a test without a name")
            own = [row for result in listed(test, "results") for row in rows_of(name, result)]
            summary = test.get("test_summary")
            if isinstance(summary, dict):
                # DCGM 4 sums up, and names here what belongs to no GPU.
                whole = row_of(name, None, summary)
                if not own or (whole["status"] == "fail" and all(row["status"] != "fail" for row in own)):
                    own.append(whole)
            rows.extend(own)
    if error := root.get("runtime_error"):
        raise ValueError(f"DCGM: {one_line(error)}")
    if not rows:
        raise ValueError("the output of dcgmi names no test")
    return {"version": str(version or ""), "rows": rows}


def has_failed(found: dict) -> bool:
    return any(row["status"] == "fail" for row in found["rows"])


def json_in(text: str) -> dict:
    """The first object in a text: warnings of libraries may precede it."""
    start = text.find("{")
    if start < 0:
        raise ValueError("the output has no JSON")
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        raise ValueError("the JSON of the output is broken") from None
    return document


def rows_of(name: str, result: dict) -> list[dict]:
    if "entity_group" in result or "entity_id" in result:
        group, number = result.get("entity_group", "GPU"), result.get("entity_id")
        if group != "GPU":
            return [row_of(f"{name} ({group} {number})", None, result)]
        return [row_of(name, None if number is None else str(number), result)]
    numbers = result.get("gpu_ids", result.get("gpu_id"))
    ids = [part.strip() for part in str("" if numbers is None else numbers).split(",") if part.strip()]
    return [row_of(name, number, result) for number in ids] or [row_of(name, None, result)]


def row_of(name: str, number: str | None, result: dict) -> dict:
    """`id` is DCGM's number; None for what concerns no single GPU."""
    messages, severities = [], []
    for warning in plural(result.get("warnings")):
        if isinstance(warning, dict):
            messages.append(one_line(warning.get("warning", "")))
            severities.append(SEVERITIES.get(warning.get("error_severity"), "unknown"))
        else:
            messages.append(one_line(warning))
    words = " ".join(str(result.get("status", "")).lower().split())
    status = STATUSES.get(words, "unknown")
    if status in ("skip", "unknown") and not messages:
        messages = [one_line(line) for line in plural(result.get("info"))]
    return {
        "id": number,
        "test": name[:100],
        "status": status,
        "severities": severities,
        "messages": [message for message in messages if message][:10],
    }


def listed(holder: object, name: str) -> list[dict]:
    """The objects of a list; DCGM leaves nulls between them."""
    found = holder.get(name) if isinstance(holder, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def plural(value: object) -> list:
    return [] if value is None else value if isinstance(value, list) else [value]


def one_line(value: object) -> str:
    return " ".join(str(value).split())[:500]
