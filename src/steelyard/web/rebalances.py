"""What rebalances cost, as counters: from the rows that the ledger computes (`ledger.stream`).

    costs = RebalanceCosts(since, config)
    costs.take(taken, now)          # what came of some messages of the ledger
    costs.settle(now)               # also while nothing comes
    costs.samples()

A row of the ledger is open for half an hour: a repeat may come late, and an earlier event may turn
out to have been the trigger. A counter can wait that long for nothing, and can take nothing back.
So a row counts when it has been there for `rebalance_settle_ms`, or is final; what is delivered
again later is added when it comes. Rebalances that began before `since` were counted by nobody: the
counters begin with the process, as Prometheus expects.

When the ledger is read again because records came too late, the counters go on: Prometheus takes a
counter that goes back for one of a new process, and would add all of it once more. What was counted
is not counted again, and stays as it was counted; what is new or more is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from steelyard.config import HttpConfig
from steelyard.ledger.stream import Taken
from steelyard.ledger.tables import Handoff, Rebalance
from steelyard.web import metrics
from steelyard.web.series import Pauses, Sample

OTHERS = "(others)"
"""The group of the series that stand for all groups beyond the limit."""

READER_GROUP = "steelyard-metrics"
"""The group that reads the ledger for this, which does not count."""

REMEMBERED_MAX = 100_000
"""Most rows that are remembered as counted, in case that the ledger is read again."""

Key = tuple[str, ...]
"""A rebalance, or a queue in one."""


class _Repeats(NamedTuple):
    """Deliveries of a rebalance that were repetitions."""

    redelivered: int = 0
    reprocessed_min: int = 0
    reprocessed_max: int = 0


class _Open:
    """A row that is not final."""

    __slots__ = ("counted", "repeats", "row", "since")

    def __init__(self, row: Rebalance | Handoff, since: int) -> None:
        self.row = row
        self.since = since
        self.counted = False
        self.repeats = _Repeats()
        """Those that are in the counters."""


USUAL_TRIGGERS = ("joined", "left (unregistered)", "left (closed)", "left (expired)")
"""Counters that a group has from its first rebalance on, most of them 0.

A counter that appeared with its first value would hide it: Prometheus computes increases between
samples.
"""


class RebalanceCosts:
    """The counters; see the module docstring. Times are in ms since the epoch."""

    def __init__(self, since: int, config: HttpConfig) -> None:
        self._since = since
        self._settle_ms = config.rebalance_settle_ms
        self._groups_max = config.rebalance_groups_max
        self._groups: set[str] = set()
        self._open: dict[str, dict[Key, _Open]] = {}
        """By group."""
        self._done: dict[tuple[str, Key], _Open] = {}
        """Rows that are final and counted; the oldest are forgotten first."""
        self._begun: dict[tuple[str, str], int] = {}
        """By group and trigger."""
        self._pauses: dict[tuple[str, str], Pauses] = {}
        """By group and what the queue did."""
        self._repeats: dict[str, _Repeats] = {}
        self.late = 0
        """Records that came too late."""
        self.errors = 0
        """Failed attempts to read the ledger; whoever reads it adds to them."""

    def begin_again(self, since: int) -> None:
        """Expect the rows of the ledger from `since` on once more, those that were counted too."""
        self._since = max(self._since, since)
        for group, rows in self._open.items():
            self._done |= {(group, key): one for key, one in rows.items() if one.counted}
        self._open = {}

    def take(self, taken: Taken, now: int, *, settles: bool = True) -> None:
        """Take the rows that came of some messages of the ledger.

        `settles`: it has been read to its end; before, an open row may be one of long ago that is
        not the same any more when more has been read.
        """
        self.late += taken.late
        known = {group: self._open.pop(group, {}) for group in sorted(taken.groups)}
        for group, row, is_open in taken.rows:
            if not isinstance(row, Rebalance | Handoff) or group == READER_GROUP:
                continue
            if self._began(row) < self._since:
                continue
            key = _key(row)
            of_group = known.get(group)
            one = None if of_group is None else of_group.get(key)
            if one is None:
                one = self._open.get(group, {}).pop(key, None)
            if one is None:
                one = self._done.pop((group, key), None) or _Open(row, now)
            one.row = row
            if is_open:
                self._open.setdefault(group, {})[key] = one
            else:
                self._count(one)
                self._done[group, key] = one
        while len(self._done) > REMEMBERED_MAX:
            del self._done[next(iter(self._done))]
        if settles:
            self.settle(now)

    def settle(self, now: int) -> None:
        """Count the rows that have been there for long enough."""
        for rows in self._open.values():
            for one in rows.values():
                if one.counted or now - one.since >= self._settle_ms:
                    self._count(one)

    @staticmethod
    def _began(row: Rebalance | Handoff) -> int:
        return row.started_at if isinstance(row, Rebalance) else row.first_delivery_ms

    def _count(self, one: _Open) -> None:
        """Count a row, or what was added to it since it was counted."""
        row, group = one.row, self._label(one.row.group)
        if isinstance(row, Handoff):
            if not one.counted:
                pauses = self._pauses.setdefault((group, row.kind), Pauses())
                pauses.add(row.pause_ms / 1000)
        else:
            if not one.counted:
                began = group, row.trigger
                self._begun[began] = self._begun.get(began, 0) + 1
            now = _Repeats(row.redelivered, row.reprocessed_min, row.reprocessed_max)
            most = _Repeats(*map(max, now, one.repeats))
            total = self._repeats.get(group, _Repeats())
            more = (new - old for new, old in zip(most, one.repeats, strict=True))
            self._repeats[group] = _Repeats(*map(sum, zip(total, more, strict=True)))
            one.repeats = most
        one.counted = True

    def _label(self, group: str) -> str:
        if group not in self._groups:
            if len(self._groups) >= self._groups_max:
                return OTHERS
            self._groups.add(group)
            self._begun |= {(group, trigger): 0 for trigger in USUAL_TRIGGERS}
            for kind in ("moved", "stalled"):
                self._pauses[group, kind] = Pauses()
            self._repeats[group] = _Repeats()
        return group

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of all groups."""
        for began, count in self._begun.items():
            yield Sample(metrics.REBALANCES, began, count)
        for labels, pauses in self._pauses.items():
            yield Sample(metrics.PAUSE, labels, pauses)
        for group, repeats in self._repeats.items():
            yield Sample(metrics.REDELIVERED, (group,), repeats.redelivered)
            yield Sample(metrics.REPROCESSED_MIN, (group,), repeats.reprocessed_min)
            yield Sample(metrics.REPROCESSED_MAX, (group,), repeats.reprocessed_max)
        yield Sample(metrics.LEDGER_LATE, (), self.late)
        yield Sample(metrics.LEDGER_ERRORS, (), self.errors)


def _key(row: Rebalance | Handoff) -> Key:
    if isinstance(row, Rebalance):
        return (row.rebalance,)
    return (row.rebalance, row.topic, row.broker, str(row.queue), row.kind)
