"""What a coordinator that is started again knows."""

from __future__ import annotations

from tests.groups.coordinator.conftest import GROUP, SESSION_MS, TOPIC, Rig, assignment

from steelyard.groups.coordinator import effects as news
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
    """Its members are told to rejoin by what they hold: the generation before it stands again."""
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
    assert {rig.joined(handle).generation_id for handle in handles} == {2}


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
