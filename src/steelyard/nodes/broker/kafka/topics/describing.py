"""75 DescribeTopicPartitions, version 0: topics in pages, sorted by name.

- Without names it describes all topics. A page has at most as many partitions as the request wants,
  one at least, PARTITIONS_MAX at most; then `next_cursor` says where the next one begins.
- A topic that does not exist is answered with an error, and counts as no partition.
- A cursor must be at one of the named topics, and at no negative partition; otherwise each topic is
  INVALID_REQUEST.
- There are no eligible leader replicas: a partition has one replica (KIP-966).
Source: core/kafka/server/handlers/DescribeTopicPartitionsRequestHandler.java,
KRaftMetadataCache.getTopicMetadataForDescribeTopicResponse.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.topics.metadata import STEP_TOPICS, TOPIC_OPERATIONS, placed
from steelyard.nodes.broker.topics import is_kafka_name
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    PartitionCursor,
)
from steelyard.wire.kafka.schema import ApiMessage

PARTITIONS_MAX = 2_000
"""Most partitions in one page (max.request.partition.size.limit)."""


class TopicPages:
    """The handler of DescribeTopicPartitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @serves(DescribeTopicPartitionsRequest)
    def describe_topic_partitions(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> Steps[ApiMessage]:
        message = call.read(DescribeTopicPartitionsRequest)
        cursor = message.cursor or PartitionCursor()
        named = {topic.name for topic in message.topics}
        if cursor.partition_index < 0 or (
            message.cursor and named and cursor.topic_name not in named
        ):
            return DescribeTopicPartitionsResponse(
                topics=[
                    DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name)
                    for name in sorted(named)
                ]
            )
        room = max(1, min(PARTITIONS_MAX, message.response_partition_limit))
        answer = yield from self._page(named or self._cluster.names(), cursor, room)
        return answer

    def _page(
        self, names: Iterable[str], cursor: PartitionCursor, room: int
    ) -> Steps[DescribeTopicPartitionsResponse]:
        """Return the page of `room` partitions that begins at the cursor."""
        told: list[DescribeTopicPartitionsResponseTopic] = []
        beyond: PartitionCursor | None = None
        for name in sorted(each for each in names if each >= cursor.topic_name):
            if not room:
                beyond = PartitionCursor(name, 0)
                break
            topic = self._cluster.topic(name)
            if topic is None:
                told.append(_unknown(name))
            else:
                first = cursor.partition_index if name == cursor.topic_name else 0
                partitions = self._partitions(topic)
                shown = partitions[first : first + room]
                told.append(_described(topic, shown))
                if first + len(shown) < len(partitions):
                    beyond = PartitionCursor(name, first + len(shown))
                    break
                room -= len(shown)
            if len(told) % STEP_TOPICS == 0:
                yield
        return DescribeTopicPartitionsResponse(topics=told, next_cursor=beyond)

    def _partitions(self, topic: KafkaTopic) -> list[DescribeTopicPartitionsResponsePartition]:
        return [
            DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition,
                leader,
                0,
                replicas,
                replicas,
                (),
                (),
                () if leader >= 0 else replicas,
            )
            for partition, (leader, replicas) in enumerate(placed(self._cluster, topic))
        ]


def _described(
    topic: KafkaTopic, partitions: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        topic.is_internal,
        partitions,
        TOPIC_OPERATIONS,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_kafka_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        code, name, topic_authorized_operations=TOPIC_OPERATIONS
    )
