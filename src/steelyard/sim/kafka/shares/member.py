"""A member of a share group (KIP-932): its heartbeats, and its requests to leaders of partitions.

A model of Java's KafkaShareConsumer. It searches for its coordinator, joins, and fetches from the
leaders what it is told (`leaders`). `StopSharing` ends its sessions, which releases what it
has, and leaves the group. Source: the client's ShareMembershipManager.java,
ShareHeartbeatRequestManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

import msgspec

from steelyard.groups.kafka.share.member import LEAVE
from steelyard.nodes.calls.kafka import KafkaCalls, Lane, Outcome
from steelyard.nodes.seam import (
    Address,
    Answer,
    Asked,
    Closed,
    Effect,
    Event,
    Link,
    Received,
    SetTimer,
    earliest,
)
from steelyard.sim.kafka.script import AGAIN_MS, ELSEWHERE, NOBODY, coordinator_in, outcomes_of
from steelyard.sim.kafka.shares.leaders import SHARE_GROUP, ShareLeaders
from steelyard.sim.kafka.shares.session import Exchange, FetchLimits, Place, ShareHabits
from steelyard.sim.kafka.shares.witness import ShareWitness
from steelyard.sim.scenario import Scenario
from steelyard.types import Random
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    METADATA,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.share_groups import (
    SHARE_GROUP_HEARTBEAT,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

TIMER = "share"
REQUEST_TIMEOUT_MS = 5_000
METADATA_MAX_AGE_MS = 5_000
BY_RECORD = 10
"""Fetches of fewer records get no more than that."""


class _Ask(Enum):
    COORDINATOR = "coordinator"
    METADATA = "metadata"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class ShareMemberConfig:
    """A member: the name of its machine, its id, where it begins, what it reads and how."""

    client_id: str
    member_id: str
    bootstrap: tuple[Address, ...]
    topics: tuple[str, ...]
    habits: ShareHabits
    limits: FetchLimits


def habits_of(scenario: Scenario) -> ShareHabits:
    """Return what applications do with their records."""
    return ShareHabits(
        scenario.process_ms_max,
        scenario.share_slow_of_100,
        scenario.share_release_of_100,
        renew_ms=scenario.share_lock_ms // 3 if scenario.share_renewals else 0,
    )


def limits_of(scenario: Scenario) -> FetchLimits:
    """Return what one fetch gets."""
    records = scenario.share_fetch_records
    return FetchLimits(records, by_record=records < BY_RECORD)


class StopSharing(msgspec.Struct, frozen=True):
    """A call: end the sessions and leave the group. Answered with None when that is done."""


class ShareMemberNode:
    """The member; see the module docstring."""

    def __init__(self, config: ShareMemberConfig, witness: ShareWitness, rng: Random) -> None:
        self._config = config
        self._name = config.member_id
        self._witness = witness
        self._rng = rng
        self._calls: KafkaCalls[_Ask | Exchange] = KafkaCalls(
            config.client_id, "0", REQUEST_TIMEOUT_MS
        )
        self._leaders = ShareLeaders(
            self._name, config.habits, config.limits, self._call, witness, rng
        )
        self._coordinator: Address | None = None
        self._epoch = 0
        self._is_known = False
        """Whether its latest heartbeat was answered well; otherwise the next one says all."""
        self._sent_at = 0
        """When the latest heartbeat was sent."""
        self._beat_at: int | None = None
        """When the next one is due; None while one is under way."""
        self._metadata_at: int | None = None
        self._assigned: dict[Place, None] = {}
        self._stopping: int | None = None
        """The call that wants it to stop."""

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: int) -> list[Effect]:
        self._beat_at = self._metadata_at = now
        return self._settled(now, [], [], -1)

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(event, Asked):
            assert isinstance(event.call, StopSharing)
            self._stopping = event.call_id
            self._leaders.stop(now)
            return self._settled(now, [], effects, -1)
        outcomes = outcomes_of(self._calls, event, now, effects)
        if isinstance(event, Closed):
            self._leaders.closed(event.link, now)
        link = event.link if isinstance(event, Received) else -1
        return self._settled(now, outcomes, effects, link)

    def _settled(
        self,
        now: int,
        outcomes: Iterable[Outcome[_Ask | Exchange]],
        effects: list[Effect],
        link: Link,
    ) -> list[Effect]:
        """Take outcomes, ask what is due, and set the timer. `link`: on which an answer came."""
        for outcome in outcomes:
            self._ended(outcome, link, now, effects)
        if self._metadata_at is not None and self._metadata_at <= now:
            self._ask_metadata(now, effects)
        if self._beat_at is not None and self._beat_at <= now:
            self._beat(now, effects)
        self._leaders.ask(now, effects)
        for outcome in self._calls.pump(effects):
            self._ended(outcome, -1, now, effects)
        if self._stopping is not None:
            self._leave(now, effects)
        at = earliest(self._beat_at, self._metadata_at, self._calls.due, self._leaders.next_at)
        if at is not None:
            effects.append(SetTimer(TIMER, max(at, now + 1)))
        return effects

    # -- the group ---------------------------------------------------------------------------------

    def _call(
        self,
        lane: Lane,
        api: Api,
        message: ApiMessage,
        purpose: _Ask | Exchange,
        now: int,
        effects: list[Effect],
    ) -> None:
        self._calls.call(lane, api, message, purpose, now, REQUEST_TIMEOUT_MS, effects)

    def _ask_metadata(self, now: int, effects: list[Effect]) -> None:
        self._metadata_at = None
        topics = [MetadataRequestTopic(name=name) for name in self._config.topics]
        message = MetadataRequest(topics, allow_auto_topic_creation=False)
        lane = Lane(self._rng.choice(self._config.bootstrap), "metadata")
        self._call(lane, METADATA, message, _Ask.METADATA, now, effects)

    def _beat(self, now: int, effects: list[Effect]) -> None:
        self._beat_at = None
        if self._coordinator is None:
            lane = Lane(self._rng.choice(self._config.bootstrap), "group")
            find = FindCoordinatorRequest(coordinator_keys=(SHARE_GROUP,))
            self._call(lane, FIND_COORDINATOR, find, _Ask.COORDINATOR, now, effects)
            return
        topics = None if self._is_known else self._config.topics
        message = ShareGroupHeartbeatRequest(
            SHARE_GROUP, self._name, self._epoch, subscribed_topic_names=topics
        )
        self._sent_at = now
        lane = Lane(self._coordinator, "group")
        self._call(lane, SHARE_GROUP_HEARTBEAT, message, _Ask.HEARTBEAT, now, effects)

    def _ended(
        self, outcome: Outcome[_Ask | Exchange], link: Link, now: int, effects: list[Effect]
    ) -> None:
        reply = outcome.reply
        match outcome.purpose:
            case Exchange() as exchange:
                if not self._leaders.exchanged(exchange, reply, link, now):
                    self._metadata_soon(now)
            case _Ask.COORDINATOR:
                self._beat_at = now + AGAIN_MS
                self._coordinator = coordinator_in(reply)
                if self._coordinator is not None:
                    self._beat_at = now
            case _Ask.METADATA:
                self._metadata_at = now + AGAIN_MS
                if isinstance(reply, MetadataResponse):
                    self._metadata_at = now + METADATA_MAX_AGE_MS
                    self._leaders.learn(reply)
                    self._share_out(now)
            case _Ask.HEARTBEAT:
                self._beat_at = now + AGAIN_MS
                self._is_known = False
                if isinstance(reply, ShareGroupHeartbeatResponse):
                    self._answered(reply, now)
                else:
                    self._coordinator = None
            case _Ask.LEAVE:
                assert self._stopping is not None
                effects.append(Answer(self._stopping, None))
            case _:
                assert_never(outcome.purpose)

    def _answered(self, reply: ShareGroupHeartbeatResponse, now: int) -> None:
        if reply.error_code in NOBODY:
            if reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID and self._epoch:
                self._witness.expelled(self._name, self._coordinator or "", now)
            self._epoch = 0
            self._assigned = {}
            self._share_out(now)
        elif reply.error_code in ELSEWHERE:
            self._coordinator = None
        elif reply.error_code:
            raise AssertionError(f"{self._name} is refused: {reply.error_message}")
        else:
            self._witness.heard(self._name, self._coordinator or "", self._sent_at)
            self._epoch, self._is_known = reply.member_epoch, True
            self._beat_at = now + reply.heartbeat_interval_ms
            if reply.assignment is not None:
                self._assigned = {
                    (topic.topic_id, number): None
                    for topic in reply.assignment.topic_partitions
                    for number in topic.partitions
                }
                self._share_out(now)

    def _share_out(self, now: int) -> None:
        if not self._leaders.share_out(self._assigned, now):
            self._metadata_soon(now)

    def _metadata_soon(self, now: int) -> None:
        if self._metadata_at is not None:
            self._metadata_at = min(self._metadata_at, now + AGAIN_MS)

    def _leave(self, now: int, effects: list[Effect]) -> None:
        """Leave the group once the sessions have ended, and no heartbeat is under way."""
        if not self._leaders.is_idle or self._beat_at is None:
            return
        self._beat_at, joined = None, self._epoch > 0
        if joined and self._coordinator is not None:
            message = ShareGroupHeartbeatRequest(SHARE_GROUP, self._name, LEAVE)
            lane = Lane(self._coordinator, "group")
            self._call(lane, SHARE_GROUP_HEARTBEAT, message, _Ask.LEAVE, now, effects)
        else:
            assert self._stopping is not None
            effects.append(Answer(self._stopping, None))

    def check(self) -> None:
        self._leaders.check()
