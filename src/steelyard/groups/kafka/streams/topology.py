"""The topology of a streams application, as its first member sent it.

A subtopology is a part of the application that is connected by more than topics. Each of its tasks
reads one partition of its source topics, some of which are repartition topics that other
subtopologies write. State is kept in changelog topics.

A group keeps its topology until it is deleted, also while it has no members: others are refused, as
in Kafka 4.3. Source: streams/StreamsTopology.java, GroupCoordinatorService.throwIfInvalidTopology.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from steelyard.wire.kafka.messages.streams_groups import (
    DescribedSubtopology,
    Subtopology,
    Topology,
)

SUBTOPOLOGIES_MAX = 1_000
"""Most subtopologies of an application. Kafka has no limit but that of requests."""

TOPICS_MAX = 5_000
"""Most topics that a topology names."""


class InvalidTopology(Exception):  # noqa: N818  # the text of a refusal
    """The topology cannot run, whatever topics there are: STREAMS_INVALID_TOPOLOGY."""


class StreamsTopology:
    """A topology, which was checked when it was sent (`of`)."""

    def __init__(self, topology: Topology) -> None:
        self.epoch = topology.epoch
        self.subtopologies = {
            each.subtopology_id: each
            for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
        }

    @classmethod
    def of(cls, topology: Topology) -> StreamsTopology:
        """Return a topology that was sent. Raises InvalidTopology."""
        check(topology)
        return cls(topology)

    @property
    def message(self) -> Topology:
        """Return the topology as it is sent and stored, its subtopologies sorted."""
        return Topology(self.epoch, tuple(self.subtopologies.values()))

    @cached_property
    def _data(self) -> bytes:
        return msgspec.json.encode(self.message)

    @cached_property
    def sources(self) -> dict[str, list[str]]:
        """Return the source topics by subtopology."""
        return {name: sources_of(each) for name, each in self.subtopologies.items()}

    @cached_property
    def readers(self) -> dict[str, str]:
        """Return the source topics, each with the id of the subtopology that reads it."""
        return {
            topic: subtopology_id
            for subtopology_id, topics in self.sources.items()
            for topic in topics
        }

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """Return the topics that must exist for the tasks to run."""
        changelogs = {
            topic.name
            for each in self.subtopologies.values()
            for topic in each.state_changelog_topics
        }
        return frozenset(self.readers) | changelogs

    @cached_property
    def stateful(self) -> frozenset[str]:
        """Return the ids of the subtopologies with state."""
        return frozenset(
            name for name, each in self.subtopologies.items() if each.state_changelog_topics
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamsTopology) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)


def sources_of(subtopology: Subtopology | DescribedSubtopology) -> list[str]:
    """Return the topics that a subtopology reads, in order."""
    repartition = [topic.name for topic in subtopology.repartition_source_topics]
    return [*subtopology.source_topics, *repartition]


def topics_of(subtopology: Subtopology | DescribedSubtopology) -> list[str]:
    """Return all topics that a subtopology reads or writes."""
    changelogs = [topic.name for topic in subtopology.state_changelog_topics]
    return [*sources_of(subtopology), *subtopology.repartition_sink_topics, *changelogs]


def check(topology: Topology) -> None:
    """Raise InvalidTopology, in Kafka's words where it has any."""
    if topology.epoch < 0:
        raise InvalidTopology("Topology epoch must be non-negative.")
    if len(topology.subtopologies) > SUBTOPOLOGIES_MAX:
        raise InvalidTopology(f"A topology has at most {SUBTOPOLOGIES_MAX} subtopologies.")
    if sum(len(topics_of(each)) for each in topology.subtopologies) > TOPICS_MAX:
        raise InvalidTopology(f"A topology names at most {TOPICS_MAX} topics.")
    names = [each.subtopology_id for each in topology.subtopologies]
    if len(set(names)) < len(names):
        raise InvalidTopology("Two subtopologies have the same id.")
    for each in topology.subtopologies:
        for text in _faults(each):
            raise InvalidTopology(text)


def _faults(subtopology: Subtopology) -> Iterator[str]:
    name = subtopology.subtopology_id
    if not sources_of(subtopology):
        yield f"No source topics found for subtopology {name}"
    for topic in subtopology.state_changelog_topics:
        if topic.partitions != 0:
            yield (
                f"Changelog topic {topic.name} must have an undefined partition count, but it is"
                f" set to {topic.partitions}."
            )
    for topic in subtopology.repartition_source_topics:
        if topic.partitions < 0:
            yield f"Repartition topic {topic.name} has {topic.partitions} partitions."
    for group in subtopology.copartition_groups:
        for indexes, topics in (
            (group.source_topics, subtopology.source_topics),
            (group.repartition_source_topics, subtopology.repartition_source_topics),
        ):
            if not all(0 <= index < len(topics) for index in indexes):
                yield f"A copartition group of subtopology {name} names a topic that is not there."
