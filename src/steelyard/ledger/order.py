"""The order of records: by time, and for equal times by what they are, never by how they came."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter

import msgspec

from steelyard.ledger.events import Delivered, Record

_at = attrgetter("at")


def _key(record: Record) -> tuple[bool, int, str, bytes]:
    """Sort key for records of the same time. A delivery comes before what is said of it."""
    body = msgspec.json.encode(record)
    if isinstance(record, Delivered):
        return False, record.until, record.broker, body
    return True, 0, record.broker, body


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records in order."""
    found = sorted(records, key=_at)
    same = [n for n, (one, other) in enumerate(pairwise(map(_at, found))) if one == other]
    done = 0
    for first in same:
        if first >= done:
            done = bisect_right(found, found[first].at, lo=first, key=_at)
            found[first:done] = sorted(found[first:done], key=_key)
    return found
