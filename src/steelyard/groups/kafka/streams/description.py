"""Groups, assignments and endpoints as responses contain them.

Source: StreamsGroup.asDescribedGroup, StreamsGroupMember.asStreamsGroupDescribeMember,
StreamsTopology.java, ConfiguredSubtopology.java, topics/EndpointToPartitionsManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.allocate.assignors.sticky_tasks import TaskId
from steelyard.groups.kafka.streams.configuration import ConfiguredSubtopology, InternalTopic
from steelyard.groups.kafka.streams.group import StreamsGroup
from steelyard.groups.kafka.streams.member import HeldTasks, StreamsGroupMember
from steelyard.groups.kafka.streams.records import tasks_by_subtopology
from steelyard.types import numbers_by_topic
from steelyard.wire.kafka.messages.streams_groups import (
    DescribedGroup,
    DescribedMember,
    DescribedSubtopology,
    DescribedTopology,
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    Subtopology,
    TaskAssignment,
    TaskIds,
    TopicInfo,
    TopicPartition,
)


def task_ids(tasks: Iterable[TaskId]) -> list[TaskIds]:
    """Return tasks as they are sent, sorted."""
    return [TaskIds(name, numbers) for name, numbers in tasks_by_subtopology(tasks).items()]


def endpoints_of(group: StreamsGroup) -> list[EndpointToPartitions]:
    """Return the partitions behind the endpoints of the members that have one.

    Once for each endpoint, which the threads of a process share. Kafka returns one for each member,
    of which its client 4.3.1 keeps the last.
    """
    members: dict[Endpoint, list[HeldTasks]] = {}
    for one in group.each():
        if one.endpoint is not None:
            members.setdefault(one.endpoint, []).append(one.assigned)
    return [
        EndpointToPartitions(
            endpoint,
            _partitions(group, (task for one in held for task in one.active)),
            _partitions(group, (task for one in held for task in one.standby)),
        )
        for endpoint, held in members.items()
    ]


def _partitions(group: StreamsGroup, tasks: Iterable[TaskId]) -> list[TopicPartition]:
    partitions = numbers_by_topic(group.partitions_of(tasks))
    return [TopicPartition(topic, numbers) for topic, numbers in partitions.items()]


def described(group: StreamsGroup) -> DescribedGroup:
    """Return the description of a group."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=DescribedTopology(group.topology.epoch, _subtopologies(group)),
        members=[_member(group, member) for member in group.each()],
    )


def _subtopologies(group: StreamsGroup) -> list[DescribedSubtopology]:
    found = group.configured.subtopologies
    if found is not None and group.configured.is_ready:
        return [_configured(name, each) for name, each in found.items()]
    return [_as_sent(each) for each in group.topology.subtopologies.values()]


def _configured(name: str, subtopology: ConfiguredSubtopology) -> DescribedSubtopology:
    return DescribedSubtopology(
        name,
        sorted(subtopology.sources),
        sorted(subtopology.sinks),
        _sorted(_internal(topic) for topic in subtopology.changelogs),
        _sorted(_internal(topic) for topic in subtopology.repartition_sources),
    )


def _internal(topic: InternalTopic) -> TopicInfo:
    settings = [KeyValue(key, value) for key, value in topic.settings.items()]
    return TopicInfo(topic.name, topic.partitions, max(topic.replication_factor, 0), settings)


def _as_sent(subtopology: Subtopology) -> DescribedSubtopology:
    return DescribedSubtopology(
        subtopology.subtopology_id,
        sorted(subtopology.source_topics),
        sorted(subtopology.repartition_sink_topics),
        _sorted(subtopology.state_changelog_topics),
        _sorted(subtopology.repartition_source_topics),
    )


def _sorted(topics: Iterable[TopicInfo]) -> list[TopicInfo]:
    return sorted(topics, key=lambda topic: topic.name)


def _member(group: StreamsGroup, member: StreamsGroupMember) -> DescribedMember:
    target = group.target(member.member_id)
    assigned = member.assigned
    return DescribedMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=member.endpoint,
        client_tags=[KeyValue(key, value) for key, value in sorted(member.client_tags.items())],
        assignment=TaskAssignment(task_ids(assigned.active), task_ids(assigned.standby)),
        target_assignment=TaskAssignment(task_ids(target.active), task_ids(target.standby)),
    )
