"""How both programs report: the parts in their order, lines of progress in the log, and a document that is whole."""

from __future__ import annotations

import json
import time
from pathlib import Path

# What `diagnostics` measures, and what `diagnostics.installed` runs after it.
PARTS = ("host", "links", "collectives", "matmul", "bits", "memory")
INSTALLED = ("dcgm", "nvbandwidth", "nccl_tests")


def not_tested(reason: str) -> dict:
    return {"state": "not_tested", "reason": reason}


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "time": round(time.time(), 3)} | facts), flush=True)


def write(path: Path, document: dict) -> None:
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.replace(path)
