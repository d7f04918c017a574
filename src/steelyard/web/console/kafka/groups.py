"""Questions about groups to their coordinators, for many groups at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from steelyard.driver.blocking_links import check_code
from steelyard.errors import ProtocolError, RouteError
from steelyard.types import TopicPartition
from steelyard.web.console.answers import GroupKind
from steelyard.web.console.kafka.facts import (
    CLASSIC,
    CONSUMER,
    DEAD,
    KINDS,
    SHARE,
    STREAMS,
    KafkaGroupFacts,
    ShareProgress,
    of_classic,
    of_consumer,
)
from steelyard.web.console.kafka.servers import KafkaBrokers
from steelyard.web.console.kafka.shares import of_share, progress_of
from steelyard.web.console.kafka.streams import of_streams
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
from steelyard.wire.kafka.messages.share_groups import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from steelyard.wire.kafka.messages.streams_groups import (
    STREAMS_GROUP_DESCRIBE,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

NAMED_VERSION = 9
"""The last version of OffsetFetch in which topics have names instead of ids."""

ALONE_VERSION = 7
"""The last version of OffsetFetch that asks for one group."""

AT_ONCE = 100
"""Groups that one request describes."""

Committed = Mapping[TopicPartition, int]


async def list_groups(servers: KafkaBrokers, address: str) -> tuple[str, Sequence[ListedGroup]]:
    """Return the groups of consumers that a broker coordinates, with its address."""
    found = await servers.calls.call(address, LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
    check_code(address, found.error_code, "the list of its groups")
    return address, [one for one in found.groups if _is_of_consumers(one)]


def _is_of_consumers(one: ListedGroup) -> bool:
    """Return whether members consume; those of Kafka Connect's classic groups do something else."""
    kind = one.group_type.lower()
    is_classic = kind in ("", CLASSIC)
    return (is_classic and one.protocol_type in (PROTOCOL_TYPE, "")) or kind in DESCRIPTIONS


async def describe_all(servers: KafkaBrokers, groups_max: int) -> tuple[list[KafkaGroupFacts], int]:
    """Return the facts about the groups of all brokers, and how many were left out."""
    listed = await servers.each(lambda address: list_groups(servers, address))
    kinds = {
        one.group_id: (address, KINDS.get(one.group_type.lower(), CLASSIC))
        for address, found in listed
        for one in found
    }
    wanted = {name: kinds[name] for name in islice(sorted(kinds), groups_max)}
    by_kind: dict[tuple[str, GroupKind], list[str]] = {}
    for name, place in wanted.items():
        by_kind.setdefault(place, []).append(name)
    parts = [
        (address, kind, names[at : at + AT_ONCE])
        for (address, kind), names in by_kind.items()
        for at in range(0, len(names), AT_ONCE)
    ]
    found = await asyncio.gather(*(_whole(servers, *part) for part in parts))
    return [one for part in found for one in part], len(kinds) - len(wanted)


async def _whole(
    servers: KafkaBrokers, address: str, kind: GroupKind, names: Sequence[str]
) -> list[KafkaGroupFacts]:
    """Return the facts about these groups of a coordinator; those that are gone are missing."""
    found = await _described(servers, address, kind, names)
    return await _with_progress(servers, address, found)


async def describe_one(servers: KafkaBrokers, name: str) -> KafkaGroupFacts:
    """Return the facts about a group. Raises RouteError if there is none.

    Nobody tells its kind, so it is asked for as one of each.
    """
    address = await servers.coordinator(name)
    answers = await asyncio.gather(
        *(_described(servers, address, kind, [name]) for kind in (*DESCRIPTIONS, CLASSIC))
    )
    found = [one for answer in answers for one in answer]
    if not found:
        raise RouteError(f"there is no Kafka group {name}")
    (whole,) = await _with_progress(servers, address, found[:1])
    return whole


async def _described(
    servers: KafkaBrokers, address: str, kind: GroupKind, names: Sequence[str]
) -> list[KafkaGroupFacts]:
    """Return the facts about those groups that are of a kind, without their offsets."""
    if kind == CLASSIC:
        request = DescribeGroupsRequest(tuple(names))
        answer = await servers.calls.call(address, DESCRIBE_GROUPS, request, DescribeGroupsResponse)
        return [
            of_classic(one, {})
            for one in answer.groups
            if one.error_code == ErrorCode.NONE and one.group_state != DEAD
        ]
    try:
        return await DESCRIPTIONS[kind](servers, address, names)
    except ProtocolError:
        return []  # the broker is too old for this kind, or has an early version of it


async def _consumer_groups(
    servers: KafkaBrokers, address: str, names: Sequence[str]
) -> list[KafkaGroupFacts]:
    request = ConsumerGroupDescribeRequest(tuple(names))
    answer = await servers.calls.call(
        address, CONSUMER_GROUP_DESCRIBE, request, ConsumerGroupDescribeResponse
    )
    return [of_consumer(one, {}) for one in answer.groups if one.error_code == ErrorCode.NONE]


async def _streams_groups(
    servers: KafkaBrokers, address: str, names: Sequence[str]
) -> list[KafkaGroupFacts]:
    request = StreamsGroupDescribeRequest(tuple(names))
    answer = await servers.calls.call(
        address, STREAMS_GROUP_DESCRIBE, request, StreamsGroupDescribeResponse
    )
    found = [one for one in answer.groups if one.error_code == ErrorCode.NONE]
    topics = await servers.topics() if found else {}
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    return [of_streams(one, counts) for one in found]


async def _share_groups(
    servers: KafkaBrokers, address: str, names: Sequence[str]
) -> list[KafkaGroupFacts]:
    request = ShareGroupDescribeRequest(tuple(names))
    answer = await servers.calls.call(
        address, SHARE_GROUP_DESCRIBE, request, ShareGroupDescribeResponse
    )
    return [of_share(one) for one in answer.groups if one.error_code == ErrorCode.NONE]


Describe = Callable[[KafkaBrokers, str, Sequence[str]], Awaitable[list[KafkaGroupFacts]]]

DESCRIPTIONS: Mapping[GroupKind, Describe] = {
    CONSUMER: _consumer_groups,
    STREAMS: _streams_groups,
    SHARE: _share_groups,
}
"""How the kinds of groups are described that not every broker knows."""


async def _with_progress(
    servers: KafkaBrokers, address: str, groups: Sequence[KafkaGroupFacts]
) -> list[KafkaGroupFacts]:
    """Return the facts about groups of one kind with how far each of them is."""
    names = [one.name for one in groups]
    if not names:
        return []
    if groups[0].kind == SHARE:
        progress = await shares_of(servers, address, names)
        return [replace(one, shared=progress.get(one.name, {})) for one in groups]
    committed = await offsets_of(servers, address, names)
    return [replace(one, committed=committed.get(one.name, {})) for one in groups]


async def shares_of(
    servers: KafkaBrokers, address: str, names: Sequence[str]
) -> dict[str, Mapping[TopicPartition, ShareProgress]]:
    """Return the progress of share groups of a coordinator, as far as it is told."""
    wanted = tuple(DescribeShareGroupOffsetsRequestGroup(name, topics=None) for name in names)
    try:
        answer = await servers.calls.call(
            address,
            DESCRIBE_SHARE_GROUP_OFFSETS,
            DescribeShareGroupOffsetsRequest(wanted),
            DescribeShareGroupOffsetsResponse,
        )
    except ProtocolError:
        return {}
    return {
        one.group_id: progress_of(one) for one in answer.groups if one.error_code == ErrorCode.NONE
    }


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
