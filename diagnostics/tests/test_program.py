"""The program on CPU devices that XLA is told to pretend: every part, every injected fault, and what cannot be tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("host", "links", "collectives", "matmul", "bits", "memory")


def run(folder: Path, *arguments: str, devices: int = 8, **variables: str) -> tuple[dict, list[dict]]:
    """The document and the lines of a run that succeeds."""
    output = folder / "result.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LYCEUM_", "CUDA_"))}
    environment |= {"PYTHONPATH": str(ROOT), "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(
        [sys.executable, "-m", "diagnostics", "--output", str(output), *arguments],
        env=environment | variables,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not output.with_name("result.json.new").exists()
    return json.loads(output.read_text()), [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return run(tmp_path_factory.mktemp("sound"), "--platform", "cpu")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    faults = "host-wrong:1 link-wrong:0:3 link-slow:2:5 collective:all_gather matmul-slow:4 bits:6 unsteady:7 memory:2"
    return run(tmp_path_factory.mktemp("broken"), "--platform", "cpu", LYCEUM_DIAGNOSTICS_FAULTS=faults)[0]


def test_eight_sound_devices(sound):
    document, lines = sound
    assert (document["version"], document["level"], document["fault"]) == (1, "medium", "")
    assert [device["device"] for device in document["devices"]] == list(range(8))
    assert {document[part]["state"] for part in PARTS} == {"measured"}
    for row in document["host"]["rows"] + document["memory"]["rows"]:
        assert row["wrong"] == 0
    assert all(row["to_device_gb_s"] > 0 and row["to_host_gb_s"] > 0 for row in document["host"]["rows"])
    assert all(row["bytes"] > 0 for row in document["memory"]["rows"])
    links = document["links"]
    for one in range(8):
        for other in range(8):
            cells = [links[name][one][other] for name in ("bandwidth_gb_s", "latency_us", "wrong")]
            assert cells == [None] * 3 if one == other else cells[0] > 0 and cells[1] > 0 and cells[2] == 0
    assert len({digest for row in document["bits"]["rows"] for digest in row["digests"]}) == 1
    assert {(row["device"], row["type"]) for row in document["matmul"]["rows"]} == {
        (device, kind) for device in range(8) for kind in ("float32", "bfloat16")
    }
    progress = [(line["done"], line["of"]) for line in lines if line["event"] == "progress"]
    assert progress == [(done, 6) for done in range(7)]
    assert lines[-1]["event"] == "done"


def test_collectives_have_the_columns_of_nccl_tests(sound):
    rows = sound[0]["collectives"]["rows"]
    factors = {"all_reduce": 14 / 8, "all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8, "ring": 1}
    assert [row["name"] for row in rows] == [name for name in factors for _ in range(2)]
    for row in rows:
        assert row["wrong"] == 0 and row["type"] == "float" and row["size"] == 4 * row["count"]
        assert row["algbw_gb_s"] == pytest.approx(row["size"] / row["time_us"] / 1e3, rel=0.02, abs=2e-3)
        assert row["busbw_gb_s"] == pytest.approx(row["algbw_gb_s"] * factors[row["name"]], rel=0.02, abs=2e-3)


def test_each_fault_is_found_where_it_is(broken):
    assert [row["device"] for row in broken["host"]["rows"] if row["wrong"]] == [1]
    wrong = broken["links"]["wrong"]
    assert [(one, other) for one in range(8) for other in range(8) if wrong[one][other]] == [(0, 3)]
    speeds = broken["links"]["bandwidth_gb_s"]
    assert min((speeds[a][b], (a, b)) for a in range(8) for b in range(8) if a != b)[1] == (2, 5)
    assert broken["links"]["latency_us"][2][5] > 10_000
    assert {row["name"] for row in broken["collectives"]["rows"] if row["wrong"]} == {"all_gather"}
    assert all(row["wrong"] in (0, 1) for row in broken["collectives"]["rows"]), "counted once, on its rank"
    rows = {row["device"]: row["digests"] for row in broken["bits"]["rows"]}
    assert rows[6][0] == rows[6][1] != rows[0][0], "other bits than its equals, twice the same"
    assert rows[7][0] == rows[0][0] != rows[7][1], "other bits the second time"
    slowest = min(broken["matmul"]["rows"], key=lambda row: row["tflops"])
    assert slowest["device"] == 4
    assert [row["wrong"] for row in broken["memory"]["rows"]] == [0, 0, 2, 0, 0, 0, 0, 0]


def test_one_device_has_no_peers(tmp_path):
    document, _ = run(tmp_path, "--platform", "cpu", devices=1)
    for part in ("links", "collectives"):
        assert document[part] == {"state": "not_tested", "reason": "one GPU, no peers"}
    assert {document[part]["state"] for part in ("host", "matmul", "bits", "memory")} == {"measured"}


def test_quick_puts_no_load_on_anything(tmp_path):
    document, _ = run(tmp_path, "--platform", "cpu", "--level", "quick", devices=2)
    assert len(document["devices"]) == 2
    assert {document[part]["reason"] for part in PARTS} == {"not part of the level quick"}


def test_gpus_that_jax_does_not_see(tmp_path):
    document, _ = run(tmp_path, CUDA_VISIBLE_DEVICES="GPU-1,GPU-2")
    assert (document["held"], document["devices"]) == (2, [])
    assert document["fault"].startswith("JAX "), document["fault"]
    assert {(document[part]["state"], document[part]["reason"]) for part in PARTS} == {
        ("not_tested", document["fault"])
    }


def test_a_part_that_fails_does_not_end_the_others(monkeypatch):
    from diagnostics import __main__ as program
    from diagnostics import devices, faults, transfers

    def breaks(opened, injected):
        raise RuntimeError("CUDA_ERROR_ECC_UNCORRECTABLE:\n uncorrectable ECC error encountered")

    monkeypatch.setattr(transfers, "host", breaks)
    document = program.measure("medium", "cpu", faults.parse([]))
    assert document["host"]["state"] == "failed"
    assert document["host"]["reason"].endswith("ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered")
    assert document["memory"]["state"] == "measured"
    assert devices.held() == 0


@pytest.mark.parametrize("word", ["bits", "bits:x", "bits:1:2", "nothing:1", "collective:a:b"])
def test_what_is_not_a_fault(word):
    from diagnostics import faults

    with pytest.raises(ValueError, match="is not a fault"):
        faults.parse([word])
