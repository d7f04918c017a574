"""Which queues changed hands or stood still in which rebalance of a group."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from steelyard.ledger.backlog import BEFORE_MS, SETTLE_MS
from steelyard.ledger.events import STALLED_MS, Queue
from steelyard.ledger.gaps import DeliveryGap, Gaps
from steelyard.ledger.measures import pause_ms
from steelyard.ledger.starts import MERGE_MS, ROUTES, Start

CLOCK_MS = 10
"""So much earlier than it was, a time may seem that a member reported as a time ago."""


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
        return self.from_client != self.gap.client


def with_unseen(starts: Sequence[Start], changes: Sequence[DeliveryGap]) -> list[Start]:
    """Add to `starts` those of rebalances of which only the hand-offs are known."""
    known = [start.since for start in starts]
    unseen: list[Start] = []
    for change in changes:
        number = bisect_right(known, change.at)
        if number and known[number - 1] >= change.from_until - SETTLE_MS:
            continue
        at = change.pause_began
        newest = unseen[-1].since if unseen else None
        if newest is not None and newest >= max(at - SETTLE_MS, known[number - 1] if number else 0):
            continue
        members = starts[number - 1].after if number else frozenset()
        words = "queues moved, and no broker recorded why"
        unseen.append(Start(at, None, at, ROUTES, members, members, [words]))
    return sorted([*starts, *unseen], key=lambda start: start.since)


def find_pauses(gaps: Gaps, starts: Starts, shares: ShareTimes) -> list[QueuePause]:
    """Return the queues that moved or stood still, in order of their first deliveries then."""
    moved: list[QueuePause] = []
    same = list(gaps.same)
    for run in _runs(gaps.changes, starts):
        pause = _move(run)
        if pause.has_moved:
            moved.append(pause)
        elif (gap := _come_back(run)).pause_ms >= STALLED_MS:
            same.append(gap)
    return sorted(
        [*moved, *_stalls(same, moved, starts, shares)],
        key=lambda pause: (pause.gap.at, pause.gap.queue),
    )


class Starts(NamedTuple):
    """The rebalances to which pauses may belong; the first was closed at `closed`, or None was.

    A pause that ends later belongs to the one after it, if there is one by then.
    """

    found: Sequence[Start]
    closed: int | None = None

    def number(self, gap: DeliveryGap) -> int:
        """Return which rebalance a gap belongs to, -1 for none.

        Of those that started while the queue paused, that is the one in which its old owner left,
        or else the first; if there are none, it is the last one before.
        """
        last = bisect_right(self.found, gap.at, key=_since) - 1
        first = max(min(bisect_left(self.found, gap.pause_began, key=_since), last), 0)
        if self.closed is not None and first == 0 < last and gap.at >= self.closed:
            first = 1
        for number in range(first, last + 1):
            if gap.from_client in self.found[number].before - self.found[number].after:
                return number
        return min(first, last)


def _since(start: Start) -> int:
    return start.since


class _Run(NamedTuple):
    """Changes of a queue's owner that are one hand-off, in rebalance `number`."""

    number: int
    changes: list[DeliveryGap]


def _runs(changes: Sequence[DeliveryGap], starts: Starts) -> list[_Run]:
    """Make each change of owner a hand-off; back and forth is one."""
    newest: dict[Queue, _Run] = {}
    runs: list[_Run] = []
    for change in changes:
        number = starts.number(change)
        run = newest.get(change.queue)
        if run and change.at - run.changes[-1].at <= MERGE_MS:
            comes_back = change.client == run.changes[0].from_client
            if run.number == number or comes_back:
                run.changes.append(change)
                continue
        newest[change.queue] = _Run(number, [change])
        runs.append(newest[change.queue])
    return runs


def _move(run: _Run) -> QueuePause:
    final = run.changes[-1].client
    gap = next(change for change in run.changes if change.client == final)
    return QueuePause(run.number, run.changes[0].from_client, gap)


def _come_back(run: _Run) -> DeliveryGap:
    """Return the longest gap of a queue that its owner has again at the end, as one of its own."""
    owner = run.changes[0].from_client
    longest = max(run.changes, key=lambda change: change.pause_ms)
    return longest._replace(from_client=owner, client=owner)


def _stalls(
    same: Sequence[DeliveryGap],
    moved: Sequence[QueuePause],
    starts: Starts,
    shares: ShareTimes,
) -> Iterable[QueuePause]:
    """Return the longest gap of each queue that did not move in a rebalance, but stalled."""
    found = starts.found
    settled = [
        max(start.since, start.known or 0, shares.ended(start.since, end) or 0) + MERGE_MS
        for start, end in zip(found, [*map(_since, found[1:]), None], strict=False)
    ]
    for pause in moved:
        settled[pause.number] = max(settled[pause.number], pause.gap.at)
    has_moved = {(pause.number, pause.gap.queue) for pause in moved}
    by_queue: dict[Queue, list[DeliveryGap]] = defaultdict(list)
    for gap in same:
        by_queue[gap.queue].append(gap)
    longest: dict[tuple[int, Queue], QueuePause] = {}
    for queue, gaps in by_queue.items():
        for gap in gaps:
            number = starts.number(gap)
            key = (number, queue)
            if number < 0 or gap.pause_began > settled[number] or key in has_moved:
                continue
            since = found[number].since
            usual = [g.pause_ms for g in gaps if since - BEFORE_MS <= g.at < since]
            if key in longest:
                usual.append(longest[key].gap.pause_ms)
            if gap.pause_ms > max(usual, default=0):
                longest[key] = QueuePause(number, gap.from_client, gap)
    return longest.values()


class QueueReports(msgspec.Struct, array_like=True):
    """What members reported of a queue, in the order of their times."""

    requested: list[tuple[int, str]] = []
    """When who asked for its messages, and was not the last to do so."""
    handed: list[tuple[int, str]] = []
    """When who passed the first one to its application."""
    given_up: list[tuple[int, int, str]] = []
    """When it was reported that the last one was passed on, when that was, and by whom."""

    def forget(self, before: int) -> None:
        """Forget what was reported before a time, but not who asked last."""
        self.requested = [
            one for one in self.requested if one[0] >= before or one is self.requested[-1]
        ]
        self.handed = [one for one in self.handed if one[0] >= before]
        self.given_up = [one for one in self.given_up if one[0] >= before]


class ShareTimes:
    """When members had their shares, as far as brokers recorded it.

    `ended`: when the coordinator ended rebalances.
    """

    def __init__(self, ended: Sequence[int], reports: Callable[[Queue], QueueReports]) -> None:
        self._ended = ended
        self._reports = reports

    def of_queue(self, pause: QueuePause, since: int) -> int | None:
        """Return when the new owner had the queue, None if nobody recorded it.

        `since`: when the rebalance started.
        """
        new = pause.gap
        times = self._ended or [
            at for at, client in self._reports(new.queue).requested if client == new.client
        ]
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


def listener_pause_ms(pause: QueuePause, reports: QueueReports) -> int | None:
    """Return the pause between the listeners of old and new owner, None if it is unknown."""
    gap = pause.gap
    first = next(
        (at for at, client in reports.handed if client == gap.client and at >= gap.at - CLOCK_MS),
        None,
    )
    last = next(
        (
            handed_at
            for at, handed_at, client in reports.given_up
            if client == pause.from_client and at >= gap.from_until - CLOCK_MS
        ),
        None,
    )
    if not pause.has_moved or first is None or last is None:
        return None
    return pause_ms(last, gap.stored, first)
