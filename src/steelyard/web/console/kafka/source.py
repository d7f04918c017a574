"""The groups and topics of Kafka's dialect: by Kafka's requests, and by reports of ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from steelyard.driver.blocking_links import check_code
from steelyard.errors import RouteError, SteelyardError
from steelyard.groups.doctor import Diagnosis
from steelyard.groups.flapping import PERIOD_MS
from steelyard.groups.kafka.report import KafkaGroupReport
from steelyard.types import TopicPartition
from steelyard.web.console.answers import (
    FlappingView,
    GroupPicture,
    MessagesAnswer,
    OffsetChange,
    TopicLine,
    TopicPicture,
    TopicQueue,
)
from steelyard.web.console.contract import GroupsFound, TopicsFound
from steelyard.web.console.kafka import changes, doctor
from steelyard.web.console.kafka.facts import (
    SHARE,
    KafkaGroupFacts,
    of_report,
)
from steelyard.web.console.kafka.groups import describe_all, describe_one
from steelyard.web.console.kafka.messages import browse
from steelyard.web.console.kafka.picture import key_of, lags_of, line, picture
from steelyard.web.console.kafka.servers import KafkaBrokers, partitions
from steelyard.web.console.questions import CreateTopic, MessagesQuestion, ResetOffsets
from steelyard.web.console.rates import Rates
from steelyard.wire.kafka.messages.cluster import MetadataResponseTopic
from steelyard.wire.kafka.messages.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from steelyard.wire.kafka.messages.logs import EARLIEST, LATEST, MAX_TIMESTAMP

GROUPS_MAX = 500
"""Most groups that are listed."""

TOPICS_MAX = 2_000
"""Most topics that are listed."""

TOPIC_RESOURCE = 2
"""Kind of the resource in DescribeConfigs that a topic is."""

Waits = Mapping[str, Mapping[TopicPartition, int]]
"""How long the first message that each group has not committed has waited, in ms."""


class OurCoordinators(Protocol):
    """What our coordinators tell of their groups besides what Kafka's do."""

    async def report(self, group: str) -> KafkaGroupReport:
        """Return a group's report. Raises RouteError if no broker coordinates it."""

    async def waits(self) -> Waits:
        """Return how long messages have waited for all groups."""


class KafkaSource:
    """A `contract.DialectSource`. `ours`: None for coordinators that are not Steelyard's."""

    def __init__(self, servers: KafkaBrokers, ours: OurCoordinators | None = None) -> None:
        self.servers = servers
        self._ours = ours
        self._rates = Rates()

    # -- groups ------------------------------------------------------------------------------------

    async def groups(self) -> GroupsFound:
        facts, left_out = await describe_all(self.servers, GROUPS_MAX)
        topics = await self.servers.topics()
        places = {one.name: _places(one, topics) for one in facts}
        begins, ends, waits = await asyncio.gather(
            self._begins({place for one in facts for place in one.unread}),
            self._ends({place for found in places.values() for place in found}),
            self._waits(),
        )
        of_groups = {one.name: _waits_of(one, waits) for one in facts}
        return GroupsFound(
            [line(one, begins, ends, of_groups[one.name]) for one in facts],
            left_out,
            {
                one.name: {key_of(place): lag for place, lag in lags_of(one, begins, ends).items()}
                for one in facts
            },
            [
                picture(one, places[one.name], begins, ends, of_groups[one.name], _now())
                for one in facts
                if self._ours is None or one.kind == SHARE
            ],
        )

    async def group(self, name: str) -> GroupPicture:
        facts = await self._facts(name)
        places = _places(facts, await self.servers.topics())
        begins, ends, waits = await asyncio.gather(
            self._begins(facts.unread), self._ends(places), self._waits()
        )
        return picture(facts, places, begins, ends, _waits_of(facts, waits), _now())

    async def flapping(self, name: str) -> Sequence[FlappingView] | None:
        report = None if self._ours is None else await self._reported(self._ours, name)
        if not isinstance(report, KafkaGroupReport):
            return None
        return [
            FlappingView(member=one.name, joins=one.flaps, window_ms=PERIOD_MS)
            for one in report.flapping
        ]

    async def diagnose(self, name: str) -> Sequence[Diagnosis]:
        facts = await self._facts(name)
        topics, ends = await asyncio.gather(self.servers.topics(), self._ends(facts.places))
        return doctor.diagnose(facts, topics, ends, _now())

    async def _facts(self, name: str) -> KafkaGroupFacts:
        if self._ours is None:
            return await describe_one(self.servers, name)
        report, described = await asyncio.gather(
            self._reported(self._ours, name), self._described(name)
        )
        if isinstance(report, KafkaGroupReport):
            return of_report(report, described)
        if described is None or described.kind != SHARE:
            raise report
        return described

    async def _reported(self, ours: OurCoordinators, name: str) -> KafkaGroupReport | RouteError:
        """Return a coordinator's report; why there is none if no coordinator reports the group.

        Share groups have no report.
        """
        try:
            return await ours.report(name)
        except RouteError as error:
            return error

    async def _described(self, name: str) -> KafkaGroupFacts | None:
        """Return what Kafka's own requests tell; None while no coordinator answers them."""
        try:
            return await describe_one(self.servers, name)
        except SteelyardError:
            return None

    async def _begins(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets_at(places, EARLIEST)

    async def _ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets_at(places, LATEST)

    async def _offsets_at(
        self, places: Iterable[TopicPartition], time: int
    ) -> dict[TopicPartition, int]:
        found = await self.servers.offsets_at(dict.fromkeys(places, time))
        return {place: offset for place, (offset, _) in found.items()}

    async def _waits(self) -> Waits | None:
        return None if self._ours is None else await self._ours.waits()

    # -- topics ------------------------------------------------------------------------------------

    async def topics(self) -> TopicsFound:
        topics, left_out = await self.servers.topics(), 0
        if len(topics) > TOPICS_MAX:
            left_out = len(topics) - TOPICS_MAX
            topics = {name: topics[name] for name in sorted(topics)[:TOPICS_MAX]}
        places = [place for topic in topics.values() for place in partitions(topic)]
        firsts, ends = await asyncio.gather(
            self.servers.offsets_at(dict.fromkeys(places, EARLIEST)), self._ends(places)
        )
        lines = [
            TopicLine(
                dialect="kafka",
                name=name,
                queues=len(topic.partitions),
                messages=_messages(partitions(topic), firsts, ends),
                bytes=None,
                in_per_second=self._rate(name, partitions(topic), ends),
                groups=[],
                internal=topic.is_internal or name.startswith("__"),
            )
            for name, topic in topics.items()
        ]
        return TopicsFound(lines, left_out)

    def _rate(
        self, name: str, places: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> float | None:
        """Return the messages per second; None while a partition has no leader."""
        if any(place not in ends for place in places):
            return None
        return self._rates.rate(name, sum(ends[place] for place in places), time.monotonic())

    async def topic(self, name: str) -> TopicPicture:
        places = partitions(await self.servers.topic(name))
        firsts, ends, latest, settings = await asyncio.gather(
            self.servers.offsets_at(dict.fromkeys(places, EARLIEST)),
            self._ends(places),
            self._latest(places),
            self._settings(name),
        )
        if not ends:
            await self.servers.check_topic(name)
        oldest = await self.servers.offsets_at(dict.fromkeys(places, 0))
        return TopicPicture(
            dialect="kafka",
            name=name,
            queues=[
                TopicQueue(
                    key=key_of(place),
                    broker=None,
                    queue=place.partition,
                    first=firsts[place][0] if place in firsts else None,
                    end=ends.get(place),
                    first_at=_at(oldest.get(place)),
                    last_at=_at(latest.get(place)),
                )
                for place in places
            ],
            groups=[],
            settings=settings,
        )

    async def _latest(
        self, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the newest record of each partition; none from brokers older than Kafka 3.0."""
        try:
            return await self.servers.offsets_at(dict.fromkeys(places, MAX_TIMESTAMP))
        except SteelyardError:
            return {}

    async def _settings(self, name: str) -> dict[str, str]:
        """Return the settings of a topic that have values; none if they may not be seen."""
        request = DescribeConfigsRequest((DescribeConfigsResource(TOPIC_RESOURCE, name, None),))
        leaders = set((await self.servers.leaders([TopicPartition(name, 0)])).values())
        for address in leaders:
            try:
                answer = await self.servers.calls.call(
                    address, DESCRIBE_CONFIGS, request, DescribeConfigsResponse
                )
                (found,) = answer.results
                check_code(address, found.error_code, f"the settings of {name}")
            except (SteelyardError, ValueError):
                continue
            return {one.name: one.value for one in found.configs if one.value is not None}
        return {}

    # -- messages and changes ----------------------------------------------------------------------

    async def messages(self, question: MessagesQuestion) -> MessagesAnswer:
        return await browse(self.servers, question)

    async def reset_offsets(self, group: str, reset: ResetOffsets) -> Sequence[OffsetChange]:
        return await changes.reset(self.servers, await self._facts(group), reset)

    async def create_topic(self, topic: CreateTopic) -> str:
        done = await changes.create(self.servers, topic)
        self.servers.forget()
        return done

    async def delete_topic(self, name: str) -> str:
        done = await changes.delete(self.servers, name)
        self.servers.forget()
        return done


def _waits_of(facts: KafkaGroupFacts, waits: Waits | None) -> Mapping[TopicPartition, int] | None:
    """Return how long messages have waited for a group; None if unknown, as of share groups."""
    if waits is None or facts.kind == SHARE:
        return None
    return waits.get(facts.name, {})


def _places(
    facts: KafkaGroupFacts, topics: Mapping[str, MetadataResponseTopic]
) -> list[TopicPartition]:
    """Return all partitions of the topics of a group that exist."""
    return [
        place for topic in facts.topics if topic in topics for place in partitions(topics[topic])
    ]


def _messages(
    places: Sequence[TopicPartition],
    firsts: Mapping[TopicPartition, tuple[int, int]],
    ends: Mapping[TopicPartition, int],
) -> int | None:
    if any(place not in firsts or place not in ends for place in places):
        return None
    return sum(max(0, ends[place] - firsts[place][0]) for place in places)


def _at(found: tuple[int, int] | None) -> int | None:
    return found[1] if found is not None and found[1] >= 0 else None


def _now() -> int:
    return time.time_ns() // 1_000_000
