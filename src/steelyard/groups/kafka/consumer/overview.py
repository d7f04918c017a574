"""What a person wants to know of a group: why it rebalances, who has not given up what yet, and who waits for that."""

from __future__ import annotations

import msgspec

from steelyard.groups.kafka.consumer.group import Bump, ConsumerGroup
from steelyard.groups.kafka.consumer.member import Member, MemberState
from steelyard.types import TopicPartition


class Revoking(msgspec.Struct, frozen=True):
    """A member that was told to give up partitions and has not said yet that it did.

    `until`: when it is put out of the group for that, ms; None while that is not known.
    """

    member_id: str
    partitions: tuple[TopicPartition, ...]
    until: int | None


class Waiting(msgspec.Struct, frozen=True):
    """A member that is to get partitions that others still hold: pairs of partition and holder."""

    member_id: str
    partitions: tuple[tuple[TopicPartition, str], ...]


class GroupOverview(msgspec.Struct, frozen=True):
    """`bumps`: the latest causes, oldest first; `began_at`: of the rebalance under way, None while there is none.

    `behind`: members that have not sent a heartbeat since the last change of the target assignment.
    """

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[str, ...]
    began_at: int | None
    bumps: tuple[Bump, ...]
    revoking: tuple[Revoking, ...]
    waiting: tuple[Waiting, ...]
    behind: tuple[str, ...]


def overview(group: ConsumerGroup) -> GroupOverview:
    members = group.each()
    return GroupOverview(
        group.group_id,
        group.state,
        group.epoch,
        group.assignment_epoch,
        group.assignor,
        group.member_ids(),
        group.began_at,
        tuple(group.bumps),
        tuple(
            Revoking(one.member_id, tuple(sorted(one.revoking)), group.revoke_deadline(one))
            for one in members
            if one.revoking
        ),
        tuple(waiting for one in members if (waiting := _waiting(group, one)).partitions),
        tuple(
            one.member_id
            for one in members
            if one.state is MemberState.STABLE and one.epoch != group.assignment_epoch
        ),
    )


def _waiting(group: ConsumerGroup, member: Member) -> Waiting:
    held = [
        (partition, owner)
        for partition in sorted(group.target(member.member_id))
        if (owner := group.owner_of(partition)) is not None and owner != member.member_id
    ]
    return Waiting(member.member_id, tuple(held))
