"""A row: one number that says when a waiting message is due and where it lies.

    bits from 44 on   when it is due, in ms since the epoch
    bit 43            0: the message recalls another one; 1: it is to be delivered
    bits 0 to 42      its offset in the log of the waiting messages

So rows sort by time, and of one time those that recall come first. On the disk a row is two
64-bit numbers: the time, and the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

DUE_BITS = 44
_LOW_MASK = (1 << DUE_BITS) - 1
_DELIVER = 1 << 43
_OFFSET_MASK = _DELIVER - 1
_PAIR = struct.Struct(">qq")

ROW_BYTES = _PAIR.size

SLOT_MS = 3_600_000
"""How much time a slot covers: the rows that are due in an hour lie together on the disk."""


def row_of(due: int, offset: int, *, recalls: bool = False) -> int:
    """Return the row of a message."""
    return due << DUE_BITS | (0 if recalls else _DELIVER) | offset


def first_row_at(due: int) -> int:
    """Return a row that is before all others of this time, and after all of earlier times."""
    return due << DUE_BITS


def due_in(row: int) -> int:
    return row >> DUE_BITS


def offset_in(row: int) -> int:
    return row & _OFFSET_MASK


def is_recall(row: int) -> bool:
    return not row & _DELIVER


def slot_of(row: int) -> int:
    """Return the number of the slot that the row belongs to."""
    return (row >> DUE_BITS) // SLOT_MS


def pack(rows: Iterable[int]) -> bytes:
    return b"".join([_PAIR.pack(row >> DUE_BITS, row & _LOW_MASK) for row in rows])


def unpack(data: bytes) -> list[int]:
    """Return the rows; a part of one at the end is left out."""
    whole = len(data) - len(data) % ROW_BYTES
    return [due << DUE_BITS | low for due, low in _PAIR.iter_unpack(data[:whole])]
