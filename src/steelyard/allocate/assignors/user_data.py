"""The assignors' user data, which members send to the leader in their subscription.

- sticky, version 1: `[topic string, [partition int32]], generation int32`, the member's last
  assignment and its generation, because an eager member joins without partitions. Version 0 lacks
  the generation. kafka-python 3 prepends the version as an int16, which Java's assignor cannot
  read; this one can.
- cooperative-sticky: `generation int32`, for subscriptions of a version below 2, which have no
  field for it.

Unreadable bytes count as no claim. Source: clients/consumer/StickyAssignor.java,
CooperativeStickyAssignor.java.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from steelyard.allocate.assignors.plan import DEFAULT_GENERATION
from steelyard.types import TopicPartition, numbers_by_topic

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_KAFKA_PYTHON_VERSION_1 = b"\0\1"


class MemberData(NamedTuple):
    """What a member holds, and in which generation it got it."""

    owned: Sequence[TopicPartition] = ()
    generation: int = DEFAULT_GENERATION


def write_sticky(assigned: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Encode a member's assignment; None for a member that has not been in a generation."""
    if generation < 0:
        return None
    numbers_of = numbers_by_topic(assigned)
    parts = [_INT32.pack(len(numbers_of))]
    for topic, numbers in numbers_of.items():
        name = topic.encode()
        parts += (_INT16.pack(len(name)), name)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join([*parts, _INT32.pack(generation)])


def read_sticky(data: bytes) -> MemberData:
    """Of either version, and of kafka-python; an empty claim where the bytes are none of these."""
    claim = _read_sticky(data)
    if claim is None and data.startswith(_KAFKA_PYTHON_VERSION_1):
        claim = _read_sticky(data[len(_KAFKA_PYTHON_VERSION_1) :])
    return claim or MemberData()


def _read_sticky(data: bytes) -> MemberData | None:
    owned: list[TopicPartition] = []
    try:
        (topics,), at = _INT32.unpack_from(data), 4
        if topics < 0:
            return None
        for _ in range(topics):
            (size,) = _INT16.unpack_from(data, at)
            name, at = data[at + 2 : at + 2 + size], at + 2 + size
            (count,) = _INT32.unpack_from(data, at)
            if size < 0 or count < 0 or at + 4 + 4 * count > len(data):
                return None
            topic = name.decode()
            numbers = struct.unpack_from(f">{count}i", data, at + 4)
            owned += [TopicPartition(topic, number) for number in numbers]
            at += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return None
    return MemberData(owned, _INT32.unpack_from(data, at)[0] if at + 4 <= len(data) else -1)


def write_generation(assigned: Sequence[TopicPartition], generation: int) -> bytes:
    return _INT32.pack(generation)


def read_generation(data: bytes | None) -> int:
    if data is None or len(data) < 4:
        return DEFAULT_GENERATION
    return int(_INT32.unpack_from(data)[0])
