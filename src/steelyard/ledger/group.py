"""The state from which the rows of one group are computed, record by record.

    state = GroupState("stock")
    rows = state.add(in_order(records))     # of the group, and about brokers; rows that are final
    rows += state.finish()                  # and those that are not, as of now

A rebalance is final `FINAL_MS` after it ended, that is after the next one started or it had lasted
for `LASTS_MS`. Until then its facts are kept: events, changes of owners, repeats, reports and the
backlog of `KEPT_MS`. Otherwise the state has for each queue who reads it and which offsets were
delivered, and for each member and broker when it was heard of; what was not heard of for
`FORGET_MS` is forgotten. Encoded (`encode`), it has some 300 bytes per queue, and 12 for each
record of the backlog that is kept.

Rows that are final are found at full minutes, so that they depend on the records only, and not on
when they come or how often they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from math import inf

import msgspec

from steelyard.decoding import prepared
from steelyard.ledger.backlog import BacklogPoints, together
from steelyard.ledger.events import (
    Backlog,
    BrokerStarted,
    BrokerStopped,
    Committed,
    Delivered,
    HandedOver,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
    Requested,
    queue_of,
)
from steelyard.ledger.gaps import find_gaps
from steelyard.ledger.owners import ShareTimes, Starts, find_pauses, with_unseen
from steelyard.ledger.parts import LASTS_MS, RebalanceFacts, handoff, rebalance
from steelyard.ledger.queues import MemberMinute, QueueKey, QueueState
from steelyard.ledger.repeats import COMMIT_MS, UNWRITTEN_MS, Repeat
from steelyard.ledger.starts import (
    BROKER_DIED,
    DEATHS,
    ROUTES,
    Life,
    Start,
    of_broker,
    of_generation,
    of_join,
)
from steelyard.ledger.tables import Handoff, MemberLoad, Rebalance
from steelyard.ledger.timeline import Timeline

FINAL_MS = 600_000
"""How long after its end the rows of a rebalance may still change."""

KEPT_MS = LASTS_MS + FINAL_MS + 300_000
"""How long facts are kept that belong to no rebalance whose rows may change."""

FORGET_MS = 7 * 86_400_000
"""A queue, member or broker that was not heard of for so long is forgotten."""

SWEEP_MS = 60_000

_CONDITIONAL = (ROUTES, BROKER_DIED)
"""Triggers of what is a rebalance only if queues moved or stood still."""

Row = Handoff | Rebalance | MemberLoad


class GroupState(msgspec.Struct, array_like=True):
    """See the module docstring. The fields change with the records; nobody else needs them."""

    group: str
    queues: dict[QueueKey, QueueState] = {}
    members: dict[str, int] = {}
    """Every client that the records name as a member, and when; any other is a stranger."""
    died: set[str] = set()
    """Members that died and did not join again."""
    life: Life = msgspec.field(default_factory=Life)
    read_from: dict[str, int] = {}
    """The brokers that deliver to the group, and when each last did."""
    unwritten: dict[str, int] = {}
    """Until when a broker that died delivered without its records being written."""
    ended: list[int] = []
    """When the coordinator ended rebalances."""
    backlog: dict[tuple[str, str], BacklogPoints] = {}
    """By broker and topic."""
    repeats: list[Repeat] = []
    timeline: Timeline = msgspec.field(default_factory=Timeline)
    closed: Start | None = None
    """The newest rebalance whose rows are final, and when they became it."""
    closed_at: int | None = None
    sweep_at: int | None = None
    minute: int = 0
    served: dict[str, MemberMinute] = {}
    """By member, in the minute that began then."""

    # -- records ---------------------------------------------------------------------------------

    def add(self, records: Iterable[Record]) -> list[Row]:
        """Add records; return the rows that are final then.

        Records come in the order of `ledger.order`; those about brokers are each group's. Only
        BrokerStopped may be late: what the broker wrote last may be read when it is back.
        """
        rows: list[Row] = []
        for record in records:
            if self.sweep_at is None:
                self.minute = record.at - record.at % SWEEP_MS
                self.sweep_at = self.minute + SWEEP_MS
            if record.at >= self.sweep_at:
                rows += self.advance(record.at)
            self._add(record)
        return rows

    def _add(self, record: Record) -> None:
        match record:
            case Delivered():
                self._delivered(record)
            case Committed():
                self._committed(record)
            case Backlog():
                self._waits(record)
            case Requested():
                self._queue(record).reports.requested.append((record.at, record.client))
                self.life.heard(record.broker, record.at)
            case HandedOver():
                self._queue(record).reports.handed.append((record.at, record.client))
                self.life.heard(record.broker, record.at)
            case MemberJoined():
                self._named(record)
                self.died.discard(record.client)
                self.timeline.add(of_join(record))
            case MemberLeft():
                self._left(record)
            case RebalanceBegan():
                self._began(record)
            case RebalanceEnded():
                self.ended.append(record.at)
                self.life.heard(record.broker, record.at)
            case BrokerStarted():
                self._broker_started(record)
            case BrokerStopped():
                self.life.has_stopped(record)
                self.timeline.add(of_broker(record.broker, record.at, "broker_stopped"))

    def _delivered(self, one: Delivered) -> None:
        state = self._queue(one)
        self._read(state, one)
        self.life.heard(one.broker, one.until)
        self.life.heard_of(one.client, one.until)

    def _read(self, state: QueueState, one: Delivered) -> None:
        """Take a delivery, recorded or not."""
        broker, client = one.broker, one.client
        state.readers.add(state.queue, one, self.members, self.died)
        unwritten = self.unwritten.get(broker)
        is_unwritten = unwritten is not None and one.stored <= unwritten
        if state.deliveries.add(one, is_unwritten=is_unwritten):
            self.repeats += state.deliveries.known(state.queue, -inf)
        self.read_from[broker] = one.at
        served = self.served.get(client)
        if served is None:
            served = self.served[client] = MemberMinute()
        served.messages += one.count
        served.queues.add(state.queue)

    def _committed(self, one: Committed) -> None:
        state = self._queue(one)
        unrecorded = self._unrecorded(state, one)
        if unrecorded is not None:
            self._read(state, unrecorded)
        state.committed = one.offset
        state.readers.committed(one, self.members)
        if state.deliveries.committed(one):
            self.repeats += state.deliveries.known(state.queue, -inf)
        if one.handed_at is not None:
            state.reports.given_up.append((one.at, one.handed_at, one.client))
        self.life.heard_of(one.client, one.at)
        if not one.writer:
            self.life.heard(one.broker, one.at)

    def _unrecorded(self, state: QueueState, one: Committed) -> Delivered | None:
        """Return the delivery that a commit tells of and no broker recorded, if it does.

        It was at the end of the rebalance or later, and began with the group's offset. What an
        earlier reader had been delivered had waited since then; nobody knows it of what follows.
        """
        first, runs = state.committed, state.readers.runs
        if not one.writer or not self.ended or not runs or one.client not in self.members:
            return None
        last, at = runs[-1], self.ended[-1]
        if first is None or one.offset <= first or last.client == one.client or last.until > at:
            return None
        return Delivered(
            at=at,
            broker=one.broker,
            group=one.group,
            client=one.client,
            topic=one.topic,
            queue=one.queue,
            until=at,
            first=first,
            next=one.offset,
            count=one.offset - first,
            stored=last.until if first < state.deliveries.next else at,
        )

    def _waits(self, one: Backlog) -> None:
        points = self.backlog.get((one.broker, one.topic))
        if points is None:
            points = self.backlog[one.broker, one.topic] = BacklogPoints()
        points.add(one)
        self.life.heard(one.broker, one.at)

    def _queue(self, one: Delivered | Committed | Requested | HandedOver) -> QueueState:
        # this tuple equals the Queue, and is made in a tenth of the time
        state = self.queues.get((one.broker, one.topic, one.queue))
        if state is None:
            queue = queue_of(one)
            state = self.queues[queue] = QueueState(queue)
        state.heard = one.at
        return state

    def _left(self, one: MemberLeft) -> None:
        event = self.life.left(one)
        self._named(one)
        if event is not None:
            self.timeline.add(event)
            if one.cause in DEATHS:
                self.died.add(one.client)

    def _named(self, one: MemberJoined | MemberLeft) -> None:
        self.members |= dict.fromkeys((*one.members, one.client), one.at)
        self.life.heard(one.broker, one.at)

    def _began(self, one: RebalanceBegan) -> None:
        event = of_generation(one)
        if event is not None:
            self.timeline.add(event)
        self.life.heard(one.broker, one.at)

    def _broker_started(self, one: BrokerStarted) -> None:
        died = self.life.started(one)
        if died is not None:
            self.unwritten[one.broker] = died + UNWRITTEN_MS
            self.timeline.insert(of_broker(one.broker, died, BROKER_DIED))
        self.timeline.add(of_broker(one.broker, one.at, "broker_started"))
        for state in self.queues.values():
            if state.queue.broker == one.broker:
                state.readers.work.broker_was_away = True

    # -- rows ------------------------------------------------------------------------------------

    def _sweep(self, now: int) -> list[Row]:
        """Return what is final at a full minute, and forget what no row needs any more."""
        self.sweep_at = now + SWEEP_MS
        rows: list[Row] = [*self._balance()]
        self.minute = now
        self.served = {}
        self._settle(now - COMMIT_MS)
        if self.timeline.events or any(len(each.readers.runs) > 1 for each in self.queues.values()):
            final = [*takewhile(lambda part: part.end + FINAL_MS <= now, self._parts())]
            rows += self._rows(final)
            self._close(final, now)
        self._forget(now - KEPT_MS, now - FORGET_MS)
        return rows

    def advance(self, now: int) -> list[Row]:
        """Return the rows that are final because there were no records until `now`."""
        if self.sweep_at is not None and now >= self.sweep_at:
            return self._sweep(now - now % SWEEP_MS)
        return []

    def finish(self) -> list[Row]:
        """Return the rows that are not final, as if no record were to follow. Ends the state."""
        self._settle(inf)
        return [*self._balance(), *self._rows(self._parts())]

    def _settle(self, before: float) -> None:
        for state in self.queues.values():
            if state.deliveries.waiting:
                self.repeats += state.deliveries.known(state.queue, before)

    def _balance(self) -> Iterator[MemberLoad]:
        for client, served in sorted(self.served.items()):
            if client in self.members:
                yield MemberLoad(
                    group=self.group,
                    minute=self.minute,
                    client=client,
                    queues=len(served.queues),
                    delivered=served.messages,
                )

    def _parts(self) -> list[RebalanceFacts]:
        """Divide what happened among the rebalances that are not closed."""
        closed = [] if self.closed is None else [self.closed]
        since = closed[0].since if closed else -inf
        queues = ((state.queue, state.readers) for state in self.queues.values())
        gaps = find_gaps(queues, self.members, since)
        found = self.timeline.starts(self.read_from)
        starts = with_unseen([*closed, *found], gaps.changes)
        shares = self._shares()
        every = [RebalanceFacts(start) for start in starts]
        for pause in find_pauses(gaps, Starts(starts, self.closed_at), shares):
            every[pause.number].pauses.append(pause)
        # A broker that died without any queue moving or standing still is not a rebalance.
        parts = [
            part
            for part in every
            if part.pauses or part.start in closed or part.start.trigger not in _CONDITIONAL
        ]
        for part, following in pairwise(parts):
            part.until = following.start.since
        parts = parts[len(closed) :]
        for part in parts:
            part.repeats = [one for one in self.repeats if part.start.since <= one.at < part.end]
        return parts

    def _shares(self) -> ShareTimes:
        return ShareTimes(self.ended, lambda queue: self.queues[queue].reports)

    def _rows(self, parts: Sequence[RebalanceFacts]) -> Iterator[Row]:
        shares = self._shares()
        backlog = together(self.backlog.values() if parts else ())
        for part in parts:
            for pause in part.pauses:
                reports = self.queues[pause.gap.queue].reports
                yield handoff(self.group, part, pause, shares, reports)
            yield rebalance(self.group, part, shares, backlog)

    # -- forgetting ------------------------------------------------------------------------------

    def _close(self, final: Sequence[RebalanceFacts], now: int) -> None:
        """Take the first rebalances as closed; their events are not needed any more."""
        if not final:
            return
        self.closed, self.closed_at = final[-1].start, now
        merged = [part.start.merged_to for part in final if part.start.merged_to is not None]
        ended = max([self.closed.since, *(to + 1 for to in merged)])
        self.timeline.drop(ended, self.read_from)

    def _forget(self, before: int, long_before: int) -> None:
        if self.timeline.events and self.timeline.events[0].at < before:
            self.timeline.drop(before, self.read_from)
        self.repeats = [one for one in self.repeats if one.at >= before]
        if self.ended and self.ended[0] < before:
            self.ended = [at for at in self.ended[:-1] if at >= before] + self.ended[-1:]
        for points in self.backlog.values():
            points.forget(before)
        for state in self.queues.values():
            state.readers.forget(before, self.members)
            state.reports.forget(before)
        self.queues = {q: state for q, state in self.queues.items() if state.heard >= long_before}
        self.backlog = {
            key: points for key, points in self.backlog.items() if points.times[-1] >= long_before
        }
        for heard in (self.life.brokers, self.read_from, self.unwritten):
            _drop(heard, long_before)
        self.life.stopped &= self.life.brokers.keys()
        _drop(self.life.clients, long_before)
        owners = {run.client for state in self.queues.values() for run in state.readers.runs}
        for client, at in [*self.members.items()]:
            last = max(at, self.life.clients.get(client, 0))
            if last < long_before and client not in owners:
                del self.members[client]
                self.died.discard(client)
                self.timeline.membership.present -= {client}


def _drop(heard: dict[str, int], before: int) -> None:
    for name in [name for name, at in heard.items() if at < before]:
        del heard[name]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(prepared(GroupState))


def encode(state: GroupState) -> bytes:
    """Encode a state, to be stored or copied."""
    return _encoder.encode(state)


def decode(body: bytes) -> GroupState:
    """Decode what `encode` returned."""
    return _decoder.decode(body)


def copy_of(state: GroupState) -> GroupState:
    """Return an independent copy."""
    return decode(encode(state))
