"""The orders that assignors sort by, and who reads what."""

from __future__ import annotations

from steelyard.allocate.assignors.plan import Subscriber, java_order, member_order, topics_of


def test_java_sorts_by_utf16_units() -> None:
    assert sorted(["\U0001f600", "ￕ", "b", "B"], key=java_order) == ["B", "b", "\U0001f600", "ￕ"]


def test_static_members_come_first_by_instance_others_by_member_id() -> None:
    subscribers = [
        Subscriber("a", []),
        Subscriber("d", [], instance="1"),
        Subscriber("c", [], instance="2"),
        Subscriber("b", []),
    ]
    assert [one.member for one in sorted(subscribers, key=member_order)] == ["d", "c", "a", "b"]


def test_topics_without_partitions_are_left_out_and_one_named_twice_counts_once() -> None:
    one, other = Subscriber("m", ["u", "t", "u", "none", "gone"]), Subscriber("n", ["t"])
    assert list(topics_of([one, other], {"u": 1, "t": 2, "none": 0, "w": 3}).items()) == [
        ("t", [one, other]),
        ("u", [one]),
    ]
