"""Groups and assignments as responses contain them, with ids of topics."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import ConsumerGroupMember
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    DescribedAssignment,
    DescribedGroup,
    DescribedTopicPartitions,
    TopicPartitions,
)
from steelyard.wire.kafka.messages.consumer_groups import Member as DescribedMember

CONSUMER_MEMBER = 1
"""Member type; 0 is for members of a group in migration from the classic protocol.

There are no such groups here.
"""


def assignment_of(group: ConsumerGroup, member: ConsumerGroupMember) -> Assignment:
    """Return what a member may read now."""
    topics = [
        TopicPartitions(group.id_of(topic), partitions)
        for topic, partitions in numbers_by_topic(sorted(member.assigned)).items()
    ]
    return Assignment(topics)


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
        CONSUMER_MEMBER,
    )


def _named(group: ConsumerGroup, partitions: Iterable[TopicPartition]) -> DescribedAssignment:
    topics = [
        DescribedTopicPartitions(group.id_of(topic), topic, numbers)
        for topic, numbers in numbers_by_topic(sorted(partitions)).items()
        if group.is_there(topic)
    ]
    return DescribedAssignment(topics)
