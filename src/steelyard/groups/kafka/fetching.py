"""OffsetFetch: the committed offsets of groups.

A partition without an offset, and an unknown group, have offset -1 and no error. Up to version 7 a
request is for one group; topics None (version 2 and later) means all that it has. From version 10
on topics are identified by their ids.
Source: OffsetMetadataManager.java (fetchOffsets, fetchAllOffsets),
core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec

from steelyard.groups.kafka.groups import CoordinatedGroups, TopicsView
from steelyard.groups.kafka.offsets import Offsets
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from steelyard.wire.kafka.schema import NO_ID

STEP_PARTITIONS = 1_000
"""Partitions returned in one step, which takes about 4 ms."""


class _Topic(msgspec.Struct, frozen=True):
    """A requested topic; `name` is None if the id is unknown."""

    name: str | None
    topic_id: bytes
    partitions: Sequence[int]


class OffsetFetching:
    """Handles OffsetFetch."""

    def __init__(self, groups: CoordinatedGroups, offsets: Offsets, topics: TopicsView) -> None:
        self._groups = groups
        self._offsets = offsets
        self._topics = topics

    def fetch(
        self, request: OffsetFetchRequest, version: int, refused: dict[str, ErrorCode]
    ) -> Generator[None, None, OffsetFetchResponse]:
        """Build the response, one step before each `yield`; groups in `refused` get that error."""
        if version >= 8:
            groups = []
            for group in request.groups:
                one = yield from self._group(group, version, refused, stable=request.require_stable)
                groups.append(one)
            return OffsetFetchResponse(groups=tuple(groups))
        asked = OffsetFetchRequestGroup(request.group_id, topics=request.topics)
        found = yield from self._group(asked, version, refused, stable=request.require_stable)
        return OffsetFetchResponse(topics=found.topics, error_code=found.error_code)

    def _group(
        self,
        asked: OffsetFetchRequestGroup,
        version: int,
        refused: dict[str, ErrorCode],
        *,
        stable: bool,
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        topics = yield from self._asked(asked, version)
        error = refused.get(asked.group_id) or self._check(asked)
        if error is not ErrorCode.NONE:
            # Before version 2 only partitions have errors.
            failed = tuple(_failed(topic, error) for topic in topics) if version < 2 else ()
            return OffsetFetchResponseGroup(asked.group_id, failed, error)
        found = []
        done = 0
        for topic in topics:
            found.append(self._topic(asked.group_id, topic, stable=stable))
            done += 1 + len(topic.partitions)
            if done >= STEP_PARTITIONS:
                done = 0
                yield
        return OffsetFetchResponseGroup(asked.group_id, tuple(found))

    def _check(self, asked: OffsetFetchRequestGroup) -> ErrorCode:
        group = self._groups.get(asked.group_id)
        if group is None:
            return ErrorCode.NONE
        return group.check_fetch(asked.member_id, asked.member_epoch)

    def _asked(
        self, asked: OffsetFetchRequestGroup, version: int
    ) -> Generator[None, None, list[_Topic]]:
        if asked.topics is None:
            return (yield from self._all(asked.group_id, version))
        return [
            _Topic(
                self._topics.name_of(topic.topic_id) if version >= 10 else topic.name,
                topic.topic_id,
                topic.partition_indexes,
            )
            for topic in asked.topics
        ]

    def _all(self, group_id: str, version: int) -> Generator[None, None, list[_Topic]]:
        """Return every topic with an offset of the group; by id only those that exist."""
        partitions: dict[str, list[int]] = {}
        for number, (topic, partition) in enumerate(tuple(self._offsets.of_group(group_id)), 1):
            partitions.setdefault(topic, []).append(partition)
            if not number % (10 * STEP_PARTITIONS):
                yield
        topics = [
            _Topic(name, self._topics.id_of(name) if version >= 10 else NO_ID, sorted(numbers))
            for name, numbers in sorted(partitions.items())
        ]
        return [topic for topic in topics if version < 10 or topic.topic_id != NO_ID]

    def _topic(self, group_id: str, topic: _Topic, *, stable: bool) -> OffsetFetchResponseTopic:
        if topic.name is None:
            return _failed(topic, ErrorCode.UNKNOWN_TOPIC_ID)
        found = tuple(
            self._partition(group_id, TopicPartition(topic.name, number), stable=stable)
            for number in topic.partitions
        )
        return OffsetFetchResponseTopic(topic.name, topic.topic_id, found)

    def _partition(
        self, group_id: str, partition: TopicPartition, *, stable: bool
    ) -> OffsetFetchResponsePartition:
        number = partition.partition
        if stable and self._offsets.is_unstable(group_id, partition):
            return _without(number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._offsets.get(group_id, partition)
        if committed is None:
            return _without(number, ErrorCode.NONE)
        return OffsetFetchResponsePartition(
            number, committed.offset, committed.leader_epoch, committed.metadata
        )


def _without(partition: int, error: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition, -1, error_code=error)


def _failed(topic: _Topic, error: ErrorCode) -> OffsetFetchResponseTopic:
    failed = tuple(_without(number, error) for number in topic.partitions)
    return OffsetFetchResponseTopic(topic.name or "", topic.topic_id, failed)
