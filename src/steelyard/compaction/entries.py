"""What compaction reads of an entry: the keys and values of a batch's records, or of a message.

A message of RocketMQ has its KEYS as the key, as it has for Kafka's consumers. One with an empty
body deletes its key.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from steelyard.errors import ProtocolError
from steelyard.types import Effort
from steelyard.wire.kafka.records import BatchHeader, read_brief
from steelyard.wire.kafka.unpacking import Unpacking
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.message import record_parts

T = TypeVar("T")
Steps = Generator[None, Any, T]
"""Work that yields when the effort given to it is used up; whoever goes on gives it more."""

RECORD_EFFORT = 3
"""The effort of reading a record; an effort of 1 is about a microsecond of an ordinary core."""

_KEYS = f"{props.KEYS}\x01".encode()


class UnpackedRecord(NamedTuple):
    """A record of a batch: as it is packed there, its true offset, and what decides about it.

    `is_true`: whether it has that offset itself. `timestamp`: less the batch's base timestamp.
    """

    packed: bytes
    offset: int
    key: bytes | None
    has_value: bool
    timestamp: int
    is_true: bool


def records_of(
    batch: bytes, header: BatchHeader, effort: Effort
) -> Steps[list[UnpackedRecord] | None]:
    """Return the records of a batch; None if one of them cannot be read.

    In a batch that has all of its records, their places tell their offsets, as for other readers.
    """
    unpacking = Unpacking(batch, header)
    while unpacking.reached < header.count:
        if unpacking.fault:
            return None
        if effort.left <= 0:
            yield
        effort.left = unpacking.reach(header.count, effort.left)
    base = header.base_offset
    found: list[UnpackedRecord] = []
    while len(found) < header.count:
        data, borders = unpacking.raw(len(found), header.count)
        for begin, end in pairwise(borders):
            try:
                timestamp, delta, key, has_value = read_brief(data, begin)
            except (ProtocolError, IndexError):
                return None
            place = delta if header.is_sparse else len(found)
            record = (data[begin:end], base + place, key, has_value, timestamp, delta == place)
            found.append(UnpackedRecord(*record))
            effort.left -= RECORD_EFFORT
            if effort.left <= 0:
                yield
    return found


def key_of_message(message: bytes) -> tuple[bytes, bool]:
    """Return the key of a RocketMQ record, empty if it has none, and whether it has a body."""
    try:
        _, _, _, _, body, properties = record_parts(message)
    except ProtocolError:
        return b"", True
    for part in properties.split(b"\x02"):
        if part.startswith(_KEYS):
            key = part[len(_KEYS) :]
            return key if key.strip() else b"", bool(body)
    return b"", bool(body)
