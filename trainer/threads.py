"""How many threads a job may use: what its CPU quota allows, not what the machine has.

The numerical libraries read their limits from the environment when they are first imported,
so `limit` is called before Keras is.
"""

from __future__ import annotations

import math
import os
from pathlib import Path


def allowed(root: Path = Path("/")) -> int:
    """Cores by the portal's own word (CPU_LIMIT), the control groups' quota, and the affinity mask."""
    counts = [float(len(os.sched_getaffinity(0)))]
    try:
        counts.append(float(os.environ.get("CPU_LIMIT", "")))
    except ValueError:
        pass
    counts += _quotas(root)
    return max(1, math.floor(min(count for count in counts if count > 0) + 1e-6))


def _quotas(root: Path) -> list[float]:
    """The quota of each control group that this process is in, and of those above it (v2 and v1)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        v2 = not controllers
        if not v2 and "cpu" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("" if v2 else "cpu")
        parts = [part for part in place.split("/") if part]
        for length in range(len(parts), -1, -1):
            folder = base.joinpath(*parts[:length])
            quota, period = _pair(folder, v2)
            if quota > 0 and period > 0:
                found.append(quota / period)
    return found


def _pair(folder: Path, v2: bool) -> tuple[float, float]:
    try:
        if v2:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        return float(quota), float(period)
    except (OSError, ValueError):  # not there, or the word "max"
        return 0.0, 0.0


def limit(count: int) -> None:
    """Tells every library that might be loaded; what somebody has set already stays."""
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "NPROC",  # JAX's CPU client sizes its pool by this
    ):
        os.environ.setdefault(name, str(count))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
