"""Kafka's primitive types: bytes to values and back.

A reader takes the bytes and a position and returns the value and the position after it. A writer
appends to a list of pieces, so that a large value is never copied. Compact forms (in flexible
versions) have their size plus one as an unsigned varint, 0 for null. Readers raise ProtocolError if
the bytes end too early, and never trust a size. Source: clients/common/protocol/types/Type.java,
ByteUtils.java, KIP-482.
"""

from __future__ import annotations

import struct

from steelyard.errors import ProtocolError
from steelyard.types import Sendable

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

NULL_INT16 = _INT16.pack(-1)
NULL_INT32 = _INT32.pack(-1)

STRING_BYTES_MAX = 0x7FFF
UVARINT_BYTES_MAX = 5

_UVARINTS = tuple(
    bytes((value,)) if value < 0x80 else bytes((value & 0x7F | 0x80, value >> 7))
    for value in range(1024)
)


def ends_early(at: int) -> ProtocolError:
    """Return the error for a message that is shorter than it claims."""
    return ProtocolError(f"the message ends too early, in the field at byte {at}")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint: 7 bits per byte, least significant first."""
    if value < 1024:
        return _UVARINTS[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + 1
    except IndexError:
        raise ends_early(at) from None
    raise ProtocolError(f"an unsigned varint of more than {UVARINT_BYTES_MAX} bytes at byte {at}")


# -- strings ---------------------------------------------------------------------------------------


def _text(data: bytes, at: int, end: int) -> str:
    if end > len(data):
        raise ends_early(at)
    try:
        return str(data[at:end], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the text at byte {at} is not UTF-8: {error.reason}") from None


def read_string(data: bytes, at: int) -> tuple[str | None, int]:
    if at + 2 > len(data):
        raise ends_early(at)
    (size,) = _INT16.unpack_from(data, at)
    if size < 0:
        return None, at + 2
    end = at + 2 + size
    return _text(data, at + 2, end), end


def read_compact_string(data: bytes, at: int) -> tuple[str | None, int]:
    size, at = read_uvarint(data, at)
    if not size:
        return None, at
    end = at + size - 1
    return _text(data, at, end), end


def write_string(out: list[Sendable], value: str | None) -> None:
    if value is None:
        out.append(NULL_INT16)
        return
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ProtocolError(
            f"a text of {len(data)} bytes; the protocol has room for {STRING_BYTES_MAX}"
        )
    out.append(_INT16.pack(len(data)) + data)


def write_compact_string(out: list[Sendable], value: str | None) -> None:
    if value is None:
        out.append(b"\0")
        return
    data = value.encode()
    out.append(uvarint(len(data) + 1) + data)


# -- bytes -----------------------------------------------------------------------------------------


def read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    if at + 4 > len(data):
        raise ends_early(at)
    (size,) = _INT32.unpack_from(data, at)
    at += 4
    if size < 0:
        return None, at
    return _slice(data, at, at + size)


def read_compact_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_uvarint(data, at)
    return (None, at) if not size else _slice(data, at, at + size - 1)


def _slice(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    if end > len(data):
        raise ends_early(at)
    return data[at:end], end


def write_bytes(out: list[Sendable], value: Sendable | None) -> None:
    if value is None:
        out.append(NULL_INT32)
        return
    out.append(_INT32.pack(len(value)))
    out.append(value)


def write_compact_bytes(out: list[Sendable], value: Sendable | None) -> None:
    if value is None:
        out.append(b"\0")
        return
    out.append(uvarint(len(value) + 1))
    out.append(value)


# -- arrays ----------------------------------------------------------------------------------------


def read_count(data: bytes, at: int) -> tuple[int, int]:
    """Read the number of elements of an array, -1 for null; each takes at least a byte."""
    if at + 4 > len(data):
        raise ends_early(at)
    (count,) = _INT32.unpack_from(data, at)
    at += 4
    if count > len(data) - at:
        raise ProtocolError(
            f"an array of {count} elements at byte {at}; {len(data) - at} bytes are left"
        )
    return max(count, -1), at


def read_compact_count(data: bytes, at: int) -> tuple[int, int]:
    count, at = read_uvarint(data, at)
    if count - 1 > len(data) - at:
        raise ProtocolError(
            f"an array of {count - 1} elements at byte {at}; {len(data) - at} bytes are left"
        )
    return count - 1, at


def write_count(out: list[Sendable], count: int) -> None:
    out.append(_INT32.pack(count))


def write_compact_count(out: list[Sendable], count: int) -> None:
    out.append(uvarint(count + 1))


# -- tagged fields ---------------------------------------------------------------------------------


TAGS_MAX = 100
"""Maximum tagged fields of a structure. Those of Kafka 4 have up to 3, later ones may have more."""


def read_tags(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Read the tagged fields of a flexible structure by tag; unknown ones are ignored (KIP-482)."""
    count, at = read_uvarint(data, at)
    if count > TAGS_MAX:
        raise ProtocolError(f"a structure with {count} tagged fields; {TAGS_MAX} are allowed")
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        tags[tag], at = _slice(data, at, at + size)
    return tags, at


def write_tags(out: list[Sendable], tags: list[tuple[int, bytes]]) -> None:
    """Write tagged fields in the order of their tags."""
    out.append(uvarint(len(tags)))
    for tag, data in tags:
        out.append(uvarint(tag) + uvarint(len(data)) + data)
