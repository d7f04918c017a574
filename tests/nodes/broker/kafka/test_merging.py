"""Laws of merging: whoever hears of a topic's versions, in whatever order, comes to the same."""

from __future__ import annotations

from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.nodes.broker.kafka.cluster.merging import contradiction, merged
from steelyard.nodes.broker.kafka.cluster.topic import (
    OFFSETS_TOPIC,
    KafkaTopic,
    attributes_of,
    topic_of,
)
from steelyard.nodes.broker.kafka.cluster.topic_settings import TopicSettingsReader
from steelyard.routes.layout import Extent, Layout, read, write

READERS = TopicSettingsReader(KafkaConfig(), StoreConfig())
IDS = [bytes([number]) * 16 for number in (1, 2, 3)]

layouts = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=4
).map(lambda pairs: Layout().grown(Extent(f"broker-{name}", count) for name, count in pairs))


def versions(name: str) -> st.SearchStrategy[KafkaTopic]:
    return st.builds(
        KafkaTopic, st.just(name), st.sampled_from(IDS), layouts, st.just({}), st.integers(0, 2)
    )


def version(name: str, text: str, *, number: int = 0, created_at: int = 0) -> KafkaTopic:
    return KafkaTopic(name, IDS[number], read(text), {}, created_at)


def merge_all(topics: tuple[KafkaTopic, ...]) -> KafkaTopic:
    return reduce(lambda one, two: merged(one, two)[0], topics)


@given(st.lists(versions(OFFSETS_TOPIC), min_size=2, max_size=4))
def test_coordinators_are_laid_out_alike_and_no_layout_is_forgotten(
    topics: list[KafkaTopic],
) -> None:
    results = [merge_all(order) for order in permutations(topics)]
    assert {(each.layout, each.merged) for each in results} == {
        (results[0].layout, results[0].merged)
    }
    noted = {results[0].layout, *results[0].merged}
    assert noted == {topic.layout for topic in topics}
    assert merged(results[0], results[1]) == (results[1], False)


@given(
    st.lists(versions("t"), min_size=2, max_size=4, unique_by=lambda t: (t.created_at, t.topic_id))
)
def test_of_topics_made_more_than_once_all_take_the_same(topics: list[KafkaTopic]) -> None:
    ids = [topic.topic_id for topic in topics]
    if len(set(ids)) < len(ids):
        return  # one of them grew: that is the next law
    results = {(each.layout, each.topic_id) for each in map(merge_all, permutations(topics))}
    assert len(results) == 1


@given(layouts, layouts)
def test_of_a_topic_that_grew_the_longer_holds(layout: Layout, more: Layout) -> None:
    short = KafkaTopic("t", IDS[0], layout, {})
    long = KafkaTopic("t", IDS[0], layout.grown(more.extents), {})
    assert merged(short, long) == (long, False)
    assert merged(long, short) == (long, False)


@given(versions(OFFSETS_TOPIC), versions(OFFSETS_TOPIC))
def test_what_was_merged_is_the_same_after_it_was_written(one: KafkaTopic, two: KafkaTopic) -> None:
    topic = merged(one, two)[0]
    assert topic_of(topic.name, attributes_of(topic), READERS) == topic


@pytest.mark.parametrize(
    ("one", "two", "holds"),
    [
        ("broker-a:50", "broker-b:50", "broker-a:50"),
        ("broker-a:50", "broker-b:25,broker-a:25", "broker-b:25,broker-a:25"),
        ("broker-a:60", "broker-b:25,broker-a:25", "broker-a:60"),
    ],
)
def test_the_layout_with_more_brokers_holds(one: str, two: str, holds: str) -> None:
    a, b = version(OFFSETS_TOPIC, one), version(OFFSETS_TOPIC, two, number=1)
    for topic, contradicts in (merged(a, b), merged(b, a)):
        assert contradicts
        assert write(topic.layout) == holds
        assert {write(each) for each in topic.merged} == {one, two} - {holds}
    text = contradiction(a, b, merged(a, b)[0])
    assert one in text
    assert two in text


def test_of_two_topics_of_a_name_the_later_one_holds() -> None:
    old = version("t", "broker-a:9", created_at=1)
    new = version("t", "broker-b:1", number=1, created_at=2)
    assert merged(old, new) == merged(new, old) == (new, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steelyard.created": "-1"},
        {"steelyard.created": "9" * 19},
        {"steelyard.merged": "broker-a"},
        {"steelyard.merged": ";".join(["broker-a:1"] * 101)},
    ],
)
def test_attributes_that_make_no_sense_are_no_topic(wrong: dict[str, str]) -> None:
    good = attributes_of(version("t", "broker-a:1", created_at=5))
    assert topic_of("t", good, READERS) is not None
    assert topic_of("t", good | wrong, READERS) is None
