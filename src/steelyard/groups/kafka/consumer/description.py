"""Groups and assignments as responses contain them, with ids of topics."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import ClassicMemberMetadata, ConsumerGroupMember
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    DescribedAssignment,
    DescribedGroup,
    DescribedTopicPartitions,
    TopicPartitions,
)
from steelyard.wire.kafka.messages.consumer_groups import Member as DescribedMember
from steelyard.wire.kafka.messages.consumer_protocol import (
    ASSIGNMENT_VERSION,
    ConsumerProtocolAssignment,
    version_of,
    write_assignment,
)
from steelyard.wire.kafka.messages.consumer_protocol import TopicPartitions as ClassicPartitions

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Types of members, by the protocol that they use."""


def assignment_of(group: ConsumerGroup, member: ConsumerGroupMember) -> Assignment:
    """Return what a member may read now."""
    topics = [
        TopicPartitions(group.id_of(topic), partitions)
        for topic, partitions in numbers_by_topic(sorted(member.assigned)).items()
    ]
    return Assignment(topics)


def encoded_assignment(
    group: ConsumerGroup, partitions: Iterable[TopicPartition], classic: ClassicMemberMetadata
) -> bytes:
    """Return an assignment as the classic protocol has it, without topics that were deleted.

    In the version in which the member encodes its subscription.
    """
    topics = [
        ClassicPartitions(topic, numbers)
        for topic, numbers in numbers_by_topic(sorted(partitions)).items()
        if group.is_there(topic)
    ]
    version = min(version_of(classic.protocols[0][1]), ASSIGNMENT_VERSION)
    return write_assignment(ConsumerProtocolAssignment(topics), version)


def described(group: ConsumerGroup) -> DescribedGroup:
    """Return the description of a group.

    Source: ConsumerGroup.asDescribedGroup, ConsumerGroupMember.asConsumerGroupDescribeMember.
    """
    members = group.each()
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_described_member(group, member) for member in members],
    )


def _described_member(group: ConsumerGroup, member: ConsumerGroupMember) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.host,
        member.topics,
        member.regex,
        _named(group, (*member.assigned, *member.revoking)),
        _named(group, group.target(member.member_id)),
        CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(group: ConsumerGroup, partitions: Iterable[TopicPartition]) -> DescribedAssignment:
    topics = [
        DescribedTopicPartitions(group.id_of(topic), topic, numbers)
        for topic, numbers in numbers_by_topic(sorted(partitions)).items()
        if group.is_there(topic)
    ]
    return DescribedAssignment(topics)
