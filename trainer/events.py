"""Writes event files as TensorBoard and the portal read them, with no library at all.

A record is framed as TFRecord does it (length, masked CRC-32C of the length, data, masked
CRC-32C of the data); the data is an Event message of TensorFlow's event.proto. Every record
is on its way to the disk when the call returns, so that curves are live.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from pathlib import Path


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """As TFRecord stores it: rotated and shifted, because a CRC of data with CRCs in it is weak."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join((length, struct.pack("<I", masked(length)), data, struct.pack("<I", masked(data))))


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF  # negative numbers take ten bytes
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _event(step: int, wall_time: float, content: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + content


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


class Writer:
    """One run: a directory with one file for each attempt.

    `begin` is the first step that this attempt writes. From 1 on it tells readers that what an
    earlier attempt wrote at this step and later is past (SessionLog.START).
    """

    def __init__(self, folder: Path, begin: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        # Readers take the files of a run in the order of their names.
        name = f"events.out.tfevents.{now:017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / name
        self._file = open(self.path, "xb", buffering=0)
        self._put(_event(0, now, _bytes(3, b"brain.Event:2")))
        if begin > 0:
            self._put(_event(begin, now, _bytes(7, b"\x08\x01")))

    def scalars(self, step: int, values: dict[str, float], wall_time: float | None = None) -> None:
        """Values by tag at one step, as `simple_value`."""
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + b"\x15" + _float(value)) for tag, value in values.items()
        )
        self._put(_event(step, time.time() if wall_time is None else wall_time, _bytes(5, summary)))

    def close(self) -> None:
        self._file.close()

    def _put(self, data: bytes) -> None:
        left = memoryview(record(data))
        while left:
            left = left[self._file.write(left) :]


class Nowhere(Writer):
    """Takes what another process writes."""

    def __init__(self, folder: Path, begin: int = 0):
        pass

    def _put(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass
