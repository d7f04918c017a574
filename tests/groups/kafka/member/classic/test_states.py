"""The states of a classic group's member."""

from __future__ import annotations

from collections.abc import Callable

from tests.edges import assert_every_edge
from tests.groups.kafka.member.classic import test_machine as lives
from tests.groups.kafka.member.classic.rig import Rig, parts

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.classic.states import MEMBERS, ClassicMemberState
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode


def on_the_way_to(state: ClassicMemberState) -> Rig:
    """A member in this state, with nothing left to do."""
    rig = Rig()
    if state is ClassicMemberState.OUT:
        return rig
    rig.tell(events.Subscribed(("t",)))
    prepare = rig.take(events.Prepare)
    if state is ClassicMemberState.PREPARING:
        return rig
    rig.tell(events.Prepared((*prepare.revoked, *prepare.lost)))
    if state is ClassicMemberState.READY:
        return rig
    rig.tell(events.CoordinatorFound())
    rig.request()
    if state is ClassicMemberState.JOINING:
        return rig
    rig.joined(leads=state is ClassicMemberState.ASSIGNING)
    if state is ClassicMemberState.ASSIGNING:
        return rig
    rig.sync()
    if state is ClassicMemberState.SYNCING:
        return rig
    adopt = rig.synced(*parts(0))
    if state is ClassicMemberState.STABLE:
        rig.adopt(adopt)
    return rig


def end_in(state: ClassicMemberState, event: events.Event) -> Callable[[], None]:
    def run() -> None:
        rig = on_the_way_to(state)
        assert rig.member.state is state
        rig.tell(event)
        assert rig.member.state is ClassicMemberState.GONE

    return run


def lose_the_membership_while_the_share_is_adopted() -> None:
    rig = on_the_way_to(ClassicMemberState.ADOPTING)
    rig.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    rig.take(LogLine)
    rig.tell(events.Adopted(parts(0)))
    assert rig.take(events.Prepare).lost == parts(0)


def test_every_edge_of_a_member_is_taken() -> None:
    living = [state for state in ClassicMemberState if state is not ClassicMemberState.GONE]
    fenced = events.CommitRefused(ErrorCode.FENCED_INSTANCE_ID)
    assert_every_edge(
        MEMBERS,
        lives.test_a_commit_that_is_refused_says_something_of_the_membership,
        lives.test_the_leader_shares_out_the_topics_of_all_members,
        lives.test_a_group_of_another_kind_is_no_group_for_it,
        lives.test_bytes_that_are_no_assignment_end_the_member,
        lives.test_a_membership_lost_while_the_application_prepares,
        lives.test_what_was_given_last_stays_of_its_generation_when_a_sync_fails,
        lives.test_a_new_member_joins_with_the_id_that_it_is_given,
        lose_the_membership_while_the_share_is_adopted,
        *[end_in(state, events.Closing("closed")) for state in living],
        *[end_in(state, fenced) for state in living],
    )
