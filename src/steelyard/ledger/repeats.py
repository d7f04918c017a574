"""Offsets that a group was delivered more than once, and how many it processed more than once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import msgspec

from steelyard.ledger.events import Committed, Delivered, Queue

UNWRITTEN_MS = 2_000
"""Longest time before the death of a broker whose records were not written.

Brokers write once a second by default; the last record may be from the start of that second.
"""

COMMIT_MS = 120_000
"""How long after a delivery its member's commits are taken into account."""

RANGES_MAX = 1_000
"""Most separate ranges of offsets kept for a queue; beyond that the lowest are forgotten."""


class OffsetRanges(msgspec.Struct, array_like=True):
    """The offsets of one queue delivered so far, as disjoint ranges in ascending order."""

    firsts: list[int] = []
    nexts: list[int] = []

    def add(self, first: int, following: int) -> int:
        """Add the offsets first..following-1; return how many of them were present before."""
        if following <= first:
            return 0
        firsts, nexts = self.firsts, self.nexts
        if nexts and first == nexts[-1]:  # nearly all deliveries
            nexts[-1] = following
            return 0
        left = bisect_left(nexts, first)
        right = bisect_right(firsts, following)
        known = 0
        start, end = first, following
        for i in range(left, right):
            known += max(0, min(following, nexts[i]) - max(first, firsts[i]))
            start, end = min(start, firsts[i]), max(end, nexts[i])
        firsts[left:right] = [start]
        nexts[left:right] = [end]
        if len(firsts) > RANGES_MAX:
            del firsts[0], nexts[0]
        return known


class Repeat(NamedTuple):
    """A delivery with offsets that had been delivered before, and how many they are.

    `reprocessed_max` may be more than `redelivered` after a broker died with records not written.
    """

    queue: Queue
    at: int
    redelivered: int
    reprocessed_min: int
    reprocessed_max: int


class _Waiting(msgspec.Struct, array_like=True, gc=False):
    """A delivery whose member may still report what its application was handed of it.

    All before `low` was handed over, nothing from `high` on. `may_change`: no commit has told
    exactly, and the member has not begun anew.
    """

    client: str
    at: int
    first: int
    next: int
    count: int
    is_unwritten: bool
    low: int
    high: int
    may_change: bool = True


class Deliveries(msgspec.Struct, array_like=True):
    """What a group was delivered of one queue: in the order of the calls, which is that of time.

    A member begins to read the queue when it takes over from another one, or goes back, as after an
    eager rebalance; what it commits until it begins again tells how far it came. Deliveries are
    compared with earlier ones when that is known, or after `COMMIT_MS`.
    """

    client: str = ""
    next: int = 0
    waiting: list[_Waiting] = []
    delivered: OffsetRanges = msgspec.field(default_factory=OffsetRanges)
    surely: OffsetRanges = msgspec.field(default_factory=OffsetRanges)
    """What applications were handed at least."""
    possibly: OffsetRanges = msgspec.field(default_factory=OffsetRanges)
    """And at most."""

    def add(self, one: Delivered, *, is_unwritten: bool) -> bool:
        """Add a delivery; return whether any is `known` for certain now.

        `is_unwritten`: it may have been delivered before, without a record.
        """
        client, first, following = one.client, one.first, one.next
        waiting = self.waiting
        if self.client != client or first < self.next:
            for earlier in waiting:
                if earlier.client == client:
                    earlier.may_change = False
        self.client, self.next = client, following
        waiting.append(
            _Waiting(client, one.at, first, following, one.count, is_unwritten, first, following)
        )
        return not waiting[0].may_change

    def committed(self, one: Committed) -> bool:
        """Note a member's commit, with what it reports of its application.

        Returns whether any delivery is `known` for certain now.
        """
        client, offset = one.client, one.offset
        for each in self.waiting:
            if not each.may_change or each.client != client:
                continue
            if one.handed is not None:
                each.low = each.high = min(max(one.handed, each.first), each.next)
                each.may_change = False
            elif offset > each.low:
                each.low = min(offset, each.next)
                each.may_change = each.low < each.next
        return bool(self.waiting) and not self.waiting[0].may_change

    def known(self, queue: Queue, before: float) -> list[Repeat]:
        """Return the deliveries with repeated offsets, as far as they are settled.

        Those up to `before` are, whatever may be reported of them later.
        """
        done = 0
        repeats: list[Repeat] = []
        for one in self.waiting:
            if one.may_change and one.at >= before:
                break
            done += 1
            if one.is_unwritten:
                self.possibly.add(one.first, one.next)
            redelivered = self.delivered.add(one.first, one.next)
            least = self.surely.add(one.first, one.low)
            most = self.possibly.add(one.first, one.high)
            if one.count and (redelivered or most):
                counts = (min(each, one.count) for each in (redelivered, least, most))
                repeats.append(Repeat(queue, one.at, *counts))
        del self.waiting[:done]
        return repeats
