"""The coordinator's `simple` assignor, in which members of a share group may share partitions."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.assignors.test_uniform import NAMES, TOPICS, alike, counts, groups, shares

from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.allocate.assignors.simple import assign
from steelyard.types import TopicPartition


def joint(
    members: list[str], topics: dict[str, int], before: Assignment | None = None
) -> Assignment:
    before = before or {}
    return assign(
        [Subscriber(each, list(topics), tuple(before.get(each, ()))) for each in members], topics
    )


def test_more_members_than_partitions_share_them() -> None:
    assert joint(["a", "b", "c"], {"t": 2}) == {
        "a": shares("t", 0, 1),
        "b": shares("t", 0),
        "c": shares("t", 1),
    }
    assert joint(["a", "b", "c", "d"], {"t": 1}) == dict.fromkeys("abcd", shares("t", 0))


def test_fewer_members_divide_them() -> None:
    assert joint(["b", "a"], {"t": 5}) == {"a": shares("t", 0, 2, 4), "b": shares("t", 1, 3)}


def test_a_newcomer_leaves_others_what_they_may_keep() -> None:
    before = joint(["a", "b"], {"t": 6})
    after = joint(["a", "b", "c"], {"t": 6}, before)
    assert all(set(after[each]) <= set(before[each]) for each in "ab")
    assert [len(after[each]) for each in "abc"] == [2, 2, 2]


def test_topics_that_do_not_exist_are_left_out() -> None:
    assert assign([Subscriber("a", ["nope"])], {"t": 1}) == {"a": []}
    assert assign([], {"t": 1}) == {}


def test_each_topic_is_shared_by_its_own_subscribers() -> None:
    subscribers = [Subscriber("a", ["t", "u"]), Subscriber("b", ["u"]), Subscriber("c", ["u"])]
    found = assign(subscribers, {"t": 2, "u": 3})
    assert found == {
        "a": [*shares("t", 0, 1), *shares("u", 0)],
        "b": shares("u", 1),
        "c": shares("u", 2),
    }


@given(counts, groups, groups)
def test_every_partition_has_a_member_and_no_more_than_it_needs(
    topics: dict[str, int], earlier: list[str], members: list[str]
) -> None:
    before = joint(earlier, topics)
    after = joint(members, topics, before)
    total = sum(topics.values())
    having = Counter(partition for share in after.values() for partition in share)
    assert len(having) == total
    if total:
        most = -(-len(members) // total)
        assert all(1 <= count <= most for count in having.values())
        sizes = [len(share) for share in after.values()]
        assert max(sizes) - min(sizes) <= 1
    assert joint(members, topics, after) == after, "nothing moves without a cause"


subscriptions = st.dictionaries(
    st.sampled_from(NAMES), st.sets(st.sampled_from(TOPICS)).map(sorted), min_size=1
)


@given(counts, subscriptions, subscriptions)
def test_nobody_gets_what_it_does_not_subscribe_to(
    topics: dict[str, int], earlier: dict[str, list[str]], now: dict[str, list[str]]
) -> None:
    before = assign([Subscriber(name, wants) for name, wants in earlier.items()], topics)
    after = assign(
        [Subscriber(name, wants, tuple(before.get(name, ()))) for name, wants in now.items()],
        topics,
    )
    for name, share in after.items():
        assert {partition.topic for partition in share} <= set(now[name])
        assert len(share) == len(set(share))
    wanted = {topic for wants in now.values() for topic in wants}
    assert {partition for share in after.values() for partition in share} == {
        TopicPartition(topic, number) for topic in wanted for number in range(topics[topic])
    }


def test_alone_a_member_has_what_uniform_gives_it() -> None:
    assert joint(["a"], {"t": 3}) == alike(["a"], {"t": 3})
