"""Newcomers to classic groups that wait, so that several are one rebalance: each rule."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.kafka.conftest import GROUP, SESSION_MS, Rig, subscription

from steelyard.groups.kafka.classic.deferring import JOIN_AGAIN_MS, REACHED_MS
from steelyard.groups.kafka.classic.rebalances import LEAVES_MS
from steelyard.groups.kafka.effects import Began, Effects
from steelyard.groups.kafka.waiting import JAVA
from steelyard.groups.kafka.window import QUIET_MS_MIN
from steelyard.wire.kafka.errors import ErrorCode


class Crowd(Rig):
    """A stable group of two, where a third one has just joined, and others follow.

    All its heartbeats wait, if `reached`.
    """

    def __init__(self, *, reached: bool = True, software: str = "", **settings: int) -> None:
        super().__init__(**{"group_join_window_max_ms": 1_000} | settings)  # type: ignore[arg-type]
        self.software = software
        self.members = self.stable()
        self.run(10_000 // 2)
        self.members.append(self.come("third"))
        self.rejoin()
        self.begun = self.count_begun()
        if reached:
            for member in self.members:
                self.beats(member)

    def beats(self, member: str) -> None:
        """A heartbeat that waits."""
        handle = self.wait(member, self.state().generation)
        assert self.waited(handle) is None

    def come(self, name: str) -> str:
        """A newcomer with an id of its own; `waiting` has its JoinGroup."""
        member = self.joined(self.join(client=name)).member_id
        self.waiting = self.join(member, client=name, software=self.software)
        return member

    def await_leader(self) -> str:
        """A fourth member joins, and everybody rejoins; a fifth comes before the leader assigns, and is returned."""
        self.run(1_000)
        self.members.append(self.come("fourth"))
        for member in self.members[:3]:
            self.join(member, software=self.software)
        assert self.state().state == "CompletingRebalance"
        self.run(10)
        return self.come("fifth")

    def rejoin(self) -> None:
        """Everybody rejoins, and the leader assigns."""
        for member in self.members[:2]:
            self.join(member, software=self.software)
        self.settle(self.members, software=self.software)

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


def test_newcomer_waits_until_the_heartbeats_of_all_members_wait() -> None:
    """Who hears of a rebalance first stops reading, and waits for the others."""
    rig = Crowd(reached=False)
    rig.run(1_000)
    rig.come("fourth")
    for member in rig.members[:2]:
        rig.beats(member)
    rig.run(500)
    assert (rig.state().state, rig.count_begun()) == ("Stable", rig.begun)
    last = rig.wait(rig.members[2], rig.state().generation)
    assert rig.waited(last) is ErrorCode.REBALANCE_IN_PROGRESS
    assert (rig.state().state, rig.count_begun()) == ("PreparingRebalance", rig.begun + 1)


def test_newcomer_does_not_wait_for_heartbeats_for_ever() -> None:
    rig = Crowd(reached=False)
    rig.run(1_000)
    rig.come("fourth")
    rig.run(REACHED_MS - 1)
    assert rig.state().state == "Stable"
    rig.run(1)
    assert rig.state().state == "PreparingRebalance"


def test_newcomer_does_not_wait_for_members_whose_heartbeats_never_wait() -> None:
    rig = Crowd(reached=False, software="sarama")
    rig.run(1_000)
    rig.come("fourth")
    assert rig.state().state == "PreparingRebalance"


def test_member_that_leaves_takes_the_newcomers_along() -> None:
    rig = Crowd(reached=False)
    rig.run(10)
    newcomer = rig.come("fourth")
    rig.leave(rig.members[1])
    rig.run(LEAVES_MS)
    assert rig.state().state == "PreparingRebalance"
    assert newcomer in rig.state().members
    assert rig.count_begun() == rig.begun + 1


class CooperativeCrowd(Crowd):
    """The same with a cooperative assignor, of which the third member has long been one."""

    def join(self, member_id: str = "", **settings: Any) -> int:
        return super().join(member_id, protocols={"cooperative-sticky": subscription()}, **settings)


def test_newcomer_of_librdkafka_waits_until_it_can_come_to_the_second_round() -> None:
    """It sends no JoinGroup within a second of its last one, and what others gave up would wait for it."""
    rig = CooperativeCrowd()
    rig.run(1_000)
    rig.software = "librdkafka"
    rig.come("fourth")
    rig.run(JOIN_AGAIN_MS - 1)
    assert rig.state().state == "Stable"
    rig.run(1)
    assert rig.state().state == "PreparingRebalance"


@pytest.mark.parametrize(
    ("kind", "software"), [(Crowd, "librdkafka"), (CooperativeCrowd, JAVA), (CooperativeCrowd, "")]
)
def test_nobody_else_waits_for_that(kind: type[Crowd], software: str) -> None:
    rig = kind()
    rig.run(1_000)
    rig.software = software
    rig.come("fourth")
    assert rig.state().state == "PreparingRebalance"


def test_newcomers_of_librdkafka_wait_no_longer_than_others() -> None:
    """Each comes a second after the one before: none is kept until the last one is ready."""
    rig = CooperativeCrowd()
    rig.run(1_000)
    rig.software = "librdkafka"
    for number in range(10):
        if rig.state().state != "Stable":
            break
        rig.come(f"n{number}")
        rig.run(900)
    assert rig.state().state == "PreparingRebalance"
    assert number == REACHED_MS // 900 + 1


def test_newcomer_that_comes_while_the_leader_of_java_clients_assigns_does_not_wait() -> None:
    """All members wait for its answer: they rejoin at once, not with their first heartbeat."""
    rig = Crowd(software=JAVA)
    rig.await_leader()
    assert rig.state().state == "PreparingRebalance"


def test_newcomer_that_comes_while_another_leader_assigns_waits() -> None:
    """Librdkafka would rejoin up to two seconds after the refused SyncGroup, and read nothing meanwhile."""
    rig = Crowd()
    fifth = rig.await_leader()
    rig.run(1_000)
    rig.settle(rig.members)
    assert rig.state().state == "Stable"
    rig.run(REACHED_MS)
    assert rig.state().state == "PreparingRebalance"
    assert fifth in rig.state().members


def test_newcomer_takes_part_if_the_leader_never_assigns() -> None:
    """Its id is still known then, though the leader had far longer than its session."""
    rig = Crowd()
    fifth = rig.await_leader()
    generation = rig.state().generation
    while rig.state().generation == generation:
        for member in rig.members:
            rig.beat(member, generation)
        rig.run(SESSION_MS // 2)
    assert rig.join_error(rig.waiting) is ErrorCode.NONE
    assert rig.joined(rig.waiting).member_id == fifth


def test_another_request_on_the_link_ends_the_wait() -> None:
    rig = Crowd()
    rig.run(10)
    rig.come("fourth")
    assert rig.state().state == "Stable"
    rig.release(1)  # the link of all JoinGroups of this rig
    assert rig.state().state == "PreparingRebalance"


def test_newcomers_on_other_links_take_part_in_that_rebalance() -> None:
    rig = Crowd()
    rig.run(10)
    fourth = rig.come("fourth")
    fifth = rig.joined(rig.join(client="fifth")).member_id
    rig.join(fifth, client="fifth", link=2)
    assert rig.state().state == "Stable"
    rig.release(1)
    assert rig.state().state == "PreparingRebalance"
    assert {fourth, fifth} < set(rig.state().members)


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
    rig.wait(member, rig.state().generation, "i")
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
