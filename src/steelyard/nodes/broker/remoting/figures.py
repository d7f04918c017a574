"""Figures for whoever watches the cluster: requests of our own (`wire/figures`).

| code | request | answer |
|---|---|---|
| 9103 FIGURES | the broker's counters, queues, and groups of RocketMQ's clients | |
| 9105 STORE_TIMES | when certain messages were stored | the same, with times |

Both are answered in steps, so that no other client waits for them, and have at most `ROWS_MAX` and
`TIMES_MAX` rows. Kafka's groups are in 9104: `nodes/broker/kafka/figures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

from steelyard.errors import ProtocolError, StorageError
from steelyard.groups.remoting.registry import BROADCASTING, Member
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets
from steelyard.nodes.broker.remoting.pull import Pulls
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.skipped import PassedOver
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.wire import figures
from steelyard.wire.figures import (
    ROWS_MAX,
    TIMES_MAX,
    BrokerFigures,
    GroupFigures,
    OffsetRow,
    QueueRow,
    QueueTimes,
    StoreTimes,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command

STEP_ROWS = 500
"""Rows made in one step of some 4 ms."""

NOT_COMMITTED = -1
"""In place of the offset of a queue that a group has committed nothing of."""

OTHERS = "OTHERS"
"""The name of requests that brokers send each other, and of unknown ones, among those counted."""


def commits(member: Member) -> bool:
    """Return whether a member's progress is what its broker knows of it."""
    data = member.data
    return data.message_model != BROADCASTING and data.consume_type == "CONSUME_PASSIVELY"


class FigureHandlers:
    """Handlers of the requests above."""

    def __init__(
        self, parts: Parts, committed: CommittedOffsets, pulls: Pulls, passed: PassedOver
    ) -> None:
        self._parts = parts
        self._config = parts.config
        self._store = parts.store
        self._statistics = parts.statistics
        self._registry = parts.registry
        self._durability = parts.durability
        self._committed = committed
        self._pulls = pulls
        self._passed = passed

    @serves(SteelyardCode.FIGURES)
    def figures(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Steps[Command]:
        queues = yield from self._queues()
        groups, left_out = yield from self._groups()
        left_out += max(0, len(queues) - ROWS_MAX)
        statistics = self._statistics
        free, size = self._space()
        body = BrokerFigures(
            name=self._config.name,
            cluster=self._config.cluster,
            address=self._config.address,
            now=now,
            started_at=statistics.started_at,
            messages_in=statistics.put_messages,
            bytes_in=statistics.put_bytes,
            messages_out=statistics.got_messages,
            requests=_named(statistics.remoting_requests, (*RequestCode, *SteelyardCode)),
            refused=_named(statistics.remoting_refused, ResponseCode),
            parked={"pull": len(self._pulls.parked), "turn": len(self._parts.turns)},
            skipped=self._passed.count,
            damaged=self._parts.damage.entries,
            disk_free=free,
            disk_size=size,
            queues=tuple(queues[:ROWS_MAX]),
            groups=tuple(groups),
            left_out=left_out,
            process=statistics.process,
            stood_still_ms=self._parts.pulse.stood_still_ms,
        )
        return request.reply(body=figures.write(body))

    def _space(self) -> tuple[int, int]:
        try:
            return self._store.space()
        except StorageError:
            return 0, 0

    def _queues(self) -> Steps[list[QueueRow]]:
        rows: list[QueueRow] = []
        for log in self._store.all_logs():
            end = self._durability.readable_end(log)
            rows.append(QueueRow(log.topic, log.queue_id, log.min_offset, end, log.size()))
            if len(rows) % STEP_ROWS == 0:
                yield
        return rows

    def _groups(self) -> Steps[tuple[list[GroupFigures], int]]:
        """Return the groups with members or committed offsets, and how many rows were left out."""
        rows: list[GroupFigures] = []
        room, left_out = ROWS_MAX, 0
        for group in sorted({*self._committed.groups(), *self._registry.groups()}):
            if room <= 0:
                left_out += 1
                continue
            committed = self._committed.of_group(group)
            unread = dict.fromkeys(self._subscribed(group), NOT_COMMITTED)
            places = sorted({**unread, **committed}.items())
            left_out += max(0, len(places) - room)
            offsets: list[OffsetRow] = []
            for (topic, queue_id), offset in places[:room]:
                log = self._store.log(topic, queue_id)
                if log is not None:
                    offsets.append(self._offset(log, offset))
                if len(offsets) % STEP_ROWS == STEP_ROWS - 1:
                    yield
            rows.append(GroupFigures(group, len(self._registry.members(group)), tuple(offsets)))
            room -= 1 + len(offsets)
            if len(rows) % STEP_ROWS == 0:
                yield
        return rows, left_out

    def _subscribed(self, group: str) -> Iterator[tuple[str, int]]:
        """Yield the queues that a group of push consumers reads and commits: broadcasts are not."""
        if any(commits(member) for member in self._registry.memberships(group)):
            for topic in self._registry.subscriptions(group):
                for log in self._store.logs(topic):
                    yield topic, log.queue_id

    def _offset(self, log: Log, offset: int) -> OffsetRow:
        """Return a row; a queue without a committed offset counts from its first message."""
        lag = max(0, self._durability.readable_end(log) - max(offset, log.min_offset))
        since = _stored_at(log, max(offset, log.min_offset)) if lag else 0
        return OffsetRow(log.topic, log.queue_id, offset, lag, since)

    @serves(SteelyardCode.STORE_TIMES)
    def store_times(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        asked = figures.read(request.body, StoreTimes).queues
        if sum(len(queue.values) for queue in asked) > TIMES_MAX:
            raise ProtocolError(f"more than {TIMES_MAX} offsets")
        answer: list[QueueTimes] = []
        done = 0
        for queue in asked:
            times: list[int] = []
            for offset in queue.values:
                log = self._store.log(queue.topic, queue.queue_id)
                times.append(0 if log is None else _stored_at(log, offset))
                done += 1
                if done % STEP_ROWS == 0:
                    yield
            answer.append(QueueTimes(queue.topic, queue.queue_id, tuple(times)))
        return request.reply(body=figures.write(StoreTimes(tuple(answer), now)))


def _stored_at(log: Log, offset: int) -> int:
    """Return when the message at an offset, or the first one after it, was stored; 0 for none."""
    offset = max(offset, log.min_offset)
    try:
        return log.stored_at(offset) if offset < log.max_offset else 0
    except StorageError:  # `damage` reports it
        return 0


def _named(counts: Mapping[int, int], codes: Iterable[IntEnum]) -> dict[str, int]:
    """Return counts by the names of their codes."""
    names = {int(code): code.name for code in codes}
    found: dict[str, int] = {}
    for code, count in counts.items():
        name = names.get(code, OTHERS)
        found[name] = found.get(name, 0) + count
    return found
