"""Addresses: one number for an entry in the whole store.

    address   log id << 40 | position in its log, modulo 2**40

Positions of a log count on for ever, those in addresses begin again after every 2**40 bytes (1 TiB)
of the log. So an address names an entry until as much again has been written to the log.
"""

from __future__ import annotations

POSITION_BITS = 40
"""Bits of an address for the position; the others are the log id."""

POSITION_MASK = (1 << POSITION_BITS) - 1

LOG_ID_MAX = (1 << 63 - POSITION_BITS) - 1


def address_of(log_id: int, position: int) -> int:
    """Return the address of the entry at a position of a log."""
    return log_id << POSITION_BITS | position & POSITION_MASK


def distance(begin: int, end: int) -> int:
    """Return how many bytes a log has grown between two of its `next_address`."""
    return (end - begin) & POSITION_MASK


def is_before(address: int, other: int) -> bool:
    """Return whether the other of two addresses of a log is the later one."""
    return 0 < distance(address, other) <= POSITION_MASK // 2
