"""Changes of a Kafka cluster: offsets of a group, and topics."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.driver.blocking_links import check_code
from steelyard.errors import KafkaError
from steelyard.types import TopicPartition
from steelyard.web.console.answers import OffsetChange
from steelyard.web.console.kafka.facts import SHARE, KafkaGroupFacts
from steelyard.web.console.kafka.picture import key_of
from steelyard.web.console.kafka.servers import KafkaBrokers, addresses, partitions
from steelyard.web.console.questions import CreateTopic, ResetOffsets
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logs import EARLIEST, LATEST
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from steelyard.wire.kafka.messages.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from steelyard.wording import counted

NAMED_COMMIT = 9
"""The last version of OffsetCommit in which topics have names instead of ids."""

NAMED_DELETE = 5
"""The same of DeleteTopics."""

TIMEOUT_MS = 5_000


async def reset(
    servers: KafkaBrokers, group: KafkaGroupFacts, wanted: ResetOffsets
) -> Sequence[OffsetChange]:
    """Set the offsets of a group without members. Raises KafkaError if it has some."""
    places = partitions(await servers.topic(wanted.topic))
    times = {"earliest": EARLIEST, "latest": LATEST}
    time = wanted.to if isinstance(wanted.to, int) else times[wanted.to]
    found = await servers.offsets_at(dict.fromkeys(places, time))
    ends = await servers.offsets_at(dict.fromkeys(places, LATEST))
    target = {
        place: found[place][0] if found[place][0] >= 0 else ends[place][0]
        for place in places
        if place in found and place in ends
    }
    if not wanted.dry_run:
        if group.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group.name} has {counted(len(group.members), 'member')}, which would not"
                " follow; stop all of its members first",
            )
        await (_alter if group.kind == SHARE else _commit)(servers, group, target)
    before = {place: progress.start for place, progress in group.shared.items()}
    before |= group.committed
    return [
        OffsetChange(queue=key_of(place), before=before.get(place), after=offset)
        for place, offset in target.items()
    ]


async def _alter(
    servers: KafkaBrokers, group: KafkaGroupFacts, target: dict[TopicPartition, int]
) -> None:
    """Set the start offsets of a share group (KIP-932)."""
    address = await servers.coordinator(group.name)
    rows: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for place, offset in target.items():
        rows.setdefault(place.topic, []).append(
            AlterShareGroupOffsetsRequestPartition(place.partition, offset)
        )
    topics = tuple(AlterShareGroupOffsetsRequestTopic(name, each) for name, each in rows.items())
    answer = await servers.calls.call(
        address,
        ALTER_SHARE_GROUP_OFFSETS,
        AlterShareGroupOffsetsRequest(group.name, topics),
        AlterShareGroupOffsetsResponse,
    )
    _check(answer.error_code, answer.error_message, address, "the new offsets")
    for topic in answer.responses:
        for row in topic.partitions:
            doing = f"the new offset of {topic.topic_name}"
            _check(row.error_code, row.error_message, address, doing)


async def _commit(
    servers: KafkaBrokers, group: KafkaGroupFacts, target: dict[TopicPartition, int]
) -> None:
    address = await servers.coordinator(group.name)
    rows: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, offset in target.items():
        rows.setdefault(place.topic, []).append(
            OffsetCommitRequestPartition(place.partition, offset)
        )
    topics = tuple(OffsetCommitRequestTopic(name, partitions=each) for name, each in rows.items())
    answer = await servers.calls.call(
        address,
        OFFSET_COMMIT,
        OffsetCommitRequest(group.name, topics=topics),
        OffsetCommitResponse,
        version_max=NAMED_COMMIT,
    )
    for topic in answer.topics:
        for row in topic.partitions:
            check_code(address, row.error_code, f"the new offset of {topic.name}")


async def create(servers: KafkaBrokers, topic: CreateTopic) -> str:
    """Create a topic, with as many replicas as the brokers' default."""
    controller = await _controller(servers)
    request = CreateTopicsRequest((CreatableTopic(topic.name, topic.queues, -1),), TIMEOUT_MS)
    answer = await servers.calls.call(controller, CREATE_TOPICS, request, CreateTopicsResponse)
    for row in answer.topics:
        _check(row.error_code, row.error_message, controller, f"creating topic {row.name}")
    return f"created topic {topic.name} with {counted(topic.queues, 'partition')}"


async def delete(servers: KafkaBrokers, name: str) -> str:
    """Delete a topic and its messages."""
    await servers.topic(name)
    controller = await _controller(servers)
    request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=TIMEOUT_MS)
    answer = await servers.calls.call(
        controller, DELETE_TOPICS, request, DeleteTopicsResponse, version_max=NAMED_DELETE
    )
    for row in answer.responses:
        _check(row.error_code, row.error_message, controller, f"deleting topic {name}")
    return f"deleted topic {name} and its messages"


def _check(code: int, text: str | None, address: str, doing: str) -> None:
    """Raise KafkaError with the broker's own text, if it says one."""
    if code != ErrorCode.NONE and text:
        raise KafkaError(code, f"{address} answers to {doing}: {text}")
    check_code(address, code, doing)


async def _controller(servers: KafkaBrokers) -> str:
    metadata = await servers.metadata()
    by_node = addresses(metadata)
    return by_node.get(metadata.controller_id) or next(iter(by_node.values()))
