"""What the application is told of queues that come and go, in which order, and what waits for its answer."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Group, batch_of, queues

from steelyard.nodes.consumer.remoting.contract import Assigned, ConsumeBatch, Lost, Revoked
from steelyard.nodes.consumer.remoting.node import Stop
from steelyard.nodes.seam import Deliver, Handled
from steelyard.wire.remoting.command import Command

A0, A1, B0, B1 = queues("T", "a", 0, 1) + queues("T", "b", 0, 1)
NOTIFICATION = Command(code=40, flag=2, ext={"consumerGroup": "g"})


class Hooked(Group):
    """A member whose application hears of its queues. `told`: what it has heard and not answered, oldest first."""

    def __init__(self, **settings: object) -> None:
        super().__init__(2, **(settings | {"hooks": True}))

    @property
    def told(self) -> list[object]:
        return [h.batch for h in self.rig.hands if not isinstance(h.batch, ConsumeBatch)]

    def answer(self) -> object:
        """Answer the oldest; returns what it was."""
        hand = next(h for h in self.rig.hands if not isinstance(h.batch, ConsumeBatch))
        self.rig.hands.remove(hand)
        self.rig.put(Handled(hand.ticket, None))
        return hand.batch

    def messages(self) -> list[Deliver]:
        return [h for h in self.rig.hands if isinstance(h.batch, ConsumeBatch)]

    def members(self, *names: str) -> None:
        self.a.members, self.b.members = list(names), list(names)
        self.rig.push(self.a, NOTIFICATION)
        self.rig.advance(20)


def settled(**settings: object) -> Hooked:
    """It holds all four queues, and the application knows."""
    group = Hooked(**settings)
    rig = group.start()
    rig.advance(10)
    assert group.answer() == Assigned((A0, A1, B0, B1))
    rig.advance(6_000)
    return group


def test_queues_are_announced_together_and_pulled_once_the_application_has_answered() -> None:
    group = Hooked()
    rig = group.start()
    rig.advance(10)
    assert group.told == [Assigned((A0, A1, B0, B1))]
    rig.advance(1_000)
    assert rig.to(group.a, 11) == []
    group.answer()
    assert len(rig.to(group.a, 11)) == 2


def test_the_application_has_five_seconds_for_its_answer() -> None:
    group = Hooked()
    rig = group.start()
    rig.advance(5_009)
    assert rig.to(group.a, 11) == []
    rig.advance(1)
    assert len(rig.to(group.a, 11)) == 2
    group.answer()
    assert len(rig.to(group.a, 11)) == 2


def test_what_a_rebalance_gives_up_is_revoked_in_one_once_all_of_it_is_drained() -> None:
    group = settled()
    rig = group.rig
    rig.publish(group.b, "T", 1, 1)
    group.members("c1", "c2")
    rig.advance(1_000)
    assert group.told == []
    (message,) = group.messages()
    assert batch_of(message).queue == B1
    rig.handled(message)
    assert group.told == [Revoked((B0, B1))]
    rig.advance(1_000)
    assert [group.b.owner("T", n) for n in (0, 1)] == ["c1", "c1"]
    assert rig.to(group.b, 42) == []
    group.answer()
    assert group.b.offsets["T", 1] == 1
    assert [group.b.owner("T", n) for n in (0, 1)] == [None, None]


def test_a_revocation_that_is_not_answered_ends_after_five_seconds() -> None:
    group = settled()
    group.members("c1", "c2")
    assert group.told == [Revoked((B0, B1))]
    group.rig.advance(4_900)
    assert group.b.owner("T", 0) == "c1"
    group.rig.advance(200)
    assert group.b.owner("T", 0) is None
    assert group.state().held == (A0, A1)


def test_the_application_is_told_one_thing_at_a_time() -> None:
    """Queues that are given up while it is busy with their announcement are revoked after that."""
    group = Hooked()
    rig = group.start()
    rig.advance(10)
    group.members("c1", "c2")
    assert group.told == [Assigned((A0, A1, B0, B1))]
    assert rig.to(group.b, 11) == []
    group.answer()
    revoked = [group.answer() for _ in range(len(group.told))]
    while group.told:
        revoked.append(group.answer())
    assert [queue for one in revoked if isinstance(one, Revoked) for queue in one.queues] == [
        B0,
        B1,
    ]
    assert rig.to(group.b, 11) == []
    assert len(rig.to(group.a, 11)) == 2


def test_queues_of_a_broker_that_left_the_routes_are_lost() -> None:
    group = settled()
    group.ns.add("T", group.a, queues=2)
    group.rig.advance(30_000)
    assert group.told == [Lost((B0, B1))]
    assert group.state().held == (A0, A1)


def test_an_ordered_consumer_whose_lock_somebody_else_got_has_lost_the_queue() -> None:
    group = settled(orderly=True)
    group.b.locks.unlock("g", "c1", [B0])
    group.b.occupy("c2", B0)
    group.rig.advance(20_000)
    assert group.told == [Lost((B0,))]
    group.answer()
    group.b.locks.unlock("g", "c2", [B0])
    group.rig.advance(1_000)
    assert group.told == [Assigned((B0,))]


def test_nothing_is_said_of_queues_that_were_never_announced() -> None:
    """They were taken away before their locks were there."""
    group = Hooked()
    group.b.occupy("c0", B0, B1)
    group.a.members = group.b.members = ["c0"]
    rig = group.start()
    rig.advance(100)
    group.members("c1", "c2")
    assert group.b.owner("T", 0) == "c0"
    rig.advance(100)
    assert group.told == [Assigned((A0, A1))]


def test_a_stop_revokes_everything_before_it_commits() -> None:
    group = settled()
    rig = group.rig
    stop = rig.ask(Stop())
    assert group.told == [Revoked((A0, A1, B0, B1))]
    rig.advance(1_000)
    assert stop not in rig.answers
    group.answer()
    rig.advance(50)
    assert rig.answers[stop] is None
    assert group.told == []


@pytest.mark.parametrize("after_ms", [2_000])
def test_a_stop_does_not_wait_longer_for_hooks_than_for_listeners(after_ms: int) -> None:
    group = settled(stop_timeout_ms=after_ms)
    stop = group.rig.ask(Stop())
    group.rig.advance(after_ms)
    assert group.rig.answers[stop] is None
    group.answer()


def test_without_hooks_nothing_is_told() -> None:
    group = Group()
    rig = group.start()
    rig.advance(30_000)
    assert rig.hands == []
