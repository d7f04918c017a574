"""What the rebalances of a RocketMQ group cost, from the logs of its brokers and clients.

Who joins and leaves say the brokers' logs, who has which queues the clients'; either may be missing
in part. Events become rebalances by the rules of `ledger.starts`. Without a broker's log, a client
whose shares of all topics change is all that is known: the trigger is `routes` then.

A **pause** of a queue that moved is the time in which nobody had it: from when the old owner gave
it up by its own log, or was gone by the broker's, until the new one took it. What members processed
is in no log; they commit every `PERSIST_MS`, so that is the error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from steelyard.incident.remoting.logs import Connected, Disconnected, HeldQueues, LogEvent
from steelyard.incident.tables import (
    ASSIGNED,
    HIGH,
    LOW,
    MEDIUM,
    IncidentCosts,
    IncidentHandoff,
    IncidentRebalance,
    QueueHolding,
)
from steelyard.ledger.events import MemberJoined, MemberLeft
from steelyard.ledger.starts import ROUTES, Event, Life, MembersSoFar, Start, of_join
from steelyard.ledger.tables import MOVED
from steelyard.types import MessageQueue

PERSIST_MS = 5_000
"""Interval of commits: persistConsumerOffsetInterval."""
MERGE_MS = 1_000
"""Logs may name the second only, so what seems to be so much earlier may be a consequence."""
SETTLE_MS = 60_000
"""So long after its beginning a queue's new owner may appear: a client looks every 20 s."""
RETRY_PREFIX = "%RETRY%"


def rocketmq_costs(events: Iterable[LogEvent]) -> list[IncidentCosts]:
    """Return the rows of each group, sorted by its name."""
    groups: dict[str, list[LogEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda one: (one.at, type(one).__name__, one.client)):
        groups[event.group].append(event)
    return [_Group(name, groups[name]).costs() for name in sorted(groups)]


class _Group:
    """The events of one group, in order of time."""

    def __init__(self, name: str, events: Sequence[LogEvent]) -> None:
        self._name = name
        self._shares = [
            event
            for event in events
            if isinstance(event, HeldQueues) and not event.topic.startswith(RETRY_PREFIX)
        ]
        self._gone: dict[str, list[int]] = defaultdict(list)
        """When each client was gone."""
        for event in events:
            if isinstance(event, Disconnected):
                self._gone[event.client].append(event.at)
        self._starts = MembersSoFar().find_starts(list(_ledger_events(events)))
        if not self._starts:
            self._starts = list(_by_shares(self._shares))

    def costs(self) -> IncidentCosts:
        made = IncidentCosts([], [], sorted(self._holdings()))
        ends = [*(start.began - MERGE_MS for start in self._starts[1:]), None]
        for start, end in zip(self._starts, ends, strict=True):
            moved = self._handoffs(start, end)
            made.handoffs.extend(moved)
            made.rebalances.append(self._rebalance(start, moved))
        return made

    def _holdings(self) -> Iterator[QueueHolding]:
        """Yield who had which queue when, up to the last event."""
        gone = [(at, client) for client, times in self._gone.items() for at in times]
        steps: list[tuple[int, str, HeldQueues | None]] = [
            *((share.at, share.client, share) for share in self._shares),
            *((at, client, None) for at, client in gone),
        ]
        steps.sort(key=lambda step: (step[0], step[2] is not None, step[1]))
        open_: dict[MessageQueue, QueueHolding] = {}
        for at, client, share in steps:
            queues: frozenset[MessageQueue] = frozenset() if share is None else share.queues
            for queue, holding in list(open_.items()):
                is_mine = holding.client == client
                given_up = is_mine and queue not in queues and _concerns(share, queue)
                if given_up or (not is_mine and queue in queues):
                    yield open_.pop(queue)._replace(end=at)
            for queue in sorted(queues - open_.keys()):
                place = (queue.topic, queue.broker_name, int(queue.queue_id))
                open_[queue] = QueueHolding(*place, client, at, at)
        last = steps[-1][0] if steps else 0
        for holding in open_.values():
            yield holding._replace(end=last)

    def _owners(self, at: int) -> dict[MessageQueue, str]:
        """Return the last owner of each queue before a time, by the clients' logs.

        Whoever is gone keeps its queues until somebody else has them.
        """
        owners: dict[MessageQueue, str] = {}
        for share in self._shares:
            if share.at >= at:
                break
            for queue in [queue for queue, owner in owners.items() if owner == share.client]:
                if queue.topic == share.topic and queue not in share.queues:
                    del owners[queue]
            owners.update(dict.fromkeys(sorted(share.queues), share.client))
        return owners

    def _handoffs(self, start: Start, end: int | None) -> list[IncidentHandoff]:
        since = start.began - MERGE_MS
        until = since + SETTLE_MS if end is None else min(end, since + SETTLE_MS)
        before = self._owners(since)
        during = [one for one in self._shares if since <= one.at < until]
        after: dict[MessageQueue, tuple[str, int]] = {}
        for share in during:
            for queue in share.queues:
                if after.get(queue, (before.get(queue), 0))[0] != share.client:
                    after[queue] = (share.client, share.at)
        return [
            self._handoff(start, queue, before.get(queue), *after[queue], during)
            for queue in sorted(after)
            if before.get(queue) != after[queue][0]
        ]

    def _handoff(
        self,
        start: Start,
        queue: MessageQueue,
        old: str | None,
        new: str,
        taken_at: int,
        during: Sequence[HeldQueues],
    ) -> IncidentHandoff:
        given_up = (
            None if old is None else self._given_up(queue, old, start.began - MERGE_MS, during)
        )
        pause = None if given_up is None else max(0, taken_at - given_up)
        return IncidentHandoff(
            group=self._name,
            topic=queue.topic,
            broker=queue.broker_name,
            queue=int(queue.queue_id),
            kind=MOVED if old else ASSIGNED,
            from_client=old or "",
            to_client=new,
            moved_at=taken_at,
            last_commit_ms=None,
            first_commit_ms=None,
            pause_ms=pause,
            pause_error_ms=None if pause is None else PERSIST_MS,
            rebalance=_rebalance_name(self._name, start),
        )

    def _given_up(
        self, queue: MessageQueue, old: str, since: int, during: Sequence[HeldQueues]
    ) -> int | None:
        """Return when the old owner gave the queue up, or was gone."""
        times = [
            share.at
            for share in during
            if share.client == old and share.topic == queue.topic and queue not in share.queues
        ]
        times += [at for at in self._gone[old] if at >= since]
        return min(times, default=None)

    def _rebalance(self, start: Start, moved: Sequence[IncidentHandoff]) -> IncidentRebalance:
        pauses = [one.pause_ms for one in moved if one.pause_ms is not None]
        known = start.began if start.known is None else start.known
        taken = max((one.moved_at for one in moved), default=None)
        confidence = HIGH if start.trigger != ROUTES else LOW if not moved else MEDIUM
        return IncidentRebalance(
            group=self._name,
            rebalance=_rebalance_name(self._name, start),
            generation=0,
            started_at=start.began,
            started_error_ms=MERGE_MS,
            reason="; ".join(start.reasons),
            trigger=start.trigger,
            confidence=confidence,
            members_before=tuple(sorted(start.before)),
            members_after=tuple(sorted(start.after)),
            detect_ms=None if start.known is None else start.known - start.began,
            rebalance_ms=None if taken is None else max(0, taken - known),
            queues_moved=sum(one.kind == MOVED for one in moved),
            queues_stalled=None,
            pause_max_ms=max(pauses, default=None),
            pause_error_ms=PERSIST_MS if pauses else None,
        )


def _concerns(share: HeldQueues | None, queue: MessageQueue) -> bool:
    """Return whether a share is of the queue's topic; None stands for the client's end."""
    return share is None or share.topic == queue.topic


def _ledger_events(events: Iterable[LogEvent]) -> Iterable[Event]:
    """Yield the joins and leaves as events of the ledger."""
    members: set[str] = set()
    life = Life()
    for event in events:
        if isinstance(event, Connected):
            members.add(event.client)
            now = tuple(sorted(members))
            yield of_join(
                MemberJoined(
                    at=event.at,
                    broker="",
                    group=event.group,
                    client=event.client,
                    cause="heartbeat",
                    members=now,
                )
            )
        elif isinstance(event, Disconnected):
            members.discard(event.client)
            left = life.left(
                MemberLeft(
                    at=event.at,
                    broker="",
                    group=event.group,
                    client=event.client,
                    cause=event.cause,
                    members=tuple(sorted(members)),
                )
            )
            if left is not None:
                yield left


def _by_shares(shares: Sequence[HeldQueues]) -> Iterable[Start]:
    """Yield a start for each burst of changed shares, if no broker's log is there."""
    newest: int | None = None
    holders: set[str] = set()
    for share in shares:
        if newest is None or share.at - newest > SETTLE_MS:
            words = ["queues moved, and there is no broker's log"]
            before = frozenset(holders)
            yield Start(share.at, None, share.at, ROUTES, before, before | {share.client}, words)
        newest = share.at
        (holders.add if share.queues else holders.discard)(share.client)


def _rebalance_name(group: str, start: Start) -> str:
    return f"{group}/{start.began}"
