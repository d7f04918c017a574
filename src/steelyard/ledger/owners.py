"""Which queues changed hands or stood still in which rebalance of a group."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from steelyard.ledger.backlog import BEFORE_MS, SETTLE_MS
from steelyard.ledger.events import (
    STALLED_MS,
    Committed,
    Delivered,
    HandedOver,
    Queue,
    RebalanceEnded,
    Record,
    Requested,
    queue_of,
    waited_ms,
)
from steelyard.ledger.measures import pause_ms
from steelyard.ledger.starts import MERGE_MS, ROUTES, Start

CLOCK_MS = 10
"""So much earlier than it was, a time may seem that a member reported as a time ago."""


class DeliveryGap(NamedTuple):
    """Two deliveries of a queue, one after the other."""

    old: Delivered
    new: Delivered

    @property
    def pause_ms(self) -> int:
        return waited_ms(self.old, self.new)

    @property
    def pause_began(self) -> int:
        return self.new.at - self.pause_ms


class QueuePause(NamedTuple):
    """A gap of a queue that is part of rebalance `number`, whether or not the queue moved.

    If it went back and forth, `from_client` had it at first, and `gap` ends with the first delivery
    to the final owner.
    """

    number: int
    from_client: str
    gap: DeliveryGap

    @property
    def has_moved(self) -> bool:
        return self.from_client != self.gap.new.client


class Gaps(NamedTuple):
    """Of all queues of a group, in order of their ends: where the owner changed, and where not."""

    changes: list[DeliveryGap]
    same: list[DeliveryGap]


def find_gaps(deliveries: Iterable[Delivered], members: set[str]) -> Gaps:
    """Compare each delivery to a member with the one before; of the same owner's, keep stalls."""
    newest: dict[Queue, Delivered] = {}
    found = Gaps([], [])
    for one in deliveries:
        if one.client not in members:
            continue
        queue = queue_of(one)
        if queue in newest:
            gap = DeliveryGap(newest[queue], one)
            if gap.old.client != one.client:
                found.changes.append(gap)
            elif gap.pause_ms >= STALLED_MS:
                found.same.append(gap)
        newest[queue] = one
    return found


def with_unseen(starts: Sequence[Start], changes: Sequence[DeliveryGap]) -> list[Start]:
    """Add to `starts` those of rebalances of which only the hand-offs are known."""
    known = [start.since for start in starts]
    unseen: list[Start] = []
    for change in changes:
        number = bisect_right(known, change.new.at)
        if number and known[number - 1] >= change.old.until - SETTLE_MS:
            continue
        at = change.pause_began
        newest = unseen[-1].since if unseen else None
        if newest is not None and newest >= max(at - SETTLE_MS, known[number - 1] if number else 0):
            continue
        members = starts[number - 1].after if number else frozenset()
        words = "queues moved, and no broker recorded why"
        unseen.append(Start(at, None, at, ROUTES, members, members, [words]))
    return sorted([*starts, *unseen], key=lambda start: start.since)


def find_pauses(gaps: Gaps, starts: Sequence[Start], shares: ShareTimes) -> list[QueuePause]:
    """Return the queues that moved or stood still, in order of their first deliveries then."""
    moved = _moves(gaps.changes, starts)
    return sorted(
        [*moved, *_stalls(gaps.same, moved, starts, shares)],
        key=lambda pause: (pause.gap.new.at, queue_of(pause.gap.new)),
    )


def _number(starts: Sequence[Start], gap: DeliveryGap) -> int:
    """Return which rebalance a gap belongs to, -1 for none.

    Of those that started while the queue paused, that is the one in which its old owner left, or
    else the first; if there are none, it is the last one before.
    """
    last = bisect_right(starts, gap.new.at, key=_since) - 1
    first = min(bisect_left(starts, gap.pause_began, key=_since), last)
    for number in range(max(first, 0), last + 1):
        if gap.old.client in starts[number].before - starts[number].after:
            return number
    return first


def _since(start: Start) -> int:
    return start.since


def _moves(changes: Sequence[DeliveryGap], starts: Sequence[Start]) -> list[QueuePause]:
    """Make each change of owner a hand-off; back and forth is one."""
    open_runs: dict[Queue, tuple[int, list[DeliveryGap]]] = {}
    runs: list[tuple[int, list[DeliveryGap]]] = []
    for change in changes:
        queue = queue_of(change.new)
        number = _number(starts, change)
        run = open_runs.get(queue)
        if run and run[0] == number and change.new.at - run[1][-1].new.at <= MERGE_MS:
            run[1].append(change)
        else:
            open_runs[queue] = (number, [change])
            runs.append(open_runs[queue])
    pauses = [_move(number, run) for number, run in runs]
    return [pause for pause in pauses if pause.has_moved]


def _move(number: int, run: Sequence[DeliveryGap]) -> QueuePause:
    final = run[-1].new.client
    return QueuePause(
        number, run[0].old.client, next(change for change in run if change.new.client == final)
    )


def _stalls(
    same: Sequence[DeliveryGap],
    moved: Sequence[QueuePause],
    starts: Sequence[Start],
    shares: ShareTimes,
) -> Iterable[QueuePause]:
    """Return the longest gap of each queue that did not move in a rebalance, but stalled."""
    settled = [
        max(start.since, start.known or 0, shares.ended(start.since, end) or 0) + MERGE_MS
        for start, end in zip(starts, [*map(_since, starts[1:]), None], strict=False)
    ]
    for pause in moved:
        settled[pause.number] = max(settled[pause.number], pause.gap.new.at)
    has_moved = {(pause.number, queue_of(pause.gap.new)) for pause in moved}
    by_queue: dict[Queue, list[DeliveryGap]] = defaultdict(list)
    for gap in same:
        by_queue[queue_of(gap.new)].append(gap)
    longest: dict[tuple[int, Queue], QueuePause] = {}
    for queue, gaps in by_queue.items():
        for gap in gaps:
            number = _number(starts, gap)
            key = (number, queue)
            if number < 0 or gap.pause_began > settled[number] or key in has_moved:
                continue
            since = starts[number].since
            usual = [g.pause_ms for g in gaps if since - BEFORE_MS <= g.new.at < since]
            if key in longest:
                usual.append(longest[key].gap.pause_ms)
            if gap.pause_ms > max(usual, default=0):
                longest[key] = QueuePause(number, gap.old.client, gap)
    return longest.values()


class ShareTimes:
    """When members had their shares, as far as brokers recorded it."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._ended: list[int] = []
        self._requested: dict[tuple[Queue, str], list[int]] = defaultdict(list)
        for one in records:
            if isinstance(one, RebalanceEnded):
                self._ended.append(one.at)
            elif isinstance(one, Requested):
                self._requested[queue_of(one), one.client].append(one.at)

    def of_queue(self, pause: QueuePause, since: int) -> int | None:
        """Return when the new owner had the queue, None if nobody recorded it.

        `since`: when the rebalance started.
        """
        new = pause.gap.new
        times = self._ended or self._requested[queue_of(new), new.client]
        before = bisect_right(times, new.at) - 1
        return times[before] if before >= 0 and times[before] >= since else None

    def ended(self, since: int, until: int | None) -> int | None:
        """Return when a coordinator ended its last rebalance between `since` and `until`."""
        last = (len(self._ended) if until is None else bisect_left(self._ended, until)) - 1
        return self._ended[last] if last >= 0 and self._ended[last] >= since else None

    def of_group(self, since: int, until: int | None, moved: Iterable[QueuePause]) -> int | None:
        """Return when all members had theirs in the rebalance from `since` to `until`."""
        if self._ended:
            return self.ended(since, until)
        found = [self.of_queue(pause, since) for pause in moved]
        return max((at for at in found if at is not None), default=None)


class ListenerTimes:
    """When members passed messages to their listeners, as far as they reported it."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._first: dict[tuple[Queue, str], list[int]] = defaultdict(list)
        self._last: dict[tuple[Queue, str], list[tuple[int, int]]] = defaultdict(list)
        """When it was reported, and when it was."""
        for one in records:
            if isinstance(one, HandedOver):
                self._first[queue_of(one), one.client].append(one.at)
            elif isinstance(one, Committed) and one.handed_at is not None:
                self._last[queue_of(one), one.client].append((one.at, one.handed_at))

    def pause_ms(self, pause: QueuePause) -> int | None:
        """Return the pause between the listeners of old and new owner, None if it is unknown."""
        old, new = pause.gap
        queue = queue_of(new)
        firsts = self._first[queue, new.client]
        lasts = self._last[queue, pause.from_client]
        first = bisect_left(firsts, new.at - CLOCK_MS)
        last = bisect_left(lasts, (old.until - CLOCK_MS, 0))
        if not pause.has_moved or first == len(firsts) or last == len(lasts):
            return None
        return pause_ms(lasts[last][1], new.stored, firsts[first])
