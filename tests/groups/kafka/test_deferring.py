"""Newcomers to classic groups that wait, so that several are one rebalance: each rule."""

from __future__ import annotations

from tests.groups.kafka.conftest import GROUP, Rig, subscription

from steelyard.groups.kafka.effects import Began, Effects
from steelyard.groups.kafka.window import QUIET_MS_MIN
from steelyard.wire.kafka.errors import ErrorCode


class Crowd(Rig):
    """A stable group of two, where a third one has just joined, and others follow."""

    def __init__(self, **settings: int) -> None:
        super().__init__(**{"group_join_window_max_ms": 1_000} | settings)  # type: ignore[arg-type]
        self.members = self.stable()
        self.run(10_000 // 2)
        self.members.append(self.come("third"))
        self.rejoin()
        self.begun = self.count_begun()

    def come(self, name: str) -> str:
        """A newcomer with an id of its own; `waiting` has its JoinGroup."""
        member = self.joined(self.join(client=name)).member_id
        self.waiting = self.join(member, client=name)
        return member

    def rejoin(self) -> None:
        """Everybody rejoins, and the leader assigns."""
        for member in self.members[:2]:
            self.join(member)
        self.settle(self.members)

    def count_begun(self) -> int:
        return sum(isinstance(event, Began) for event in self.events)


def test_first_newcomer_of_a_group_at_rest_does_not_wait() -> None:
    rig = Crowd()
    assert len(rig.state().members) == 3
    assert rig.state().state == "Stable"


def test_newcomers_that_follow_each_other_are_one_rebalance() -> None:
    rig = Crowd()
    for number in range(4):
        rig.run(10)
        rig.come(f"n{number}")
    assert (rig.state().state, rig.count_begun()) == ("Stable", rig.begun)
    rig.run(QUIET_MS_MIN)
    assert (rig.state().state, rig.count_begun()) == ("PreparingRebalance", rig.begun + 1)
    assert len(rig.state().members) == 7


def test_newcomers_that_keep_coming_wait_for_the_limit_only() -> None:
    rig = Crowd()
    for number in range(10):
        assert rig.state().state == "Stable"
        rig.run(100)
        rig.come(f"n{number}")
    rig.run(100)  # a second since the first of them came
    assert rig.count_begun() == rig.begun + 1
    assert len(rig.state().members) == 13


def test_member_that_leaves_takes_the_newcomers_along() -> None:
    rig = Crowd()
    rig.run(10)
    newcomer = rig.come("fourth")
    rig.leave(rig.members[1])
    assert rig.state().state == "PreparingRebalance"
    assert newcomer in rig.state().members
    assert rig.count_begun() == rig.begun + 1


def test_newcomer_that_comes_while_the_leader_assigns_does_not_wait() -> None:
    """All members wait for its answer: they rejoin at once, not with their first heartbeat."""
    rig = Crowd()
    rig.run(1_000)
    rig.members.append(rig.come("fourth"))
    for member in rig.members[:3]:
        rig.join(member)
    assert rig.state().state == "CompletingRebalance"
    rig.run(10)
    rig.come("fifth")
    assert rig.state().state == "PreparingRebalance"


def test_another_request_on_the_link_ends_the_wait() -> None:
    rig = Crowd()
    rig.run(10)
    rig.come("fourth")
    assert rig.state().state == "Stable"
    rig.release(1)  # the link of all JoinGroups of this rig
    assert rig.state().state == "PreparingRebalance"


def test_newcomer_whose_link_closes_is_dropped() -> None:
    rig = Crowd()
    rig.run(10)
    rig.come("fourth")
    rig.close(1)
    rig.release(1)
    rig.run(1_000)
    assert rig.state().state == "Stable"
    assert len(rig.state().members) == 3
    assert rig.waiting not in rig.replies


def test_static_member_that_returns_does_not_wait() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    first = rig.join(instance="i")
    rig.run(0)
    member = rig.joined(first).member_id
    rig.settle([member])
    rig.run(5_000)
    rig.join(instance="j")
    rig.join(member, instance="i")
    rig.settle([member])
    rig.join(instance="i")
    assert member not in rig.state().members
    assert len(rig.state().members) == 2


def test_group_of_another_coordinator_is_told_so() -> None:
    rig = Crowd()
    rig.run(10)
    rig.come("fourth")
    assert rig.coordinator.waiting_groups() == [GROUP]
    effects: Effects = []
    rig.coordinator.refused(GROUP, ErrorCode.NOT_COORDINATOR, effects)
    rig.took(effects)
    assert rig.join_error(rig.waiting) is ErrorCode.NOT_COORDINATOR


def test_id_of_a_newcomer_does_not_expire_while_it_waits() -> None:
    rig = Crowd(group_join_window_max_ms=5_000, group_min_session_timeout_ms=100)
    rig.run(2_000)
    member = rig.joined(rig.join(client="x", session=100)).member_id
    handle = rig.join(member, client="x", session=100)
    assert handle not in rig.replies
    rig.run(5_000)
    assert member in rig.state().members


def test_nobody_waits_if_the_setting_is_off() -> None:
    for settings in ({"group_join_window_max_ms": 0}, {"delayed_answers": False}):
        rig = Rig(**{"group_join_window_max_ms": 1_000} | settings)  # type: ignore[arg-type]
        rig.stable()
        for number in range(2):
            rig.join(client=f"n{number}", version=3, protocols={"range": subscription()})
        assert len(rig.state().members) == 4
