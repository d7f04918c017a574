"""Streams groups (KIP-1071): the facts from StreamsGroupDescribe (89), and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steelyard.allocate.assignors.sticky_tasks import TaskId
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.web.console.answers import (
    StreamsTasks,
    SubtopologyTasks,
    SubtopologyView,
    TopologyView,
)
from steelyard.web.console.kafka.facts import (
    STREAMS,
    KafkaGroupFacts,
    MemberFacts,
    SubtopologyFacts,
    TasksFacts,
    TopologyFacts,
)
from steelyard.wire.kafka.messages.streams_groups import (
    DescribedGroup,
    DescribedMember,
    DescribedSubtopology,
    DescribedTopology,
    TaskIds,
)


def of_streams(group: DescribedGroup, counts: Mapping[str, int]) -> KafkaGroupFacts:
    """Return the facts about a group without its offsets. `counts`: partitions of each topic."""
    topology = None if group.topology is None else _topology(group.topology)
    return KafkaGroupFacts(
        group.group_id,
        STREAMS,
        group.group_state,
        "",
        group.group_epoch,
        tuple(
            _member(one, topology, counts)
            for one in sorted(group.members, key=lambda member: member.member_id)
        ),
        {},
        assignment_epoch=group.assignment_epoch,
        topology=topology,
    )


def _topology(topology: DescribedTopology) -> TopologyFacts:
    return TopologyFacts(topology.epoch, tuple(map(_subtopology, topology.subtopologies or ())))


def _subtopology(one: DescribedSubtopology) -> SubtopologyFacts:
    return SubtopologyFacts(
        one.subtopology_id,
        tuple(one.source_topics),
        tuple(topic.name for topic in one.repartition_source_topics),
        tuple(one.repartition_sink_topics),
        tuple(topic.name for topic in one.state_changelog_topics),
    )


def _member(
    member: DescribedMember, topology: TopologyFacts | None, counts: Mapping[str, int]
) -> MemberFacts:
    tasks = TasksFacts(
        member.process_id,
        _tasks(member.assignment.active_tasks),
        _tasks(member.assignment.standby_tasks),
        _tasks(member.assignment.warmup_tasks),
    )
    target = _tasks(member.target_assignment.active_tasks)
    return MemberFacts(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        (),
        partitions_read(tasks.active, topology, counts),
        partitions_read(target, topology, counts),
        tasks,
    )


def _tasks(listed: Iterable[TaskIds]) -> tuple[TaskId, ...]:
    return tuple(
        sorted(TaskId(each.subtopology_id, number) for each in listed for number in each.partitions)
    )


def partitions_read(
    tasks: Iterable[TaskId], topology: TopologyFacts | None, counts: Mapping[str, int]
) -> tuple[TopicPartition, ...]:
    """Return what tasks read: their partition of each input that has so many; sorted."""
    inputs = {one.name: one.inputs for one in topology.subtopologies} if topology else {}
    return tuple(
        sorted(
            TopicPartition(topic, task.partition)
            for task in tasks
            for topic in inputs.get(task.subtopology_id, ())
            if task.partition < counts.get(topic, 0)
        )
    )


# -- how they are shown ----------------------------------------------------------------------------


def task_name(task: TaskId) -> str:
    """Return the name that Kafka Streams gives a task, such as `1_0`."""
    return f"{task.subtopology_id}_{task.partition}"


def topology_view(topology: TopologyFacts) -> TopologyView:
    """Return the topology of a streams group as the API tells it."""
    return TopologyView(
        epoch=topology.epoch,
        subtopologies=[
            SubtopologyView(
                id=one.name,
                source_topics=list(one.sources),
                repartition_source_topics=list(one.repartition_sources),
                repartition_sink_topics=list(one.repartition_sinks),
                changelog_topics=list(one.changelogs),
            )
            for one in topology.subtopologies
        ],
    )


def tasks_view(tasks: TasksFacts) -> StreamsTasks:
    """Return the tasks of a member as the API tells them."""
    return StreamsTasks(
        process_id=tasks.process_id,
        active=_by_subtopology(tasks.active),
        standby=_by_subtopology(tasks.standby),
        warmup=_by_subtopology(tasks.warmup),
    )


def _by_subtopology(tasks: Iterable[TaskId]) -> list[SubtopologyTasks]:
    return [
        SubtopologyTasks(subtopology=name, partitions=numbers)
        for name, numbers in numbers_by_topic(tasks).items()
    ]
