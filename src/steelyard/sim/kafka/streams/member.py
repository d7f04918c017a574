"""A thread of a Kafka Streams application, as far as its coordinator sees it.

It searches for its coordinator, sends heartbeats, and changes to the tasks that it is told, for
which it takes some time. It reports what it has when that has changed, or when it does not know
what has arrived. What it has goes to the `StreamsWitness`. Source: the client's
StreamsGroupHeartbeatRequestManager.java, StreamsMembershipManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from msgspec.structs import replace

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.nodes.calls.kafka import KafkaCalls, Lane, Outcome
from steelyard.nodes.seam import Address, Effect, Event, SetTimer, earliest
from steelyard.sim.kafka.script import AGAIN_MS, ELSEWHERE, NOBODY, coordinator_in, outcomes_of
from steelyard.sim.kafka.streams.witness import StreamsWitness
from steelyard.types import Random
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
)
from steelyard.wire.kafka.messages.streams_groups import (
    STREAMS_GROUP_HEARTBEAT,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

STREAMS_GROUP = "streams"
TIMER = "streams"
REQUEST_TIMEOUTS_MS = (5_000, 30_000)
"""Time-outs of requests: one that is shorter than most waits for news, and Java's."""
REBALANCE_TIMEOUT_MS = 60_000
CHANGE_MS_MAX = 1_000
"""Longest time in which a thread changes to other tasks."""
REPARTITIONS = 3
"""Tasks with state."""


class _Ask(Enum):
    COORDINATOR = "coordinator"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class StreamsMemberConfig:
    """A thread: its member id, its application's instance, where to begin, what it runs."""

    member_id: str
    process_id: str
    bootstrap: tuple[Address, ...]
    topology: Topology
    request_timeout_ms: int


def application_topology(topic: str) -> Topology:
    """Return the topology of an application that counts what it reads from a topic.

    Its repartition topic has a fixed number of partitions, so that the topic may grow.
    """
    words, counts = f"{STREAMS_GROUP}-words-repartition", f"{STREAMS_GROUP}-counts-changelog"
    compacted = TopicInfo(counts, topic_configs=[KeyValue("cleanup.policy", "compact")])
    return Topology(
        0,
        [
            Subtopology("0", [topic], repartition_sink_topics=[words]),
            Subtopology(
                "1",
                repartition_source_topics=[TopicInfo(words, REPARTITIONS)],
                state_changelog_topics=[compacted],
            ),
        ],
    )


class StreamsMemberNode:
    """The thread; see the module docstring."""

    def __init__(self, config: StreamsMemberConfig, witness: StreamsWitness, rng: Random) -> None:
        self._config = config
        self._witness = witness
        self._rng = rng
        self._calls: KafkaCalls[_Ask] = KafkaCalls(config.member_id, "0", config.request_timeout_ms)
        self._coordinator: Address | None = None
        self._epoch = 0
        self._held = TaskShare()
        self._reported: TaskShare | None = None
        """What it has told its coordinator that it has; None if that may not have arrived."""
        self._wanted = TaskShare()
        """What it was told last, and changes to."""
        self._changes_at: int | None = None
        """When it has changed to that; None if it has."""
        self._sent_at = 0
        """When the latest heartbeat was sent."""
        self._sent = TaskShare()
        """What it had then."""
        self._next_at: int | None = None
        """When the next request is due; None while one is under way."""

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        self._next_at = now
        return self._settled(now, [], [])

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        outcomes = outcomes_of(self._calls, event, now, effects)
        return self._settled(now, outcomes, effects)

    def _settled(
        self, now: int, outcomes: Iterable[Outcome[_Ask]], effects: list[Effect]
    ) -> list[Effect]:
        """Take outcomes, ask what is due, and set the timer."""
        for outcome in outcomes:
            self._ended(outcome, now)
        if self._changes_at is not None and self._changes_at <= now:
            self._take(self._wanted)
            self._next_at = self._next_at and now  # it reports at once
        if self._next_at is not None and self._next_at <= now:
            self._ask(now, effects)
        for outcome in self._calls.pump(effects):
            self._ended(outcome, now)
        at = earliest(self._next_at, self._changes_at, self._calls.due)
        if at is not None:
            effects.append(SetTimer(TIMER, max(at, now + 1)))
        return effects

    # -- requests ----------------------------------------------------------------------------------

    def _ask(self, now: int, effects: list[Effect]) -> None:
        self._next_at = None
        if self._coordinator is None:
            address = self._rng.choice(self._config.bootstrap)
            find = FindCoordinatorRequest(coordinator_keys=(STREAMS_GROUP,))
            self._call(address, _Ask.COORDINATOR, find, now, effects)
        else:
            self._sent_at, self._sent = now, self._held
            self._call(self._coordinator, _Ask.HEARTBEAT, self._heartbeat(), now, effects)

    def _call(
        self,
        address: Address,
        ask: _Ask,
        message: FindCoordinatorRequest | StreamsGroupHeartbeatRequest,
        now: int,
        effects: list[Effect],
    ) -> None:
        api = FIND_COORDINATOR if ask is _Ask.COORDINATOR else STREAMS_GROUP_HEARTBEAT
        lane = Lane(address, "group")
        self._calls.call(lane, api, message, ask, now, self._config.request_timeout_ms, effects)

    def _heartbeat(self) -> StreamsGroupHeartbeatRequest:
        config = self._config
        request = StreamsGroupHeartbeatRequest(STREAMS_GROUP, config.member_id, self._epoch)
        if self._epoch == 0:
            return replace(
                request,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                topology=config.topology,
                process_id=config.process_id,
                active_tasks=(),
                standby_tasks=(),
                warmup_tasks=(),
            )
        if self._held != self._reported:
            return replace(
                request,
                active_tasks=_told(self._held.active),
                standby_tasks=_told(self._held.standby),
                warmup_tasks=(),
            )
        return request

    # -- answers -----------------------------------------------------------------------------------

    def _ended(self, outcome: Outcome[_Ask], now: int) -> None:
        reply = outcome.reply
        self._next_at = now + AGAIN_MS
        match outcome.purpose:
            case _Ask.COORDINATOR:
                self._coordinator = coordinator_in(reply)
                if self._coordinator is not None:
                    self._next_at = now
            case _Ask.HEARTBEAT:
                if isinstance(reply, StreamsGroupHeartbeatResponse):
                    self._answered(reply, now)
                else:
                    self._coordinator = self._reported = None
            case _:
                assert_never(outcome.purpose)

    def _answered(self, reply: StreamsGroupHeartbeatResponse, now: int) -> None:
        who = self._config.member_id
        if reply.error_code in NOBODY:
            self._epoch, self._reported = 0, None
            self._take(TaskShare())
        elif reply.error_code in ELSEWHERE:
            self._coordinator = self._reported = None
        elif reply.error_code:
            raise AssertionError(f"{who} is refused: {reply.error_message}")
        else:
            self._witness.heard(who, self._sent_at)
            self._epoch, self._reported = reply.member_epoch, self._sent
            self._next_at = now + reply.heartbeat_interval_ms
            if reply.active_tasks is not None:
                self._wanted = TaskShare(
                    _tasks(reply.active_tasks), _tasks(reply.standby_tasks or ())
                )
                self._witness.given(who, self._config.process_id, self._wanted, now)
                if self._wanted != self._held and self._changes_at is None:
                    self._changes_at = now + 1 + self._rng.randrange(CHANGE_MS_MAX)

    def _take(self, share: TaskShare) -> None:
        self._held = self._wanted = share
        self._changes_at = None
        self._witness.runs(self._config.member_id, self._config.process_id, share)

    def check(self) -> None:
        assert self._held.active.isdisjoint(self._held.standby)


def _told(tasks: Iterable[TaskId]) -> list[TaskIds]:
    return [TaskIds(name, [number]) for name, number in sorted(tasks)]


def _tasks(told: Iterable[TaskIds]) -> frozenset[TaskId]:
    return frozenset(
        TaskId(each.subtopology_id, number) for each in told for number in each.partitions
    )
