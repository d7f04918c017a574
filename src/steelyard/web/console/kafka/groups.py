"""Questions about groups to their coordinators, for many groups at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

from steelyard.driver.blocking_links import check_code
from steelyard.errors import ProtocolError, RouteError
from steelyard.types import TopicPartition
from steelyard.web.console.kafka.facts import (
    CLASSIC,
    CONSUMER,
    DEAD,
    KafkaGroupFacts,
    of_classic,
    of_consumer,
)
from steelyard.web.console.kafka.servers import KafkaBrokers
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE
from steelyard.wire.kafka.messages.groups import (
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)

NAMED_VERSION = 9
"""The last version of OffsetFetch in which topics have names instead of ids."""

ALONE_VERSION = 7
"""The last version of OffsetFetch that asks for one group."""

AT_ONCE = 100
"""Groups that one request describes."""

Committed = Mapping[TopicPartition, int]


async def list_groups(servers: KafkaBrokers, address: str) -> tuple[str, Sequence[ListedGroup]]:
    """Return the consumer groups that a broker coordinates, with its address."""
    found = await servers.calls.call(address, LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
    check_code(address, found.error_code, "the list of its groups")
    wanted = [one for one in found.groups if one.protocol_type in (PROTOCOL_TYPE, "")]
    return address, [one for one in wanted if one.group_type.lower() in ("", CLASSIC, CONSUMER)]


async def describe_all(servers: KafkaBrokers, groups_max: int) -> tuple[list[KafkaGroupFacts], int]:
    """Return the facts about the groups of all brokers, and how many were left out."""
    listed = await servers.each(lambda address: list_groups(servers, address))
    kinds = {
        one.group_id: (address, one.group_type.lower())
        for address, found in listed
        for one in found
    }
    wanted = {name: kinds[name] for name in islice(sorted(kinds), groups_max)}
    by_kind: dict[tuple[str, str], list[str]] = {}
    for name, (address, kind) in wanted.items():
        by_kind.setdefault((address, kind or CLASSIC), []).append(name)
    parts = [
        (address, kind, names[at : at + AT_ONCE])
        for (address, kind), names in by_kind.items()
        for at in range(0, len(names), AT_ONCE)
    ]
    found = await asyncio.gather(*(describe(servers, *part) for part in parts))
    return [one for part in found for one in part], len(kinds) - len(wanted)


async def describe(
    servers: KafkaBrokers, address: str, kind: str, names: Sequence[str]
) -> list[KafkaGroupFacts]:
    """Return the facts about these groups of a coordinator; those that are gone are missing."""
    committed = await offsets_of(servers, address, names)
    if kind == CONSUMER:
        request = ConsumerGroupDescribeRequest(tuple(names))
        answer = await servers.calls.call(
            address, CONSUMER_GROUP_DESCRIBE, request, ConsumerGroupDescribeResponse
        )
        return [
            of_consumer(one, committed.get(one.group_id, {}))
            for one in answer.groups
            if one.error_code == ErrorCode.NONE
        ]
    classic = await servers.calls.call(
        address, DESCRIBE_GROUPS, DescribeGroupsRequest(tuple(names)), DescribeGroupsResponse
    )
    return [
        of_classic(one, committed.get(one.group_id, {}))
        for one in classic.groups
        if one.error_code == ErrorCode.NONE and one.group_state != DEAD
    ]


async def describe_one(servers: KafkaBrokers, name: str) -> KafkaGroupFacts:
    """Return the facts about a group. Raises RouteError if there is none."""
    address = await servers.coordinator(name)
    if await servers.calls.supports(address, CONSUMER_GROUP_DESCRIBE):
        found = await describe(servers, address, CONSUMER, [name])
        if found:
            return found[0]
    found = await describe(servers, address, CLASSIC, [name])
    if not found:
        raise RouteError(f"there is no Kafka group {name}")
    return found[0]


async def offsets_of(
    servers: KafkaBrokers, address: str, names: Sequence[str]
) -> dict[str, Committed]:
    """Return the committed offsets of groups of a coordinator."""
    wanted = tuple(OffsetFetchRequestGroup(name, topics=None) for name in names)
    try:
        answer = await servers.calls.call(
            address,
            OFFSET_FETCH,
            OffsetFetchRequest(groups=wanted),
            OffsetFetchResponse,
            version_max=NAMED_VERSION,
        )
    except ProtocolError:
        answer = OffsetFetchResponse()
    if answer.groups:
        return {
            one.group_id: _committed(one.topics)
            for one in answer.groups
            if one.error_code == ErrorCode.NONE
        }
    return {name: await _offsets_of_one(servers, address, name) for name in names}


async def _offsets_of_one(servers: KafkaBrokers, address: str, name: str) -> Committed:
    """Ask a broker older than Kafka 3.0."""
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = await servers.calls.call(
        address, OFFSET_FETCH, request, OffsetFetchResponse, version_max=ALONE_VERSION
    )
    return _committed(answer.topics) if answer.error_code == ErrorCode.NONE else {}


def _committed(topics: Sequence[OffsetFetchResponseTopic]) -> Committed:
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE and row.committed_offset >= 0
    }
