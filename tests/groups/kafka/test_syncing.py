"""SyncGroup and Heartbeat: checks, the leader's assignment, and what each state answers."""

from __future__ import annotations

import pytest
from tests.groups.kafka.conftest import REBALANCE_MS, SESSION_MS, Rig, assignment

from steelyard.groups.kafka import effects as news
from steelyard.groups.kafka.classic.joining import GROUP_BYTES_MAX
from steelyard.wire.kafka.errors import ErrorCode


def completing(rig: Rig) -> list[str]:
    """A group of two in its sync phase, the leader first."""
    members = rig.stable(2)
    for member in members:
        rig.join(member)
    return members


def test_an_unknown_group_and_an_empty_one() -> None:
    rig = Rig()
    assert rig.sync_error(rig.sync("me", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync_error(rig.sync("me", 1, group="")) is ErrorCode.INVALID_GROUP_ID
    assert rig.beat("me", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat("me", 1, group="") is ErrorCode.INVALID_GROUP_ID
    rig.commit()
    assert rig.state().state == "Empty"
    assert rig.sync_error(rig.sync("me", 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat("me", 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_checks_of_a_sync() -> None:
    rig = Rig()
    leader, _ = completing(rig)
    assert rig.sync_error(rig.sync("me", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync_error(rig.sync(leader, 2, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync_error(rig.sync(leader, 1)) is ErrorCode.ILLEGAL_GENERATION
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync_error(rig.sync(leader, 2, protocol_type="connect")) is wrong
    assert rig.sync_error(rig.sync(leader, 2, protocol="sticky")) is wrong
    assert rig.sync_error(rig.sync(leader, 2, version=5)) is wrong  # must name them
    rig.join(version=3)
    assert rig.sync_error(rig.sync(leader, 2)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_followers_wait_for_the_leader() -> None:
    rig = Rig()
    leader, follower = completing(rig)
    parked = rig.sync(follower, 2, protocol_type="consumer", protocol="range")
    assert parked not in rig.replies
    rig.sync(leader, 2, {follower: assignment([0, 1]), "nobody": b"x"})
    answer = rig.synced(parked)
    assert (answer.assignment, answer.protocol_name) == (assignment([0, 1]), "range")
    # The leader did not name itself, so it reads nothing.
    assert rig.synced(rig.sync(leader, 2)).assignment == b""
    assert rig.synced(rig.sync(follower, 2)).assignment == assignment([0, 1])


def test_a_rebalance_sends_those_back_who_wait() -> None:
    rig = Rig()
    _, follower = completing(rig)
    parked = rig.sync(follower, 2)
    rig.join(version=3)
    assert rig.sync_error(parked) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_client_that_asks_twice_is_answered_twice() -> None:
    rig = Rig()
    leader, follower = completing(rig)
    lost = rig.sync(follower, 2)
    latest = rig.sync(follower, 2)
    assert rig.sync_error(lost) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.sync(leader, 2)
    assert rig.sync_error(latest) is ErrorCode.NONE


def test_who_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    """Though it heartbeats: an assignment that nobody reads would be lost."""
    rig = Rig()
    leader, follower = completing(rig)
    lead = rig.sync(leader, 2)
    assert rig.sync_error(lead) is ErrorCode.NONE
    for _ in range(REBALANCE_MS // 5_000 - 1):
        rig.run(5_000)
        assert rig.beat(leader, 2) is rig.beat(follower, 2) is ErrorCode.NONE
    rig.run(5_000)
    state = rig.state()
    assert (state.state, state.trigger) == ("PreparingRebalance", news.EXPIRED)
    assert state.members == (leader,)
    assert f"{follower} (/10.0.0.1) did not send SyncGroup within 60000 ms" in state.cause


def test_a_leader_that_never_syncs_is_out() -> None:
    rig = Rig()
    leader, follower = completing(rig)
    parked = rig.sync(follower, 2)
    for _ in range(REBALANCE_MS // 5_000):
        rig.run(5_000)
        rig.beat(leader, 2)
    assert rig.sync_error(parked) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.state().leader == follower


def test_a_leader_that_dies_in_the_sync_phase_holds_nobody_up_for_longer_than_its_session() -> None:
    rig = Rig()
    leader, follower = completing(rig)
    parked = rig.sync(follower, 2)
    rig.run(SESSION_MS - 1)
    assert parked not in rig.replies
    rig.run(1)
    assert rig.sync_error(parked) is ErrorCode.REBALANCE_IN_PROGRESS
    again = rig.join(follower)
    answer = rig.joined(again)
    assert (answer.generation_id, answer.leader) == (3, follower)
    assert leader not in rig.state().members


def test_an_assignment_that_cannot_be_stored_counts_for_nobody() -> None:
    rig = Rig()
    leader, follower = completing(rig)
    parked = rig.sync(follower, 2)
    rig.disk.room_bytes = 0
    lead = rig.sync(leader, 2, {leader: assignment([0])})
    for handle in (parked, lead):
        assert rig.sync_error(handle) is ErrorCode.NOT_COORDINATOR
    assert rig.state().trigger == news.STORAGE
    rig.disk.room_bytes = None
    rig.join(leader)
    rig.join(follower)
    rig.settle([leader, follower])
    assert rig.state().generation == 3


def test_an_assignment_has_a_bound() -> None:
    rig = Rig()
    leader, _ = completing(rig)
    lead = rig.sync(leader, 2, {leader: bytes(GROUP_BYTES_MAX)})
    assert rig.sync_error(lead) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.state().state == "PreparingRebalance"


def test_an_assignment_takes_the_place_of_the_last_one() -> None:
    rig = Rig()
    (leader,) = rig.stable(1)
    share = bytes(GROUP_BYTES_MAX * 2 // 3)
    for generation in (2, 3):
        rig.join(leader)
        lead = rig.sync(leader, generation, {leader: share})
        assert rig.sync_error(lead) is ErrorCode.NONE


# -- heartbeats ---------------------------------------------------------------------------------


def test_checks_of_a_heartbeat() -> None:
    rig = Rig()
    leader, _ = rig.stable(2)
    assert rig.beat("me", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat(leader, 1, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert rig.beat(leader, 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("PreparingRebalance", ErrorCode.REBALANCE_IN_PROGRESS),
        ("CompletingRebalance", ErrorCode.NONE),
        ("Stable", ErrorCode.NONE),
    ],
)
def test_a_heartbeat_keeps_a_session_alive_in_every_state(state: str, answer: ErrorCode) -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    if state == "PreparingRebalance":
        rig.join(leader)
    elif state == "CompletingRebalance":
        rig.join(leader)
        rig.join(follower)
    generation = rig.state().generation
    for _ in range(3):
        rig.run(SESSION_MS - 1)
        assert rig.beat(leader, generation) is answer
        assert rig.beat(follower, generation) is answer
    assert rig.state().state == state
    assert len(rig.state().members) == 2


def test_a_silent_member_is_out_after_its_session() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.run(SESSION_MS - 1)
    rig.beat(leader, 1)
    assert rig.state().state == "Stable"
    rig.run(1)
    state = rig.state()
    assert (state.state, state.members) == ("PreparingRebalance", (leader,))
    assert state.cause == (
        f"{follower} (/10.0.0.1) sent no heartbeat for its session timeout of {SESSION_MS} ms"
    )
    assert rig.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
