"""even: each topic by itself is spread, where cooperative-sticky goes by names. Its other laws are in `test_sticky`."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.assignors.groups import TOPICS, again

from steelyard.allocate.assignors import even, sticky
from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.types import TopicPartition


def topic_spread(plan: Assignment, partitions: dict[str, int]) -> int:
    """The largest difference between two members in partitions of one topic."""
    numbers = [
        [Counter(topic for topic, _ in share)[name] for share in plan.values()]
        for name in partitions
    ]
    return max(max(counts) - min(counts) for counts in numbers)


def test_two_topics_of_two_partitions_give_one_to_each_of_four_members() -> None:
    subscribers = [Subscriber(f"m{number}", ["x", "y"]) for number in range(4)]
    plan = even.assign(subscribers, {"x": 2, "y": 2})
    assert [len(share) for share in plan.values()] == [1, 1, 1, 1]


def test_a_member_gives_up_what_it_has_most_of() -> None:
    held = [TopicPartition("t", number) for number in range(3)] + [TopicPartition("u", 0)]
    plan = even.assign(
        [Subscriber("a", ["t", "u"], held, 1), Subscriber("b", ["t", "u"])], {"t": 3, "u": 1}
    )
    assert plan == {"a": [TopicPartition("t", 0), TopicPartition("u", 0)], "b": []}


def test_a_free_partition_goes_to_the_one_with_least_of_its_topic() -> None:
    t = [TopicPartition("t", number) for number in range(3)]
    u = [TopicPartition("u", number) for number in range(3)]
    members = [Subscriber("a", ["t", "u"], t[:2], 1), Subscriber("b", ["t", "u"], u[:2], 1)]
    partitions = {"t": 3, "u": 3}
    assert even.assign(members, partitions) == {"a": [*t[:2], u[2]], "b": [t[2], *u[:2]]}
    assert sticky.assign_cooperative(members, partitions) == {"a": t, "b": u}


@given(
    members=st.integers(1, 12),
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=5),
)
def test_a_new_group_has_each_topic_spread_by_one_at_most(members: int, sizes: list[int]) -> None:
    partitions = dict(zip(TOPICS, sizes, strict=False))
    subscribers = [Subscriber(f"m{number:02}", list(partitions)) for number in range(members)]
    assert topic_spread(even.assign(subscribers, partitions), partitions) <= 1


def test_topics_stay_spread_as_members_come_and_go() -> None:
    """Five members of ten are replaced, one after the other; cooperative-sticky is there for comparison."""
    partitions = dict.fromkeys(TOPICS, 20)
    spreads = {}
    for assignor in (even.ASSIGNOR, sticky.COOPERATIVE_STICKY):
        group = [Subscriber(f"m{number}", TOPICS) for number in range(10)]
        held: Assignment = {}
        for generation in range(40):
            if generation % 4 == 0:
                group = [*group[1:], Subscriber(f"n{generation}", TOPICS)]
            elif generation % 4 == 2:
                group = (
                    group[1:] if len(group) > 5 else [*group, Subscriber(f"o{generation}", TOPICS)]
                )
            held = assignor.assign(again(assignor, group, held, generation), partitions)
        spreads[assignor.name] = topic_spread(held, partitions)
    assert spreads["even"] <= 2
    assert spreads["even"] <= spreads["cooperative-sticky"]
