"""Reading a log file without its index: whole entries from a place, and the next after damage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from steelyard.store import batch as batches
from steelyard.store import entry as entries

SCAN_BYTES = 1024 * 1024
"""Size of the pieces in which the log is read, unless an entry is larger."""

SECTOR_BYTES = 512
"""The smallest unit that a disk writes."""

TELLING_BYTES = 16
"""Fewer zeros at an end of an entry prove nothing: sizes, small offsets and empty values have them.
"""

Address = Callable[[int], int]
"""Returns the address of the entry at a position of the log."""

Read = Callable[[int, int], bytes]
"""Reads a number of bytes from a position of the log. Raises StorageError if they do not exist."""

_HEADS = re.compile(rb"(?s)(?=\x00\x00\x00.{9}(?:\x00{4}|\xff{4})\x02|.{4}\xda\xa3\x20[\xa7\xab])")
"""Where an entry may begin: a batch (offset, size, leader epoch, magic) or a record (size, magic).

The leader epoch is 0 or -1, a batch's magic 2.
"""

Place = tuple[int, int]
"""Position and offset."""


class ScannedEntry(msgspec.Struct, frozen=True, gc=False):
    """A whole entry.

    `tag_code`: None for a batch. `timestamp`: when it was stored, of a batch its largest.
    """

    position: int
    offset: int
    size: int
    count: int
    tag_code: int | None
    timestamp: int
    data: bytes


def scan(
    read: Read, address_of: Address, position: int, offset: int, end: int
) -> Iterator[ScannedEntry]:
    """Each whole entry from a place on, up to the first that is not, or to position `end`."""
    data, data_position = b"", position
    while position < end:
        start = position - data_position
        place = offset, address_of(position)
        size, is_batch = _entry_at(data, start, *place)
        if not size or start + size > len(data):
            piece = min(max(size, SCAN_BYTES), end - position)
            data, data_position, start = read(position, piece), position, 0
            size, is_batch = _entry_at(data, 0, *place)
            if len(data) < size <= end - position:
                data = read(position, size)
        if not size or start + size > len(data):
            return
        found = _whole(data, start, size, is_batch, place, position)
        if found is None:
            return
        yield found
        position += size
        offset += found.count


def find_next(
    read: Read, address_of: Address, position: int, offset: int, end: int
) -> ScannedEntry | None:
    """The first whole entry behind `position`, where one of `offset` ought to be and is damaged.

    None without one.

    Looks first where the damaged entry claims to end: other apparent entries may be part of a
    message.
    """
    head = read(position, min(batches.HEAD_BYTES, end - position))
    start = position
    for size in (entries.size_of(head), batches.size_at(head) if len(head) >= 12 else 0):
        if 0 < size < end - position:
            found = _at(read, address_of, position + size, (start, offset), end)
            if found is not None:
                return found
    position += 1
    while position < end:
        piece = read(position, min(SCAN_BYTES + batches.HEAD_BYTES, end - position))
        for match in _HEADS.finditer(piece):
            if match.start() < SCAN_BYTES:
                found = _at(read, address_of, position + match.start(), (start, offset), end)
                if found is not None:
                    return found
        position += SCAN_BYTES
    return None


def entry_beyond(
    read: Read, address_of: Address, position: int, offset: int, end: int
) -> ScannedEntry | None:
    """The whole entry at a position if its offset is beyond this one and possible there."""
    return _at(read, address_of, position, (position, offset), end)


def scan_left(read: Read, position: int, offset: int, end: int) -> Iterator[ScannedEntry]:
    """Each whole entry that compaction left: as `scan`, but of `offset` or any later one.

    Records may have been written at another address.
    """
    data, data_position = b"", position
    while position < end:
        found = _left(data, position - data_position, position, offset)
        if found is None:
            piece = min(SCAN_BYTES, end - position)
            data, data_position = read(position, piece), position
            size = entries.size_of(data) or (batches.size_at(data) if piece >= 12 else 0)
            if piece < size <= end - position:
                data = read(position, size)
            found = _left(data, 0, position, offset)
        if found is None:
            return
        yield found
        position += found.size
        offset = found.offset + found.count


def find_left(read: Read, position: int, offset: int, end: int) -> ScannedEntry | None:
    """The first whole entry behind `position`, for `scan_left`, where a damaged one is."""
    position += 1
    while position < end:
        piece = read(position, min(SCAN_BYTES + batches.HEAD_BYTES, end - position))
        for match in _HEADS.finditer(piece):
            if match.start() < SCAN_BYTES:
                at = position + match.start()
                found = next(scan_left(read, at, offset, end), None)
                if found is not None:
                    return found
        position += SCAN_BYTES
    return None


def _left(data: bytes, start: int, position: int, offset: int) -> ScannedEntry | None:
    """Return the whole entry there if it is of an offset from `offset` on."""
    if start + batches.HEAD_BYTES > len(data):
        return None
    size = entries.size_of(data, start)
    is_batch = not size
    place = (batches.base_offset(data, start), 0)
    if is_batch:
        size = batches.size_of(data, start, place[0])
    else:
        place = entries.places(data, start)
    if place[0] < offset or not 0 < size <= len(data) - start:
        return None
    return _whole(data, start, size, is_batch, place, position)


def looks_unwritten(data: bytes, position: int) -> bool:
    """Return whether these bytes begin or end in a sector of zeros, as a power cut leaves it.

    `position`: where they are in the file. A sector shared with other bytes counts as far as it is
    theirs if that is at least TELLING_BYTES, otherwise together with the next one.
    """
    return begins_unwritten(data, position) or ends_unwritten(data, position + len(data))


def begins_unwritten(data: bytes, position: int) -> bool:
    """As `looks_unwritten`, of the beginning at a position; two sectors of it are enough."""
    first = -position % SECTOR_BYTES
    first += SECTOR_BYTES if first < TELLING_BYTES else 0
    return not any(data[:first])


def ends_unwritten(data: bytes, end: int) -> bool:
    """As `looks_unwritten`, of what ends at a position; two sectors of it are enough."""
    last = end % SECTOR_BYTES
    last += SECTOR_BYTES if last < TELLING_BYTES else 0
    return not any(data[-last:])


def is_ahead(place: Place, other: Place) -> bool:
    """Return whether `other` can be the place of an entry behind one at `place`."""
    room = other[0] - place[0]
    return room >= 0 and 0 < other[1] - place[1] <= room + batches.COUNT_MAX


def _at(
    read: Read, address_of: Address, position: int, damaged: Place, end: int
) -> ScannedEntry | None:
    """Return the whole entry at a position if it can be one behind a damaged one."""
    head = read(position, min(batches.HEAD_BYTES, end - position))
    if len(head) < batches.HEAD_BYTES:
        return None
    is_batch = not entries.size_of(head)
    place = batches.base_offset(head), address_of(position)
    if not is_batch:
        address = place[1]
        place = entries.places(head)
        if place[1] != address:
            return None
    size, is_batch = _entry_at(head, 0, *place)
    if not is_ahead(damaged, (position, place[0])) or not 0 < size <= end - position:
        return None
    return _whole(read(position, size), 0, size, is_batch, place, position)


def _whole(
    data: bytes, start: int, size: int, is_batch: bool, place: tuple[int, int], position: int
) -> ScannedEntry | None:
    if is_batch:
        if not batches.is_intact(data, start, size):
            return None
        whole = data[start : start + size]
        count, timestamp = batches.span_of(whole), batches.max_timestamp(whole)
        return ScannedEntry(position, place[0], size, count, None, timestamp, whole)
    if not entries.is_intact(data, start, size, *place):
        return None
    whole = data[start : start + size]
    tag_code, timestamp = entries.tag_code(whole), entries.stored_at(whole)
    return ScannedEntry(position, place[0], size, 1, tag_code, timestamp, whole)


def _entry_at(data: bytes, start: int, offset: int, address: int) -> tuple[int, bool]:
    """Return the size of the entry at `start` (0: none) and whether it is a batch."""
    if start + batches.HEAD_BYTES > len(data):
        return 0, False
    size = entries.size_of(data, start)
    if size and entries.places(data, start) == (offset, address):
        return size, False
    return batches.size_of(data, start, offset), True
