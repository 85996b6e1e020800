"""Event files: the bytes are right by the published vectors, and TensorBoard reads what was written."""

import math
import struct

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer.events import Writer, crc32c, masked, record


def series(folder, tag):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [(point.step, point.value) for point in events.Scalars(tag)]


def test_checksums_are_those_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283
    assert masked(b"\x1a\x11CRC test, one two") == 0x5794D08A
    written = record(b"\x09\x00\x00\x80\x38\x99\xd6\xd7\x41\x1a\x0dbrain.Event:2")
    assert written[:12] == struct.pack("<Q", 24) + bytes.fromhex("a37f4b22")
    assert written[-4:] == bytes.fromhex("124b36ab")


def test_tensorboard_reads_what_was_written(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=500).astype(np.float32)
    writer = Writer(tmp_path)
    for step, value in enumerate(values):
        writer.scalars(step * 1000, {"loss": float(value), "val/ü": -float(value)})
    writer.close()
    assert series(tmp_path, "loss") == [(i * 1000, float(v)) for i, v in enumerate(values)]
    assert series(tmp_path, "val/ü") == [(i * 1000, -float(v)) for i, v in enumerate(values)]


def test_numbers_that_are_none_are_kept(tmp_path):
    writer = Writer(tmp_path)
    for step, value in enumerate((math.nan, math.inf, -math.inf, 1e300, -1e300)):
        writer.scalars(step, {"x": value})
    writer.close()
    found = [value for _, value in series(tmp_path, "x")]
    assert math.isnan(found[0]) and found[1:] == [math.inf, -math.inf, math.inf, -math.inf]


def test_a_second_attempt_replaces_what_it_repeats(tmp_path):
    for begin, steps in ((0, range(10)), (6, range(6, 12))):
        writer = Writer(tmp_path, begin)
        for step in steps:
            writer.scalars(step, {"x": float(step + 100 * begin)})
        writer.close()
    assert series(tmp_path, "x") == [(s, float(s)) for s in range(6)] + [(s, s + 600.0) for s in range(6, 12)]
