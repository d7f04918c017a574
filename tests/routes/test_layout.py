"""Partitions and queues: one is the other, both ways, and stays so however the topic grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ProtocolError
from steelyard.routes.layout import (
    EXTENTS_MAX,
    PARTITIONS_MAX,
    Extent,
    Layout,
    of_brokers,
    read,
    spread,
    write,
)

BROKERS = ("broker-a", "broker-b", "c:1")
extents = st.lists(
    st.builds(Extent, st.sampled_from(BROKERS), st.integers(min_value=0, max_value=5)), max_size=8
)
layouts = st.builds(Layout().grown, extents)


@given(layouts)
def test_every_partition_is_one_queue_and_back(layout: Layout) -> None:
    places = [layout.place(partition) for partition in range(layout.partitions)]
    leaders = layout.leaders()
    assert places == leaders
    assert len(set(leaders)) == layout.partitions
    for partition, (broker, queue_id) in enumerate(leaders):
        assert layout.partition_of(broker, queue_id) == partition
    for broker, queues in layout.queues().items():
        assert sorted(queue for name, queue in leaders if name == broker) == list(range(queues))


@given(layouts)
def test_what_is_beyond_the_layout_is_nowhere(layout: Layout) -> None:
    assert layout.place(layout.partitions) is None
    assert layout.place(-1) is None
    for broker in BROKERS:
        assert layout.partition_of(broker, layout.queues().get(broker, 0)) is None
        assert layout.partition_of(broker, -1) is None


@given(layouts, extents)
def test_growth_moves_no_partition(layout: Layout, more: list[Extent]) -> None:
    grown = layout.grown(more)
    assert grown.partitions == layout.partitions + sum(extent.queues for extent in more)
    assert grown.leaders()[: layout.partitions] == layout.leaders()
    assert grown.extends(layout)
    assert layout.extends(grown) == (grown == layout)


@given(layouts, st.dictionaries(st.sampled_from(BROKERS), st.integers(0, 20)))
def test_covering_adds_just_the_queues_that_are_missing(
    layout: Layout, queues: dict[str, int]
) -> None:
    covered = layout.covering(queues)
    assert covered.extends(layout)
    have = layout.queues()
    for broker in BROKERS:
        wanted = max(have.get(broker, 0), queues.get(broker, 0))
        assert covered.queues().get(broker, 0) == wanted
    assert covered.covering(queues) == covered


@given(layouts)
def test_a_layout_is_written_and_read(layout: Layout) -> None:
    assert read(write(layout)) == layout


@given(st.text(max_size=20))
def test_any_text_is_a_layout_or_refused(text: str) -> None:
    try:
        layout = read(text)
    except ProtocolError:
        return
    assert read(write(layout)) == layout


def test_the_text_is_that_of_the_design() -> None:
    layout = Layout((Extent("broker-a", 8), Extent("broker-b", 8)))
    assert write(layout) == "broker-a:8,broker-b:8"
    assert layout.place(8) == ("broker-b", 0)


def test_a_broker_with_two_extents_counts_its_queues_on() -> None:
    layout = read("a:2,b:2,a:1")
    assert layout.place(4) == ("a", 2)
    assert layout.partition_of("a", 2) == 4


def test_neighbouring_extents_of_one_broker_are_one() -> None:
    assert write(read("a:2,a:3,b:1")) == "a:5,b:1"


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a:",
        ":3",
        "a:x",
        "a:-1",
        "a:1,",
        "a:²",
        "a:12345678",
        f"a:{PARTITIONS_MAX},b:1",
        "a:1,b:1," * (EXTENTS_MAX // 2) + "a:1",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        read(text)


@given(st.integers(0, 1000), st.integers(1, 10))
def test_partitions_are_spread_evenly(partitions: int, count: int) -> None:
    brokers = [f"broker-{number}" for number in range(count)]
    shares = [extent.queues for extent in spread(partitions, brokers)]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.sampled_from(BROKERS), max_size=20))
def test_brokers_named_one_by_one_lead_in_that_order(brokers: list[str]) -> None:
    assert [broker for broker, _ in of_brokers(brokers).leaders()] == brokers
