"""Members of classic groups that join and go again and again: they are recognised, told of, and kept waiting."""

from __future__ import annotations

from tests.groups.kafka.conftest import GROUP, Rig, subscription

from steelyard.groups.flapping import DELAY_MS_MIN, FLAPS_MIN, Flapper
from steelyard.groups.kafka.effects import Began
from steelyard.groups.kafka.flapping import name_of
from steelyard.wire.kafka.errors import ErrorCode


class Loop(Rig):
    """A stable group of two, and a third client that has crashed as often as it takes to flap."""

    def __init__(self, flaps: int = FLAPS_MIN, **settings: int) -> None:
        super().__init__(**{"group_flapping_delay_max_ms": 20_000} | settings)  # type: ignore[arg-type]
        self.members = self.stable()
        for _ in range(flaps):
            self.run(10)
            self.crash(self.come())

    def come(self) -> str:
        """The client joins, and everybody rejoins."""
        member = self.joined(self.join(client="loop")).member_id
        self.join(member, client="loop")
        for one in self.members:
            self.join(one)
        self.settle([*self.members, member])
        return member

    def crash(self, member: str) -> None:
        self.leave(member)
        for one in self.members:
            self.join(one)
        self.settle(self.members)

    def begun(self) -> int:
        return sum(isinstance(event, Began) for event in self.events)


def test_names() -> None:
    assert name_of(None, "app", "/10.0.0.1") == "app/10.0.0.1"
    assert name_of("i-1", "app", "/10.0.0.1") == "i-1 (static)"


def test_member_that_crashes_in_a_loop_is_told_of() -> None:
    rig = Loop(group_flapping_delay_max_ms=0)
    name = "loop/10.0.0.1"
    assert rig.coordinator.flapping.of_group(GROUP, rig.now) == [Flapper(name, 3, rig.now)]
    rig.come()
    (told,) = [one.text for one in rig.told if one.level == "WARNING"]
    assert told.startswith(f"group {GROUP}: {name} has joined and gone 3 times in the last half")


def test_its_return_waits_and_nobody_is_disturbed() -> None:
    rig = Loop()
    begun = rig.begun()
    waiting = rig.join(client="loop")
    assert waiting not in rig.replies
    assert rig.coordinator.damped(GROUP) == {"loop/10.0.0.1": rig.now + DELAY_MS_MIN}
    other = rig.joined(rig.join(client="other")).member_id  # others do not wait
    rig.leave(other)
    rig.run(DELAY_MS_MIN - 1)
    assert (waiting not in rig.replies, rig.begun()) == (True, begun)
    rig.run(1)
    answer = rig.joined(waiting)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rig.coordinator.damped(GROUP) == {}
    rig.join(answer.member_id, client="loop")  # does not wait once more
    assert rig.begun() == begun + 1


def test_client_that_dies_while_it_waits_never_disturbs_the_group() -> None:
    rig = Loop()
    begun = rig.begun()
    waiting = rig.join(client="loop")
    rig.close(1)
    rig.run(DELAY_MS_MIN)
    assert (waiting in rig.replies, rig.begun()) == (False, begun)
    assert rig.coordinator.waiting_groups() == []


def test_rebalance_of_others_does_not_end_the_wait() -> None:
    rig = Loop()
    waiting = rig.join(client="loop", version=3)
    rig.join(rig.members[0])
    rig.join(rig.members[1])
    rig.settle(rig.members)
    assert (rig.state().state, len(rig.state().members)) == ("Stable", 2)
    assert waiting not in rig.replies


def test_last_members_that_go_end_the_wait() -> None:
    rig = Loop()
    waiting = rig.join(client="loop", version=3)
    rig.leave(*rig.members)
    rig.run(0)
    assert rig.join_error(waiting) is ErrorCode.NONE
    assert len(rig.state().members) == 1


def test_topic_that_nobody_else_reads_does_not_wait() -> None:
    rig = Loop()
    other = {"range": subscription(("orders", "invoices"))}
    answer = rig.join(client="loop", version=3, protocols=other)
    assert rig.state().state == "PreparingRebalance"
    assert answer not in rig.replies


def test_each_crash_doubles_the_delay() -> None:
    rig = Loop()
    delays = []
    for _ in range(6):
        begun_at = rig.now
        waiting = rig.join(client="loop")
        until = rig.coordinator.damped(GROUP)["loop/10.0.0.1"]
        while rig.now < until:
            rig.run(min(2_000, until - rig.now))
            for one in rig.members:
                rig.beat(one, rig.state().generation)
        delays.append(until - begun_at)
        member = rig.joined(waiting).member_id
        rig.join(member, client="loop")
        for one in rig.members:
            rig.join(one)
        rig.settle([*rig.members, member])
        rig.crash(member)
    assert delays == [1_000, 2_000, 4_000, 8_000, 16_000, 20_000]
