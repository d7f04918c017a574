"""The records of a table's file, and the distinction between torn writes and damage.

    record: uint32 CRC of the rest, uint32 key size, uint32 value size (0xFFFFFFFF: the key is
            deleted), key in UTF-8, value; big-endian

A process killed during a write leaves the beginning of what it wrote, and nothing after it: an
incomplete record at the end of the file. Such a tail was never acknowledged, and may be cut.
Anything else that is not a record is damage: whole records follow it, or a record of full length
does not match its CRC, or one with a wrong size would match if it ended where the file does, or if
one bit of its sizes were flipped. The next record after damage is found by trying every byte.

A power cut may also leave unwritten pages, as zeros: those count as torn, too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import msgspec

KEY_BYTES_MAX = 1024 * 1024 - 1
"""More than any key has: keys are names from requests, whose headers are smaller."""

VALUE_BYTES_MAX = 64 * 1024 * 1024

HEAD_BYTES = 12
PAGE_BYTES = 4096
ZEROS_MIN = 512
"""This many zeros at the end of a file were never written; fewer may be the end of a value."""

_HEAD = struct.Struct(">III")
_SIZES = struct.Struct(">II")
_DELETED = 0xFFFFFFFF


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A whole record of `size` bytes at `position`. `value`: None if it deletes the key."""

    position: int
    size: int
    key: str
    value: bytes | None


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Bytes that are not a record. `torn`: an incomplete last write, otherwise damage.

    `key`: of the record that seems to have been there; empty if unknown or possibly several.
    """

    position: int
    size: int
    torn: bool
    key: str = ""


def encode(key: str, value: bytes | None) -> bytes:
    """Encode the record that sets a key, or deletes it."""
    name = key.encode()
    assert len(name) <= KEY_BYTES_MAX, f"a key of {len(name)} bytes"
    if value is None:
        rest = _SIZES.pack(len(name), _DELETED) + name
    else:
        assert len(value) <= VALUE_BYTES_MAX, f"a value of {len(value)} bytes"
        rest = _SIZES.pack(len(name), len(value)) + name + value
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def encoded_size(key: str, value: bytes) -> int:
    """Return the size of the record that sets a key."""
    return HEAD_BYTES + len(key.encode()) + len(value)


def decode(data: bytes) -> Iterator[Entry | Gap]:
    """Yield everything in a table's file, in order: records and gaps."""
    position = 0
    while position < len(data):
        entry = _entry_at(data, position)
        if entry is not None:
            yield entry
            position += entry.size
            continue
        following = _next_entry(data, position + 1)
        end = len(data) if following is None else following
        torn = following is None and _is_torn(data, position)
        yield Gap(position, end - position, torn, _key_at(data, position, end, torn=torn))
        position = end


def _entry_at(data: bytes, position: int) -> Entry | None:
    """Return the whole record that begins there, or None."""
    if position + HEAD_BYTES > len(data):
        return None
    crc, key_size, value_size = _HEAD.unpack_from(data, position)
    end = _end(position, key_size, value_size)
    if key_size > KEY_BYTES_MAX or end > len(data):
        return None
    if zlib.crc32(memoryview(data)[position + 4 : end]) != crc:
        return None
    key_end = position + HEAD_BYTES + key_size
    key = data[position + HEAD_BYTES : key_end].decode()
    value = None if value_size == _DELETED else data[key_end:end]
    return Entry(position, end - position, key, value)


def _end(position: int, key_size: int, value_size: int) -> int:
    return position + HEAD_BYTES + key_size + (0 if value_size == _DELETED else value_size)


def _next_entry(data: bytes, start: int) -> int | None:
    """Return where the next whole record begins, or None."""
    for position in range(start, len(data) - HEAD_BYTES + 1):
        if data[position + 4] or data[position + 5] > 15:
            continue  # a key above the limit: rejected without computing the CRC
        if _entry_at(data, position) is not None:
            return position
    return None


def _is_torn(data: bytes, position: int) -> bool:
    """Return whether the last bytes of a file, none a whole record, can be an incomplete write."""
    left = len(data) - position
    if left < HEAD_BYTES or _is_unwritten(data, position):
        return True
    key_size, value_size = _SIZES.unpack_from(data, position + 4)
    if _end(position, key_size, value_size) <= len(data):
        return False
    if key_size > KEY_BYTES_MAX or (value_size > VALUE_BYTES_MAX and value_size != _DELETED):
        return False
    return _filling(data, position, len(data)) is None and not _has_wrong_bit(data, position)


def _filling(data: bytes, position: int, end: int) -> int | None:
    """Return the key size of the one record that filled these bytes; None if no sizes fit.

    If one of the two sizes is wrong, it follows from the other.
    """
    room = end - position - HEAD_BYTES
    if room < 0:
        return None
    crc, key_size, value_size = _HEAD.unpack_from(data, position)
    if _end(position, key_size, value_size) == end:
        return int(key_size)
    key_room = room if value_size == _DELETED else room - value_size
    candidates = ((key_room, value_size), (key_size, room - key_size), (room, _DELETED))
    for key, value in candidates:
        if key >= 0 and value >= 0:
            rest = _SIZES.pack(key, value) + data[position + HEAD_BYTES : end]
            if zlib.crc32(rest) == crc:
                return key
    return None


def _has_wrong_bit(data: bytes, position: int) -> bool:
    """Return whether a record begins there that would be whole with one bit of its sizes flipped.

    A torn write may follow it.
    """
    crc = int.from_bytes(data[position : position + 4])
    sizes = int.from_bytes(data[position + 4 : position + HEAD_BYTES])
    for bit in range(64):
        head = (sizes ^ 1 << bit).to_bytes(8)
        end = _end(position, *_SIZES.unpack(head))
        if end <= len(data) and zlib.crc32(head + data[position + HEAD_BYTES : end]) == crc:
            return True
    return False


def _is_unwritten(data: bytes, position: int) -> bool:
    """Return whether the file ends in a page, or most of one, that a power cut left as zeros."""
    page = (len(data) - 1) // PAGE_BYTES * PAGE_BYTES
    tail = data[max(position, page) :]
    return not any(tail) and (position >= page or len(tail) >= ZEROS_MIN)


def _key_at(data: bytes, position: int, end: int, *, torn: bool) -> str:
    """Return as much of a damaged record's key as is known. The sizes of a torn one are correct."""
    if position + HEAD_BYTES > len(data):
        return ""
    _, key_size, _ = _HEAD.unpack_from(data, position)
    if not torn:
        key_size = _filling(data, position, end) or 0
    key = data[position + HEAD_BYTES : position + HEAD_BYTES + key_size]
    if len(key) != key_size or key_size > KEY_BYTES_MAX:
        return ""
    text = key.decode("utf-8", "replace")
    return text if text.isprintable() else ""
