"""A rebalance with what belongs to it, and the rows that come of it. See `ledger.cost`."""

from __future__ import annotations

import msgspec

from steelyard.ledger.backlog import GroupBacklog, strain
from steelyard.ledger.measures import percentile
from steelyard.ledger.owners import QueuePause, QueueReports, ShareTimes, listener_pause_ms
from steelyard.ledger.repeats import Repeat
from steelyard.ledger.starts import Start
from steelyard.ledger.tables import MOVED, STALLED, Handoff, Rebalance

LASTS_MS = 1_800_000
"""A rebalance ends when the next one of the group starts, or after so long."""


class RebalanceFacts(msgspec.Struct):
    """A rebalance with what belongs to it. `until`: when the next one starts, None: none has."""

    start: Start
    until: int | None = None
    pauses: list[QueuePause] = msgspec.field(default_factory=list)
    repeats: list[Repeat] = msgspec.field(default_factory=list)

    @property
    def end(self) -> int:
        end = self.start.since + LASTS_MS
        return end if self.until is None else min(self.until, end)


def handoff(
    group: str, part: RebalanceFacts, pause: QueuePause, shares: ShareTimes, reports: QueueReports
) -> Handoff:
    """Return the row of a queue. `reports`: those of its members."""
    gap = pause.gap
    queue = gap.queue
    mine = [each for each in part.repeats if each.queue == queue and each.at >= gap.at]
    return Handoff(
        group=group,
        topic=queue.topic,
        broker=queue.broker,
        queue=queue.queue_id,
        kind=MOVED if pause.has_moved else STALLED,
        from_client=pause.from_client,
        to_client=gap.client,
        last_delivery_ms=gap.from_until,
        first_delivery_ms=gap.at,
        pause_ms=gap.pause_ms,
        first_fetch_ms=_first_fetch_ms(pause, shares, part.start),
        listener_pause_ms=listener_pause_ms(pause, reports),
        redelivered=sum(each.redelivered for each in mine),
        reprocessed_min=sum(each.reprocessed_min for each in mine),
        reprocessed_max=sum(each.reprocessed_max for each in mine),
        rebalance=_name(group, part.start),
    )


def rebalance(
    group: str, part: RebalanceFacts, shares: ShareTimes, backlog: GroupBacklog
) -> Rebalance:
    """Return the row of a rebalance."""
    start, repeats = part.start, part.repeats
    pauses = [pause.gap.pause_ms for pause in part.pauses]
    moved = [pause for pause in part.pauses if pause.has_moved]
    known = start.began if start.known is None else start.known
    shared = shares.of_group(start.since, part.until, moved)
    fetches = [_first_fetch_ms(pause, shares, start) for pause in part.pauses]
    strained = strain(backlog, start.began, part.until, start.since + LASTS_MS)
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
    return None if got is None else min(pause.gap.pause_ms, pause.gap.at - got)


def _name(group: str, start: Start) -> str:
    return f"{group}/{start.since}"
