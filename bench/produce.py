"""Kafka's Produce request, encoded beforehand: the same batch of records for one partition again and again.

Version 3, which Apache Kafka from 0.11 on takes; see `ProduceRequest.json` and `DefaultRecordBatch.java` of Apache Kafka.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

_VERSION = 3
_ACKS, _TIMEOUT_MS = 1, 3_000


def produce_frame(
    topic: str, partition: int, messages: int, message_bytes: int, now_ms: int
) -> bytes:
    """One request with one batch of `messages`, all with the time `now_ms`."""
    name = topic.encode()
    records = record_batch(messages, message_bytes, now_ms)
    request = struct.pack(">hhih", 0, _VERSION, 1, -1)
    request += struct.pack(">hhii", -1, _ACKS, _TIMEOUT_MS, 1)
    request += struct.pack(">h", len(name)) + name
    request += struct.pack(">iii", 1, partition, len(records)) + records
    return struct.pack(">i", len(request)) + request


def record_batch(messages: int, message_bytes: int, now_ms: int) -> bytes:
    value = bytes(32 + place % 90 for place in range(message_bytes))
    records = b"".join(_record(place, value) for place in range(messages))
    checked = struct.pack(">hiqqqhii", 0, messages - 1, now_ms, now_ms, -1, -1, -1, messages)
    checked += records
    rest = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(place: int, value: bytes) -> bytes:
    no_key, no_headers = _varint(-1), _varint(0)
    body = b"\0" + _varint(0) + _varint(place) + no_key + _varint(len(value)) + value + no_headers
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """In zigzag, seven bits a byte, the lowest first."""
    left = (number << 1) ^ (number >> 31)
    coded = bytearray()
    while left > 0x7F:
        coded.append(left & 0x7F | 0x80)
        left >>= 7
    coded.append(left)
    return bytes(coded)


def base_offset(reply: bytes, topic: str) -> int | None:
    """The offset of the first message of the only partition of a reply; None for an error."""
    # Size, correlation id, count of topics, name, count of partitions, partition.
    at = 12 + 2 + len(topic.encode()) + 8
    code, offset = struct.unpack_from(">hq", reply, at)
    return None if code else int(offset)
