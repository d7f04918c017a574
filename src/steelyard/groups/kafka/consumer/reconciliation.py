"""Reconciliation: a member moves to its target assignment, heartbeat by heartbeat.

STABLE                 it has what the target of its epoch gives it.
    a newer target, or it subscribes to less -> the next assignment, see below
UNREVOKED_PARTITIONS   it was told to revoke partitions, and keeps its epoch until it reports that
                       it does not own them any more. If that takes longer than its rebalance
                       timeout, it is removed from the group.
    it owns none of them any more -> the next assignment
UNRELEASED_PARTITIONS  it is in the epoch of the target, but others have not yet released all
                       partitions that it should get.
    any heartbeat -> the next assignment: it gets what has become free

The next assignment: partitions that the target does not have are revoked; while the member still
owns some of them, it is UNREVOKED_PARTITIONS. Otherwise it gets what is free, enters the epoch of
the target, and is UNRELEASED_PARTITIONS while something is missing, or STABLE. So a partition has
one reader at any moment, and a member that keeps a partition reads on without a pause.

Source: modern/consumer/CurrentAssignmentBuilder.java.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steelyard.groups.kafka.consumer.member import (
    RECONCILIATION,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
    Holdings,
    Move,
)
from steelyard.types import TopicPartition

Partitions = frozenset[TopicPartition]


class TargetAssignment(msgspec.Struct, frozen=True):
    """What a member is to have: `partitions` in the target assignment of `epoch`.

    Only those of `topics`, to which it subscribes now.
    """

    epoch: int
    partitions: Partitions
    topics: frozenset[str]


def reconcile(
    member: ConsumerGroupMember,
    target: TargetAssignment,
    owned: Partitions | None,
    is_free: Callable[[TopicPartition], bool],
    *,
    resubscribed: bool,
) -> ConsumerGroupMember:
    """Return the member after a heartbeat; the same object if nothing changes.

    `owned`: the partitions that it reports to own, None if it reports none. `is_free`: whether no
    other member has a partition. `resubscribed`: its subscription changed with this heartbeat.
    """
    match member.state:
        case ConsumerGroupMemberState.STABLE:
            if member.epoch != target.epoch:
                return _next(member, target, owned, is_free)
            return _drop_topics(member, target.topics, owned) if resubscribed else member
        case ConsumerGroupMemberState.UNREVOKED_PARTITIONS:
            if not _owns(owned, member.revoking):
                return _next(member, target, owned, is_free)
            return _drop_topics(member, target.topics, owned) if resubscribed else member
        case ConsumerGroupMemberState.UNRELEASED_PARTITIONS:
            return _next(member, target, owned, is_free)


def _owns(owned: Partitions | None, revoking: Holdings) -> bool:
    """Return whether it still owns partitions that it has to release, as far as is known."""
    return owned is None or any(partition in revoking for partition in owned)


def _drop_topics(
    member: ConsumerGroupMember, topics: frozenset[str], owned: Partitions | None
) -> ConsumerGroupMember:
    """Revoke the topics that the member no longer subscribes to, before there is a new target."""
    assigned = {p: epoch for p, epoch in member.assigned.items() if p.topic in topics}
    if len(assigned) == len(member.assigned):
        return member
    dropped = {p: epoch for p, epoch in member.assigned.items() if p.topic not in topics}
    revoking = {**member.revoking, **dropped}
    if not _owns(owned, revoking):
        return _moved(member, Move.UNSUBSCRIBED, member.state, member.epoch, assigned, {})
    return _moved(
        member,
        Move.UNSUBSCRIBED,
        ConsumerGroupMemberState.UNREVOKED_PARTITIONS,
        member.epoch,
        assigned,
        revoking,
    )


def _next(
    member: ConsumerGroupMember,
    target: TargetAssignment,
    owned: Partitions | None,
    is_free: Callable[[TopicPartition], bool],
) -> ConsumerGroupMember:
    wanted = {p for p in target.partitions if p.topic in target.topics}
    assigned = {p: epoch for p, epoch in member.assigned.items() if p in wanted}
    revoking = {p: epoch for p, epoch in member.assigned.items() if p not in wanted}
    if revoking and _owns(owned, revoking):
        return _moved(
            member,
            Move.RECONCILED,
            ConsumerGroupMemberState.UNREVOKED_PARTITIONS,
            member.epoch,
            assigned,
            revoking,
        )
    missing = wanted - assigned.keys()
    # Partitions that the member itself was giving up are free for it: it no longer owns them.
    assigned |= {p: target.epoch for p in sorted(missing) if p in member.revoking or is_free(p)}
    state = (
        ConsumerGroupMemberState.STABLE
        if len(assigned) == len(wanted)
        else ConsumerGroupMemberState.UNRELEASED_PARTITIONS
    )
    return _moved(member, Move.RECONCILED, state, target.epoch, assigned, {})


def _moved(
    member: ConsumerGroupMember,
    event: Move,
    to: ConsumerGroupMemberState,
    epoch: int,
    assigned: Holdings,
    revoking: Holdings,
) -> ConsumerGroupMember:
    """Return the moved member, whose previous epoch is that before, even if it is the same.

    Kafka does so, too.
    """
    return msgspec.structs.replace(
        member,
        state=RECONCILIATION.move(member.state, event, to),
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
    )
