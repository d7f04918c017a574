"""What a coordinator that is started again knows."""

from __future__ import annotations

from tests.groups.kafka.conftest import GROUP, SESSION_MS, TOPIC, Rig, assignment

from steelyard.groups.kafka import effects as news
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode


def test_a_stable_group_goes_on() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    before = rig.state()
    rig.restart()
    after = rig.state()
    assert (after.state, after.generation, after.protocol) == ("Stable", 1, "range")
    assert (after.leader, after.members) == (leader, before.members)
    assert rig.beat(follower, 1) is ErrorCode.NONE
    assert rig.synced(rig.sync(follower, 1)).assignment == assignment([1])
    group = rig.groups.get(GROUP)
    assert group is not None
    assert group.owner_of(TopicPartition(TOPIC, 1)) == follower
    assert group.member_at("client-1", "/10.0.0.1", TopicPartition(TOPIC, 1)) == follower
    assert group.subscribes_to(TOPIC)
    assert not group.subscribes_to("invoices")


def test_sessions_begin_anew() -> None:
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.run(SESSION_MS - 1)
    rig.restart()
    rig.run(SESSION_MS - 1)
    assert rig.beat(leader, 1) is ErrorCode.NONE
    rig.run(1)
    assert rig.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state().members == (leader,)


def test_a_rebalance_that_went_on_is_forgotten() -> None:
    """Its members are told to rejoin by what they hold: the generation before it stands again. Its number is not given again."""
    rig = Rig()
    leader, follower = rig.stable(2)
    new = rig.join(version=3)
    rig.join(leader)
    rig.join(follower)
    newcomer = rig.joined(new).member_id
    rig.restart()
    assert rig.state().generation == 1
    assert rig.sync_error(rig.sync(follower, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert rig.sync_error(rig.sync(newcomer, 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    handles = [rig.join(leader), rig.join(follower)]
    assert {rig.joined(handle).generation_id for handle in handles} == {3}


def test_static_members_keep_their_places() -> None:
    rig = Rig()
    rig.topics.counts[TOPIC] = 1  # all of it is assigned
    handle = rig.join(instance="i0")
    rig.run(0)
    old = rig.joined(handle).member_id
    rig.settle([old])
    rig.restart()
    answer = rig.joined(rig.join(instance="i0"))
    assert (answer.generation_id, answer.skip_assignment) == (1, True)
    assert rig.beat(old, 1, "i0") is ErrorCode.FENCED_INSTANCE_ID


def static_pair(rig: Rig) -> list[str]:
    """A stable group of two static members; each reads one of the topic's two partitions."""
    rig.topics.counts[TOPIC] = 2
    handles = [rig.join(instance=f"i{number}") for number in range(2)]
    rig.run(0)
    members = [rig.joined(handle).member_id for handle in handles]
    rig.settle(members)
    return members


def test_the_number_of_a_forgotten_generation_is_not_given_again() -> None:
    """1. Generation 2 is announced, and forgotten. 2. One member rejoins, the other is away.

    The one that was away is of no generation with another meaning: what it holds is of the past.
    """
    rig = Rig()
    leader, follower = static_pair(rig)
    handles = [rig.join(leader, instance="i0"), rig.join(follower, instance="i1")]
    assert {rig.joined(handle).generation_id for handle in handles} == {2}
    for _ in range(2):
        rig.restart()
        assert rig.state().generation == 1
    handle = rig.join(leader, instance="i0", session=600_000)
    while handle not in rig.replies:
        rig.run(SESSION_MS // 2)
        rig.beat(follower, 1, "i1")
    assert rig.joined(handle).generation_id == 3
    rig.settle([leader, follower])
    assert rig.state().members == (leader, follower)
    assert rig.beat(follower, 2, "i1") is ErrorCode.ILLEGAL_GENERATION


def counts_after_a_restart(rig: Rig, new: str, old: str) -> None:
    """Member i1 is the one that came back, not the process before it, and one of generation 1 with its share.

    The generation that it came back in was never assigned.
    """
    rig.restart()
    assert rig.beat(old, 1, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.beat(new, rig.state().generation + 1, "i1") is ErrorCode.ILLEGAL_GENERATION
    answer = rig.joined(rig.join(new, instance="i1"))
    assert (answer.generation_id, answer.member_id) == (1, new)
    assert rig.synced(rig.sync(new, 1, instance="i1")).assignment == assignment([1])


def test_a_static_member_that_came_back_in_the_join_phase_is_the_one_that_counts() -> None:
    rig = Rig()
    leader, old = static_pair(rig)
    rig.join(version=3)  # a rebalance begins
    back = rig.join(instance="i1")
    rig.join(leader, instance="i0")
    counts_after_a_restart(rig, rig.joined(back).member_id, old)


def test_a_static_member_that_came_back_in_the_sync_phase_is_the_one_that_counts() -> None:
    rig = Rig()
    leader, old = static_pair(rig)
    rig.join(leader, instance="i0")  # a rebalance begins
    rig.join(old, instance="i1")
    assert rig.state().state == "CompletingRebalance"
    back = rig.join(instance="i1")
    rig.join(leader, instance="i0")
    counts_after_a_restart(rig, rig.joined(back).member_id, old)


def test_a_static_member_that_came_back_after_its_session_is_the_one_that_counts() -> None:
    """It was out, but the last stored generation has it."""
    rig = Rig()
    leader, old = static_pair(rig)
    rig.run(SESSION_MS - 1)
    rig.beat(leader, 1, "i0")
    rig.run(1)
    assert rig.state().members == (leader,)
    back = rig.join(instance="i1")
    rig.join(leader, instance="i0")
    counts_after_a_restart(rig, rig.joined(back).member_id, old)


def test_a_static_leader_that_came_back_still_leads() -> None:
    rig = Rig()
    _, follower = static_pair(rig)
    rig.join(version=3)
    back = rig.join(instance="i0")
    rig.join(follower, instance="i1")
    new = rig.joined(back).member_id
    rig.restart()
    state = rig.state()
    assert (state.generation, state.leader) == (1, new)
    assert set(state.members) == {new, follower}


def test_a_static_member_that_came_back_with_another_protocol_joins_once_more() -> None:
    """What is stored is what the stored generation was assigned by."""
    rig = Rig()
    both = {"range": b"", "sticky": b""}
    handles = [rig.join(instance=f"i{number}", protocols=both) for number in range(2)]
    rig.run(0)
    leader, follower = (rig.joined(handle).member_id for handle in handles)
    rig.settle([leader, follower])
    sticky = {"sticky": b""}
    back = rig.join(instance="i1", protocols=sticky)
    rig.join(leader, instance="i0", protocols=both)
    new = rig.joined(back).member_id
    rig.restart()
    assert rig.state().protocol == "range"
    again = rig.join(new, instance="i1", protocols=sticky)
    rig.join(leader, instance="i0", protocols=both)
    answer = rig.joined(again)
    assert (answer.generation_id, answer.protocol_name) == (3, "sticky")


def test_a_group_that_is_larger_than_allowed_now_is_asked_to_join_again() -> None:
    rig = Rig()
    members = rig.stable(3)
    rig.disk, rig.config = rig.disk.copy(), Rig(group_max_size=2).config
    rig.restart()
    rig.run(0)
    assert rig.state().trigger == news.SIZE
    handles = [rig.join(member) for member in members]
    assert rig.join_error(handles[2]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.joined(handles[0]).generation_id == rig.joined(handles[1]).generation_id == 2


def test_a_static_member_whose_return_cannot_be_stored_stays_who_it_was() -> None:
    rig = Rig()
    rig.topics.counts[TOPIC] = 1  # all of it is assigned
    handle = rig.join(instance="i0")
    rig.run(0)
    old = rig.joined(handle).member_id
    rig.settle([old])
    rig.disk.room_bytes = 0
    assert rig.join_error(rig.join(instance="i0")) is ErrorCode.NOT_COORDINATOR
    assert rig.beat(old, 1, "i0") is ErrorCode.NONE


def test_so_it_is_while_a_rebalance_goes_on() -> None:
    rig = Rig()
    leader, old = static_pair(rig)
    rig.join(version=3)
    parked = rig.join(old, instance="i1")
    rig.disk.room_bytes = 0
    assert rig.join_error(rig.join(instance="i1")) is ErrorCode.NOT_COORDINATOR
    assert rig.told[-1].level == "WARNING"
    rig.join(leader, instance="i0")
    assert rig.joined(parked).member_id == old


def test_that_a_group_is_empty_need_not_be_stored() -> None:
    """After a kill its members are back, until their sessions end."""
    rig = Rig()
    (member,) = rig.stable(1)
    rig.disk.room_bytes = 0
    rig.leave(member)
    assert rig.state().state == "Empty"
    assert rig.told[-2].level == "WARNING"
    rig.disk.room_bytes = None
    rig.restart()
    assert rig.state().members == (member,)
    rig.run(SESSION_MS)
    assert rig.state().state == "Empty"
