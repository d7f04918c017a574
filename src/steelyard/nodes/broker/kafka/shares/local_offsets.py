"""What the broker that leads share partitions knows of their offsets, and changes when told to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, PartitionPlace
from steelyard.nodes.broker.kafka.data.partitions import LEADER_EPOCH, Partitions
from steelyard.nodes.broker.kafka.shares.places import SharePlace
from steelyard.nodes.broker.kafka.shares.stored import ShareKey, SharePartitions
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

UNINITIALIZED = -1
"""The start offset of a partition with which a group has not begun."""


class LocalShareOffsets:
    """See the module docstring."""

    def __init__(
        self,
        shares: SharePartitions,
        partitions: Partitions,
        cluster: Cluster,
        durability: Durability,
        faults: Faults,
    ) -> None:
        self._shares = shares
        self._partitions = partitions
        self._cluster = cluster
        self._durability = durability
        self._faults = faults

    # -- describing ------------------------------------------------------------------------------

    def describe(
        self, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> list[DescribeShareGroupOffsetsResponseTopic]:
        """Return the offsets of a group's share partitions here: of those asked for, or of all."""
        wanted = None
        if asked.topics is not None:
            wanted = {(topic.topic_name, n) for topic in asked.topics for n in topic.partitions}
        topics: dict[tuple[str, bytes], list[DescribeShareGroupOffsetsResponsePartition]] = {}
        for key in self._shares.of_group(asked.group_id):
            topic = self._cluster.name_of(key.topic_id)
            if topic is not None and (wanted is None or (topic, key.partition) in wanted):
                found = self._described(key, topic)
                topics.setdefault((topic, key.topic_id), []).append(found)
        return [
            DescribeShareGroupOffsetsResponseTopic(*each, parts) for each, parts in topics.items()
        ]

    def _described(self, key: ShareKey, topic: str) -> DescribeShareGroupOffsetsResponsePartition:
        partition = self._shares.get(key)
        assert partition is not None
        place = SharePlace(key, self._partitions.find(topic, key.partition), partition)
        if place.bound():
            self._shares.locked(key)
        end = 0 if place.log is None else self._durability.readable_end(place.log)
        lag = max(end - partition.start - partition.finished, 0)
        return DescribeShareGroupOffsetsResponsePartition(
            key.partition, partition.start, LEADER_EPOCH, lag
        )

    # -- altering --------------------------------------------------------------------------------

    def alter(
        self, request: AlterShareGroupOffsetsRequest
    ) -> list[AlterShareGroupOffsetsResponseTopic]:
        """Set the starts of the share partitions that this broker leads; return these."""
        return [
            AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, parts)
            for topic in request.topics
            for topic_id in (self._cluster.id_of(topic.topic_name),)
            if (parts := self._altered(request.group_id, topic.topic_name, topic.partitions))
        ]

    def _altered(
        self, group: str, topic: str, asked: Sequence[AlterShareGroupOffsetsRequestPartition]
    ) -> list[AlterShareGroupOffsetsResponsePartition]:
        topic_id = self._cluster.id_of(topic)
        altered = []
        for part in asked:
            index = part.partition_index
            place = self._cluster.place(topic, index)
            if isinstance(place, PartitionPlace) and place.here:
                error = self._set(ShareKey(group, topic_id, index), topic, part.start_offset)
                altered.append(AlterShareGroupOffsetsResponsePartition(index, error))
        return altered

    def _set(self, key: ShareKey, topic: str, start: int) -> ErrorCode:
        if start < UNINITIALIZED:
            return ErrorCode.INVALID_REQUEST
        log = self._partitions.find(topic, key.partition).log
        start = min(start, 0 if log is None else log.max_offset)
        try:
            if start == UNINITIALIZED:
                self._shares.delete([key])
            else:
                self._shares.put(key, topic, start)
        except StorageError as error:
            self._faults.note(f"an offset of share group {key.group} is not stored: {error}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # -- deleting --------------------------------------------------------------------------------

    def delete(
        self, group: str, topics: Iterable[str] | None
    ) -> list[DeleteShareGroupOffsetsResponseTopic]:
        """Delete share partitions of a group here, None: all of them; return their topics."""
        wanted = None if topics is None else {self._cluster.id_of(topic) for topic in topics}
        keys: dict[bytes, list[ShareKey]] = {}
        for key in self._shares.of_group(group):
            if wanted is None or key.topic_id in wanted:
                keys.setdefault(key.topic_id, []).append(key)
        deleted = []
        for topic_id, some in keys.items():
            topic, error = self._shares.topic_of(some[0]), ErrorCode.NONE
            try:
                self._shares.delete(some)
            except StorageError as fault:
                self._faults.note(f"offsets of share group {group} are not deleted: {fault}")
                error = ErrorCode.KAFKA_STORAGE_ERROR
            deleted.append(DeleteShareGroupOffsetsResponseTopic(topic, topic_id, error))
        return deleted
