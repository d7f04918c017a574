"""When a member of a KIP-848 group sends its heartbeats, and what they say.

The coordinator steers: each answer tells the interval. It counts from the sending of a heartbeat,
and a changed one from the answer that told it. There is one heartbeat at a time, which the
coordinator may answer late. Those that join, and the first one after a failure, are complete; the
others say only what has changed, and what the member owns only when it has adopted an assignment.
Source: AbstractHeartbeatRequestManager.java (HeartbeatRequestState),
ConsumerHeartbeatRequestManager.java (HeartbeatState).
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.groups.kafka.member.consumer.states import ConsumerMemberSettings
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2
"""Epochs in requests. LEAVE_FOR_NOW: a static member keeps its partitions for a session."""

Shares = Mapping[bytes, tuple[int, ...]]
"""Partitions by the ids of their topics, both sorted."""


class HeartbeatTimer:
    """When the next heartbeat is due. Times in ms, those of the clock since the epoch."""

    def __init__(self) -> None:
        self.beating: int | None = None
        """The turn of the unanswered heartbeat."""
        self._interval_ms = 0
        self._beat_at = 0
        self._retry_at = 0

    @property
    def due(self) -> int | None:
        """Return when the next heartbeat may be sent; None while one is unanswered."""
        return None if self.beating is not None else max(self._beat_at, self._retry_at)

    def sent(self, turn: int, now: int) -> None:
        self.beating = turn
        self._beat_at = now + self._interval_ms

    def answered(self, interval_ms: int, now: int) -> None:
        """Note an answer without an error."""
        self.beating = None
        if interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self._beat_at = now + interval_ms

    def failed(self, retry_at: int) -> None:
        """Note that a heartbeat was not answered, or with an error."""
        self.beating = None
        self._beat_at, self._retry_at = 0, retry_at

    def hurry(self) -> None:
        """Let the next heartbeat not wait for the interval: there is something to tell."""
        self._beat_at = 0


class HeartbeatState:
    """What the coordinator was told by heartbeats, so that the next one need not repeat it."""

    def __init__(self, settings: ConsumerMemberSettings) -> None:
        self._settings = settings
        self._topics: tuple[str, ...] | None = None
        """None if it is not certain what the coordinator knows."""

    def forget(self) -> None:
        """Tell everything with the next heartbeat."""
        self._topics = None

    def join(self, member_id: str, topics: tuple[str, ...]) -> ConsumerGroupHeartbeatRequest:
        self._topics = topics
        return self._complete(member_id, JOIN, topics, {})

    def beat(
        self, member_id: str, epoch: int, topics: tuple[str, ...], owned: Shares, *, tells: bool
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat of a member. `tells`: it has adopted what it owns."""
        before, self._topics = self._topics, topics
        if before is None:
            return self._complete(member_id, epoch, topics, owned)
        return ConsumerGroupHeartbeatRequest(
            self._settings.group,
            member_id,
            epoch,
            self._settings.instance,
            subscribed_topic_names=None if topics == before else topics,
            topic_partitions=_listed(owned) if tells else None,
        )

    def leave(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        """Return the last heartbeat; a static member leaves for now."""
        instance = self._settings.instance
        epoch = LEAVE if instance is None else LEAVE_FOR_NOW
        return ConsumerGroupHeartbeatRequest(self._settings.group, member_id, epoch, instance)

    def _complete(
        self, member_id: str, epoch: int, topics: tuple[str, ...], owned: Shares
    ) -> ConsumerGroupHeartbeatRequest:
        settings = self._settings
        return ConsumerGroupHeartbeatRequest(
            settings.group,
            member_id,
            epoch,
            settings.instance,
            settings.rack,
            settings.rebalance_timeout_ms,
            topics,
            server_assignor=settings.assignor,
            topic_partitions=_listed(owned),
        )


def _listed(owned: Shares) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic_id, numbers) for topic_id, numbers in owned.items())
