"""The coordinator's `uniform` assignor: complete, even, and with few moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.measure import moves, moves_min

from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.allocate.assignors.uniform import assign
from steelyard.allocate.plan import Plan
from steelyard.types import TopicPartition

NAMES = [f"m{number}" for number in range(8)]
TOPICS = ["alpha", "beta", "gamma"]

counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})
groups = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)


def shares(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def plan(assignment: Assignment) -> Plan[TopicPartition]:
    return Plan(tuple(assignment), tuple(tuple(share) for share in assignment.values()))


def everything(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]


def alike(
    members: Sequence[str], topics: Mapping[str, int], before: Assignment | None = None
) -> Assignment:
    before = before or {}
    subscribers = [
        Subscriber(member, list(topics), tuple(before.get(member, ()))) for member in members
    ]
    return assign(subscribers, topics)


def test_members_without_partitions_yet_get_runs_in_order() -> None:
    assert alike(["b", "a"], {"t": 5}) == {"a": shares("t", 0, 1, 2), "b": shares("t", 3, 4)}


def test_a_new_member_takes_only_its_share() -> None:
    before = alike(["a", "b"], {"t": 6})
    after = alike(["a", "b", "c"], {"t": 6}, before)
    assert after == {"a": shares("t", 0, 1), "b": shares("t", 3, 4), "c": shares("t", 2, 5)}


def test_who_has_one_more_keeps_it_though_others_come_first() -> None:
    before = {"z": shares("t", 0, 1, 2)}
    assert alike(["a", "z"], {"t": 5}, before) == {
        "a": shares("t", 3, 4),
        "z": shares("t", 0, 1, 2),
    }


def test_a_static_member_keeps_its_place_under_a_new_name() -> None:
    first = assign([Subscriber("z", ["t"], instance="1"), Subscriber("a", ["t"])], {"t": 3})
    assert first == {"z": shares("t", 0, 1), "a": shares("t", 2)}


def test_nobody_subscribes_to_anything() -> None:
    assert assign([Subscriber("a", []), Subscriber("b", ["gone"])], {"t": 3}) == {"a": [], "b": []}


def test_different_subscriptions_even_out() -> None:
    both, one = Subscriber("both", ["s", "t"]), Subscriber("one", ["t"])
    assignment = assign([both, one], {"s": 2, "t": 6})
    assert {member: len(share) for member, share in assignment.items()} == {"both": 4, "one": 4}
    assert set(shares("s", 0, 1)) <= set(assignment["both"])


def test_different_subscriptions_move_only_what_evens_out() -> None:
    """`both` has all of t; one partition at a time moves until sizes differ by one."""
    both = Subscriber("both", ["s", "t"], tuple(shares("t", 0, 1, 2, 3)))
    assignment = assign([both, Subscriber("one", ["t"])], {"s": 1, "t": 4})
    assert assignment == {
        "both": [*shares("s", 0), *shares("t", 0, 1)],
        "one": shares("t", 2, 3),
    }


@given(st.lists(st.tuples(groups, counts), min_size=1, max_size=6))
def test_alike_laws(steps: list[tuple[list[str], dict[str, int]]]) -> None:
    before: Assignment = {}
    for members, topics in steps:
        after = alike(members, topics, before)
        assert sorted(p for share in after.values() for p in share) == sorted(everything(topics))
        sizes = [len(share) for share in after.values()]
        assert max(sizes) - min(sizes) <= 1
        least = moves_min(plan(before), members, everything(topics))
        # Where a member is gone its partitions move too, which `moves` counts like any other.
        assert moves(plan(before), plan(after)) == least
        before = after


subscriptions = st.dictionaries(
    st.sampled_from(NAMES), st.sets(st.sampled_from(TOPICS)), min_size=1
)


@given(st.lists(st.tuples(subscriptions, counts), min_size=1, max_size=6))
def test_different_subscriptions_laws(
    steps: list[tuple[dict[str, set[str]], dict[str, int]]],
) -> None:
    before: Assignment = {}
    for wanted, topics in steps:
        subscribers = [
            Subscriber(member, sorted(names), tuple(before.get(member, ())))
            for member, names in wanted.items()
        ]
        after = assign(subscribers, topics)
        assert assign(list(reversed(subscribers)), topics) == after
        given_out = sorted(p for share in after.values() for p in share)
        readable = {name for names in wanted.values() for name in names}
        assert given_out == [p for p in sorted(everything(topics)) if p.topic in readable]
        for member, share in after.items():
            assert {p.topic for p in share} <= wanted[member]
        for topic in TOPICS:
            owners = [m for m, share in after.items() if any(p.topic == topic for p in share)]
            readers = [m for m, names in wanted.items() if topic in names]
            for giver in owners:
                for taker in readers:
                    assert len(after[giver]) - len(after[taker]) <= 1
        again = assign(
            [
                Subscriber(member, sorted(names), tuple(after[member]))
                for member, names in wanted.items()
            ],
            topics,
        )
        assert again == after
        before = after


def test_a_partition_named_by_two_goes_to_one() -> None:
    claims = [Subscriber(member, ["t"], tuple(shares("t", 0, 7))) for member in ("a", "b")]
    assert assign(claims, {"t": 2}) == {"a": shares("t", 0), "b": shares("t", 1)}
