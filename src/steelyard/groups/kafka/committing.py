"""OffsetCommit, TxnOffsetCommit and OffsetDelete: who may commit, and which offsets are stored.

A commit without a generation creates a group that does not exist: its clients assign partitions
themselves.
Source: OffsetMetadataManager.java, core/kafka/server/KafkaApis.scala (handleOffsetCommitRequest,
handleOffsetDeleteRequest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from steelyard.config import KafkaConfig
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.effects import Effects, Moved
from steelyard.groups.kafka.groups import SHARE, CoordinatedGroups, Group, TopicsView
from steelyard.groups.kafka.offsets import CommittedOffset, Concerns, Offsets
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetResponsePartition,
    OffsetResponseTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.schema import NO_ID

NO_RETENTION = -1
"""The commit leaves the retention of its offsets to the broker."""

KNOWS_NEW, TXN_KNOWS_NEW = 9, 6
"""The first versions, of OffsetCommit and TxnOffsetCommit, with newer error codes.

Their clients know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH.
"""

SimpleGroup = Callable[[str, int], Group | None]
"""Creates a group without members from (group id, now); None if there are too many groups."""

Offered = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
"""A partition of a request, with its offset."""

Stored = dict[TopicPartition, CommittedOffset]

OfferedTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic


class Committing:
    """Handles OffsetCommit, TxnOffsetCommit and OffsetDelete."""

    def __init__(
        self,
        config: KafkaConfig,
        groups: CoordinatedGroups,
        offsets: Offsets,
        topics: TopicsView,
        new_group: SimpleGroup,
    ) -> None:
        self._metadata_max = config.offset_metadata_max_bytes
        self._groups = groups
        self._offsets = offsets
        self._topics = topics
        self._new_group = new_group

    # -- OffsetCommit ----------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, version: int, now: int, effects: Effects
    ) -> OffsetCommitResponse:
        """Handle an OffsetCommit. Raises StorageError; then nothing was stored."""
        retention = request.retention_time_ms
        expires_at = None if retention == NO_RETENTION else now + retention
        asked = [(self._name(topic, version), topic.partitions) for topic in request.topics]
        stored, results = self._check_offsets(asked, now, expires_at)
        error = self._store(request, version, stored, now) if stored else ErrorCode.NONE
        if stored and error is ErrorCode.NONE:
            effects.append(_moved(request.group_id, request.member_id, stored))
        return OffsetCommitResponse(topics=answered(request.topics, error, results))

    def _name(self, topic: OffsetCommitRequestTopic, version: int) -> str | None:
        """Return the topic's name, or None for an unknown id."""
        return self._topics.name_of(topic.topic_id) if version >= 10 else topic.name

    def _check_offsets(
        self,
        asked: Iterable[tuple[str | None, Sequence[Offered]]],
        now: int,
        expires_at: int | None,
    ) -> tuple[Stored, list[list[ErrorCode]]]:
        """Return the offsets that can be stored, and the error of each partition, by topic."""
        stored: Stored = {}
        results: list[list[ErrorCode]] = []
        for name, partitions in asked:
            checked = []
            for partition in partitions:
                place = None if name is None else TopicPartition(name, partition.partition_index)
                error = self._check_offset(place, partition)
                checked.append(error)
                if place is not None and error is ErrorCode.NONE:
                    stored[place] = _committed(partition, now, expires_at)
            results.append(checked)
        return stored, results

    def _check_offset(self, place: TopicPartition | None, partition: Offered) -> ErrorCode:
        if place is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= place.partition < self._topics.partitions(place.topic):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(partition.committed_metadata or "") > self._metadata_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _store(
        self,
        request: OffsetCommitRequest | TxnOffsetCommitRequest,
        version: int,
        stored: Stored,
        now: int,
    ) -> ErrorCode:
        """Store the offsets if this is allowed, as pending ones if they are in a transaction."""
        producer_id = request.producer_id if isinstance(request, TxnOffsetCommitRequest) else None
        member_id, generation = request.member_id, request.generation_id_or_member_epoch
        knows_new = version >= (KNOWS_NEW if producer_id is None else TXN_KNOWS_NEW)
        group = self._group(request.group_id, generation, now)
        if group is None:
            return _no_group(generation, knows_no_group=knows_new)
        error = group.check_commit(
            member_id,
            request.group_instance_id,
            generation,
            version=version,
            transactional=producer_id is not None,
            now=now,
        )
        for partition in stored:
            error = error or group.check_commit_partition(member_id, generation, partition)
        if error is ErrorCode.STALE_MEMBER_EPOCH and producer_id is not None and not knows_new:
            return ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return error
        if not self._offsets.has_room(request.group_id, stored, producer_id):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        self._offsets.commit(request.group_id, stored, producer_id)
        return ErrorCode.NONE

    def _group(self, group_id: str, generation: int, now: int) -> Group | None:
        group = self._groups.get(group_id)
        if group is None and generation < 0:
            group = self._new_group(group_id, now)
        return group

    # -- transactions ----------------------------------------------------------------------------

    def txn_commit(
        self, request: TxnOffsetCommitRequest, version: int, now: int
    ) -> TxnOffsetCommitResponse:
        """Handle a TxnOffsetCommit: keep the offsets until the producer's transaction ends.

        The caller has checked producer id and epoch. Raises StorageError; then nothing was stored.
        """
        asked = [(topic.name, topic.partitions) for topic in request.topics]
        stored, results = self._check_offsets(asked, now, None)
        error = self._store(request, version, stored, now) if stored else ErrorCode.NONE
        return TxnOffsetCommitResponse(topics=answered(request.topics, error, results))

    def end_transaction(
        self, producer_id: int, concerns: Concerns, *, committed: bool, effects: Effects
    ) -> None:
        """End a producer's transaction for the groups that it `concerns`.

        Its offsets become valid, or are dropped. Repeating it does nothing. Raises StorageError;
        then nothing has changed.
        """
        counting = self._offsets.end_transaction(producer_id, concerns, committed=committed)
        for group_id, offsets in counting.items():
            effects.append(_moved(group_id, "", offsets))

    # -- OffsetDelete ----------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Handle an OffsetDelete. Raises StorageError; then nothing was deleted."""
        group = self._groups.get(request.group_id)
        if group is None or group.kind == SHARE:
            return OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND)
        consumers = group.protocol_type == PROTOCOL_TYPE
        if isinstance(group, ClassicGroup) and not group.is_empty and not consumers:
            return OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP)
        gone: list[TopicPartition] = []
        topics = tuple(self._delete_of(group, topic, gone) for topic in request.topics)
        self._offsets.delete(request.group_id, dict.fromkeys(gone))
        return OffsetDeleteResponse(topics=topics)

    def _delete_of(
        self, group: Group, topic: OffsetDeleteRequestTopic, gone: list[TopicPartition]
    ) -> OffsetResponseTopic:
        read = group.subscribes_to(topic.name)
        results = []
        for one in topic.partitions:
            error = ErrorCode.NONE
            if not 0 <= one.partition_index < self._topics.partitions(topic.name):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif read:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                gone.append(TopicPartition(topic.name, one.partition_index))
            results.append(OffsetResponsePartition(one.partition_index, error))
        return OffsetResponseTopic(topic.name, partitions=tuple(results))


def answered(
    topics: Sequence[OfferedTopic],
    error: ErrorCode,
    own: Iterable[Sequence[ErrorCode]] | None = None,
) -> tuple[OffsetResponseTopic, ...]:
    """Return the result of each offset in a commit: its `own` error if any, otherwise `error`."""
    own = own or [[ErrorCode.NONE] * len(topic.partitions) for topic in topics]
    answers = []
    for topic, errors in zip(topics, own, strict=True):
        topic_id = topic.topic_id if isinstance(topic, OffsetCommitRequestTopic) else NO_ID
        partitions: Sequence[Offered] = topic.partitions
        results = [
            OffsetResponsePartition(partition.partition_index, each or error)
            for partition, each in zip(partitions, errors, strict=True)
        ]
        answers.append(OffsetResponseTopic(topic.name, topic_id, tuple(results)))
    return tuple(answers)


def _committed(partition: Offered, now: int, expires_at: int | None) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        now,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        expires_at=expires_at,
    )


def _no_group(generation: int, *, knows_no_group: bool) -> ErrorCode:
    if generation < 0:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # there are too many
    return ErrorCode.GROUP_ID_NOT_FOUND if knows_no_group else ErrorCode.ILLEGAL_GENERATION


def _moved(group_id: str, member_id: str, offsets: Stored) -> Moved:
    moved = tuple(
        (topic, number, committed.offset) for (topic, number), committed in offsets.items()
    )
    return Moved(group_id, member_id, moved)
