"""The brokers of a Kafka cluster: who leads which partition, and questions to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from steelyard.driver.awaited_links import KafkaRequester
from steelyard.driver.blocking_links import check_code
from steelyard.errors import RemotingError, RouteError, SteelyardError
from steelyard.types import TopicPartition
from steelyard.web.console.fresh import Fresh
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    METADATA,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from steelyard.wire.kafka.messages.logs import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FRESH_MS = 1_000
"""Age up to which it is not asked again who leads what."""

CLIENT_ID = "steelyard-console"

R = TypeVar("R")

Bootstrap = Callable[[], Awaitable[Sequence[str]]]
"""Returns the addresses, `host:port`, of some brokers."""

GONE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
"""Errors of partitions that have no leader, or another one, at the moment."""


class KafkaBrokers:
    """The brokers of a cluster."""

    def __init__(self, bootstrap: Bootstrap, calls: KafkaRequester) -> None:
        self.calls = calls
        self._bootstrap = bootstrap
        self._metadata = Fresh(self._read, FRESH_MS)
        self._known: tuple[str, ...] = ()

    async def metadata(self) -> MetadataResponse:
        """Return all brokers and topics. Raises RemotingError if no broker answers."""
        return await self._metadata.get()

    def forget(self) -> None:
        """Ask again who leads what: topics have changed."""
        self._metadata.forget()

    async def _read(self) -> MetadataResponse:
        failed: SteelyardError | None = None
        request = MetadataRequest(None, allow_auto_topic_creation=False)
        for address in dict.fromkeys((*self._known, *await self._bootstrap())):
            try:
                found = await self.calls.call(address, METADATA, request, MetadataResponse)
            except SteelyardError as error:
                failed = error
                continue
            self._known = tuple(addresses(found).values())
            return found
        raise failed or RemotingError("no nameserver knows a broker with a Kafka listener")

    async def topics(self) -> dict[str, MetadataResponseTopic]:
        """Return all topics by name."""
        found = (await self.metadata()).topics
        return {one.name: one for one in found if one.name and one.error_code == ErrorCode.NONE}

    async def topic(self, name: str) -> MetadataResponseTopic:
        """Return a topic. Raises RouteError."""
        found = (await self.topics()).get(name)
        if found is None:  # it may be newer than what was read last
            await self._metadata.renewed()
            found = (await self.topics()).get(name)
        if found is None:
            raise RouteError(f"there is no topic {name}")
        return found

    async def check_topic(self, name: str) -> None:
        """Raise RouteError if a topic has gone since it was last read."""
        self.forget()
        await self.topic(name)

    async def each(self, ask: Callable[[str], Awaitable[R]]) -> list[R]:
        """Ask all brokers at once; return the answers. Raises only if none answers."""
        brokers = addresses(await self.metadata()).values()
        answers = await asyncio.gather(*map(ask, brokers), return_exceptions=True)
        found: list[R] = []
        failed: SteelyardError | None = None
        for answer in answers:
            if isinstance(answer, SteelyardError):
                failed = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(answer)
        if not found and failed is not None:
            raise failed
        return found

    async def coordinator(self, group: str) -> str:
        """Return the address of a group's coordinator. Raises KafkaError or RemotingError."""
        request = FindCoordinatorRequest(group, 0, (group,))
        for address in addresses(await self.metadata()).values():
            try:
                answer = await self.calls.call(
                    address, FIND_COORDINATOR, request, FindCoordinatorResponse
                )
            except RemotingError:
                continue
            found = answer.coordinators[0] if answer.coordinators else answer
            check_code(address, found.error_code, "the search for the group's coordinator")
            return joined_address(found.host, found.port)
        raise RemotingError("no broker answers")

    async def offsets_at(
        self, places: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return offset and timestamp of the first record at a time or later, or of an end.

        The times may be EARLIEST or LATEST. A partition without such a record has offset -1; one
        without a leader is missing.
        """
        by_leader: dict[str, dict[str, list[ListOffsetsPartition]]] = {}
        leaders = await self.leaders(places)
        for place, address in leaders.items():
            asked = ListOffsetsPartition(place.partition, -1, places[place])
            by_leader.setdefault(address, {}).setdefault(place.topic, []).append(asked)
        found: dict[TopicPartition, tuple[int, int]] = {}

        async def ask(address: str, topics: Mapping[str, list[ListOffsetsPartition]]) -> None:
            request = ListOffsetsRequest(
                -1, 0, tuple(ListOffsetsTopic(name, rows) for name, rows in topics.items()), 5_000
            )
            try:
                answer = await self.calls.call(address, LIST_OFFSETS, request, ListOffsetsResponse)
            except RemotingError:
                return
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code in GONE:
                        continue
                    check_code(address, row.error_code, f"the offsets of {topic.name}")
                    place = TopicPartition(topic.name, row.partition_index)
                    found[place] = row.offset, row.timestamp

        await asyncio.gather(*(ask(address, topics) for address, topics in by_leader.items()))
        return found

    async def leaders(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the address of each partition's leader; those without one are missing."""
        metadata = await self.metadata()
        by_node = addresses(metadata)
        leaders = {
            (topic.name, row.partition_index): by_node[row.leader_id]
            for topic in metadata.topics
            for row in topic.partitions
            if row.leader_id in by_node
        }
        return {place: leaders[place] for place in places if place in leaders}


def addresses(metadata: MetadataResponse) -> dict[int, str]:
    """Return the address of each broker by its node id, in their order."""
    brokers = sorted(metadata.brokers, key=lambda broker: broker.node_id)
    return {broker.node_id: joined_address(broker.host, broker.port) for broker in brokers}


def joined_address(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def partitions(topic: MetadataResponseTopic) -> list[TopicPartition]:
    """Return the partitions of a topic, in order."""
    assert topic.name
    return sorted(TopicPartition(topic.name, row.partition_index) for row in topic.partitions)
