"""The states of a member of a KIP-848 group."""

from __future__ import annotations

from collections.abc import Callable

from tests.edges import assert_every_edge
from tests.groups.kafka.member.consumer import test_machine as lives
from tests.groups.kafka.member.consumer.rig import INTERVAL_MS, Rig, assignment, parts

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.consumer.states import MEMBERS, ConsumerMemberState
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode


def on_the_way_to(state: ConsumerMemberState) -> Rig:
    """A member in this state."""
    rig = Rig()
    if state is ConsumerMemberState.OUT:
        return rig
    if state is ConsumerMemberState.JOINING:
        rig.joining()
        return rig
    rig.stable(0)
    if state is ConsumerMemberState.STABLE:
        return rig
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    if state is ConsumerMemberState.LOSING:
        rig.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        rig.take(LogLine)
        rig.take(events.Prepare)
        return rig
    rig.answer(assignment(0, 1))
    rig.take(events.Adopt)
    if state is ConsumerMemberState.ACKNOWLEDGING:
        rig.pass_time(INTERVAL_MS)
        rig.heartbeat()
        rig.tell(events.Adopted(parts(0, 1)))
    return rig


def end_in(state: ConsumerMemberState, event: events.Event) -> Callable[[], None]:
    def run() -> None:
        rig = on_the_way_to(state)
        assert rig.member.state is state
        rig.tell(event)
        assert rig.member.state is ConsumerMemberState.GONE

    return run


def test_every_edge_of_a_member_is_taken() -> None:
    living = [state for state in ConsumerMemberState if state is not ConsumerMemberState.GONE]
    fenced = events.CommitRefused(ErrorCode.FENCED_INSTANCE_ID)
    assert_every_edge(
        MEMBERS,
        lives.test_a_membership_lost_while_a_share_is_adopted,
        lives.test_a_membership_lost_before_the_share_is_told,
        lives.test_an_epoch_that_is_none_fails_the_member,
        lambda: lives.test_a_lost_membership_costs_the_partitions_before_it_joins_again(
            ErrorCode.FENCED_MEMBER_EPOCH
        ),
        *[end_in(state, events.Closing("closed")) for state in living],
        *[end_in(state, fenced) for state in living],
    )
