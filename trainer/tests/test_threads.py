"""The number of threads: the quota of the control group counts, in both versions, and what lies above it."""

import os

import pytest

from trainer import threads


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.delenv("CPU_LIMIT", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    return tmp_path


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_any_word_the_affinity_counts(root):
    assert threads.allowed(root) == 16


def test_version_two_with_the_least_on_the_way_up(root):
    put(root, "proc/self/cgroup", "0::/a/b\n")
    put(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    put(root, "sys/fs/cgroup/a/cpu.max", "350000 100000\n")
    assert threads.allowed(root) == 3


def test_version_one(root):
    put(root, "proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n")
    put(root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "200000\n")
    put(root, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert threads.allowed(root) == 2


def test_a_share_of_a_core_is_one_thread_and_the_portal_may_say_less(root, monkeypatch):
    monkeypatch.setenv("CPU_LIMIT", "0.5")
    assert threads.allowed(root) == 1
    monkeypatch.setenv("CPU_LIMIT", "nonsense")
    assert threads.allowed(root) == 16


def test_what_somebody_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("NPROC", raising=False)
    threads.limit(3)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["NPROC"]) == ("7", "3")
    del os.environ["NPROC"]
