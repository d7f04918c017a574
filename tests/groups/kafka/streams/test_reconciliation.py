"""The states of a streams group's member."""

from __future__ import annotations

from tests.edges import assert_every_edge
from tests.groups.kafka.streams import test_groups as lives
from tests.groups.kafka.streams.conftest import tasks

from steelyard.allocate.assignors.sticky_tasks import TaskShare
from steelyard.groups.kafka.streams.member import (
    TASK_RECONCILIATION,
    StreamsGroupMember,
    StreamsMemberState,
)
from steelyard.groups.kafka.streams.reconciliation import FreeTasks, reconcile

TAKEN = tasks("0_9 1_9")
STABLE, UNREVOKED, UNRELEASED = StreamsMemberState


def beat(
    member: StreamsGroupMember,
    epoch: int,
    active: str,
    owned: str | None = "",
    standby: str = "",
    owned_standby: str = "",
) -> StreamsGroupMember:
    """Others have the tasks 0_9 and 1_9."""
    target = TaskShare(tasks(active), tasks(standby))
    reported = None if owned is None else TaskShare(tasks(owned), tasks(owned_standby))
    free = FreeTasks(lambda task: task not in TAKEN, lambda task: task not in TAKEN)
    return reconcile(member, target, epoch, reported, free)


def test_a_new_member_gets_what_is_free() -> None:
    waiting = beat(StreamsGroupMember("m"), 2, "0_0 0_9", standby="1_0 1_9")
    assert (waiting.state, waiting.epoch, waiting.previous_epoch) == (UNRELEASED, 2, 0)
    assert waiting.assigned.active == dict.fromkeys(tasks("0_0"), 2)
    assert waiting.assigned.standby == tasks("1_0")
    assert beat(waiting, 2, "0_0", owned=None, standby="1_0").state is STABLE
    assert beat(waiting, 2, "0_0 0_9", owned=None, standby="1_0").state is UNRELEASED


def test_a_task_is_kept_until_it_is_reported_as_released() -> None:
    stable = beat(StreamsGroupMember("m"), 2, "0_0 0_1")
    revoking = beat(stable, 5, "0_0", owned=None)
    assert (revoking.state, revoking.epoch) == (UNREVOKED, 2)
    assert revoking.revoking.active == dict.fromkeys(tasks("0_1"), 2)
    for owned in (None, "0_1", "0_0 0_1"):
        assert beat(revoking, 5, "0_0", owned=owned) is revoking
    released = beat(revoking, 5, "0_0", owned="0_0")
    assert (released.state, released.epoch, released.previous_epoch) == (STABLE, 5, 2)
    assert released.assigned.active == dict.fromkeys(tasks("0_0"), 2)  # since it first got it
    assert not released.revoking


def test_what_it_does_not_own_need_not_be_released() -> None:
    stable = beat(StreamsGroupMember("m"), 2, "0_0 0_1")
    assert beat(stable, 3, "0_0", owned="0_0").state is STABLE


def test_a_standby_is_released_before_the_task_becomes_active() -> None:
    standby = beat(StreamsGroupMember("m"), 2, "", standby="1_0")
    releasing = beat(standby, 3, "1_0", owned=None)
    assert (releasing.state, releasing.revoking.standby) == (UNREVOKED, tasks("1_0"))
    assert beat(releasing, 3, "1_0", owned="", owned_standby="1_0") is releasing
    active = beat(releasing, 3, "1_0", owned="")
    assert (active.state, active.active) == (STABLE, (*tasks("1_0"),))


def targets_follow_each_other() -> None:
    waiting = beat(StreamsGroupMember("m"), 2, "0_0 0_9")
    revoking = beat(waiting, 3, "0_9", owned=None)
    assert revoking.state is UNREVOKED
    assert beat(revoking, 3, "0_9").state is UNRELEASED
    both = beat(beat(StreamsGroupMember("m"), 2, "0_0 0_1"), 3, "0_1", owned=None)
    more = beat(both, 6, "", owned="0_1")
    assert (more.state, more.epoch, more.previous_epoch) == (UNREVOKED, 3, 2)
    assert beat(beat(StreamsGroupMember("m"), 2, "0_0"), 3, "0_0 0_9").state is UNRELEASED
    assert beat(beat(StreamsGroupMember("m"), 2, "0_0"), 3, "0_0").state is STABLE


def test_every_edge_of_a_member_is_taken() -> None:
    assert_every_edge(
        TASK_RECONCILIATION,
        targets_follow_each_other,
        test_a_new_member_gets_what_is_free,
        test_a_task_is_kept_until_it_is_reported_as_released,
        lives.test_members_go_on_after_a_restart,
    )
