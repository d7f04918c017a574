"""From what members wrote down to what a rebalance cost, by the definitions of `steelyard.ledger.cost`.

Times are monotonic nanoseconds of one machine: Java's System.nanoTime and Python's time.monotonic_ns
read the same clock on Linux.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from steelyard.ledger.events import STALLED_MS
from steelyard.ledger.measures import pause_ms, percentile
from steelyard.ledger.starts import MERGE_MS

MS = 1_000_000

RECORD = struct.Struct(">qiq")
"""Time, queue, offset: a message that came to a listener, or a batch that a broker acknowledged (its first offset)."""

QUEUES_PER_BROKER_MAX = 1_000


def queue_number(broker_name: str, queue_id: int) -> int:
    """Queues of broker-a are 0, 1, …, those of broker-b 1000, 1001, …"""
    return (ord(broker_name[-1]) - ord("a")) * QUEUES_PER_BROKER_MAX + queue_id


class Delivery(NamedTuple):
    at: int
    member: str
    offset: int


class Tail:
    """Reads a file of records as it grows."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("rb")
        self._rest = b""

    def read(self) -> list[tuple[int, int, int]]:
        """The records since the last call."""
        data = self._rest + self._file.read()
        whole = len(data) - len(data) % RECORD.size
        self._rest = data[whole:]
        return list(RECORD.iter_unpack(data[:whole]))

    def close(self) -> None:
        self._file.close()


class Sent:
    """What the brokers acknowledged: batches of a fixed number of messages."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._batches: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def add(self, at: int, queue: int, first: int) -> None:
        self._batches[queue].append((first, at))

    def at(self, queue: int, offset: int) -> int:
        """When the message was sent; 0 for one that was never acknowledged."""
        batches = self._batches[queue]
        number = bisect_right(batches, (offset, 1 << 62)) - 1
        if number < 0 or batches[number][0] + self._batch <= offset:
            return 0
        return batches[number][1]

    def offsets(self) -> set[tuple[int, int]]:
        """Queue and offset of every message acknowledged."""
        return {
            (queue, first + step)
            for queue, batches in self._batches.items()
            for first, _ in batches
            for step in range(self._batch)
        }


class Move(NamedTuple):
    """A queue that went from one member to another. `pause_ns`: see `ledger.cost`; `after_ns`: from the event
    to its first message at the new owner."""

    queue: int
    old: str
    new: str
    pause_ns: int
    after_ns: int


def moves(deliveries: dict[int, list[Delivery]], sent: Sent, begin: int, end: int) -> list[Move]:
    """The queues whose owner at the end of a stage is another one than at its begin.

    An owner is the member with the last delivery. Deliveries of each queue are in the order of time.
    """
    moved = []
    for queue, all_of_queue in sorted(deliveries.items()):
        before = [one for one in all_of_queue if one.at < begin]
        within = [one for one in all_of_queue if begin <= one.at < end]
        if not before or not within or within[-1].member == before[-1].member:
            continue
        new = within[-1].member
        first = next(one for one in within if one.member == new)
        others = [one for one in all_of_queue if one.at < first.at and one.member != new]
        pause = pause_ms(others[-1].at, sent.at(queue, first.offset), first.at)
        moved.append(Move(queue, before[-1].member, new, pause, first.at - begin))
    return moved


class Wait(NamedTuple):
    """A time in which messages of a queue waited, and no listener got one of them."""

    begin: int
    end: int

    @property
    def ns(self) -> int:
        return self.end - self.begin


def longest_waits(
    deliveries: dict[int, list[Delivery]], sent: Sent, begin: int, end: int, until: int
) -> dict[int, Wait]:
    """Of each queue, the longest wait between two deliveries, to whomever, that ended in a stage.

    It counts from `begin` on: for how long the queue of a broker waited that was down is not the cost of its return. And it
    began before `until`, when all members had their shares: what comes later is not the event's. A queue without a delivery
    in the stage is left out.
    """
    found: dict[int, Wait] = {}
    for queue, of_queue in sorted(deliveries.items()):
        waits = [
            Wait(max(begin, new.at - pause_ms(old.at, sent.at(queue, new.offset), new.at)), new.at)
            for old, new in pairwise(of_queue)
            if begin <= new.at < end
        ]
        within = [wait for wait in waits if wait.begin < until]
        if within:
            found[queue] = max(within, key=lambda wait: wait.ns)
    return found


class Shared(NamedTuple):
    """What a stage cost those whose queues moved, and the others; times in ns."""

    moved: dict[int, int]
    """The longest wait of each queue that moved."""
    stayed: dict[int, int]
    """The same of the queues that did not."""
    after_ns: int
    """From the event until everybody held its share: each queue that moved was read by its new owner, and each other one that
    had stood still for `STALLED_MS` or more was read again."""


def shared(
    deliveries: dict[int, list[Delivery]], sent: Sent, moved: Sequence[Move], begin: int, end: int
) -> Shared:
    """Sum up a stage from its moves."""
    names = {move.queue for move in moved}
    after = max((move.after_ns for move in moved), default=0)
    waits = longest_waits(deliveries, sent, begin, end, begin + after + MERGE_MS * MS)
    stayed = {queue: wait for queue, wait in waits.items() if queue not in names}
    stood = [wait for wait in stayed.values() if wait.ns >= STALLED_MS * MS]
    return Shared(
        {queue: wait.ns for queue, wait in waits.items() if queue in names},
        {queue: wait.ns for queue, wait in stayed.items()},
        max([after, *(wait.end - begin for wait in stood)]),
    )


def held_since(deliveries: dict[int, list[Delivery]], begin: int) -> int:
    """From `begin` until each queue was read by its last reader alone, in ns."""
    times = [0]
    for of_queue in deliveries.values():
        owner = of_queue[-1].member
        others = [place for place, one in enumerate(of_queue) if one.member != owner]
        times.append(of_queue[others[-1] + 1 if others else 0].at - begin)
    return max(times)


def stalls(
    deliveries: dict[int, list[Delivery]],
    sent: Sent,
    begin: int,
    until: int,
    usual_ns: int,
    by_ns: int = 0,
) -> dict[int, int]:
    """The queues that stood still without moving, and how long (ns).

    Messages waited between two deliveries to one member, or to another that had the queue for less than `MERGE_MS`: by `by_ns`
    longer than `STALLED_MS` at least, and than at any time in the `usual_ns` before `begin`. They began to wait after `begin`
    (or `MERGE_MS` before it), and before `until`, when all members had their shares.
    """
    found: dict[int, int] = {}
    for queue, of_queue in deliveries.items():
        waits = [
            (new.at - wait, new.at, wait)
            for old, new in pairwise(of_queue)
            if (wait := pause_ms(old.at, sent.at(queue, new.offset), new.at))
            and _owner(of_queue, new.at + MERGE_MS * MS) == old.member
        ]
        usual = max((wait for _, end, wait in waits if begin - usual_ns <= end < begin), default=0)
        least = max(STALLED_MS * MS, usual + 1) + by_ns
        earliest = begin - MERGE_MS * MS
        stalled = [wait for start, _, wait in waits if earliest <= start <= until and wait >= least]
        if stalled:
            found[queue] = max(stalled)
    return found


def _owner(of_queue: Sequence[Delivery], at: int) -> str:
    """The member with the last delivery until then."""
    return of_queue[bisect_right(of_queue, at, key=lambda one: one.at) - 1].member


def repeated(deliveries: Iterable[Sequence[Delivery]]) -> int:
    """Deliveries less distinct offsets."""
    return sum(len(one) - len({delivery.offset for delivery in one}) for one in deliveries)


def repeated_within(all_of_queue: Sequence[Delivery], begin: int, end: int) -> int:
    """Deliveries of one queue in a stage of what had been delivered before; in the order of time."""
    seen: set[int] = set()
    count = 0
    for one in all_of_queue:
        count += one.offset in seen and begin <= one.at < end
        seen.add(one.offset)
    return count


def share_ms(pauses_ns: Sequence[int], share: float) -> float:
    """A percentile of pauses, in milliseconds."""
    return percentile(pauses_ns, share) / 1e6
