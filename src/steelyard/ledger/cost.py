"""The cost of a rebalance, computed from the ledger: the definition of pause, duplicates and spike.

The input is the records of all brokers of a cluster, in any order; the output is one row per moved
queue (`Handoff`) and one per rebalance (`Rebalance`). Pipeline and simulator use these functions,
for clustering groups of any client. (A broadcasting group has no owners; its rows would mean
nothing.)

Definitions
- The **owner** of a queue is the member that the broker last delivered its messages to. A
  **hand-off** is a delivery to a different member than before. The first owner is not a hand-off.
  Clients that the ledger never records as members own nothing: a client that pulls before its first
  heartbeat, or without one, is known to brokers by its address only.
- **Pause** of a queue: from the last delivery to the old owner to the first delivery to the new
  one, while messages waited. Nothing waited before the first message of the new owner was `stored`,
  so pause = max(0, first at the new owner - max(last at the old, stored)).
- **Redelivered**: deliveries of an offset that had been delivered to any member of the group
  before; so redelivered = deliveries - distinct offsets. Ranges of offsets are compared; if a tag
  filter left gaps in a range, its number of messages is the upper bound.
- **Reprocessed**: offsets that an application was handed again. A member fetches ahead, and drops
  what it has not handed over when it gives up a queue: that is redelivered, but not reprocessed.
  What an application was handed is known exactly if its member reports it as it gives up the queue
  (`Committed.handed`). Otherwise it is at least what the member committed later, and at most what
  it was delivered; so there are two bounds.
- **Backlog** of the group: the sum over its queues of the messages not delivered to it, from the
  brokers' records (`Backlog`), linear between two of them and constant after the last.
- **Spike**: peak backlog of the group after a rebalance over the median backlog before it. Before:
  once a second in the `BEFORE_MS` up to its start; after: until the next rebalance, at most
  `SETTLE_MS`. A median below `BACKLOG_FLOOR` counts as `BACKLOG_FLOOR`. None if the backlog before
  or after is unknown.
- **Drain**: from the start of the rebalance until the backlog, after its peak, has returned to that
  median or below; 0 if it never rose above it, None if it did not drain before the next rebalance.

What is one rebalance
- It starts with an event: a member joins or leaves, members change their topics, a broker that the
  group reads from starts, stops or vanishes (starts again without having recorded a stop; the time
  is that of its last record).
- Every broker reports the same member, so an event that does not change the set of members is
  ignored. Events within `MERGE_MS` of a rebalance's start belong to it.
- In a Kafka group the coordinator also records rebalances without a change of members: for example,
  its leader saw topics or partitions change (`leader`, `topics`). The second round of a cooperative
  rebalance belongs to the first.
- A hand-off with no event since `SETTLE_MS` before its old owner's last delivery starts a rebalance
  of its own, with the trigger `routes`: no broker saw the cause of the move.
- A rebalance lasts until the next one of the group starts: hand-offs, duplicates and backlog in
  that time are its cost.

Times come from the brokers' clocks, which are assumed to agree within `MERGE_MS`. A broker collects
deliveries for a second before it writes them; those of its last second are lost when it is killed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from typing import Annotated, NamedTuple

import msgspec

from steelyard.ledger.columns import Column, ColumnKind
from steelyard.ledger.events import (
    Backlog,
    BrokerStarted,
    BrokerStopped,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
)

MERGE_MS = 1_000
"""Events this close to the start of a rebalance belong to it, e.g. members that start together."""

SETTLE_MS = 60_000
"""Longest time from an event to the hand-offs it causes.

RocketMQ clients update their routes every 30 s, and rebalance without a notification every 20 s.
"""

BEFORE_MS = 10_000
"""Period before a rebalance whose backlog is compared."""

SAMPLE_MS = 1_000
"""How often it is looked at there."""

BACKLOG_FLOOR = 1
"""Smallest median backlog; smaller ones count as this."""


TOLD_OTHERWISE = frozenset(("joined", "left", "expired", "subscription", "static", "revoked"))
"""Triggers of Kafka rebalances that need no event of their own.

Records of members report them, or they are the second round of a cooperative rebalance.
"""


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """The move of a queue from one member to another.

    If two members both believe that they own a queue, so that it goes back and forth in steps of at
    most `MERGE_MS`, that is one hand-off, from the first owner to the last.
    """

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    topic: Annotated[str, Column(ColumnKind.TEXT, "The topic of the queue.", "topic")]
    broker: Annotated[
        str, Column(ColumnKind.TEXT, "The name of the broker with the queue.", "broker")
    ]
    queue: Annotated[int, Column(ColumnKind.NUMBER, "The queue on that broker.", "queue")]
    from_client: Annotated[str, Column(ColumnKind.CLIENT, "The old owner.", "from")]
    to_client: Annotated[str, Column(ColumnKind.CLIENT, "The new owner.", "to")]
    last_delivery_ms: Annotated[
        int,
        Column(ColumnKind.MOMENT_MS, "Last delivery before the first delivery to the new owner."),
    ]
    first_delivery_ms: Annotated[
        int, Column(ColumnKind.MOMENT_MS, "First delivery to the new owner.", "first delivery")
    ]
    pause_ms: Annotated[
        int,
        Column(
            ColumnKind.DURATION_MS,
            "Time from the last delivery to the old owner to the first delivery to the new one,"
            " while messages waited.",
            "pause",
        ),
    ]
    redelivered: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Deliveries of offsets of the queue that had been delivered to the group before, from"
            " the first delivery to the new owner until the rebalance ends.",
        ),
    ]
    reprocessed_min: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Minimum number of these that had already been passed to an application.",
        ),
    ]
    reprocessed_max: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Maximum number of these; equal to the minimum if members report what they passed on.",
            "reprocessed ≤",
        ),
    ]
    rebalance: Annotated[
        str,
        Column(
            ColumnKind.TEXT, "The rebalance to which it belongs, as in `rebalances`.", "rebalance"
        ),
    ]


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """One rebalance of one group.

    Percentiles of the pauses are nearest-rank, and 0 if no queue moved.
    """

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    rebalance: Annotated[str, Column(ColumnKind.TEXT, "`group/ms since the epoch`, unique.")]
    started_at: Annotated[
        int, Column(ColumnKind.MOMENT, "When the first event of the rebalance happened.", "started")
    ]
    trigger: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "The first event, though a member's event takes precedence over `routes`: `joined`,"
            " `left (unregistered)`, `left (closed)`, `left (expired)`, `subscription`,"
            " `broker_started`, `broker_stopped` or `routes`; in Kafka groups also"
            " `left (replaced)`, `leader`, `topics`, `assignor`, `size` and `storage`.",
            "trigger",
        ),
    ]
    members_before: Annotated[
        tuple[str, ...], Column(ColumnKind.CLIENTS, "The members before, sorted.", "members")
    ]
    members_after: Annotated[
        tuple[str, ...], Column(ColumnKind.CLIENTS, "The members afterwards, sorted.", "then")
    ]
    queues_moved: Annotated[
        int,
        Column(
            ColumnKind.NUMBER,
            "Number of queues that changed hands: its rows in `handoffs`.",
            "moved",
        ),
    ]
    pause_p50_ms: Annotated[
        int,
        Column(ColumnKind.DURATION_MS, "Median of the pauses of the moved queues.", "pause p50"),
    ]
    pause_p99_ms: Annotated[
        int, Column(ColumnKind.DURATION_MS, "99th percentile of these pauses.", "pause p99")
    ]
    pause_max_ms: Annotated[int, Column(ColumnKind.DURATION_MS, "Longest pause.", "pause max")]
    redelivered: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Deliveries of offsets that had been delivered to the group before, until the next"
            " rebalance.",
        ),
    ]
    reprocessed_min: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Minimum number of these that had already been passed to an application.",
        ),
    ]
    reprocessed_max: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Maximum number of these; equal to the minimum if members report what they passed on.",
            "reprocessed ≤",
        ),
    ]
    spike: Annotated[
        float | None,
        Column(
            ColumnKind.FACTOR,
            "Peak backlog of the group afterwards divided by its median backlog before; null if"
            " either is unknown.",
            "spike",
        ),
    ]
    drain_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time from the start until the backlog, after its peak, has returned to that median: 0"
            " if it never rose above it, null if it did not return before the next rebalance.",
            "drain",
        ),
    ]


class Costs(NamedTuple):
    """Both tables, sorted by group and time."""

    handoffs: list[Handoff]
    rebalances: list[Rebalance]


def handoffs(records: Iterable[Record]) -> list[Handoff]:
    """Return a row per moved queue of all groups, sorted by group, time and queue."""
    return costs(records).handoffs


def rebalances(records: Iterable[Record]) -> list[Rebalance]:
    """Return a row per rebalance of all groups, sorted by group and time."""
    return costs(records).rebalances


def costs(records: Iterable[Record]) -> Costs:
    """Compute both tables from the records of all brokers of one cluster, given in any order."""
    ordered = sorted(records, key=_order)
    brokers = [record for record in ordered if isinstance(record, BrokerStarted | BrokerStopped)]
    by_group: dict[str, list[Record]] = defaultdict(list)
    for record in ordered:
        if not isinstance(record, BrokerStarted | BrokerStopped):
            by_group[record.group].append(record)
    moved, paid = [], []
    for group in sorted(by_group):
        cost = _group_costs(group, sorted([*brokers, *by_group[group]], key=_order))
        moved += cost.handoffs
        paid += cost.rebalances
    return Costs(moved, paid)


# -- the measures, for anyone who has the numbers --------------------------------------------------


def pause_ms(last_at_old: int, stored: int, first_at_new: int) -> int:
    """Return how long a moved queue stood still while a message, stored at `stored`, waited."""
    return max(0, first_at_new - max(last_at_old, stored))


def spike(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Divide the peak of the backlogs `after` by the median `before`; None if either is empty."""
    if not before or not after:
        return None
    return max(after) / baseline(before)


def baseline(before: Sequence[float]) -> float:
    """Return the median backlog (of an even number, the middle two's mean), >= `BACKLOG_FLOOR`."""
    ranked = sorted(before)
    middle = len(ranked) // 2
    median = ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
    return max(median, BACKLOG_FLOOR)


def percentile(values: Sequence[int], share: float) -> int:
    """Return the nearest-rank percentile, 0 of no values.

    That is the smallest value that at least `share` of all values do not exceed.
    """
    if not values:
        return 0
    return sorted(values)[max(ceil(len(values) * share), 1) - 1]


class OffsetRanges:
    """The offsets of one queue delivered so far, as disjoint ranges."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._nexts: list[int] = []

    def add(self, first: int, following: int) -> int:
        """Add the offsets first..following-1; return how many of them were present before."""
        left = bisect_left(self._nexts, first)
        right = bisect_right(self._firsts, following)
        known = 0
        start, end = first, following
        for i in range(left, right):
            known += max(0, min(following, self._nexts[i]) - max(first, self._firsts[i]))
            start, end = min(start, self._firsts[i]), max(end, self._nexts[i])
        self._firsts[left:right] = [start]
        self._nexts[left:right] = [end]
        return known


# -- one group -------------------------------------------------------------------------------------


class _Queue(NamedTuple):
    broker: str
    topic: str
    queue_id: int


class _Change(NamedTuple):
    """Two deliveries of a queue in a row, to different clients."""

    old: Delivered
    new: Delivered


class _Event(NamedTuple):
    """`client` joined or left and `others` stayed; both are empty for a broker's event."""

    at: int
    trigger: str
    client: str = ""
    others: frozenset[str] = frozenset()


class _Start(msgspec.Struct):
    at: int
    trigger: str
    before: frozenset[str]
    after: frozenset[str]


ROUTES = "routes"


def _order(record: Record) -> tuple[int, int, str, bytes]:
    """Sort key of records: by time, and independent of the order in which they come."""
    until = record.until if isinstance(record, Delivered) else record.at
    return record.at, until, record.broker, msgspec.json.encode(record)


def _queue_of(one: Delivered) -> _Queue:
    return _Queue(one.broker, one.topic, one.queue)


def _repeated(seen: OffsetRanges, first: int, following: int, count: int) -> int:
    """Count those of these offsets, at most `count`, that were in `seen`, and add all to it."""
    return min(seen.add(first, following), count) if following > first else 0


def _group_costs(group: str, records: Sequence[Record]) -> Costs:
    """Compute the tables of one group; `records` are sorted and include those of the brokers."""
    deliveries = [record for record in records if isinstance(record, Delivered)]
    changes = _changes(deliveries, members_ever(records))
    starts = _with_unseen(_starts(_events(records, {one.broker for one in deliveries})), changes)
    moved_in = {number for number, _ in _moves(changes, starts)}
    # Routes that changed without moving anything are not a rebalance.
    starts = [s for number, s in enumerate(starts) if s.trigger != ROUTES or number in moved_in]
    moves = _moves(changes, starts)
    repeats = _repeats(records, starts)
    samples = backlogs(records, group)
    rows, paid = [], []
    pauses: dict[int, list[int]] = defaultdict(list)
    for number, move in moves:
        row = _handoff(group, starts[number], move, repeats[number])
        rows.append(row)
        pauses[number].append(row.pause_ms)
    for number, start in enumerate(starts):
        end = starts[number + 1].at if number + 1 < len(starts) else None
        paid.append(_rebalance(group, start, end, pauses[number], repeats[number], samples))
    return Costs(rows, paid)


def members_ever(records: Iterable[Record]) -> set[str]:
    """Return every client that the records name as a member; any other client is a stranger."""
    members: set[str] = set()
    for record in records:
        if isinstance(record, MemberJoined | MemberLeft):
            members.update(record.members, (record.client,))
    return members


def _changes(deliveries: Sequence[Delivered], members: set[str]) -> list[_Change]:
    """Return every change of owner, in order of the first delivery to the new one."""
    newest: dict[_Queue, Delivered] = {}
    changes = []
    for one in deliveries:
        if one.client not in members:
            continue
        queue = _queue_of(one)
        old = newest.get(queue)
        if old is not None and old.client != one.client:
            changes.append(_Change(old, one))
        newest[queue] = one
    return changes


def _events(records: Sequence[Record], read_from: set[str]) -> list[_Event]:
    """Return the group's events in order. `read_from`: the brokers that delivered to it."""
    events: list[_Event] = []
    silent_since: dict[str, int] = {}
    stopped: set[str] = set()
    for record in records:
        broker = record.broker
        match record:
            case BrokerStarted():
                if broker in read_from:
                    if broker in silent_since and broker not in stopped:
                        events.append(_Event(silent_since[broker], ROUTES))
                    events.append(_Event(record.at, "broker_started"))
                stopped.discard(broker)
            case BrokerStopped():
                if broker in read_from:
                    events.append(_Event(record.at, "broker_stopped"))
                stopped.add(broker)
            case MemberJoined():
                trigger = "subscription" if record.cause == "subscription" else "joined"
                events.append(_member_event(record, trigger))
            case MemberLeft():
                # A broker that stops loses all members, but they are still members elsewhere.
                if broker not in stopped:
                    events.append(_member_event(record, f"left ({record.cause})"))
            case RebalanceBegan():
                if record.trigger not in TOLD_OTHERWISE:
                    events.append(_Event(record.at, record.trigger, "", frozenset(record.members)))
            case Delivered() | Committed() | Backlog() | RebalanceEnded():
                pass
        if not isinstance(record, Committed) or not record.writer:  # else another broker wrote it
            silent_since[broker] = record.until if isinstance(record, Delivered) else record.at
    events.sort(key=lambda event: event.at)
    return events


def _member_event(record: MemberJoined | MemberLeft, trigger: str) -> _Event:
    others = frozenset(record.members) - {record.client}
    return _Event(record.at, trigger, record.client, others)


def _starts(events: Sequence[_Event]) -> list[_Start]:
    """Return where rebalances start. A group without members has none."""
    present: frozenset[str] = frozenset()
    starts: list[_Start] = []
    for event in events:
        before, after = _members(present, event)
        present = after
        if not before and not after:
            continue
        if before == after and event.client and event.trigger != "subscription":
            continue
        if starts and event.at - starts[-1].at <= MERGE_MS:
            starts[-1].after = after
            if starts[-1].trigger == ROUTES:
                starts[-1].trigger = event.trigger
        else:
            starts.append(_Start(event.at, event.trigger, before, after))
    return starts


def _members(present: frozenset[str], event: _Event) -> tuple[frozenset[str], frozenset[str]]:
    """Return the members before and after an event. `present`: those known so far."""
    before = present | event.others
    if not event.trigger.startswith("left"):
        return before, before | ({event.client} if event.client else set())
    if not present:  # the ledger begins here: whoever leaves was a member
        before |= {event.client}
    return before, before - {event.client}


def _with_unseen(starts: Sequence[_Start], changes: Sequence[_Change]) -> list[_Start]:
    """Add to `starts` those of rebalances of which only the hand-offs are known."""
    known = [start.at for start in starts]
    unseen: list[_Start] = []
    for change in changes:
        number = bisect_right(known, change.new.at)
        if number and known[number - 1] >= change.old.until - SETTLE_MS:
            continue
        at = change.new.at - pause_ms(change.old.until, change.new.stored, change.new.at)
        newest = unseen[-1].at if unseen else None
        if newest is not None and newest >= max(at - SETTLE_MS, known[number - 1] if number else 0):
            continue
        members = starts[number - 1].after if number else frozenset()
        unseen.append(_Start(at, ROUTES, members, members))
    return sorted([*starts, *unseen], key=lambda start: start.at)


def _moves(changes: Sequence[_Change], starts: Sequence[_Start]) -> list[tuple[int, _Move]]:
    """Return changes as hand-offs with the number of their rebalance; back and forth is one."""
    times = [start.at for start in starts]
    open_runs: dict[_Queue, tuple[int, list[_Change]]] = {}
    runs: list[tuple[int, list[_Change]]] = []
    for change in changes:
        queue = _queue_of(change.new)
        number = bisect_right(times, change.new.at) - 1
        run = open_runs.get(queue)
        if run and run[0] == number and change.new.at - run[1][-1].new.at <= MERGE_MS:
            run[1].append(change)
        else:
            open_runs[queue] = (number, [change])
            runs.append(open_runs[queue])
    moves = [(number, _move(run)) for number, run in runs]
    return [(number, move) for number, move in moves if move.from_client != move.change.new.client]


class _Move(NamedTuple):
    """Build the row. `change` is the one with the first delivery to the final owner."""

    from_client: str
    change: _Change


def _move(run: Sequence[_Change]) -> _Move:
    final = run[-1].new.client
    return _Move(run[0].old.client, next(change for change in run if change.new.client == final))


class _Repeat(NamedTuple):
    """A delivery with offsets that had been delivered before, and how many they are."""

    queue: _Queue
    at: int
    redelivered: int
    reprocessed_min: int
    reprocessed_max: int


class _Handed:
    """What members reported of what their applications were handed.

    `_said`: their commits of each queue, by time. `_began`: each time at which the member began to
    read the queue: it took over from another one, or went back, as after an eager rebalance.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._said: dict[tuple[_Queue, str], list[Committed]] = defaultdict(list)
        self._began: dict[tuple[_Queue, str], list[int]] = defaultdict(list)
        newest: dict[_Queue, Delivered] = {}
        for one in records:
            if isinstance(one, Committed):
                self._said[_Queue(one.broker, one.topic, one.queue), one.client].append(one)
            elif isinstance(one, Delivered):
                queue = _queue_of(one)
                last = newest.get(queue)
                if last is None or last.client != one.client or one.first < last.next:
                    self._began[queue, one.client].append(one.at)
                newest[queue] = one

    def bounds(self, one: Delivered) -> tuple[int, int]:
        """Return two offsets: all before the first was handed over, nothing from the second on."""
        key = _queue_of(one), one.client
        said, began = self._said[key], self._began[key]
        anew = bisect_right(began, one.at)
        first = bisect_left(said, one.at, key=_at)
        last = bisect_left(said, began[anew], key=_at) if anew < len(began) else len(said)
        later = said[first:last]
        for each in later:
            if each.handed is not None:
                handed = min(max(each.handed, one.first), one.next)
                return handed, handed
        low = max((each.offset for each in later), default=one.first)
        return min(max(low, one.first), one.next), one.next


def _at(record: Record) -> int:
    return record.at


def _repeats(records: Sequence[Record], starts: Sequence[_Start]) -> dict[int, list[_Repeat]]:
    """Group deliveries with repeated offsets by the number of their rebalance, -1 before all."""
    times = [start.at for start in starts]
    handed = _Handed(records)
    delivered, surely, possibly = (
        defaultdict[_Queue, OffsetRanges](OffsetRanges) for _ in range(3)
    )
    repeats: dict[int, list[_Repeat]] = defaultdict(list)
    for one in records:
        if not isinstance(one, Delivered):
            continue
        queue = _queue_of(one)
        low, high = handed.bounds(one)
        repeat = _Repeat(
            queue,
            one.at,
            _repeated(delivered[queue], one.first, one.next, one.count),
            _repeated(surely[queue], one.first, low, one.count),
            _repeated(possibly[queue], one.first, high, one.count),
        )
        if repeat.redelivered:
            repeats[bisect_right(times, one.at) - 1].append(repeat)
    return repeats


def _handoff(group: str, start: _Start, move: _Move, repeats: Sequence[_Repeat]) -> Handoff:
    old, new = move.change
    queue = _queue_of(new)
    mine = [each for each in repeats if each.queue == queue and each.at >= new.at]
    return Handoff(
        group=group,
        topic=queue.topic,
        broker=queue.broker,
        queue=queue.queue_id,
        from_client=move.from_client,
        to_client=new.client,
        last_delivery_ms=old.until,
        first_delivery_ms=new.at,
        pause_ms=pause_ms(old.until, new.stored, new.at),
        redelivered=sum(each.redelivered for each in mine),
        reprocessed_min=sum(each.reprocessed_min for each in mine),
        reprocessed_max=sum(each.reprocessed_max for each in mine),
        rebalance=_name(group, start),
    )


def _name(group: str, start: _Start) -> str:
    return f"{group}/{start.at}"


# -- backlog ---------------------------------------------------------------------------------------


class BacklogSeries(NamedTuple):
    """A backlog over time, in two columns; linear between two of its points."""

    times: list[int]
    totals: list[float]

    def at(self, when: int) -> float | None:
        """The backlog at a moment, None before the first point."""
        after = bisect_right(self.times, when)
        if after == 0:
            return None
        if after == len(self.times):
            return self.totals[-1]
        begin, end = self.times[after - 1], self.times[after]
        low, high = self.totals[after - 1], self.totals[after]
        return low + (high - low) * (when - begin) / (end - begin)

    def over(self, begin: int, end: int) -> BacklogSeries:
        """From `begin` to `end`, with both."""
        low, high = bisect_right(self.times, begin), bisect_left(self.times, end)
        first, last = self.at(begin), self.at(end)
        inner = BacklogSeries(self.times[low:high], self.totals[low:high])
        if first is not None:
            inner = BacklogSeries([begin, *inner.times], [first, *inner.totals])
        if last is not None:
            inner = BacklogSeries([*inner.times, end], [*inner.totals, last])
        return inner


def backlogs(records: Iterable[Record], group: str) -> BacklogSeries:
    """The backlog of a group over time, from its brokers' records of it."""
    points: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for one in records:
        if isinstance(one, Backlog) and one.group == group:
            known = points[one.broker, one.topic]
            known[one.at] = max(known.get(one.at, 0), sum(one.waiting))
            known[one.peak_at] = max(known.get(one.peak_at, 0), one.peak)
    parts = []
    for known in points.values():
        times = sorted(known)
        parts.append(BacklogSeries(times, [known[at] for at in times]))
    moments = sorted({at for part in parts for at in part.times})
    return BacklogSeries(moments, [sum(part.at(at) or 0 for part in parts) for at in moments])


def _rebalance(
    group: str,
    start: _Start,
    end: int | None,
    pauses: Sequence[int],
    repeats: Sequence[_Repeat],
    samples: BacklogSeries,
) -> Rebalance:
    """Build the row of one rebalance, which lasts until `end` or to the end of all records."""
    last = max(samples.times, default=start.at) if end is None else end
    grid = (samples.at(at) for at in range(start.at - BEFORE_MS, start.at, SAMPLE_MS))
    before = [total for total in grid if total is not None]
    last = max(last, start.at)
    settled = samples.over(start.at, min(last, start.at + SETTLE_MS))
    return Rebalance(
        group=group,
        rebalance=_name(group, start),
        started_at=start.at,
        trigger=start.trigger,
        members_before=tuple(sorted(start.before)),
        members_after=tuple(sorted(start.after)),
        queues_moved=len(pauses),
        pause_p50_ms=percentile(pauses, 0.5),
        pause_p99_ms=percentile(pauses, 0.99),
        pause_max_ms=max(pauses, default=0),
        redelivered=sum(each.redelivered for each in repeats),
        reprocessed_min=sum(each.reprocessed_min for each in repeats),
        reprocessed_max=sum(each.reprocessed_max for each in repeats),
        spike=spike(before, settled.totals),
        drain_ms=_drain_ms(start.at, before, settled, samples, last),
    )


def _drain_ms(
    started_at: int,
    before: Sequence[float],
    settled: BacklogSeries,
    samples: BacklogSeries,
    last: int,
) -> int | None:
    if not before or not settled.times:
        return None
    enough, peak = baseline(before), max(settled.totals)
    if peak <= enough:
        return 0
    falling = samples.over(settled.times[settled.totals.index(peak)], last)
    for (begin, high), (end, low) in pairwise(zip(*falling, strict=True)):
        if low <= enough:
            return round(begin + (end - begin) * (high - enough) / (high - low)) - started_at
    return None
