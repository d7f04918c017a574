"""Identification of a heartbeat's member by id, instance, epoch and owned partitions.

Source: GroupMetadataManager.getOrMaybeSubscribeDynamicConsumerGroupMember,
...StaticConsumerGroupMember, throwIfConsumerGroupMemberEpochIsInvalid.
"""

from __future__ import annotations

import msgspec

from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import LEFT_FOR_NOW, ConsumerGroupMember
from steelyard.groups.kafka.consumer.reconciliation import Partitions
from steelyard.groups.kafka.consumer.requests import HeartbeatRefusal
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatRequest


class Admitted(msgspec.Struct, frozen=True):
    """The member as it was before this heartbeat.

    `replaces`: the static member whose place it takes.
    """

    member: ConsumerGroupMember
    is_new: bool = False
    replaces: ConsumerGroupMember | None = None


def owned_partitions(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> Partitions | None:
    """Return the partitions that a member reports to own; None if it does not report any.

    Unknown topics have the name "".
    """
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicPartition(name, partition)
        for topic in request.topic_partitions
        for name in (group.name_of(topic.topic_id) or "",)
        for partition in topic.partitions
    )


def admit(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Partitions | None,
    members_max: int,
) -> Admitted | HeartbeatRefusal:
    """Return the member behind a heartbeat, or why it is refused.

    `member_id`: its id, assigned by the caller if the request has none.
    """
    instance_id = request.instance_id
    static = group.static_member(instance_id)
    if static is None and len(group) >= members_max and group.member(request.member_id) is None:
        return HeartbeatRefusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {members_max} members.",
        )
    if request.member_epoch != 0:
        member = known_member(group, member_id, instance_id)
        if isinstance(member, HeartbeatRefusal):
            return member
        return _refuse_epoch(member, request.member_epoch, owned) or Admitted(member)
    member_now = group.member(member_id)
    if static is None:
        return (
            Admitted(ConsumerGroupMember(member_id), is_new=True)
            if member_now is None
            else Admitted(member_now)
        )
    is_free = static.epoch == LEFT_FOR_NOW or static.classic is not None
    if not is_free and member_now is static:
        # The answer to its first heartbeat was lost, or it was fenced; it owns nothing.
        # (Kafka refuses it, which is final for Java's consumer: apache/kafka#23542.)
        return Admitted(static)
    if not is_free or (member_now is not None and member_now is not static):
        return HeartbeatRefusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {static.member_id} member.",
        )
    return returned(static, member_id)


def returned(static: ConsumerGroupMember, member_id: str) -> Admitted:
    """Return a static member that is back under another id."""
    back = msgspec.structs.replace(static, member_id=member_id, epoch=0, previous_epoch=0)
    return Admitted(back, replaces=static)


def known_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerGroupMember | HeartbeatRefusal:
    """Return a member that claims to be in the group, or why the claim is wrong."""
    if instance_id is None:
        member = group.member(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {group.group_id}."
            return HeartbeatRefusal(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member
    static = group.static_member(instance_id)
    if static is None:
        return HeartbeatRefusal(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
        )
    if static.member_id != member_id:
        return HeartbeatRefusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} "
            f"was fenced by member {static.member_id}.",
        )
    return static


def _refuse_epoch(
    member: ConsumerGroupMember, epoch: int, owned: Partitions | None
) -> HeartbeatRefusal | None:
    """Refuse with FENCED_MEMBER_EPOCH unless the epoch is the member's.

    The previous epoch is accepted as well from a member that owns only what it was assigned: the
    response with the new epoch may have been lost.
    """
    if epoch == member.epoch:
        return None
    is_late = epoch < member.epoch and epoch == member.previous_epoch
    if is_late and owned is not None and owned <= member.assigned.keys():
        return None
    compared = "greater" if epoch > member.epoch else "smaller"
    return HeartbeatRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by"
        " the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )
