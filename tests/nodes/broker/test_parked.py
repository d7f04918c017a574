"""Those who wait: at one queue or several, until they are removed, their time comes, or their link goes."""

from __future__ import annotations

import pytest

from steelyard.nodes.broker.parked import Holds, Queue

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
SLOT_MS = 10


@pytest.fixture
def holds() -> Holds[str]:
    return Holds(waiting_max=4, slot_ms=SLOT_MS, link_max=2)


def add(holds: Holds[str], name: str, *queues: Queue, link: int = 1, due_at: int = SLOT_MS) -> bool:
    is_added = holds.add(name, queues, link, due_at)
    holds.check()
    return is_added


def test_a_hold_waits_at_each_of_its_queues(holds: Holds[str]) -> None:
    assert add(holds, "both", A0, B0)
    assert add(holds, "one", A0)
    assert holds.of_queue(A0) == {1: "both", 2: "one"}
    assert holds.of_queue(B0) == {1: "both"}
    assert holds.of_queue(A1) is None
    assert holds.remove(1) == "both"
    holds.check()
    assert holds.of_queue(A0) == {2: "one"}
    assert holds.of_queue(B0) is None
    assert len(holds) == 1


def test_holds_are_due_in_the_order_they_came_within_a_slot(holds: Holds[str]) -> None:
    assert holds.next_at is None
    add(holds, "late", A0, due_at=11)
    add(holds, "second", A0, due_at=10)
    add(holds, "third", A1, link=2, due_at=1)
    assert holds.next_at == 10
    assert holds.due(9) == []
    assert holds.due(10) == ["second", "third"]
    assert holds.next_at == 20
    assert holds.due(30) == ["late"]
    assert (len(holds), holds.next_at) == (0, None)
    holds.check()


def test_a_slot_outlives_its_holds(holds: Holds[str]) -> None:
    add(holds, "gone", A0)
    holds.remove(1)
    holds.check()
    assert holds.next_at == SLOT_MS
    assert holds.due(SLOT_MS) == []
    assert holds.next_at is None


def test_too_many_are_refused(holds: Holds[str]) -> None:
    assert [add(holds, "of one link", A0) for _ in range(3)] == [True, True, False]
    assert add(holds, "another's", A0, link=2)
    assert add(holds, "another's", A0, link=3)
    assert not add(holds, "of anyone", A0, link=4)
    holds.closed(1)
    holds.check()
    assert holds.of_queue(A0) == {3: "another's", 4: "another's"}
    assert add(holds, "of one link", A0)


def test_one_link_may_have_them_all_where_nothing_else_is_said() -> None:
    holds: Holds[str] = Holds(waiting_max=3, slot_ms=SLOT_MS)
    assert [add(holds, "each", A0) for _ in range(4)] == [True, True, True, False]


def test_the_holds_of_a_topic_go_with_it(holds: Holds[str]) -> None:
    add(holds, "first", A0)
    add(holds, "other", B0)
    add(holds, "across", B0, A1, link=2)
    assert holds.of_topic("a") == ["first", "across"]
    holds.check()
    assert holds.of_queue(B0) == {2: "other"}
    assert holds.of_topic("a") == []
