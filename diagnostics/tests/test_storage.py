"""The test of storage on real files: what it measures, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from diagnostics import storage
from trainer.tests.test_sources import built

ROOT = Path(__file__).resolve().parents[2]
SIZE = storage.MIN_SIZE


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_folder_is_measured_and_left_as_it_was(tmp_path):
    (tmp_path / "own").write_text("mine")
    kept = []
    found = storage.measure(str(tmp_path), SIZE, "", lambda document: kept.append(document["files"]["state"]))
    assert (found["version"], found["fault"]) == (1, "")
    large, small = found["sequential"], found["files"]
    assert large["state"] == small["state"] == "measured", found
    assert large["bytes"] == SIZE and large["write_mb_s"] > 0 and large["read_mb_s"] > 0
    assert small["count"] == storage.FILES
    assert min(small["create_per_s"], small["stat_per_s"], small["read_per_s"]) > 0
    assert {large["cache"], small["cache"]} <= {"dropped", "kept", "unknown"}
    assert found["dataset"] == {"state": "not_tested", "reason": "no dataset was given"}
    assert found["file_system"]["free_bytes"] > 0 and found["file_system"]["mount_point"].startswith("/")
    assert kept == ["not_tested", "measured"], "what was measured is kept when the next part begins"
    assert names(tmp_path) == ["own"]


def test_the_page_cache_is_asked(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.read_bytes()
    before = storage.cached(path)
    if before == [None]:
        assert storage.dropped([path]) == "unknown", "this file system does not say"
    else:
        assert before == [True]
        assert storage.dropped([path]) == "dropped"
    assert storage.dropped([]) == "unknown"
    (tmp_path / "empty").touch()
    assert storage.dropped([tmp_path / "empty"]) == "unknown"


def test_what_a_killed_test_left_is_removed_later(tmp_path):
    left, recent = tmp_path / f"{storage.PREFIX}old", tmp_path / f"{storage.PREFIX}new"
    for folder in (left, recent):
        folder.mkdir()
        (folder / "large").write_text("x")
    old = time.time() - storage.STALE - 9
    os.utime(left, (old, old))
    storage.remove_stale(str(tmp_path))
    assert names(tmp_path) == [recent.name]


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /home rw,relatime shared:2 - nfs4 filer:/export/home rw,vers=4.2
41 40 0:36 / /home/a\\040b rw master:3 - fuse.sshfs me@host: rw
42 22 0:37 / /homes rw - xfs /dev/sdb rw
43 40 0:38 / /home rw - lustre mgs@tcp:/fs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "point"),
    [
        ("/", "ext4", "/"),
        ("/var/x", "ext4", "/"),
        ("/home", "lustre", "/home"),
        ("/home/ab", "lustre", "/home"),
        ("/home/a b/c", "fuse.sshfs", "/home/a b"),
        ("/homes/x", "xfs", "/homes"),
    ],
)
def test_the_mount_of_a_path(path, kind, point):
    found = storage.mount_of(path, MOUNTS)
    assert (found["type"], found["mount_point"]) == (kind, point)


Space = namedtuple("Space", "f_bavail f_frsize f_blocks")


@pytest.mark.parametrize(
    ("free", "size", "expected"),
    [
        (100 << 30, None, 1 << 30),
        (1 << 30, None, 100 << 20),
        (100 << 30, 8 << 30, 8 << 30),
        (100 << 30, 11 << 30, "more than a tenth of the free space"),
        (100 << 20, None, "too little free space"),
        (100 << 30, 1 << 20, "too little free space"),
    ],
)
def test_what_is_written_is_bounded(monkeypatch, free, size, expected):
    monkeypatch.setattr(os, "statvfs", lambda path: Space(free // 4096, 4096, free))
    if isinstance(expected, str):
        with pytest.raises(storage.Refused, match=expected):
            storage.room("/x", size)
    else:
        assert storage.room("/x", size) == expected


def test_folders_that_cannot_be_tested(tmp_path):
    found = storage.measure(str(tmp_path / "missing"), SIZE, "")
    assert "is not a folder that you can reach" in found["fault"]
    assert found["sequential"]["state"] == "not_tested"
    found = storage.measure("/proc/self", SIZE, "")
    assert found["fault"], "nothing can be written there"


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "your disk quota is used up")]
)
def test_a_full_disk(tmp_path, monkeypatch, number, reason):
    def full(descriptor):
        raise OSError(number, "full")

    monkeypatch.setattr(os, "fsync", full)
    found = storage.measure(str(tmp_path), SIZE, "")
    assert found["sequential"]["state"] == found["files"]["state"] == "not_tested"
    assert found["sequential"]["reason"] == reason
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_test_that_is_ended_leaves_nothing(tmp_path, number):
    output = tmp_path.parent / f"{tmp_path.name}-storage.json"
    command = [sys.executable, "-m", "diagnostics.storage", "--directory", str(tmp_path), "--size", str(256 << 20)]
    command += ["--output", str(output)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not names(tmp_path) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["classification", "segmentation", "detection"])
@pytest.mark.parametrize("cache", [True, False])
def test_a_dataset_is_read_as_a_training_reads_it(tmp_path, monkeypatch, kind, cache):
    if kind == "segmentation" and not cache:
        pytest.skip("a dataset for segmentation always has a cache")
    monkeypatch.setenv("CPU_LIMIT", "3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    from trainer import threads

    built(tmp_path / "set", kind, cache=cache)
    found = storage.measure("", None, str(tmp_path / "set"))["dataset"]
    assert found["state"] == "measured", found
    assert [row["workers"] for row in found["rows"]] == sorted({1, threads.allowed()})
    for row in found["rows"]:
        assert row["images"] == 4 and row["images_per_second"] > 0 and row["mb_s"] > 0
    assert found["is_cached_dataset"] is cache
    assert found["file_system"]["type"]


def test_a_damaged_dataset_is_not_tested(tmp_path):
    built(tmp_path / "set", "classification")
    (tmp_path / "set/cache/images.npy").write_bytes(b"x")
    found = storage.measure("", None, str(tmp_path / "set"))
    assert found["fault"] == "" and found["dataset"]["state"] == "not_tested" and found["dataset"]["reason"], found
    (tmp_path / "empty").mkdir()
    assert storage.measure("", None, str(tmp_path / "empty"))["dataset"]["state"] == "not_tested"


def test_storage_in_memory_is_told(tmp_path):
    if not os.path.ismount("/dev/shm"):
        pytest.skip("there is no /dev/shm")
    assert storage.file_system("/dev/shm")["type"] == "tmpfs"
