"""Reads the table that nccl-tests' `all_reduce_perf` prints. Only a table with its last lines is whole."""

from __future__ import annotations

import re


def read(text: str) -> dict:
    """Ranks, rows and the number of wrong values. ValueError if the table is missing or broken off."""
    ranks = len(re.findall(r"^#\s+Rank\s+\d+\s", text, re.MULTILINE))
    header = re.search(r"^#\s+(size\s+count\s+type\s.*)$", text, re.MULTILINE)
    if not header:
        raise ValueError("the output of all_reduce_perf has no table")
    columns = header[1].split()
    rows = [row_of(line, columns) for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+\w+\s", line)]
    bounds = re.search(r"^#\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)", text, re.MULTILINE)
    wrong = sum(row["wrong"] for row in rows)
    if bounds:
        wrong = max(wrong, int(bounds[1]), 1 if bounds[2] == "FAILED" else 0)
    elif not wrong:
        raise ValueError("the table of all_reduce_perf broke off")
    if not rows:
        raise ValueError("the table of all_reduce_perf is empty")
    return {"ranks": ranks, "rows": rows, "wrong": wrong}


def has_failed(found: dict) -> bool:
    return found["wrong"] > 0


def row_of(line: str, columns: list[str]) -> dict:
    """The out-of-place half of a row; wrong values of both halves."""
    cells = line.split()
    try:
        named = dict(zip(columns[: columns.index("busbw") + 1], cells))
        wrong = [cells[place] for place, name in enumerate(columns) if name == "#wrong"]
        if len(cells) != len(columns) or wrong[:1] == ["N/A"]:
            raise ValueError
        return {
            "name": "all_reduce",
            "size": int(named["size"]),
            "count": int(named["count"]),
            "type": named["type"],
            "time_us": float(named["time"]),
            "algbw_gb_s": float(named["algbw"]),
            "busbw_gb_s": float(named["busbw"]),
            # Older versions print the largest difference instead of a count.
            "wrong": sum(int(float(count)) for count in wrong if count != "N/A"),
        }
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"a row of all_reduce_perf is not understood: {line.strip()[:100]}") from None
