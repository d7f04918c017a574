"""The links of a segment: a running CRC-32C of its entries, stored in the index after each entry.

    record    the CRC continues over all of its bytes
    batch     over the first LINKED_BYTES only, which contain the CRC-32C of the rest
    hole      (`index.DAMAGED`, `GIVEN_UP`) the entry's link if it is known, otherwise 0

A segment begins with 0. Any run of records is intact if the running CRC over it, from the link
before the first record, equals the link of the last: one call, at some 20 GB/s.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from steelyard.store import batch as batches

_SIZE_CRC = struct.Struct(">8xi5xI")
LINKED_BYTES = 21
"""Linked bytes of a batch: base offset, size, leader epoch, magic, and the CRC of the rest."""


def record_link(data: bytes, link: int) -> int:
    """Return the link after contiguous records."""
    return int(crc32c(data, link))


def batch_link(batch: bytes, link: int) -> int:
    """Return the link after a batch, or after data that begins with one."""
    return int(crc32c(batch[:LINKED_BYTES], link))


def is_record(data: bytes, link: int, expected: int) -> bool:
    """Return whether these records were written after `link` and end with the link `expected`."""
    return bool(crc32c(data, link) == expected)


def is_batch(data: bytes, link: int, expected: int) -> bool:
    """Return whether this is one whole batch that was written after `link`."""
    return (
        len(data) >= batches.HEAD_BYTES
        and crc32c(data[:LINKED_BYTES], link) == expected
        and batches.size_at(data) == len(data)
        and batches.is_intact(data, 0, len(data))
    )


def are_batches(data: bytes, link: int, expected: int) -> bool:
    """Return whether these batches were written after `link` and end with the link `expected`.

    Takes half a microsecond per batch and some 50 per megabyte.
    """
    view = memoryview(data)
    position, last = 0, len(data) - batches.HEAD_BYTES
    while position <= last:
        size, crc = _SIZE_CRC.unpack_from(data, position)
        begin, position = position, position + size + batches.SIZE_BEFORE
        checked = begin + LINKED_BYTES
        link = crc32c(view[begin:checked], link)
        if position <= checked or crc32c(view[checked:position]) != crc:
            return False
    return position == len(data) and link == expected
