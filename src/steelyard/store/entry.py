"""The fields of a RocketMQ commit log record that the store reads; `batch` reads Kafka batches.

    at   0  int32  total size          at  28  int64  physical offset (our address)
    at   4  int32  magic               at  36  int32  system flag: IPv6 of born 0x10, store 0x20
    at   8  int32  CRC of the body     at  48  born host, 8 bytes or 20
    at  20  int64  queue offset        then store timestamp 8, store host 8 or 20, 12 more,
                                       body size 4, body, topic size 1 (v2: 2), topic,
                                       properties size 2, properties
Source: common/message/MessageDecoder.java. `wire.remoting.message` makes and reads the rest; the
two rooms must not import each other, so the few fields that recovery needs are read here.
"""

from __future__ import annotations

import struct
import zlib

RECORDS = 0
"""Kind of an entry: a record of RocketMQ's commit log, which takes one offset."""
BATCHES = 1
"""Kind of an entry: a Kafka record batch, which takes as many offsets as it has records."""

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
"""Magic of records whose topic has more than 127 bytes: its size takes two bytes."""

HEAD_BYTES = 76
"""Bytes of an entry that are enough to read its size, offset, address and store timestamp."""

SIZE_MIN = 91
"""Size of an entry without body, topic and properties."""

_SIZE_MAGIC_CRC = struct.Struct(">III")
_PLACES = struct.Struct(">qq")
PLACES_BYTE = 20
unpack_places = _PLACES.unpack_from
"""`places` without the call: `unpack_places(entry, PLACES_BYTE)`."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_BORN_IPV6 = 0x10
_STORE_IPV6 = 0x20
_TAGS = b"TAGS\x01"


def places(entry: bytes, start: int = 0) -> tuple[int, int]:
    """Return the (queue offset, address) for which the entry was written."""
    found: tuple[int, int] = unpack_places(entry, start + PLACES_BYTE)
    return found


def size_of(data: bytes, start: int = 0) -> int:
    """Return the total size of the entry at `start`; 0 if none begins there."""
    if start + 12 > len(data):
        return 0
    size, magic, _ = _SIZE_MAGIC_CRC.unpack_from(data, start)
    return int(size) if magic in (MAGIC_V1, MAGIC_V2) and size >= SIZE_MIN else 0


def stored_at(entry: bytes, start: int = 0) -> int:
    """Return the store timestamp in ms since the epoch; the first HEAD_BYTES are enough."""
    (flag,) = _INT32.unpack_from(entry, start + 36)
    (timestamp,) = _INT64.unpack_from(entry, start + (68 if flag & _BORN_IPV6 else 56))
    return int(timestamp)


def is_intact(data: bytes, start: int, size: int, offset: int, address: int) -> bool:
    """Return whether the `size` bytes at `start` are a whole entry for this offset and address.

    Checks the sizes of body, topic and properties against the whole, and the body against its CRC.
    """
    end = start + size
    if places(data, start) != (offset, address):
        return False
    body = _body(data, start, end)
    if body is None:
        return False
    body_start, body_end = body
    (crc,) = _INT32.unpack_from(data, start + 8)
    if zlib.crc32(memoryview(data)[body_start:body_end]) & 0x7FFFFFFF != crc & 0x7FFFFFFF:
        return False
    found = _properties(data, start, body_end, end)
    return found is not None and found[1] == end


def tag_code(entry: bytes) -> int:
    """Return the index's tag code of an intact entry: Java's hash of TAGS, 0 without tags."""
    body = _body(entry, 0, len(entry))
    found = None if body is None else _properties(entry, 0, body[1], len(entry))
    if found is None:
        return 0
    properties = entry[found[0] : found[1]]
    for part in properties.split(b"\x02"):
        if part.startswith(_TAGS):
            return java_hash(part[len(_TAGS) :].decode("utf-8", "replace"))
    return 0


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 units, signed 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for place in range(0, len(units), 2):
        code = (31 * code + (units[place] << 8 | units[place + 1])) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


def _body(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    (flag,) = _INT32.unpack_from(data, start + 36)
    begin = start + 84 + (12 if flag & _BORN_IPV6 else 0) + (12 if flag & _STORE_IPV6 else 0)
    if begin + 4 > end:
        return None
    (size,) = _INT32.unpack_from(data, begin)
    body_end = begin + 4 + size
    return (begin + 4, body_end) if size >= 0 and body_end + 3 <= end else None


def _properties(data: bytes, start: int, body_end: int, end: int) -> tuple[int, int] | None:
    (magic,) = _INT32.unpack_from(data, start + 4)
    if magic & 0xFFFFFFFF == MAGIC_V2:
        topic_end = body_end + 2 + _INT16.unpack_from(data, body_end)[0]
    else:
        topic_end = body_end + 1 + data[body_end]
    if topic_end < body_end or topic_end + 2 > end:
        return None
    begin = topic_end + 2
    properties_end = begin + _INT16.unpack_from(data, topic_end)[0]
    return (begin, properties_end) if begin <= properties_end <= end else None
