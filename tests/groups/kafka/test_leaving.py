"""LeaveGroup: batches, operators, pending ids, and one rebalance for all that left."""

from __future__ import annotations

from tests.groups.kafka.conftest import SESSION_MS, Rig, subscription

from steelyard.groups.kafka import effects as news
from steelyard.groups.kafka.classic.rebalances import LEAVES_MS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import LeaveGroupResponse, MemberIdentity


def errors(answer: LeaveGroupResponse) -> list[ErrorCode]:
    return [ErrorCode(member.error_code) for member in answer.members]


def test_a_group_that_is_not_there() -> None:
    rig = Rig()
    assert errors(rig.leave("me")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert rig.leave("me", version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.leave("me", group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_each_of_a_batch_has_its_result() -> None:
    rig = Rig()
    one, two, three = rig.stable(3)
    answer = rig.leave(two, "nobody", MemberIdentity(three, None, "pod is drained"))
    assert answer.error_code == ErrorCode.NONE
    assert [member.member_id for member in answer.members] == [two, "nobody", three]
    assert errors(answer) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert len([event for event in rig.events if isinstance(event, news.Began)]) == 2
    state = rig.state()
    assert (state.members, state.trigger) == ((one,), news.LEFT)
    assert (
        f"{two} (/10.0.0.1), {three} (/10.0.0.1) (reason given: pod is drained) left" == state.cause
    )


def test_up_to_version_2_the_error_is_that_of_the_answer() -> None:
    rig = Rig()
    one, _ = rig.stable(2)
    assert rig.leave("nobody", version=2) == LeaveGroupResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert rig.leave(one, version=0) == LeaveGroupResponse()
    assert rig.state().state == "PreparingRebalance"


def test_an_operator_takes_static_members_out_by_instance_id() -> None:
    rig = Rig()
    handle = rig.join(instance="i0")
    rig.run(0)
    rig.settle([rig.joined(handle).member_id])
    answer = rig.leave(MemberIdentity("", "i0"), MemberIdentity("", "i7"), MemberIdentity("", None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors(answer) == [ErrorCode.NONE, unknown, unknown]
    assert rig.state().state == "Empty"


def test_a_fenced_static_member_cannot_leave() -> None:
    rig = Rig()
    handle = rig.join(instance="i0")
    rig.run(0)
    rig.settle([rig.joined(handle).member_id])
    answer = rig.leave(MemberIdentity("before", "i0"))
    assert errors(answer) == [ErrorCode.FENCED_INSTANCE_ID]
    assert rig.state().state == "Stable"


def test_a_pending_id_is_given_back_without_a_rebalance() -> None:
    rig = Rig()
    rig.stable(1)
    pending = rig.joined(rig.join()).member_id
    assert errors(rig.leave(pending)) == [ErrorCode.NONE]
    assert rig.state().state == "Stable"
    assert rig.join_error(rig.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_leaver_waits_for_is_answered() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    parked = rig.join(leader)
    rig.leave(leader)
    assert rig.join_error(parked) is ErrorCode.UNKNOWN_MEMBER_ID
    rig.join(follower)
    new = rig.join(version=3)
    rig.join(follower)
    syncing = rig.sync(rig.joined(new).member_id, 3)
    rig.leave(rig.joined(new).member_id)
    assert rig.sync_error(syncing) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_leaves_an_empty_group() -> None:
    rig = Rig()
    members = rig.stable(2)
    rig.leave(*members)
    state = rig.state()
    assert (state.state, state.generation, state.leader) == ("Empty", 2, "")
    rig.restart()
    assert rig.state().state == "Empty"
    assert rig.state().generation == 2


def test_the_next_one_leads_when_the_leader_leaves() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.leave(leader)
    assert rig.state().leader == follower
    assert rig.joined(rig.join(follower)).leader == follower


def test_members_that_leave_one_after_the_other_are_one_rebalance() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    one, two, three, four = rig.stable(4)
    begun = sum(isinstance(event, news.Began) for event in rig.events)
    waiting = [rig.wait(member, 1) for member in (one, two)]
    rig.leave(three)
    rig.run(LEAVES_MS - 1)
    rig.leave(four)
    assert rig.state().state == "Stable"
    assert rig.state().members == (one, two)
    assert rig.commit(member_id=one, generation=1) is ErrorCode.NONE
    rig.run(1)
    assert rig.state().state == "PreparingRebalance"
    assert [rig.waited(handle) for handle in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert sum(isinstance(event, news.Began) for event in rig.events) == begun + 1
    assert three in rig.state().cause
    assert four in rig.state().cause


def test_a_rebalance_that_begins_anyway_is_the_leavers_too() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    one, two, three = rig.stable(3)
    rig.leave(three)
    rig.join(two, protocols={"range": subscription(["invoices"])})
    assert rig.state().state == "PreparingRebalance"
    rig.join(one)
    rig.settle([one, two])
    rig.run(LEAVES_MS)
    assert rig.state().state == "Stable"


def test_the_last_member_that_leaves_ends_the_group_at_once() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    one, two = rig.stable()
    rig.leave(two)
    rig.leave(one)
    assert rig.state().state == "Empty"
    rig.run(LEAVES_MS)
    assert rig.state().state == "Empty"


def test_a_leave_of_which_only_memory_knows_is_undone_by_a_restart_and_done_by_the_session() -> (
    None
):
    rig = Rig(group_join_window_max_ms=1_000)
    one, two = rig.stable()
    rig.leave(two)
    rig.restart()
    assert rig.state().members == (one, two)
    rig.run(SESSION_MS)
    assert two not in rig.state().members
