"""What JAX compiled is kept for the next training, within bounds, and never in the way of one."""

import json
import os
import subprocess
import sys

import pytest

from trainer import compiled

from .conftest import ROOT

PROGRAM = """
import json, sys
from trainer import backend
backend.start("jax")
import jax
from jax._src import monitoring
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event))
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((8, 8))).block_until_ready()
print(json.dumps([hits.count("/jax/compilation_cache/cache_hits"), hits.count("/jax/compilation_cache/cache_misses")]))
"""


def compile_once(home):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XDG_"))}
    env |= {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_what_was_compiled_once_is_not_compiled_again(tmp_path):
    hits, misses = compile_once(tmp_path)
    assert hits == 0 and misses > 0
    assert compile_once(tmp_path) == [misses, 0]
    (folder,) = (tmp_path / ".cache/lyceum/jax").iterdir()
    assert folder.stat().st_mode & 0o077 == 0


def test_a_damaged_entry_is_compiled_again(tmp_path):
    compile_once(tmp_path)
    for path in (tmp_path / ".cache/lyceum/jax").glob("*/*-cache"):
        path.write_bytes(path.read_bytes()[:100])
    compile_once(tmp_path)


def test_without_a_home_nothing_is_kept_and_training_goes_on(tmp_path):
    (tmp_path / "home").write_text("not a folder")
    compile_once(tmp_path / "home")
    assert compiled.keep({}) is None


def test_several_machines_keep_nothing(tmp_path):
    assert compiled.keep({"HOME": str(tmp_path), "WORLD_SIZE": "2"}) is None
    assert compiled.keep({"HOME": str(tmp_path), "WORLD_SIZE": "1"})


def test_what_somebody_has_set_stays(tmp_path):
    environment = {"HOME": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": "/elsewhere"}
    assert compiled.keep(environment) is None
    assert environment["JAX_COMPILATION_CACHE_DIR"] == "/elsewhere"


def test_each_kind_of_processor_has_its_own_folder(tmp_path):
    found = set()
    for flags in ("flags\t\t: sse avx", "flags\t\t: avx sse", "flags\t\t: sse"):
        root = tmp_path / "root"
        (root / "proc").mkdir(parents=True, exist_ok=True)
        (root / "proc/cpuinfo").write_text(f"model name : x\n{flags}\n")
        found.add(compiled.keep({"HOME": str(tmp_path)}, root))
    assert len(found) == 2


@pytest.mark.parametrize(("most", "left"), [(300, 3), (299, 2), (100, 1), (0, 0)])
def test_the_oldest_go_first(tmp_path, most, left):
    folder = tmp_path / "x86"
    folder.mkdir()
    for age in range(3):
        path = folder / f"{age}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (1000 - age, 1000 - age))
    compiled.prune(tmp_path, most)
    assert sorted(path.name for path in folder.iterdir()) == [f"{age}-cache" for age in range(left)]
