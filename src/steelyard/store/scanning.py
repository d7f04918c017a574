"""Reads a log file without its index: the whole entries from a place on, and the next one behind damage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from steelyard.store import batch as batches
from steelyard.store import entry as entries

SCAN_BYTES = 1024 * 1024
"""The log is read in pieces of this size, or of an entry where one is larger."""

SECTOR_BYTES = 512
"""What a disk writes at once, at least."""

TELLING_BYTES = 16
"""So few zeros at the begin or the end of an entry tell nothing: sizes and small offsets have them, and empty values."""

Read = Callable[[int, int], bytes]
"""The bytes of a log: from a position on, that many. Raises StorageError where they are not there."""

_HEADS = re.compile(rb"(?s)(?=\x00\x00\x00.{9}(?:\x00{4}|\xff{4})\x02|.{4}\xda\xa3\x20[\xa7\xab])")
"""Where an entry may begin: a batch (offset, size, leader epoch 0 or -1, magic 2) or a record (size, magic)."""


class ScannedEntry(msgspec.Struct, frozen=True, gc=False):
    """A whole entry. `tag_code`: None for a batch. `timestamp`: when it was stored, of a batch its largest."""

    position: int
    offset: int
    size: int
    count: int
    tag_code: int | None
    timestamp: int
    data: bytes


def scan(read: Read, log_base: int, position: int, offset: int, end: int) -> Iterator[ScannedEntry]:
    """Each whole entry from a place on, up to the first that is not, or to position `end`.

    `log_base`: the address of the log's position 0.
    """
    data, data_position = b"", position
    while position < end:
        start = position - data_position
        place = offset, log_base | position
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
    read: Read, log_base: int, position: int, offset: int, end: int
) -> ScannedEntry | None:
    """The first whole entry behind `position`, where one of `offset` ought to be and is damaged; None without one.

    Looks first where the damaged entry says that it ends: what else looks like an entry may be part of a message.
    """
    head = read(position, min(batches.HEAD_BYTES, end - position))
    start = position
    for size in (entries.size_of(head), batches.size_at(head) if len(head) >= 12 else 0):
        if 0 < size < end - position:
            found = _at(read, log_base, position + size, start, offset, end)
            if found is not None:
                return found
    position += 1
    while position < end:
        piece = read(position, min(SCAN_BYTES + batches.HEAD_BYTES, end - position))
        for match in _HEADS.finditer(piece):
            if match.start() < SCAN_BYTES:
                found = _at(read, log_base, position + match.start(), start, offset, end)
                if found is not None:
                    return found
        position += SCAN_BYTES
    return None


def looks_unwritten(data: bytes, position: int) -> bool:
    """Do these bytes, at `position` of a file, begin or end in a sector of nothing but zeros, as a power cut leaves it?

    A sector that they share with others counts as far as it is theirs, if that is TELLING_BYTES or more, else with the next one.
    """
    first = -position % SECTOR_BYTES
    last = (position + len(data)) % SECTOR_BYTES
    first += SECTOR_BYTES if first < TELLING_BYTES else 0
    last += SECTOR_BYTES if last < TELLING_BYTES else 0
    return not any(data[:first]) or not any(data[-last:])


def _at(
    read: Read, log_base: int, position: int, start: int, offset: int, end: int
) -> ScannedEntry | None:
    """The whole entry at a position, where its offset is beyond `offset`, but no more than there may be from `start` on."""
    head = read(position, min(batches.HEAD_BYTES, end - position))
    if len(head) < batches.HEAD_BYTES:
        return None
    is_batch = not entries.size_of(head)
    place = batches.base_offset(head), log_base | position
    if not is_batch:
        place = entries.places(head)
        if place[1] != log_base | position:
            return None
    size, is_batch = _entry_at(head, 0, *place)
    if (
        not offset < place[0] <= offset + position - start + batches.COUNT_MAX
        or not 0 < size <= end - position
    ):
        return None
    return _whole(read(position, size), 0, size, is_batch, place, position)


def _whole(
    data: bytes, start: int, size: int, is_batch: bool, place: tuple[int, int], position: int
) -> ScannedEntry | None:
    if is_batch:
        if not batches.is_intact(data, start, size):
            return None
        whole = data[start : start + size]
        count, timestamp = batches.count_of(whole), batches.max_timestamp(whole)
        return ScannedEntry(position, place[0], size, count, None, timestamp, whole)
    if not entries.is_intact(data, start, size, *place):
        return None
    whole = data[start : start + size]
    tag_code, timestamp = entries.tag_code(whole), entries.stored_at(whole)
    return ScannedEntry(position, place[0], size, 1, tag_code, timestamp, whole)


def _entry_at(data: bytes, start: int, offset: int, address: int) -> tuple[int, bool]:
    """The size of the entry that begins at `start` and was written for this place, 0 without one; is it a batch?

    A record says so by its magic and its places. A batch for the same offset cannot hold these at once:
    its last offset delta would exceed `batch.COUNT_MAX`.
    """
    if start + batches.HEAD_BYTES > len(data):
        return 0, False
    size = entries.size_of(data, start)
    if size and entries.places(data, start) == (offset, address):
        return size, False
    return batches.size_of(data, start, offset), True
