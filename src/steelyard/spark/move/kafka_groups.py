"""The committed offsets of Kafka's consumer groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing

from steelyard.driver.blocking_links import check_code
from steelyard.errors import KafkaError
from steelyard.spark.move.kafka_servers import KafkaAccess, KafkaServers
from steelyard.spark.offsets import QueueName
from steelyard.types import numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    LIST_GROUPS,
    ListGroupsRequest,
    ListGroupsResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

LIST_VERSION, FETCH_VERSION, COMMIT_VERSION = 3, 7, 8
CONSUMER = "consumer"
"""Protocol type of consumer groups; groups that only committed have none."""
IN_USE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""What a coordinator answers to a commit from outside while a group has members."""


class KafkaGroupOffsets:
    """The groups of a cluster."""

    def __init__(self, given: KafkaAccess) -> None:
        self._given = given

    def of_topic(self, topic: str, queues: Collection[QueueName]) -> list[str]:
        """Return the groups with an offset of a topic, sorted."""
        with closing(KafkaServers(self._given)) as servers:
            names = servers.persistently(lambda: _listed(servers))
        return sorted(name for name in names if self.progress(name, queues))

    def progress(self, group: str, queues: Collection[QueueName]) -> dict[QueueName, int]:
        """Return a group's offsets, of partitions where it has one."""
        with closing(KafkaServers(self._given)) as servers:
            return servers.persistently(lambda: _fetched(servers, group, queues))

    def commit(self, group: str, offsets: Mapping[QueueName, int]) -> str:
        """Commit offsets of a group without members; return why it was not done, or `""`."""
        with closing(KafkaServers(self._given)) as servers:
            try:
                servers.persistently(lambda: _commit(servers, group, offsets))
            except KafkaError as error:
                if error.code in IN_USE:
                    return "it has members there; stop them first"
                raise
        return ""


def _listed(servers: KafkaServers) -> set[str]:
    names: set[str] = set()
    for address in servers.brokers():
        kind = ListGroupsResponse
        answer = servers.call(address, LIST_GROUPS, LIST_VERSION, ListGroupsRequest(), kind)
        check_code(address, answer.error_code, "the list of groups")
        names.update(one.group_id for one in answer.groups if one.protocol_type in ("", CONSUMER))
    return names


def _fetched(
    servers: KafkaServers, group: str, queues: Collection[QueueName]
) -> dict[QueueName, int]:
    by_topic = numbers_by_topic((topic, number) for topic, _, number in queues)
    topics = [
        OffsetFetchRequestTopic(topic, partition_indexes=numbers)
        for topic, numbers in by_topic.items()
    ]
    request = OffsetFetchRequest(group, topics, require_stable=True)
    address = servers.coordinator(group)
    answer = servers.call(address, OFFSET_FETCH, FETCH_VERSION, request, OffsetFetchResponse)
    doing = f"the offsets of group {group!r}"
    check_code(address, answer.error_code, doing)
    found: dict[QueueName, int] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            check_code(address, one.error_code, doing)
            if one.committed_offset >= 0:
                found[topic.name, "", one.partition_index] = one.committed_offset
    return found


def _commit(servers: KafkaServers, group: str, offsets: Mapping[QueueName, int]) -> None:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, _, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(OffsetCommitRequestPartition(number, offset))
    topics = [OffsetCommitRequestTopic(topic, partitions=each) for topic, each in by_topic.items()]
    request = OffsetCommitRequest(group, topics=topics)
    address = servers.coordinator(group)
    answer = servers.call(address, OFFSET_COMMIT, COMMIT_VERSION, request, OffsetCommitResponse)
    for result in answer.topics:
        for one in result.partitions:
            check_code(address, one.error_code, f"offsets of group {group!r}")
