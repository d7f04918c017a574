"""Requests of a group's clients, of one topic each, that several test modules send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    write_assignment,
    write_subscription,
)
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def joining(
    group: str, topic: str, member_id: str = "", session_ms: int = 10_000
) -> JoinGroupRequest:
    """A member of a classic group that knows `range` only."""
    protocols = (
        JoinGroupRequestProtocol(
            "range", write_subscription(ConsumerProtocolSubscription((topic,)))
        ),
    )
    return JoinGroupRequest(group, session_ms, 60_000, member_id, None, "consumer", protocols)


def share(topic: str, partitions: Sequence[int]) -> bytes:
    """What a leader gives a member."""
    return write_assignment(
        ConsumerProtocolAssignment((TopicPartitions(topic, tuple(partitions)),))
    )


def syncing(
    group: str, generation: int, member_id: str, shares: Mapping[str, bytes]
) -> SyncGroupRequest:
    """`shares`: by member id, of the leader alone."""
    assignments = tuple(SyncGroupRequestAssignment(*pair) for pair in shares.items())
    return SyncGroupRequest(group, generation, member_id, None, "consumer", "range", assignments)


def committing(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    member_id: str = "",
    generation: int = -1,
) -> OffsetCommitRequest:
    """`offsets`: by partition. Without a member id it is somebody's who is in no group."""
    partitions = tuple(OffsetCommitRequestPartition(*pair) for pair in offsets.items())
    topics = (OffsetCommitRequestTopic(topic, partitions=partitions),)
    return OffsetCommitRequest(group, generation, member_id, topics=topics)


def producing(
    topic: str, partition: int, data: bytes, transactional_id: str | None = None
) -> ProduceRequest:
    """One batch, with acks=all."""
    part = PartitionProduceData(partition, data)
    topics = (TopicProduceData(topic, partition_data=(part,)),)
    return ProduceRequest(transactional_id, -1, 1000, topics)


def fetching(topic: str, partition: int, offset: int, bytes_max: int) -> FetchRequest:
    """What is there now."""
    part = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    topics = (FetchTopic(topic, partitions=(part,)),)
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000, topics=topics)
