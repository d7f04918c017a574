"""What the topics of the cluster make of a topology: its tasks, and the internal topics to create.

- The source topics must exist. A subtopology has as many tasks as the source topic with the most
  partitions has partitions.
- A repartition topic has the number of partitions that the application gives it, or that of the
  topics which copartition groups bind it to, or otherwise as many as the topics that are read by
  the first known subtopology that writes it.
- A changelog has as many partitions as its subtopology has tasks.
- An internal topic that exists must have exactly these.

Kafka compares the fixed numbers of all repartition topics of the application with each other
whenever a copartition group consists of repartition topics only; here those of the group.
Source: streams/topics/InternalTopicManager.java, RepartitionTopics.java, ChangelogTopics.java,
CopartitionedTopicsEnforcer.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum

import msgspec

from steelyard.groups.kafka.streams.topology import InvalidTopology, StreamsTopology, sources_of
from steelyard.wire.kafka.messages.streams_groups import Status, Subtopology, TopicInfo

TASKS_MAX = 100_000
"""Most tasks of an application. Kafka has no limit."""

NAMES_MAX = 3
"""Most topics named in one text."""


class StreamsStatus(IntEnum):
    """Why members have no tasks, or what they should do. Source: StreamsGroupHeartbeatResponse."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class InternalTopic(msgspec.Struct, frozen=True):
    """An internal topic. `replication_factor`: -1 for the broker's."""

    name: str
    partitions: int
    replication_factor: int
    settings: dict[str, str]


class ConfiguredSubtopology(msgspec.Struct, frozen=True):
    """A subtopology with the numbers of its tasks and of the partitions of its internal topics."""

    tasks: int
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]


class ConfiguredTopology(msgspec.Struct, frozen=True):
    """A topology on this cluster.

    `subtopologies`: by id, sorted; None if source topics are missing, or topics do not fit.
    `missing`: internal topics to create, by name. `status`: why there can be no tasks.
    """

    epoch: int
    subtopologies: dict[str, ConfiguredSubtopology] | None
    missing: dict[str, InternalTopic] = {}
    status: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.status is None and self.subtopologies is not None

    @property
    def tasks(self) -> dict[str, int]:
        """Return the number of tasks by subtopology; no subtopologies unless it is ready."""
        if self.subtopologies is None or self.status is not None:
            return {}
        return {name: each.tasks for name, each in self.subtopologies.items()}


class _Misfit(Exception):  # noqa: N818  # an outcome, no error of the program
    """The topics of the cluster do not fit the topology."""

    def __init__(self, status: StreamsStatus, text: str) -> None:
        super().__init__(text)
        self.status = Status(status, text)


Counts = Callable[[str], int]
"""Returns the number of partitions of a topic, 0 if there is no such topic."""


def configured(topology: StreamsTopology, partitions: Counts) -> ConfiguredTopology:
    """Return what the cluster's topics make of a topology. Raises InvalidTopology."""
    try:
        return _Configuration(topology, partitions).result()
    except _Misfit as misfit:
        return ConfiguredTopology(topology.epoch, None, status=misfit.status)


class _Configuration:
    """The computation of one configuration."""

    def __init__(self, topology: StreamsTopology, partitions: Counts) -> None:
        self._topology = topology
        self._subtopologies = topology.subtopologies
        self._existing = partitions
        self._decided: dict[str, int] = {}
        """Numbers of partitions of internal topics."""

    def result(self) -> ConfiguredTopology:
        """Raises InvalidTopology, _Misfit."""
        self._check_sources()
        self._decide_repartition_topics()
        for subtopology in self._subtopologies.values():
            for group in subtopology.copartition_groups:
                sources = [subtopology.source_topics[index] for index in group.source_topics]
                repartition = [
                    subtopology.repartition_source_topics[index].name
                    for index in group.repartition_source_topics
                ]
                self._copartition(sources, repartition)
        tasks = {name: self._tasks(each) for name, each in self._subtopologies.items()}
        if sum(tasks.values()) > TASKS_MAX:
            raise _Misfit(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"The application has {sum(tasks.values())} tasks; at most {TASKS_MAX} are allowed",
            )
        found = {
            name: ConfiguredSubtopology(
                tasks[name],
                tuple(each.source_topics),
                tuple(each.repartition_sink_topics),
                tuple(
                    _internal(topic, self._decided[topic.name])
                    for topic in each.repartition_source_topics
                ),
                tuple(_internal(topic, tasks[name]) for topic in each.state_changelog_topics),
            )
            for name, each in self._subtopologies.items()
        }
        missing = self._missing(found.values())
        status = None
        if missing:
            text = f"Internal topics are missing: {_summary(missing)}"
            status = Status(StreamsStatus.MISSING_INTERNAL_TOPICS, text)
        return ConfiguredTopology(self._topology.epoch, found, missing, status)

    def _check_sources(self) -> None:
        missing = {
            topic
            for each in self._subtopologies.values()
            for topic in each.source_topics
            if not self._existing(topic)
        }
        if missing:
            text = f"Source topics {_summary(missing)} are missing."
            raise _Misfit(StreamsStatus.MISSING_SOURCE_TOPICS, text)

    # -- repartition topics ----------------------------------------------------------------------

    def _decide_repartition_topics(self) -> None:
        readers: dict[str, list[Subtopology]] = {}
        for each in self._subtopologies.values():
            for topic in each.repartition_source_topics:
                readers.setdefault(topic.name, []).append(each)
                if topic.partitions:
                    self._decided[topic.name] = topic.partitions
        waiting = deque(self._subtopologies.values())
        while waiting:
            subtopology = waiting.popleft()
            sinks = [
                topic for topic in subtopology.repartition_sink_topics if topic not in self._decided
            ]
            count = self._known_partitions(subtopology) if sinks else 0
            if count:
                self._decided.update(dict.fromkeys(sinks, count))
                for sink in sinks:
                    waiting.extend(readers.get(sink, ()))
        sunk = {
            topic for each in self._subtopologies.values() for topic in each.repartition_sink_topics
        }
        if not self._decided.keys() >= sunk:
            raise InvalidTopology(
                "Failed to compute number of partitions for all repartition topics. There may be"
                " loops in the topology that cannot be resolved."
            )
        if not self._decided.keys() >= readers.keys():
            raise InvalidTopology(
                "Failed to compute number of partitions for all repartition topics, because a"
                " repartition source topic is never used as a sink topic."
            )

    def _known_partitions(self, subtopology: Subtopology) -> int:
        """Return the most partitions of the topics that it reads, as far as they are known."""
        repartition = (
            self._decided.get(topic.name, 0) for topic in subtopology.repartition_source_topics
        )
        existing = (self._existing(topic) for topic in subtopology.source_topics)
        return max((*repartition, *existing), default=0)

    # -- topics that need the same number --------------------------------------------------------

    def _copartition(self, sources: Collection[str], repartition: Collection[str]) -> None:
        """Give the repartition topics of a copartition group the same number of partitions."""
        fixed = {
            topic.name: topic.partitions
            for each in self._subtopologies.values()
            for topic in each.repartition_source_topics
            if topic.partitions and topic.name in repartition
        }
        if sources:
            count = _same({topic: self._existing(topic) for topic in sources})
            for topic, partitions in sorted(fixed.items()):
                if partitions != count:
                    raise _Misfit(
                        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                        f"Number of partitions [{partitions}] of repartition topic [{topic}]"
                        f" doesn't match number of partitions [{count}] of the source topic.",
                    )
        elif fixed:
            count = _same(fixed)
        else:
            count = max((self._decided[topic] for topic in repartition), default=0)
        self._decided.update(dict.fromkeys(repartition, count))

    # -- the result ------------------------------------------------------------------------------

    def _tasks(self, subtopology: Subtopology) -> int:
        return max(
            self._existing(topic) or self._decided[topic] for topic in sources_of(subtopology)
        )

    def _missing(self, subtopologies: Iterable[ConfiguredSubtopology]) -> dict[str, InternalTopic]:
        """Return the internal topics to create. Raises _Misfit if one exists that does not fit."""
        wanted = {
            topic.name: topic
            for each in subtopologies
            for topic in (*each.repartition_sources, *each.changelogs)
        }
        missing: dict[str, InternalTopic] = {}
        for name, topic in sorted(wanted.items()):
            existing = self._existing(name)
            if not existing:
                missing[name] = topic
            elif existing != topic.partitions:
                raise _Misfit(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected"
                    f" {topic.partitions}, found {existing}",
                )
        return missing


def _internal(topic: TopicInfo, partitions: int) -> InternalTopic:
    settings = {each.key: each.value for each in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor or -1, settings)


def _same(partitions: Mapping[str, int]) -> int:
    """Return the number that all these topics have. Raises _Misfit."""
    counts = set(partitions.values())
    if len(counts) > 1:
        told = ", ".join(f"{topic}={count}" for topic, count in sorted(partitions.items()))
        raise _Misfit(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{told}}}]",
        )
    return counts.pop()


def _summary(topics: Collection[str]) -> str:
    names = sorted(topics)
    more = len(names) - NAMES_MAX
    told = ", ".join(names[:NAMES_MAX])
    return f"{told} and {more} additional topics" if more > 0 else told
