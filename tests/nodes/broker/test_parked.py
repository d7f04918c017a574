"""Those who wait: at one queue or several, until they are removed, their time comes, or their link goes."""

from __future__ import annotations

import pytest

from steelyard.nodes.broker.parked import Parked, Queue

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
SLOT_MS = 10


@pytest.fixture
def parked() -> Parked[str]:
    return Parked(waiting_max=4, slot_ms=SLOT_MS, link_max=2)


def add(
    parked: Parked[str], name: str, *queues: Queue, link: int = 1, due_at: int = SLOT_MS
) -> bool:
    is_added = parked.add(name, queues, link, due_at)
    parked.check()
    return is_added


def test_a_hold_waits_at_each_of_its_queues(parked: Parked[str]) -> None:
    assert add(parked, "both", A0, B0)
    assert add(parked, "one", A0)
    assert parked.of_queue(A0) == {1: "both", 2: "one"}
    assert parked.of_queue(B0) == {1: "both"}
    assert parked.of_queue(A1) is None
    assert parked.remove(1) == "both"
    parked.check()
    assert parked.of_queue(A0) == {2: "one"}
    assert parked.of_queue(B0) is None
    assert len(parked) == 1


def test_holds_are_due_in_the_order_they_came_within_a_slot(parked: Parked[str]) -> None:
    assert parked.next_at is None
    add(parked, "late", A0, due_at=11)
    add(parked, "second", A0, due_at=10)
    add(parked, "third", A1, link=2, due_at=1)
    assert parked.next_at == 10
    assert parked.due(9) == []
    assert parked.due(10) == ["second", "third"]
    assert parked.next_at == 20
    assert parked.due(30) == ["late"]
    assert (len(parked), parked.next_at) == (0, None)
    parked.check()


def test_a_slot_outlives_its_holds(parked: Parked[str]) -> None:
    add(parked, "gone", A0)
    parked.remove(1)
    parked.check()
    assert parked.next_at == SLOT_MS
    assert parked.due(SLOT_MS) == []
    assert parked.next_at is None


def test_too_many_are_refused(parked: Parked[str]) -> None:
    assert [add(parked, "of one link", A0) for _ in range(3)] == [True, True, False]
    assert add(parked, "another's", A0, link=2)
    assert add(parked, "another's", A0, link=3)
    assert not add(parked, "of anyone", A0, link=4)
    parked.closed(1)
    parked.check()
    assert parked.of_queue(A0) == {3: "another's", 4: "another's"}
    assert add(parked, "of one link", A0)


def test_one_link_may_have_them_all_where_nothing_else_is_said() -> None:
    parked: Parked[str] = Parked(waiting_max=3, slot_ms=SLOT_MS)
    assert [add(parked, "each", A0) for _ in range(4)] == [True, True, True, False]


def test_all_are_listed_in_the_order_they_came(parked: Parked[str]) -> None:
    add(parked, "first", A0)
    add(parked, "across", B0, A1, link=2)
    assert parked.all() == [(1, "first"), (2, "across")]
    assert parked.of_link(2) == [(2, "across")]
    assert parked.of_link(3) == []
