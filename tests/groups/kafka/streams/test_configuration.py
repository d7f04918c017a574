"""What the topics of a cluster make of a topology."""

from __future__ import annotations

import pytest
from tests.groups.kafka.streams.conftest import COMPACTED, COUNTS, READS, WORD_COUNT

from steelyard.groups.kafka.streams import configuration
from steelyard.groups.kafka.streams.configuration import (
    ConfiguredTopology,
    InternalTopic,
    StreamsStatus,
    configured,
)
from steelyard.groups.kafka.streams.topology import (
    SUBTOPOLOGIES_MAX,
    TOPICS_MAX,
    InvalidTopology,
    StreamsTopology,
)
from steelyard.wire.kafka.messages.streams_groups import (
    CopartitionGroup,
    Status,
    Subtopology,
    TopicInfo,
    Topology,
)


def on(topology: Topology, **partitions: int) -> ConfiguredTopology:
    """A topology where these topics exist; __ in their names is a hyphen."""
    topics = {name.replace("__", "-"): count for name, count in partitions.items()}
    return configured(StreamsTopology.of(topology), lambda name: topics.get(name, 0))


def topology(*subtopologies: Subtopology) -> Topology:
    return Topology(0, subtopologies)


def test_internal_topics_get_the_partitions_of_what_is_read() -> None:
    found = on(WORD_COUNT, **{"in": 3})
    assert found.subtopologies is not None
    assert {name: each.tasks for name, each in found.subtopologies.items()} == {"0": 3, "1": 3}
    assert found.missing == {
        "app-words-repartition": InternalTopic("app-words-repartition", 3, -1, {}),
        "app-counts-changelog": InternalTopic(
            "app-counts-changelog", 3, -1, {COMPACTED[0].key: COMPACTED[0].value}
        ),
    }
    assert found.status == Status(
        StreamsStatus.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: app-counts-changelog, app-words-repartition",
    )
    assert found.tasks == {}


def test_it_is_ready_when_all_topics_are_there() -> None:
    found = on(WORD_COUNT, **{"in": 3, "app__words__repartition": 3, "app__counts__changelog": 3})
    assert (found.is_ready, found.missing, found.tasks) == (True, {}, {"0": 3, "1": 3})


def test_missing_source_topics() -> None:
    found = on(topology(Subtopology("0", ["e", "d", "c", "b", "a"])), e=1)
    text = "Source topics a, b, c and 1 additional topics are missing."
    assert found.status == Status(StreamsStatus.MISSING_SOURCE_TOPICS, text)
    assert (found.subtopologies, found.missing) == (None, {})


def test_an_internal_topic_with_other_partitions() -> None:
    found = on(WORD_COUNT, **{"in": 3, "app__words__repartition": 3, "app__counts__changelog": 4})
    text = "Existing topic app-counts-changelog has different number of partitions: expected 3, found 4"
    assert found.status == Status(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, text)


def test_the_application_says_how_many() -> None:
    fixed = Subtopology("1", repartition_source_topics=[TopicInfo("r", 5, 2)])
    found = on(topology(Subtopology("0", ["t"], repartition_sink_topics=["r"]), fixed), t=2)
    assert found.missing == {"r": InternalTopic("r", 5, 2, {})}
    assert found.subtopologies is not None
    assert found.subtopologies["1"].tasks == 5


def test_numbers_follow_chains_of_repartition_topics() -> None:
    chain = [
        Subtopology(
            str(9 - place),
            repartition_source_topics=[TopicInfo(f"r{place}")],
            repartition_sink_topics=[f"r{place + 1}"],
        )
        for place in range(1, 5)
    ]
    last = Subtopology("0", repartition_source_topics=[TopicInfo("r5")])
    first = Subtopology("9", ["t"], repartition_sink_topics=["r1"])
    found = on(topology(last, *chain, first), t=7)
    assert {topic.partitions for topic in found.missing.values()} == {7}


def copartitioned(*repartition: TopicInfo, sources: tuple[str, ...] = ()) -> Topology:
    """Subtopologies 0 and 1 write into what 2 reads together with `sources`."""
    names = [topic.name for topic in repartition]
    joins = Subtopology(
        "2",
        sources,
        repartition_source_topics=repartition,
        copartition_groups=[CopartitionGroup([*range(len(sources))], (), [*range(len(names))])],
    )
    return topology(
        Subtopology("0", ["t"], repartition_sink_topics=names[:1]),
        Subtopology("1", ["u"], repartition_sink_topics=names[1:]),
        joins,
    )


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (copartitioned(TopicInfo("r"), TopicInfo("s")), 6),
        (copartitioned(TopicInfo("r", 3), TopicInfo("s")), 3),
        (copartitioned(TopicInfo("r"), TopicInfo("s"), sources=("v",)), 4),
    ],
    ids=("the most", "the fixed one", "that of the source"),
)
def test_copartitioned_topics_have_the_same_number(sent: Topology, count: int) -> None:
    found = on(sent, t=2, u=6, v=4)
    assert {topic.partitions for topic in found.missing.values()} == {count}


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            copartitioned(TopicInfo("r", 3), TopicInfo("s", 4)),
            "Following topics do not have the same number of partitions: [{r=3, s=4}]",
        ),
        (
            copartitioned(sources=("t", "u")),
            "Following topics do not have the same number of partitions: [{t=2, u=6}]",
        ),
        (
            copartitioned(TopicInfo("r", 3), sources=("v",)),
            "Number of partitions [3] of repartition topic [r] doesn't match number of partitions"
            " [4] of the source topic.",
        ),
    ],
)
def test_copartitioned_topics_that_do_not_fit(sent: Topology, text: str) -> None:
    status = Status(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, text)
    assert on(sent, t=2, u=6, v=4).status == status


def test_more_tasks_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "TASKS_MAX", 5)
    status = on(WORD_COUNT, **{"in": 3}).status
    assert status is not None
    assert status.status_code == StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert "6 tasks" in status.status_detail


LOOP = "There may be loops in the topology that cannot be resolved."


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (Topology(-1), "Topology epoch must be non-negative."),
        (topology(READS, READS), "Two subtopologies have the same id."),
        (topology(Subtopology("x")), "No source topics found for subtopology x"),
        (
            topology(Subtopology("x", ["t"], state_changelog_topics=[TopicInfo("c", 2)])),
            "Changelog topic c must have an undefined partition count, but it is set to 2.",
        ),
        (
            topology(Subtopology("x", repartition_source_topics=[TopicInfo("r", -2)])),
            "Repartition topic r has -2 partitions.",
        ),
        (
            topology(Subtopology("x", ["t"], copartition_groups=[CopartitionGroup([0, 1])])),
            "A copartition group of subtopology x names a topic that is not there.",
        ),
        (
            topology(*(Subtopology(str(n), ["t"]) for n in range(SUBTOPOLOGIES_MAX + 1))),
            f"A topology has at most {SUBTOPOLOGIES_MAX} subtopologies.",
        ),
        (
            topology(Subtopology("x", [f"t{number}" for number in range(TOPICS_MAX + 1)])),
            f"A topology names at most {TOPICS_MAX} topics.",
        ),
        (
            topology(
                Subtopology(
                    "x", repartition_source_topics=[TopicInfo("r")], repartition_sink_topics=["r"]
                )
            ),
            LOOP,
        ),
        (topology(COUNTS), "a repartition source topic is never used as a sink topic."),
    ],
)
def test_a_topology_that_cannot_run(sent: Topology, text: str) -> None:
    with pytest.raises(InvalidTopology) as raised:
        on(sent, t=1)
    assert str(raised.value).endswith(text)


def test_topologies_are_equal_whatever_the_order_of_their_subtopologies() -> None:
    one, other = (
        StreamsTopology.of(topology(READS, COUNTS)),
        StreamsTopology.of(topology(COUNTS, READS)),
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one != StreamsTopology.of(Topology(1, [READS, COUNTS]))
    assert one != "something else"
    assert one.readers == {"in": "0", "app-words-repartition": "1"}
    assert one.stateful == {"1"}
