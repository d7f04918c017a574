"""Commits to the group's coordinator, one request at a time, in the order of the calls.

A commit that fails with a retriable error is retried for at most `default_api_timeout_ms`. One from
a past generation of the group fails: the partitions belong, or will belong, to another member.
Source: ConsumerCoordinator.java (OffsetCommitResponseHandler).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping

import msgspec

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import CallTimeoutError, CommitFailedError, KafkaError, SteelyardError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane
from steelyard.nodes.consumer.kafka.contract import OffsetAndMetadata
from steelyard.nodes.consumer.kafka.coordinator import CoordinatorSearch
from steelyard.nodes.consumer.kafka.metadata import DATA
from steelyard.nodes.seam import Effect
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

WAITING_MAX = 10_000
"""Most commits that may wait; more are refused."""

AUTOMATIC = -1
PREPARING = -2
CLOSING = -3
"""Purposes of commits, in place of an application's call id."""

LEAVE_MS_MAX = 5_000
"""Time for which whoever leaves, or gives partitions up, waits for the application's commits."""

_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_RETRIED = _MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.STALE_MEMBER_EPOCH,  # an answer that tells the next one is on its way (KIP-848)
}
MEMBERSHIP = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Errors about the membership."""


class CommitAsked(msgspec.Struct, frozen=True):
    """Purpose of an OffsetCommit: the generation in which it was sent."""

    generation: int


class ConsumerGroupMetadata(msgspec.Struct, frozen=True):
    """The identity with which offsets are committed.

    Outside of a membership `generation` is -1 and `member_id` "". In a KIP-848 group, it is the
    member's epoch.
    """

    generation: int = -1
    member_id: str = ""
    instance: str | None = None


class PendingCommit(msgspec.Struct):
    """One commit. `why`: a call id, or AUTOMATIC, PREPARING, CLOSING."""

    why: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    deadline: int
    generation: int
    """Generation in which it was requested."""


class CommitResult(msgspec.Struct, frozen=True):
    """The outcome of a commit.

    `error` None: it is stored. `code`: of a refusal about the membership.
    """

    commit: PendingCommit
    error: SteelyardError | None
    code: int = 0


class Commits:
    """The commits waiting and in flight. Its methods return those that have ended."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        calls: KafkaCalls[object],
        coordinator: CoordinatorSearch,
    ) -> None:
        self._config = config
        self._calls = calls
        self._coordinator = coordinator
        self._waiting: deque[PendingCommit] = deque()
        self._under_way = False
        self._retry_at = 0

    def add(
        self,
        why: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        generation: int,
        now: int,
        timeout_ms: int,
    ) -> None:
        """Add a commit behind those that wait; check `full` first for an application."""
        self._waiting.append(PendingCommit(why, offsets, now + timeout_ms, generation))

    @property
    def pending(self) -> bool:
        """Return whether any wait or are in flight."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Return whether too many wait."""
        return len(self._waiting) >= WAITING_MAX

    def waits(self, why: int) -> bool:
        return any(commit.why == why for commit in self._waiting)

    @property
    def due(self) -> int | None:
        if not self._waiting:
            return None
        # The one in flight ends at the latest when its request times out.
        times = [commit.deadline for commit in list(self._waiting)[self._under_way :]]
        if self._retry_at:
            times.append(self._retry_at)
        return min(times, default=None)

    def act(
        self,
        identity: ConsumerGroupMetadata,
        held: Container[TopicPartition],
        now: int,
        effects: list[Effect],
        *,
        joining: bool,
        leaving: bool,
    ) -> list[CommitResult]:
        """Send the next commit; return those that can no longer be sent.

        A commit of an earlier generation is sent in the current one only if its partitions are
        still `held`. `joining`: the coordinator reads nothing on its lane before it has answered
        the JoinGroup; whoever is `leaving` does not wait for that.
        """
        ended: list[CommitResult] = []
        keep: deque[PendingCommit] = deque()
        for position, commit in enumerate(self._waiting):
            if position == 0 and self._under_way:
                keep.append(commit)
            elif commit.generation != identity.generation and (
                identity.generation < 0 or any(part not in held for part in commit.offsets)
            ):
                text = "the group has a new generation: the offsets were not committed"
                ended.append(
                    CommitResult(commit, CommitFailedError(ErrorCode.ILLEGAL_GENERATION, text))
                )
            elif now >= commit.deadline:
                ended.append(
                    CommitResult(commit, CallTimeoutError("no commit within the time-out"))
                )
            else:
                keep.append(commit)
        self._waiting = keep
        lane = self._coordinator.lane
        if lane is not None and joining:
            lane = Lane(lane.address, DATA) if leaving else None
        if now < self._retry_at:
            return ended
        self._retry_at = 0
        if keep and lane is not None and not self._under_way:
            self._under_way = True
            request = _request(self._config.group_id, identity, keep[0].offsets)
            purpose = CommitAsked(identity.generation)
            timeout_ms = min(self._config.request_timeout_ms, keep[0].deadline - now)
            self._calls.call(lane, OFFSET_COMMIT, request, purpose, now, timeout_ms, effects)
        return ended

    def answered(
        self, purpose: CommitAsked, reply: OffsetCommitResponse | SteelyardError, now: int
    ) -> list[CommitResult]:
        """Take the outcome of the request in flight."""
        self._under_way = False
        self._retry_at = 0
        commit = self._waiting[0]
        if isinstance(reply, KafkaError):
            return [self._end(reply)]
        if isinstance(reply, SteelyardError):
            self._coordinator.lost(now)
            return self._again(commit, reply, now)
        codes = sorted(
            {part.error_code for topic in reply.topics for part in topic.partitions} - {0}
        )
        if not codes:
            return [self._end(None)]
        fatal = [code for code in codes if code not in _RETRIED]
        if not fatal:
            if any(code in _MOVED for code in codes):
                self._coordinator.lost(now)
            text = f"the commit failed: {code_name(codes[0])}"
            return self._again(commit, KafkaError(codes[0], text, retriable=True), now)
        code = fatal[0]
        if code not in MEMBERSHIP:
            return [self._end(KafkaError(code, f"the commit failed: {code_name(code)}"))]
        text = f"the group is rebalancing, or has removed this member: {code_name(code)}"
        return [self._end(CommitFailedError(code, text), code)]

    def _end(self, error: SteelyardError | None, code: int = 0) -> CommitResult:
        return CommitResult(self._waiting.popleft(), error, code)

    def _again(self, commit: PendingCommit, error: SteelyardError, now: int) -> list[CommitResult]:
        if now >= commit.deadline or commit.why == AUTOMATIC:  # the next automatic one has more
            return [self._end(error)]
        self._retry_at = now + self._config.retry_backoff_ms
        return []


def _request(
    group: str, identity: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, (offset, metadata, leader_epoch) in sorted(offsets.items()):
        part = OffsetCommitRequestPartition(partition.partition, offset, leader_epoch, metadata)
        topics.setdefault(partition.topic, []).append(part)
    return OffsetCommitRequest(
        group,
        identity.generation,
        identity.member_id,
        identity.instance,
        topics=tuple(OffsetCommitRequestTopic(topic, partitions=p) for topic, p in topics.items()),
    )
