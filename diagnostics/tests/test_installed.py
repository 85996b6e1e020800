"""What is installed on a node: the parsers on outputs in the programs' formats, and real processes that print them.

The programs need GPUs and are not here. Small scripts print their outputs instead, fail, or do not end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnostics import dcgm, installed, nccl, nvbandwidth

OUTPUTS = Path(__file__).parent / "outputs"
ROOT = Path(__file__).resolve().parents[2]
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(4)]


def recorded(name: str) -> str:
    return (OUTPUTS / name).read_text()


def statuses(found: dict) -> dict:
    return {(row["test"], row["id"]): row["status"] for row in found["rows"]}


def test_dcgm_numbers_gpus_by_itself():
    assert dcgm.discovered(recorded("discovery.txt")) == {UUIDS[3]: "0", UUIDS[1]: "1", UUIDS[0]: "2", UUIDS[2]: "3"}
    assert dcgm.discovered("GPU ID: 7\nName: Quadro\nDevice UUID: GPU-9d3de631-3422\n") == {"GPU-9d3de631-3422": "7"}
    assert dcgm.discovered("Error: unable to establish a connection to the specified host: localhost") == {}


def test_dcgm_3():
    found = dcgm.read(recorded("dcgm3.json"))
    assert found["version"] == "3.3.5" and dcgm.has_failed(found)
    assert statuses(found) == {
        ("Denylist", "1"): "pass",
        ("Denylist", "2"): "pass",
        ("Persistence Mode", "1"): "fail",
        ("Persistence Mode", "2"): "fail",
        ("Environment Variables", None): "pass",
        ("GPU Memory", "1"): "pass",
        ("GPU Memory", "2"): "fail",
        ("Pulse Test", "1"): "skip",
        ("Pulse Test", "2"): "skip",
    }
    rows = {(row["test"], row["id"]): row for row in found["rows"]}
    assert rows["Persistence Mode", "1"]["severities"] == ["config"]
    assert rows["GPU Memory", "2"]["messages"] == ["GPU memory error: 12 double-bit ECC errors were detected."]
    assert rows["GPU Memory", "2"]["severities"] == []
    assert rows["Pulse Test", "1"]["messages"] == ["Test pulse_test was disallowed by the allowlist."]


def test_dcgm_4():
    found = dcgm.read(recorded("dcgm4.json"))
    assert found["version"] == "4.2.3" and dcgm.has_failed(found)
    assert statuses(found) == {
        ("software", "1"): "pass",
        ("software", "2"): "pass",
        ("memory", "1"): "pass",
        ("memory", "2"): "fail",
        ("pulse_test", "1"): "skip",
        ("pulse_test", "2"): "skip",
        ("pcie", "1"): "pass",
        ("pcie", "2"): "pass",
        ("pcie (CPU 0)", None): "pass",
    }
    failed = next(row for row in found["rows"] if row["status"] == "fail")
    assert failed["severities"] == ["isolate"] and failed["messages"][0].startswith("A memory mismatch")


def test_dcgm_sums_up_what_belongs_to_no_gpu():
    test = {"name": "nvbandwidth", "results": [], "test_summary": {"status": "Fail", "warnings": [{"warning": "no"}]}}
    document = {"DCGM Diagnostic": {"test_categories": [{"category": "Stress", "tests": [None, test]}]}}
    row = {"id": None, "test": "nvbandwidth", "status": "fail", "severities": ["unknown"], "messages": ["no"]}
    assert dcgm.read(json.dumps(document))["rows"] == [row]
    test["results"] = [{"entity_group": "GPU", "entity_id": 4, "status": "Pass"}]
    assert statuses(dcgm.read(json.dumps(document))) == {("nvbandwidth", "4"): "pass", ("nvbandwidth", None): "fail"}


def test_a_status_that_is_not_known_is_not_a_pass():
    changed = recorded("dcgm4.json").replace('"Pass"', '"Splendid"')
    assert set(statuses(dcgm.read(changed)).values()) == {"unknown", "fail", "skip"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the output has no JSON"),
        ("Error: no engine", "the output has no JSON"),
        ('{"DCGM Diagnostic": {', "the JSON of the output is broken"),
        ('{"something": 1}', "the output of dcgmi is not a diagnostic"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', "the output of dcgmi names no test"),
        ('{"DCGM Diagnostic": {"version": "4.1", "test_categories": [null]}}', "the output of dcgmi names no test"),
    ],
)
def test_what_dcgm_did_not_say(text, reason):
    with pytest.raises(ValueError, match=reason):
        dcgm.read(text)


def test_dcgm_refuses():
    with pytest.raises(ValueError, match="This request is not supported by DCGM"):
        dcgm.read(recorded("dcgm-refused.json"))


def test_nvbandwidth():
    found = nvbandwidth.read(recorded("nvbandwidth.json"))
    assert (found["version"], found["devices"]) == ("v0.8", ["0000:2a:00", "0000:3a:00"])
    assert not nvbandwidth.has_failed(found)
    measured = nvbandwidth.by_gpu(found, [0, 1], 2)
    assert measured["missing"] == []
    assert measured["rows"] == [
        {"device": 0, "to_device_gb_s": 55.2012, "to_host_gb_s": 55.2512},
        {"device": 1, "to_device_gb_s": 31.4001, "to_host_gb_s": 54.9874},
    ]
    read, write = (link["bandwidth_gb_s"] for link in measured["links"])
    assert read == [[None, 393.011], [391.25, None]]
    assert write == [[None, 392.75], [101.5, None]], "its arrow points from the column to the row"


def test_nvbandwidth_is_matched_by_address():
    found = nvbandwidth.read(recorded("nvbandwidth.json"))
    places = nvbandwidth.places(found["devices"], ["0000:3a:00", "0000:2a:00"])
    assert places == [1, 0]
    measured = nvbandwidth.by_gpu(found, places, 2)
    assert [row["to_device_gb_s"] for row in measured["rows"]] == [31.4001, 55.2012]
    assert measured["links"][0]["bandwidth_gb_s"] == [[None, 391.25], [393.011, None]]
    for wrong in (["0000:2a:00", "0000:99:00"], ["0000:2a:00"], ["0000:2a:00", "0000:3a:00", "0000:99:00"]):
        places = nvbandwidth.places(found["devices"], wrong)
        measured = nvbandwidth.by_gpu(found, places, len(wrong))
        assert measured["rows"][0]["to_device_gb_s"] is None and measured["links"] == [], wrong
        assert {one["reason"] for one in measured["missing"]} == {
            "its devices cannot be matched with the GPUs of this job"
        }
    # Without addresses the order counts, if the number is right.
    assert nvbandwidth.places([], ["", ""]) == [0, 1]
    measured = nvbandwidth.by_gpu(found | {"devices": []}, [0, 1, 2], 3)
    assert {one["reason"] for one in measured["missing"]} == {"its matrix is not one of the 3 GPUs"}


def test_nvbandwidth_on_one_gpu():
    found = nvbandwidth.read(recorded("nvbandwidth-one.json"))
    assert nvbandwidth.has_failed(found) and found["version"] == "v0.5"
    measured = nvbandwidth.by_gpu(found, [0], 1)
    assert measured["rows"] == [{"device": 0, "to_device_gb_s": 25.5, "to_host_gb_s": None}]
    assert [(one["test"], one["state"], one["reason"]) for one in measured["missing"]] == [
        ("device_to_host_memcpy_ce", "failed", "CUDA error: an illegal memory access was encountered"),
        ("device_to_device_memcpy_read_ce", "not_tested", "it does not apply to these GPUs"),
        ("device_to_device_memcpy_write_ce", "not_tested", "it does not apply to these GPUs"),
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"nvbandwidth": {}}', '{"nvbandwidth": {"testcases": []}}', '{"nvbandwidth": {"error": "x"}}']
)
def test_what_nvbandwidth_did_not_say(text):
    with pytest.raises(ValueError):
        nvbandwidth.read(text)


def test_nccl_tests():
    found = nccl.read(recorded("all_reduce.txt"))
    assert (found["ranks"], found["wrong"], len(found["rows"])) == (2, 0, 3)
    assert found["rows"][2] == {
        "name": "all_reduce",
        "size": 536870912,
        "count": 134217728,
        "type": "float",
        "time_us": 1912.7,
        "algbw_gb_s": 280.69,
        "busbw_gb_s": 280.69,
        "wrong": 0,
    }
    old = nccl.read(recorded("all_reduce-2.0.txt"))
    assert (old["ranks"], old["wrong"], [row["busbw_gb_s"] for row in old["rows"]]) == (2, 0, [0.0, 63.19])


def test_nccl_tests_count_wrong_values():
    text = recorded("all_reduce.txt").replace("36.01    N/A", "36.01     17").replace(": 0 OK", ": 1 FAILED")
    found = nccl.read(text)
    assert (found["wrong"], [row["wrong"] for row in found["rows"]]) == (17, [0, 17, 0])
    assert nccl.read(recorded("all_reduce-2.0.txt").replace(": 0 OK", ": 2 FAILED"))["wrong"] == 2
    # Wrong values are believed of a table that broke off; right ones are not.
    broken = text[: text.index("# Out of bounds")]
    assert nccl.read(broken)["wrong"] == 17
    with pytest.raises(ValueError, match="broke off"):
        nccl.read(broken.replace("     17", "      0"))
    with pytest.raises(ValueError, match="not understood"):
        nccl.read(recorded("all_reduce.txt").replace("      0    11.95", "    N/A    11.95"))
    for text in ("", "node1: Test NCCL failure common.cu:954 'unhandled system error'"):
        with pytest.raises(ValueError, match="no table"):
            nccl.read(text)


# --- Processes.


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Makes programs that print a recorded output, and nothing else is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setattr(installed, "FOLDERS", ())
    monkeypatch.setenv("OUTPUTS", str(OUTPUTS))

    def make(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return make


def gpus(*numbers: int) -> list[installed.Gpu]:
    pci = {0: "0000:3a:00", 1: "0000:2a:00", 2: "0000:5d:00", 3: "0000:18:00"}
    return [installed.Gpu(UUIDS[number], pci[number]) for number in numbers]


def measured(folder: Path, held: list[installed.Gpu], **limits: float) -> dict:
    return installed.measure(installed.Node(held, folder, installed.LIMITS | limits))


DCGMI = 'case "$*" in "discovery -l") cat $OUTPUTS/discovery.txt ;; '


def test_programs_that_are_not_installed(tmp_path, programs):
    document = measured(tmp_path, gpus(0, 1))
    assert {name: document[name]["state"] for name in installed.PROGRAMS} == dict.fromkeys(
        installed.PROGRAMS, "not_tested"
    )
    assert document["dcgm"]["reason"] == "dcgmi is not installed on this node"
    assert document["nccl_tests"]["reason"] == "all_reduce_perf is not installed on this node"


def test_results_are_those_of_the_jobs_gpus(tmp_path, programs):
    programs(
        "dcgmi", DCGMI + '"diag -r 3 -j -i 2,1") cat $OUTPUTS/dcgm4.json; exit 226 ;; *) echo "$*" >&2; exit 1 ;; esac'
    )
    programs("nvbandwidth", '[ "$1 $2" = "-j -t" ] && cat $OUTPUTS/nvbandwidth.json')
    programs("all_reduce_perf", '[ "$7 $8" = "-g 2" ] && cat $OUTPUTS/all_reduce.txt')
    document = measured(tmp_path, gpus(0, 1))
    assert (document["version"], document["gpus"]) == (1, UUIDS[:2])
    assert document["dcgm"]["state"] == "measured" and document["dcgm"]["level"] == "3"
    failed = [row["device"] for row in document["dcgm"]["rows"] if row["status"] == "fail"]
    assert failed == [0], "DCGM's GPU 2 is the first one of the job"
    assert [row["to_device_gb_s"] for row in document["nvbandwidth"]["rows"]] == [31.4001, 55.2012]
    assert document["nccl_tests"]["rows"][2]["busbw_gb_s"] == 280.69
    assert (tmp_path / "dcgm.out").read_text() == recorded("dcgm4.json")


def test_dcgm_tests_no_gpu_of_others(tmp_path, programs):
    programs("dcgmi", DCGMI + "*) echo ran > ran ;; esac")
    for held in ([installed.Gpu("GPU-9", "")], [*gpus(0), installed.Gpu()], [installed.Gpu("MIG-1", "")]):
        found = measured(tmp_path, held)["dcgm"]
        assert found["state"] == "not_tested" and ("matched" in found["reason"] or "MIG" in found["reason"]), found
    assert not (tmp_path / "ran").exists() and not Path("ran").exists()


def test_dcgm_at_the_level_that_the_hardware_has(tmp_path, programs):
    programs(
        "dcgmi", DCGMI + '"diag -r 1 "*) cat $OUTPUTS/dcgm3.json ;; *) cat $OUTPUTS/dcgm-refused.json; exit 1 ;; esac'
    )
    found = measured(tmp_path, gpus(1, 0))["dcgm"]
    assert (found["state"], found["level"], found["version"]) == ("measured", "1", "3.3.5")
    programs("dcgmi", DCGMI + "*) cat $OUTPUTS/dcgm-refused.json; exit 1 ;; esac")
    found = measured(tmp_path, gpus(1, 0))["dcgm"]
    assert found["state"] == "not_tested" and "not supported by DCGM" in found["reason"]


def test_programs_that_fail(tmp_path, programs):
    programs("dcgmi", 'echo "Error: unable to establish a connection to the specified host: localhost"; exit 1')
    # All that it prints is fine, and it fails all the same.
    programs("nvbandwidth", "cat $OUTPUTS/nvbandwidth.json; echo 'CUDA_ERROR_ECC_UNCORRECTABLE' >&2; exit 1")
    programs("all_reduce_perf", "head -n 14 $OUTPUTS/all_reduce.txt; kill -SEGV $$")
    document = measured(tmp_path, gpus(0, 1))
    assert [document[name]["state"] for name in installed.PROGRAMS] == ["not_tested"] * 3
    assert document["dcgm"]["reason"].endswith("unable to establish a connection to the specified host: localhost")
    assert document["nvbandwidth"]["reason"] == (
        "it failed with the exit status 1; nvbandwidth: CUDA_ERROR_ECC_UNCORRECTABLE"
    )
    assert document["nccl_tests"]["reason"].startswith("the table of all_reduce_perf broke off; all_reduce_perf: ")
    programs("nvbandwidth", "true")
    assert measured(tmp_path, gpus(0, 1))["nvbandwidth"]["reason"] == (
        "the output has no JSON; nvbandwidth printed nothing; its exit status is 0"
    )
    programs("all_reduce_perf", "cat $OUTPUTS/all_reduce.txt")
    assert measured(tmp_path, gpus(0, 1, 2))["nccl_tests"]["reason"] == "all_reduce_perf ran on 2 of 3 GPUs"
    assert measured(tmp_path, gpus(0))["nccl_tests"]["reason"] == "one GPU, no peers"
    assert measured(tmp_path, [])["nccl_tests"]["reason"] == "this job holds no GPU"


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_that_does_not_end(tmp_path, programs, monkeypatch):
    monkeypatch.setattr(installed, "GRACE_SECONDS", 1)
    programs("nvbandwidth", f"trap '' INT\nsleep 600 &\necho $! > {tmp_path}/child\nwait\nwait")
    document = measured(tmp_path, gpus(0), nvbandwidth=1)
    assert document["nvbandwidth"]["reason"] == "nvbandwidth did not end within 1 s"
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(child)


def test_a_job_that_is_cancelled_leaves_no_program(tmp_path, programs):
    programs("dcgmi", f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep 600")
    command = [sys.executable, "-m", "diagnostics.installed", "--output", str(tmp_path / "installed.json")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": UUIDS[0]}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "installed.json").exists()


def test_the_gpus_of_a_job(tmp_path, monkeypatch):
    report = tmp_path / "before.json"
    gpu = {"gpu": {"uuid": UUIDS[2]}, "facts": {"pci": "0000:5d:00"}}
    report.write_text(json.dumps({"gpus": [gpu]}))
    cases = {
        "": [],
        "-1": [],
        UUIDS[2]: gpus(2),
        f"{UUIDS[0]}, {UUIDS[2]}": [installed.Gpu(UUIDS[0]), *gpus(2)],
        # Slurm numbers those that a job sees.
        "0": gpus(2),
        "0,1": [installed.Gpu()] * 2,
    }
    for visible, held in cases.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert installed.held(report) == held, visible
    for broken in ("", "[]", '{"gpus": [{}]}'):
        report.write_text(broken)
        assert installed.held(report) == [installed.Gpu()] * 2
