"""Where the records of a batch begin: each begins with its size, so one is found after the other.

Neighbours often have one size. numpy finds out at once how many following records begin with the
bytes of this one's size. Where they differ, a loop goes on for a while before the next attempt.
"""

from __future__ import annotations

import numpy as np

from steelyard.errors import ProtocolError
from steelyard.spark.joining import Integers, Octets
from steelyard.wire.kafka.records import read_varint

RUN_MIN = 32
"""Records at which numpy looks first; twice as many each time that all have one size."""
RUN_WORTH = 8
"""Records of one size for which an attempt was worth its time."""
SINGLES_MAX = 4_096
"""Maximum records between two attempts; twice as many after each that was not worth it."""


def record_borders(data: bytes, at: int, end: int, count: int) -> Integers:
    """Return where each of `count` records begins, the first one at `at`, and the last one ends.

    A record may reach beyond `end`. Raises IndexError or ProtocolError if sizes make no sense.
    """
    if count <= RUN_MIN:
        return np.array(_walked(data, at, count), np.int64)
    octets = np.frombuffer(data, np.uint8)
    found: list[Integers] = []
    ahead, singles = RUN_MIN, RUN_MIN
    while count:
        if count > RUN_MIN:
            run, step = _run(data, octets, at, end, min(count, ahead))
            found.append(at + step * np.arange(run))
            at += run * step
            count -= run
            ahead = 2 * ahead if run == ahead else RUN_MIN
            if run >= RUN_WORTH:
                singles = RUN_MIN
                continue
        walked = _walked(data, at, min(count, singles))
        found.append(np.array(walked[:-1], np.int64))
        at = walked[-1]
        count -= len(walked) - 1
        singles = min(2 * singles, SINGLES_MAX)
    found.append(np.array([at], np.int64))
    return np.concatenate(found)


def _run(data: bytes, octets: Octets, at: int, end: int, most: int) -> tuple[int, int]:
    """Return how many records from `at` on have one size, of `most` at most, and that size."""
    size, body = read_varint(data, at)
    step = body - at + size
    most = min(most, (end - at) // step) if size >= 0 else 0
    if most < 1:
        raise ProtocolError(f"a record at byte {at} claims {size} bytes")
    alike = np.ones(most, np.bool_)
    for place in range(at, body):
        alike &= octets[place : at + most * step : step] == data[place]
    return most if alike.all() else int(alike.argmin()), step


def _walked(data: bytes, at: int, count: int) -> list[int]:
    """Return where each of `count` records begins, and the last one ends."""
    borders = [at]
    for _ in range(count):
        size = data[at]
        at += 1
        if size > 0x7F:
            more = data[at]
            if more > 0x7F:
                size, at = read_varint(data, at - 1)
                size <<= 1
            else:
                size += (more << 7) - 0x80
                at += 1
        if size & 1 or size < 0:
            raise ProtocolError(f"a record at byte {borders[-1]} claims a negative size")
        at += size >> 1
        borders.append(at)
    return borders
