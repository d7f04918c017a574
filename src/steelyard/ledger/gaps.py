"""The gaps between the deliveries of a queue: where its owner changed, or its messages waited."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from steelyard.ledger.events import STALLED_MS, Committed, Delivered, Queue
from steelyard.ledger.measures import pause_ms

RUNS_MAX = 1_000
STALLS_MAX = 1_000
"""Most changes of reader and most stalls of a queue that are kept; the oldest are forgotten."""

UNFINISHED_MAX = 200
COMMITS_MAX = 8
"""Most deliveries since the last commit, and most commits, of the owner that are kept."""


class DeliveryGap(NamedTuple):
    """Two deliveries of a queue, one after the other: the end of the first, all of the second.

    `kept_until`: when the old owner was last delivered something that it finished, as far as can be
    told.
    """

    queue: Queue
    from_client: str
    from_until: int
    kept_until: int
    client: str
    at: int
    until: int
    stored: int

    @property
    def pause_ms(self) -> int:
        return pause_ms(self.kept_until, self.stored, self.at)

    @property
    def pause_began(self) -> int:
        return self.at - self.pause_ms


class Gaps(NamedTuple):
    """Of all queues of a group, in order of their ends: where the owner changed, and where not."""

    changes: list[DeliveryGap]
    same: list[DeliveryGap]


class _Work(msgspec.Struct, array_like=True):
    """What the reader of a queue was delivered and committed since it has the queue.

    `delivered`: `at`, `until`, `first` and `next` of each delivery from the one on in which the
    last commit is. `committed`: time and offset of commits, both ascending.
    """

    delivered: list[tuple[int, int, int, int]] = []
    committed: list[tuple[int, int]] = []
    broker_was_away: bool = False
    """The broker of the queue has started since."""

    def add(self, one: Delivered) -> None:
        self.delivered.append((one.at, one.until, one.first, one.next))
        if len(self.delivered) > UNFINISHED_MAX:
            del self.delivered[0]

    def commit(self, at: int, offset: int) -> None:
        committed = self.committed
        while committed and committed[-1][1] >= offset:
            committed.pop()
        committed.append((at, offset))
        if len(committed) > COMMITS_MAX:
            del committed[0]
        for begun in range(len(self.delivered) - 1, 0, -1):
            if self.delivered[begun][2] < offset:
                del self.delivered[:begun]
                break

    def kept_until(self, offset: int, newest: int) -> int:
        """Return when the owner was last delivered something before the next one began at `offset`.

        If the owner had committed just that, it dropped what it had fetched beyond; else nobody
        knows what it finished of that, until `newest`. When it committed less, it had not finished
        all before `offset`: it may fetch more messages than it can work on.
        """
        if self.broker_was_away or not self.committed or self.committed[-1][1] != offset:
            return newest
        kept = next((one for one in reversed(self.delivered) if one[2] < offset), None)
        if kept is None:
            return newest
        at, until, first, following = kept
        share = min(1, (offset - first) / (following - first))
        return max([at + round(share * (until - at)), *(at for at, _ in self.committed[-2:-1])])


class ReaderRun(msgspec.Struct, array_like=True, gc=False):
    """Deliveries of a queue to one client, without one to another client in between.

    `at`, `stored` and `first_until` are those of the first delivery, `until` is that of the last.
    `kept_until`: see `DeliveryGap`; known when the next owner begins, and None if all counts.
    """

    client: str
    at: int
    stored: int
    first_until: int
    until: int
    kept_until: int | None = None


class QueueReaders(msgspec.Struct, array_like=True):
    """Who was delivered a queue's messages. `members`: all that are known; others own nothing."""

    runs: list[ReaderRun] = []
    stalls: list[DeliveryGap] = []
    """Within the runs, where messages waited for `STALLED_MS` or more."""
    work: _Work = msgspec.field(default_factory=_Work)
    """Of the owner, which is the member that the newest run of a member is of."""

    def add(
        self, queue: Queue, one: Delivered, members: Collection[str], died: Collection[str]
    ) -> None:
        """Add the next delivery of the queue.

        An owner that died (`died`), or whose broker was away, had no time to commit: nobody knows
        what it finished of its last deliveries, and all of them count.
        """
        run = self.runs[-1] if self.runs else None
        if run is None or run.client != one.client:
            if one.client in members:
                self._take_over(one, members, died)
            self.runs.append(ReaderRun(one.client, one.at, one.stored, one.until, one.until))
            del self.runs[:-RUNS_MAX]
            return
        waited = one.at - run.until >= STALLED_MS  # at least so long, or messages did not wait
        if waited and pause_ms(run.until, one.stored, one.at) >= STALLED_MS:
            self.stalls.append(_gap(queue, run, one.client, one.at, one.until, one.stored))
            del self.stalls[:-STALLS_MAX]
        run.until = one.until
        if one.client in members:
            if self.work.broker_was_away:
                self.work = _Work()
            self.work.add(one)

    def _take_over(self, one: Delivered, members: Collection[str], died: Collection[str]) -> None:
        owner = self._owner(members)
        if owner is not None and owner.client != one.client:
            if owner.client not in died:
                owner.kept_until = self.work.kept_until(one.first, owner.until)
            self.work = _Work()
        elif self.work.broker_was_away:
            self.work = _Work()
        self.work.add(one)

    def _owner(self, members: Collection[str]) -> ReaderRun | None:
        return next((run for run in reversed(self.runs) if run.client in members), None)

    def committed(self, one: Committed, members: Collection[str]) -> None:
        """Note a commit."""
        if self.runs and one.client in members:
            newest = self.runs[-1]
            owner = newest if newest.client == one.client else self._owner(members)
            if owner is not None and owner.client == one.client:
                self.work.commit(one.at, one.offset)

    def gaps(self, queue: Queue, members: Collection[str]) -> Iterator[DeliveryGap]:
        """Yield the gaps between members: each change of owner, and the stalls of the same."""
        mine = [run for run in self.runs if run.client in members]
        for old, new in pairwise(mine):
            gap = _gap(queue, old, new.client, new.at, new.first_until, new.stored)
            if old.client != new.client or gap.pause_ms >= STALLED_MS:
                yield gap
        yield from (gap for gap in self.stalls if gap.client in members)

    def forget(self, before: int, members: Collection[str]) -> None:
        """Forget what ended before a time, except for the newest run, and the owner's."""
        if len(self.runs) > 1:
            owner, newest = self._owner(members), self.runs[-1]
            self.runs = [
                run for run in self.runs if run.until >= before or run is owner or run is newest
            ]
        if self.stalls and self.stalls[0].at < before:
            self.stalls = [gap for gap in self.stalls if gap.at >= before]


def _gap(
    queue: Queue, old: ReaderRun, client: str, at: int, until: int, stored: int
) -> DeliveryGap:
    kept_until = old.until if old.kept_until is None else old.kept_until
    return DeliveryGap(queue, old.client, old.until, kept_until, client, at, until, stored)


def find_gaps(
    queues: Iterable[tuple[Queue, QueueReaders]], members: Collection[str], since: float
) -> Gaps:
    """Return the gaps that ended at `since` or later."""
    found = Gaps([], [])
    for queue, readers in queues:
        if len(readers.runs) > 1 or readers.stalls:
            for gap in readers.gaps(queue, members):
                if gap.at >= since:
                    (found.same if gap.from_client == gap.client else found.changes).append(gap)
    for gaps in found:
        gaps.sort(key=_order)
    return found


def _order(gap: DeliveryGap) -> tuple[int, int, Queue]:
    return gap.at, gap.until, gap.queue
