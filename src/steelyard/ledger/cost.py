"""The cost of a rebalance, computed from the ledger: the definition of pause, duplicates and spike.

The input is the records of all brokers of a cluster, in any order; the output is one row per queue
that moved or stood still (`Handoff`) and one per rebalance (`Rebalance`). Pipeline and simulator
use these functions, for clustering groups of any client. (A broadcasting group has no owners; its
rows would mean nothing.)

Definitions
- The **owner** of a queue is the member that the broker last delivered its messages to. A
  **hand-off** is a delivery to a different member than before. The first owner is not a hand-off.
  Clients that the ledger never records as members own nothing: a client that pulls before its first
  heartbeat, or without one, is known to brokers by its address only.
- **Pause** of a queue: from the last delivery to the old owner to the first delivery to the new
  one, while messages waited. Nothing waited before the first message of the new owner was `stored`,
  so pause = max(0, first at the new owner - max(last at the old, stored)).
- Members that report when they passed messages to their listeners have a second pause, which is
  what the application saw: a member may have fetched ahead.
- A queue **stalled** in a rebalance if it kept its owner, but its messages waited for `STALLED_MS`
  or more between two deliveries, and longer than in the `BEFORE_MS` before the rebalance. Its pause
  is the longest time that they waited, if that began before all members had their shares.
- A rebalance takes three parts. **Detect**: until a broker or the coordinator recorded its first
  event; 0 unless somebody died silently. **Rebalance**: from then until all members had their
  shares, which Kafka's coordinator records; in RocketMQ groups, until the new owner of each moved
  queue had asked for its messages. **First fetch**: the longest part of a queue's pause after that.
- **Redelivered**: deliveries of an offset that had been delivered to any member of the group
  before; so redelivered = deliveries - distinct offsets. Ranges of offsets are compared; if a tag
  filter left gaps in a range, its number of messages is the upper bound.
- **Reprocessed**: offsets that an application was handed again. A member fetches ahead, and drops
  what it has not handed over when it gives up a queue: that is redelivered, but not reprocessed.
  What an application was handed is known exactly if its member reports it as it gives up the queue
  (`Committed.handed`). Otherwise it is at least what the member committed later, and at most what
  it was delivered; so there are two bounds. A broker that is killed loses the records of its last
  second: what it delivers afterwards and may have delivered then is in the upper bound.
- **Backlog** of the group: the sum over its queues of the messages not delivered to it, from the
  brokers' records (`Backlog`), linear between two of them and constant after the last.
- **Spike**: peak backlog of the group after a rebalance over the median backlog before it. Before:
  once a second in the `BEFORE_MS` up to its start; after: until the next rebalance, at most
  `SETTLE_MS`. A median below `BACKLOG_FLOOR` counts as `BACKLOG_FLOOR`. None if the backlog before
  or after is unknown.
- **Drain**: from the start of the rebalance until the backlog, after its peak, has returned to what
  is usual; 0 if it never rose above that, None if it did not drain before the next rebalance. Usual
  is at most the highest backlog of the `BEFORE_MS` before the start, and as much above that as the
  backlog varied in that time: else every fluctuation would have to drain.

What is one rebalance
- It starts with an event: a member joins or leaves, members change their topics, a broker that the
  group reads from starts, stops or dies (starts again without having recorded a stop).
- It begins when that happened: for a member that was silent until its time ran out, with its last
  sign of life, which is its last request, delivery or commit; for a broker that died, with its last
  record. So the outage is not part of "before". If it began while the rebalance before it was still
  going on, deliveries count to that one until the event was recorded.
- Every broker reports the same member, so an event that does not change the set of members is
  ignored. Events within `MERGE_MS` of a rebalance's start belong to it.
- In a Kafka group the coordinator also records rebalances without a change of members: for example,
  its leader saw topics or partitions change (`leader`, `topics`). The second round of a cooperative
  rebalance belongs to the first.
- A hand-off with no event since `SETTLE_MS` before its old owner's last delivery starts a rebalance
  of its own, with the trigger `routes`: no broker saw the cause of the move.
- A rebalance lasts until the next one of the group starts: duplicates and backlog in that time are
  its cost. A pause belongs to the rebalance that started while the queue paused: if there are
  several, to the one in which its old owner left, else to the first; if there is none, to the last
  one before.

Times come from the brokers' clocks, which are assumed to agree within `MERGE_MS`. A broker collects
deliveries for a second before it writes them; those of its last second are lost when it is killed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from steelyard.ledger.backlog import BacklogSeries, backlogs, strain
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Delivered, Record, queue_of
from steelyard.ledger.measures import percentile
from steelyard.ledger.owners import (
    ListenerTimes,
    QueuePause,
    ShareTimes,
    find_gaps,
    find_pauses,
    with_unseen,
)
from steelyard.ledger.repeats import Repeat, find_repeats
from steelyard.ledger.starts import (
    BROKER_DIED,
    ROUTES,
    Start,
    find_deaths,
    find_events,
    find_starts,
    members_ever,
)
from steelyard.ledger.tables import MOVED, STALLED, Costs, Handoff, Rebalance


def handoffs(records: Iterable[Record]) -> list[Handoff]:
    """Return a row per moved or stalled queue of all groups, sorted by group, time and queue."""
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


def _order(record: Record) -> tuple[int, int, str, bytes]:
    """Sort key of records: by time, and independent of the order in which they come."""
    until = record.until if isinstance(record, Delivered) else record.at
    return record.at, until, record.broker, msgspec.json.encode(record)


class _Part(msgspec.Struct):
    """A rebalance with what belongs to it. `until`: when the next one starts."""

    start: Start
    until: int | None = None
    pauses: list[QueuePause] = msgspec.field(default_factory=list)
    repeats: list[Repeat] = msgspec.field(default_factory=list)


def _group_costs(group: str, records: Sequence[Record]) -> Costs:
    """Compute the tables of one group; `records` are sorted and include those of the brokers."""
    shares, backlog = ShareTimes(records), backlogs(records, group)
    parts = _parts(records, shares)
    listeners = ListenerTimes(records)
    moved = [
        _handoff(group, part, pause, shares, listeners) for part in parts for pause in part.pauses
    ]
    moved.sort(key=lambda row: (row.first_delivery_ms, row.broker, row.topic, row.queue))
    return Costs(moved, [_rebalance(group, part, shares, backlog) for part in parts])


def _parts(records: Sequence[Record], shares: ShareTimes) -> list[_Part]:
    """Divide what happened among the rebalances."""
    deliveries = [record for record in records if isinstance(record, Delivered)]
    gaps = find_gaps(deliveries, members_ever(records))
    deaths = find_deaths(records)
    events = find_events(records, deaths, {one.broker for one in deliveries})
    starts = with_unseen(find_starts(events), gaps.changes)
    touched = {pause.number for pause in find_pauses(gaps, starts, shares)}
    # A broker that died without any queue moving or standing still is not a rebalance.
    starts = [
        start
        for number, start in enumerate(starts)
        if start.trigger not in (ROUTES, BROKER_DIED) or number in touched
    ]
    parts = [_Part(start) for start in starts]
    for part, following in pairwise(parts):
        part.until = following.start.since
    for pause in find_pauses(gaps, starts, shares):
        parts[pause.number].pauses.append(pause)
    times = [start.since for start in starts]
    for repeat in find_repeats(records, deaths):
        number = bisect_right(times, repeat.at) - 1
        if number >= 0:
            parts[number].repeats.append(repeat)
    return parts


def _handoff(
    group: str, part: _Part, pause: QueuePause, shares: ShareTimes, listeners: ListenerTimes
) -> Handoff:
    old, new = pause.gap
    queue = queue_of(new)
    mine = [each for each in part.repeats if each.queue == queue and each.at >= new.at]
    return Handoff(
        group=group,
        topic=queue.topic,
        broker=queue.broker,
        queue=queue.queue_id,
        kind=MOVED if pause.has_moved else STALLED,
        from_client=pause.from_client,
        to_client=new.client,
        last_delivery_ms=old.until,
        first_delivery_ms=new.at,
        pause_ms=pause.gap.pause_ms,
        first_fetch_ms=_first_fetch_ms(pause, shares, part.start),
        listener_pause_ms=listeners.pause_ms(pause),
        redelivered=sum(each.redelivered for each in mine),
        reprocessed_min=sum(each.reprocessed_min for each in mine),
        reprocessed_max=sum(each.reprocessed_max for each in mine),
        rebalance=_name(group, part.start),
    )


def _rebalance(group: str, part: _Part, shares: ShareTimes, backlog: BacklogSeries) -> Rebalance:
    start, repeats = part.start, part.repeats
    pauses = [pause.gap.pause_ms for pause in part.pauses]
    moved = [pause for pause in part.pauses if pause.has_moved]
    known = start.began if start.known is None else start.known
    shared = shares.of_group(start.since, part.until, moved)
    fetches = [_first_fetch_ms(pause, shares, start) for pause in part.pauses]
    strained = strain(backlog, start.began, part.until)
    return Rebalance(
        group=group,
        rebalance=_name(group, start),
        started_at=start.began,
        reason="; ".join(start.reasons),
        trigger=start.trigger,
        members_before=tuple(sorted(start.before)),
        members_after=tuple(sorted(start.after)),
        detect_ms=None if start.known is None else start.known - start.began,
        rebalance_ms=None if shared is None else max(0, shared - known),
        first_fetch_ms=max((each for each in fetches if each is not None), default=None),
        queues_moved=len(moved),
        queues_stalled=len(part.pauses) - len(moved),
        pause_p50_ms=percentile(pauses, 0.5),
        pause_p99_ms=percentile(pauses, 0.99),
        pause_max_ms=max(pauses, default=0),
        redelivered=sum(each.redelivered for each in repeats),
        reprocessed_min=sum(each.reprocessed_min for each in repeats),
        reprocessed_max=sum(each.reprocessed_max for each in repeats),
        spike=strained.spike,
        drain_ms=strained.drain_ms,
    )


def _first_fetch_ms(pause: QueuePause, shares: ShareTimes, start: Start) -> int | None:
    got = shares.of_queue(pause, start.since)
    return None if got is None else min(pause.gap.pause_ms, pause.gap.new.at - got)


def _name(group: str, start: Start) -> str:
    return f"{group}/{start.since}"
