"""The states of a consumer group's member."""

from __future__ import annotations

from tests.edges import assert_every_edge
from tests.groups.kafka.consumer import test_groups as lives

from steelyard.groups.kafka.consumer.member import (
    RECONCILIATION,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
)
from steelyard.groups.kafka.consumer.reconciliation import TargetAssignment, reconcile
from steelyard.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BOTH, ONLY_T = frozenset({"t", "u"}), frozenset({"t"})


def beat(
    member: ConsumerGroupMember, epoch: int, wanted: set[TopicPartition], owned: set[TopicPartition]
) -> ConsumerGroupMember:
    target = TargetAssignment(epoch, frozenset(wanted), BOTH)
    return reconcile(member, target, frozenset(owned), lambda p: p != T1, resubscribed=False)


def unsubscribe(member: ConsumerGroupMember, owned: set[TopicPartition]) -> ConsumerGroupMember:
    """From u, before there is a new target."""
    target = TargetAssignment(member.epoch, frozenset({T0, U0}), ONLY_T)
    return reconcile(member, target, frozenset(owned), lambda _: False, resubscribed=True)


def topics_are_dropped() -> None:
    stable = beat(ConsumerGroupMember("m"), 1, {T0, U0}, set())
    dropped = unsubscribe(stable, {T0})
    assert (dropped.state, set(dropped.assigned)) == (ConsumerGroupMemberState.STABLE, {T0})
    revoking = unsubscribe(stable, {T0, U0})
    assert (revoking.state, set(revoking.revoking)) == (
        ConsumerGroupMemberState.UNREVOKED_PARTITIONS,
        {U0},
    )
    slow = beat(stable, 2, {U0}, {T0, U0})
    assert set(slow.revoking) == {T0}
    both = unsubscribe(slow, {T0, U0})
    assert (both.state, set(both.revoking)) == (
        ConsumerGroupMemberState.UNREVOKED_PARTITIONS,
        {T0, U0},
    )


def targets_follow_each_other() -> None:
    waiting = beat(ConsumerGroupMember("m"), 1, {T0, T1}, set())
    assert waiting.state is ConsumerGroupMemberState.UNRELEASED_PARTITIONS
    assert beat(waiting, 1, {T0, T1}, {T0}).state is ConsumerGroupMemberState.UNRELEASED_PARTITIONS
    assert beat(waiting, 2, {T0}, {T0}).state is ConsumerGroupMemberState.STABLE
    revoking = beat(waiting, 2, {T1}, {T0})
    assert revoking.state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS
    assert beat(revoking, 2, {T1}, set()).state is ConsumerGroupMemberState.UNRELEASED_PARTITIONS
    assert beat(revoking, 3, {T0, U0}, set()).state is ConsumerGroupMemberState.STABLE
    both = beat(beat(ConsumerGroupMember("m"), 1, {T0, U0}, set()), 2, {U0}, {T0, U0})
    assert beat(both, 3, set(), {U0}).state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS
    assert beat(beat(both, 2, {U0}, {U0}), 3, {U0, T1}, {U0}).state is (
        ConsumerGroupMemberState.UNRELEASED_PARTITIONS
    )


def test_every_edge_of_a_member_is_taken() -> None:
    assert_every_edge(
        RECONCILIATION,
        topics_are_dropped,
        targets_follow_each_other,
        lives.test_members_go_on_after_a_restart,
        lives.test_a_slow_member_holds_up_only_what_it_has,
        lives.test_topics_that_changed_while_the_broker_was_down,
    )
