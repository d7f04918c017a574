"""range: Kafka's own examples, co-partitioning, and fairness within a topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.assignors.groups import counts, groups, readable
from tests.allocate.assignors.groups import given as given_by

from steelyard.allocate.assignors import ranges
from steelyard.allocate.assignors.plan import Subscriber


def shares(subscribers: list[Subscriber], partitions: dict[str, int]) -> dict[str, list[str]]:
    plan = ranges.assign(subscribers, partitions)
    return {
        member: [f"{topic}{number}" for topic, number in share] for member, share in plan.items()
    }


@pytest.mark.parametrize(
    ("subscribers", "partitions", "expected"),
    [
        # RangeAssignorTest.java: two consumers, two topics of three; a topic too small for all; mixed topics
        (
            [Subscriber("c1", ["t", "u"]), Subscriber("c2", ["t", "u"])],
            {"t": 3, "u": 3},
            {"c1": ["t0", "t1", "u0", "u1"], "c2": ["t2", "u2"]},
        ),
        ([Subscriber("c1", ["t"]), Subscriber("c2", ["t"])], {"t": 1}, {"c1": ["t0"], "c2": []}),
        (
            [Subscriber("c1", ["t"]), Subscriber("c2", ["t", "u"]), Subscriber("c3", ["t"])],
            {"t": 3, "u": 2},
            {"c1": ["t0"], "c2": ["t1", "u0", "u1"], "c3": ["t2"]},
        ),
        (
            [Subscriber("a", ["t"]), Subscriber("b", ["t"], instance="1")],
            {"t": 3},
            {"a": ["t2"], "b": ["t0", "t1"]},
        ),
        ([Subscriber("a", [])], {"t": 3}, {"a": []}),
        ([], {"t": 3}, {}),
    ],
)
def test_examples(
    subscribers: list[Subscriber], partitions: dict[str, int], expected: dict[str, list[str]]
) -> None:
    assert shares(subscribers, partitions) == expected


def test_static_members_keep_their_runs_when_they_come_back_under_other_member_ids() -> None:
    before = [Subscriber(member, ["t"], instance=f"i-{member}") for member in ("a", "b", "c")]
    after = [before[0], Subscriber("z", ["t"], instance="i-b"), before[2]]
    plan = shares(before, {"t": 7})
    assert shares(after, {"t": 7}) == {"a": plan["a"], "z": plan["b"], "c": plan["c"]}


@given(members=st.integers(1, 9), partitions=st.integers(1, 30))
def test_topics_of_one_size_are_cut_alike(members: int, partitions: int) -> None:
    subscribers = [Subscriber(f"m{number}", ["t", "u"]) for number in range(members)]
    for share in ranges.assign(subscribers, {"t": partitions, "u": partitions}).values():
        numbers = {topic: [number for of, number in share if of == topic] for topic in ("t", "u")}
        assert numbers["t"] == numbers["u"]


@given(subscribers=groups, partitions=counts)
def test_every_reader_of_a_topic_has_a_run_and_their_sizes_differ_by_one_at_most(
    subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    plan = ranges.assign(subscribers, partitions)
    assert given_by(plan) == readable(subscribers, partitions)
    for topic in partitions:
        runs = [
            [number for of, number in plan[one.member] if of == topic]
            for one in subscribers
            if topic in one.topics
        ]
        sizes = [len(run) for run in runs]
        assert not sizes or max(sizes) - min(sizes) <= 1
        for run in runs:
            assert run == list(range(run[0], run[0] + len(run))) if run else True
