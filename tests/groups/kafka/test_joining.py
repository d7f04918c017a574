"""JoinGroup: every check with its error, in Kafka's order; what begins a rebalance and what does not; static members."""

from __future__ import annotations

import pytest
from tests.groups.kafka.conftest import (
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    Rig,
    assignment,
    subscription,
)

from steelyard.groups.kafka import effects as news
from steelyard.groups.kafka import groups
from steelyard.groups.kafka.classic import joining
from steelyard.groups.kafka.classic.joining import GROUP_BYTES_MAX
from steelyard.wire.kafka.errors import ErrorCode

# -- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(session: int) -> None:
    rig = Rig()
    handle = rig.join("", session=session)
    assert rig.join_error(handle) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert rig.seen() is None


def test_a_group_has_a_name() -> None:
    rig = Rig()
    assert rig.join_error(rig.join(group="", session=1)) is ErrorCode.INVALID_GROUP_ID


def test_nobody_knows_a_member_of_a_group_that_is_not_there() -> None:
    rig = Rig()
    handle = rig.join("somebody")
    assert rig.join_error(handle) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.joined(handle).member_id == "somebody"
    assert len(rig.groups) == 0


def test_nobody_knows_a_member_that_was_never_given_its_id() -> None:
    rig = Rig()
    rig.stable(1)
    assert rig.join_error(rig.join("somebody")) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})], ids=["type", "none"]
)
def test_an_empty_group_wants_a_type_and_a_protocol(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    rig = Rig()
    handle = rig.join(protocol_type=protocol_type, protocols=protocols)
    assert rig.join_error(handle) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"sticky": b""})],
    ids=["type", "protocol"],
)
def test_a_member_must_have_what_all_others_have(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    rig = Rig()
    rig.stable(2)
    handle = rig.join(protocol_type=protocol_type, protocols=protocols)
    assert rig.join_error(handle) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.state().state == "Stable"


def test_the_size_of_a_group_has_a_bound() -> None:
    rig = Rig(group_max_size=2)
    members = rig.stable(2)
    new = rig.join()
    assert rig.join_error(new) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.joined(new).member_id == ""
    # Those who are in may join again, ...
    assert rig.join_error(rig.join(members[1])) is ErrorCode.NONE
    # ... and in a join phase whoever comes first.
    rig.join(members[0])
    first = rig.join(version=3)
    late = rig.join(members[1])
    assert rig.join_error(late) is ErrorCode.GROUP_MAX_SIZE_REACHED
    # The late one is waited for no longer, so the phase is over.
    assert rig.joined(first).generation_id == 2


def test_what_members_make_us_keep_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.stable(1)
    handle = rig.join(version=3, protocols={"range": bytes(GROUP_BYTES_MAX)})
    assert rig.join_error(handle) is ErrorCode.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(joining, "ROOM_BYTES_MAX", 1_000)
    handle = rig.join(group="other", version=3, protocols={"range": bytes(1_000)})
    assert rig.join_error(handle) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_member_that_joins_again_takes_no_more_room() -> None:
    rig = Rig()
    protocols = {"range": bytes(GROUP_BYTES_MAX * 2 // 3)}
    (member_id,) = rig.stable(1, protocols=protocols)
    assert rig.joined(rig.join(member_id, protocols=protocols)).generation_id == 2


def test_ids_that_nobody_uses_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MEMBERS_MAX", 2)
    rig = Rig()
    for _ in range(2):
        assert rig.join_error(rig.join()) is ErrorCode.MEMBER_ID_REQUIRED
    assert rig.join_error(rig.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    rig.run(SESSION_MS)
    assert rig.join_error(rig.join()) is ErrorCode.MEMBER_ID_REQUIRED


def test_sessions_of_all_groups_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.stable(2)
    monkeypatch.setattr(joining, "SESSIONS_MAX", 3)  # two members, and the coordinator's own timer
    handle = rig.join(group="other")
    assert rig.join_error(handle) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_groups_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 1)
    rig = Rig()
    rig.commit()
    assert rig.join_error(rig.join(group="other")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.commit(group="other") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.join_error(rig.join()) is ErrorCode.MEMBER_ID_REQUIRED


# -- new members --------------------------------------------------------------------------------


def test_a_new_client_is_told_its_id_first() -> None:
    """KIP-394, from version 4 on."""
    rig = Rig()
    first = rig.joined(rig.join(client="me"))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("me-")
    assert rig.state().state == "Empty"
    again = rig.join(first.member_id, client="me")
    rig.run(0)
    answer = rig.joined(again)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.leader == answer.member_id == first.member_id
    assert [m.member_id for m in answer.members] == [first.member_id]


def test_old_clients_are_members_at_once() -> None:
    rig = Rig()
    handle = rig.join(version=3)
    rig.run(0)
    assert rig.joined(handle).generation_id == 1


def test_an_id_that_is_not_used_is_forgotten() -> None:
    """And a rebalance that waits for its client goes on."""
    rig = Rig()
    members = rig.stable(1)
    pending = rig.joined(rig.join()).member_id
    joiner = rig.join(version=3)
    rig.join(members[0])
    assert rig.state().waiting[-1].member_id == pending
    rig.run(SESSION_MS - 1)
    assert joiner not in rig.replies
    rig.run(1)
    assert rig.joined(joiner).generation_id == 2
    assert rig.join_error(rig.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_version_0_has_the_session_timeout_for_both() -> None:
    rig = Rig()
    handle = rig.join(version=0, rebalance=-1)
    rig.run(0)
    rig.settle([rig.joined(handle).member_id])
    rig.join(version=0, rebalance=-1)
    assert rig.state().waiting[0].until == rig.now + SESSION_MS


def test_the_leader_alone_learns_what_all_want() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    handles = [rig.join(leader, protocols={"range": b"a"}), rig.join(follower)]
    lead, follow = map(rig.joined, handles)
    assert {m.member_id: m.metadata for m in lead.members} == {
        leader: b"a",
        follower: subscription(),
    }
    assert follow.members == ()
    assert follow.leader == leader


@pytest.mark.parametrize(
    ("wishes", "chosen"),
    [
        ([["range", "sticky"], ["sticky", "range"], ["sticky", "range"]], "sticky"),
        ([["range", "sticky"], ["sticky", "range"]], "range"),  # a draw: of whom came first
        ([["a", "b"], ["b", "c"]], "b"),  # only what all have
    ],
)
def test_the_members_vote(wishes: list[list[str]], chosen: str) -> None:
    rig = Rig()
    handles = [rig.join(version=3, protocols=dict.fromkeys(wish, b"")) for wish in wishes]
    rig.run(0)
    assert {rig.joined(handle).protocol_name for handle in handles} == {chosen}


# -- members that join again --------------------------------------------------------------------


def test_a_follower_with_nothing_new_gets_the_generation_that_stands() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    answer = rig.joined(rig.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, ())
    assert rig.state().state == "Stable"


def test_the_leader_always_begins_a_rebalance() -> None:
    rig = Rig()
    leader, _ = rig.stable(2)
    rig.join(leader, reason="topic metadata changed")
    state = rig.state()
    assert (state.state, state.trigger) == ("PreparingRebalance", news.LEADER)
    assert "reason given: topic metadata changed" in state.cause


def test_a_change_of_metadata_begins_a_rebalance() -> None:
    rig = Rig()
    _, follower = rig.stable(2)
    rig.join(follower, protocols={"range": subscription(["orders", "invoices"])})
    state = rig.state()
    assert (state.state, state.trigger) == ("PreparingRebalance", news.SUBSCRIPTION)
    assert follower in state.cause
    joined = rig.events[-2]
    assert isinstance(joined, news.Joined)
    assert (joined.cause, joined.topics) == ("subscription", ("invoices", "orders"))


def test_the_second_round_of_a_cooperative_rebalance_is_known_as_such() -> None:
    rig = Rig()
    _, follower = rig.stable(2)
    rig.join(follower, protocols={"range": subscription(owned=[1])})
    assert rig.state().trigger == news.REVOKED


def test_in_the_sync_phase_the_same_again_changes_nothing() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.join(leader)
    rig.join(follower)
    again = rig.joined(rig.join(leader))
    assert (again.generation_id, len(again.members)) == (2, 2)
    assert rig.joined(rig.join(follower)).members == ()
    assert rig.state().state == "CompletingRebalance"
    rig.join(follower, protocols={"range": b"new"})
    assert rig.state().state == "PreparingRebalance"


def test_a_client_that_asks_twice_is_answered_twice() -> None:
    """Its connection was lost; the coordinator cannot know, and must keep neither request for ever."""
    rig = Rig()
    leader, follower = rig.stable(2)
    lost = rig.join(leader)
    latest = rig.join(leader)
    assert rig.join_error(lost) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(follower)
    assert rig.joined(latest).generation_id == 2


def test_a_reason_of_a_client_is_cut() -> None:
    rig = Rig()
    leader, _ = rig.stable(2)
    rig.join(leader, reason="x" * 10_000)
    assert len(rig.state().cause) < 500


# -- static members (KIP-345) -------------------------------------------------------------------


def static_group(rig: Rig) -> list[str]:
    """Two members; each has one of the topic's two partitions."""
    rig.topics.counts[TOPIC] = 2
    handles = [rig.join(instance=f"i{number}") for number in range(2)]
    rig.run(0)
    members = [rig.joined(handle).member_id for handle in handles]
    rig.settle(members)
    return members


def test_a_static_member_needs_no_second_request() -> None:
    rig = Rig()
    members = static_group(rig)
    assert members[0].startswith("i0-")
    assert rig.state().state == "Stable"


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    rig = Rig()
    leader, follower = static_group(rig)
    answer = rig.joined(rig.join(instance="i1", host="/10.0.0.9"))
    assert answer.member_id not in (leader, follower)
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader, False)
    synced = rig.synced(rig.sync(answer.member_id, 1, instance="i1"))
    assert synced.assignment == assignment([1])
    assert rig.state().state == "Stable"
    # What it was before is fenced from now on.
    assert rig.beat(follower, 1, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.join_error(rig.join(follower, instance="i1")) is ErrorCode.FENCED_INSTANCE_ID
    # A restarted coordinator knows it by its new id.
    rig.restart()
    assert rig.beat(answer.member_id, 1, "i1") is ErrorCode.NONE


def test_a_static_leader_that_comes_back_does_not_assign_again() -> None:
    rig = Rig()
    leader, _ = static_group(rig)
    answer = rig.joined(rig.join(instance="i0", version=9))
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2
    older = rig.joined(rig.join(instance="i0", version=8))
    assert older.leader == answer.member_id != older.member_id  # so that it does not lead
    assert older.members == ()
    assert leader not in rig.state().members


def test_a_static_leader_that_comes_back_assigns_partitions_that_came_meanwhile() -> None:
    rig = Rig()
    leader, _ = static_group(rig)
    rig.topics.counts[TOPIC] = 3
    assert rig.joined(rig.join(instance="i1")).leader == leader  # who sees it by itself
    back = rig.join(instance="i0")
    assert back not in rig.replies
    state = rig.state()
    assert (state.state, state.trigger) == ("PreparingRebalance", news.STATIC)
    assert f"no member was assigned all of {TOPIC}" in rig.told[-1].text
    rig.run(REBALANCE_MS)
    answer = rig.joined(back)
    assert (answer.generation_id, answer.skip_assignment) == (2, False)
    assert answer.leader == answer.member_id


def test_a_restarted_coordinator_knows_as_well_what_was_assigned() -> None:
    rig = Rig()
    static_group(rig)
    rig.restart()
    assert rig.joined(rig.join(instance="i0")).skip_assignment
    rig.topics.counts[TOPIC] = 3
    rig.restart()
    assert rig.join(instance="i0") not in rig.replies


def test_a_static_member_with_another_protocol_begins_a_rebalance() -> None:
    rig = Rig()
    both = {"range": b"", "sticky": b""}
    handles = [rig.join(instance=f"i{number}", protocols=both) for number in range(2)]
    rig.run(0)
    rig.settle([rig.joined(handle).member_id for handle in handles])
    rig.join(instance="i0", protocols={"sticky": b""})
    state = rig.state()
    assert (state.state, state.trigger) == ("PreparingRebalance", news.STATIC)


def test_a_static_member_that_comes_back_in_the_sync_phase_begins_a_rebalance() -> None:
    rig = Rig()
    handles = [rig.join(instance=f"i{number}") for number in range(2)]
    rig.run(0)
    leader, follower = (rig.joined(handle).member_id for handle in handles)
    parked = rig.sync(follower, 1, instance="i1")
    back = rig.join(instance="i1")
    assert rig.sync_error(parked) is ErrorCode.FENCED_INSTANCE_ID
    assert rig.state().trigger == news.STATIC
    rig.join(leader, instance="i0")
    assert rig.joined(back).generation_id == 2


def test_of_two_clients_with_one_instance_id_the_later_one_stays() -> None:
    rig = Rig()
    leader, _ = static_group(rig)
    rig.join(version=3)
    first = rig.join(instance="i1")
    second = rig.join(instance="i1")
    assert rig.join_error(first) is ErrorCode.FENCED_INSTANCE_ID
    rig.join(leader, instance="i0")
    assert rig.joined(second).generation_id == 2


def test_absent_static_members_stay_until_their_session_ends() -> None:
    rig = Rig()
    leader, follower = static_group(rig)
    handle = rig.join(leader, instance="i0", session=100_000)
    rig.beat(follower, 1, "i1")
    rig.run(SESSION_MS - 1)
    assert handle not in rig.replies
    rig.run(1)
    assert rig.state().members == (leader,)
    assert rig.joined(handle).generation_id == 2


def test_a_join_phase_that_only_absent_static_members_are_left_of_is_extended() -> None:
    rig = Rig()
    handles = [rig.join(instance=f"i{n}", session=600_000, rebalance=30_000) for n in range(2)]
    rig.run(0)
    members = [rig.joined(handle).member_id for handle in handles]
    rig.settle(members)
    rig.join(version=3, rebalance=30_000)
    new = [m for m in rig.state().members if m.startswith("client-")]
    rig.leave(*new)
    rig.run(REBALANCE_MS)
    assert rig.state().state == "PreparingRebalance"
    back = rig.join(members[0], instance="i0", session=600_000, rebalance=30_000)
    assert back not in rig.replies
    rig.run(30_000)
    assert rig.joined(back).generation_id == 2
    assert rig.state().members == tuple(sorted(members))


# -- the ledger ---------------------------------------------------------------------------------


def test_what_is_told_of_a_rebalance() -> None:
    rig = Rig()
    (leader,) = rig.stable(1)
    rig.events.clear()
    rig.told.clear()
    new = rig.joined(rig.join(client="new")).member_id
    rig.join(new, client="new", reason="scaling out")
    rig.run(1_000)
    rig.join(leader)
    rig.settle([leader, new])
    both = tuple(sorted((leader, new)))
    cause = news.Cause(news.JOINED, f"{new} (/10.0.0.1) joined (reason given: scaling out)")
    began_at = rig.now - 1_000
    joined = rig.events[0]
    assert isinstance(joined, news.Joined)
    member = joined.member
    assert (member.member_id, member.instance_id) == (new, None)
    assert (member.client_id, member.host) == ("new", "/10.0.0.1")
    assert rig.events == [
        news.Joined("g", member, "joined", both, ("orders",)),
        news.Began("g", 1, cause, both),
        news.Ended("g", 2, "range", began_at, both),
    ]
    assert [one.level for one in rig.told] == ["INFO", "INFO"]
    assert rig.told[0].text == f"group g: generation 1 ends, {cause.text}"
    assert rig.told[1].text == "group g: generation 2, 2 members, 1000 ms after its rebalance began"
