"""Members of streams groups and share groups, which send a heartbeat when a test says so and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Self, TypeVar

from steelyard.driver.blocking_links import KafkaLink, connect
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.configs import (
    INCREMENTAL_ALTER_CONFIGS,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from steelyard.wire.kafka.messages.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_HEARTBEAT,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.streams_groups import (
    STREAMS_GROUP_HEARTBEAT,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

M = TypeVar("M", bound=ApiMessage)

TIMEOUT_MS = 30_000
GROUP_RESOURCE, SET = 32, 0
LEAVE = -1
"""The epoch with which a member leaves."""

Tasks = frozenset[tuple[str, int]]


class Coordinator:
    """A connection to the broker that coordinates a group."""

    def __init__(self, bootstrap: str, group: str, client_id: str) -> None:
        self.group, self._client_id = group, client_id
        self._link = self._connected(bootstrap.split(",")[0])
        request = FindCoordinatorRequest(group, 0)
        found = self.ask(FIND_COORDINATOR, request, FindCoordinatorResponse, version=2)
        self._link.close()
        self._link = self._connected(f"{found.host}:{found.port}")

    def _connected(self, address: str) -> KafkaLink:
        return KafkaLink(address, connect(address, TIMEOUT_MS), self._client_id)

    def ask(self, api: Api, request: ApiMessage, kind: type[M], version: int | None = None) -> M:
        """The answer, which must not tell of an error."""
        newest = api.versions[1]
        answer = self._link.call(api, newest if version is None else version, request, kind)
        assert not getattr(answer, "error_code", 0), answer
        return answer

    def configure(self, **settings: str) -> None:
        """Settings of the group, with _ for the dots."""
        configs = tuple(
            ConfigOperation(name.replace("_", "."), SET, value) for name, value in settings.items()
        )
        resource = IncrementalAlterConfigsResource(GROUP_RESOURCE, self.group, configs)
        request = IncrementalAlterConfigsRequest((resource,))
        answer = self.ask(INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse)
        assert not any(one.error_code for one in answer.responses), answer

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- share groups ----------------------------------------------------------------------------------


class ShareReader(Coordinator):
    """A member of a share group."""

    def __init__(self, bootstrap: str, group: str, client_id: str) -> None:
        super().__init__(bootstrap, group, client_id)
        self.member_id = f"{client_id}-id"
        self.epoch = 0
        self.partitions: set[int] = set()
        """Of the one topic that it reads."""

    def beat(self, *topics: str) -> None:
        """`topics`: with the first heartbeat."""
        request = ShareGroupHeartbeatRequest(
            self.group, self.member_id, self.epoch, None, topics or None
        )
        answer = self.ask(SHARE_GROUP_HEARTBEAT, request, ShareGroupHeartbeatResponse)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self.partitions = {number for each in given for number in each.partitions}

    def leave(self) -> None:
        self.epoch = LEAVE
        self.beat()


def begin_share_group(bootstrap: str, group: str, topic: str, starts: Mapping[int, int]) -> None:
    """Make a share group without members that is at these offsets."""
    rows = tuple(AlterShareGroupOffsetsRequestPartition(*each) for each in starts.items())
    topics = (AlterShareGroupOffsetsRequestTopic(topic, rows),)
    request = AlterShareGroupOffsetsRequest(group, topics)
    with Coordinator(bootstrap, group, "operator") as coordinator:
        answer = coordinator.ask(ALTER_SHARE_GROUP_OFFSETS, request, AlterShareGroupOffsetsResponse)
    assert not any(row.error_code for each in answer.responses for row in each.partitions)


# -- streams groups --------------------------------------------------------------------------------


def word_count(group: str, source: str) -> Topology:
    """As Kafka Streams sends it of a word count: two subtopologies with a repartition topic between them."""
    compacted = [KeyValue("cleanup.policy", "compact")]
    words, counts = f"{group}-words-repartition", f"{group}-counts-changelog"
    return Topology(
        0,
        [
            Subtopology("0", [source], repartition_sink_topics=[words]),
            Subtopology(
                "1",
                repartition_source_topics=[TopicInfo(words)],
                state_changelog_topics=[TopicInfo(counts, topic_configs=compacted)],
            ),
        ],
    )


class StreamsThread(Coordinator):
    """A member of a streams group, each an instance of its application. It runs what it is told to."""

    def __init__(self, bootstrap: str, group: str, client_id: str, topology: Topology) -> None:
        super().__init__(bootstrap, group, client_id)
        self.member_id, self.process_id = f"{client_id}-id", f"process-of-{client_id}"
        self.epoch = 0
        self.active: Tasks = frozenset()
        self.standby: Tasks = frozenset()
        self._topology = topology

    def beat(self) -> None:
        request = StreamsGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=60_000,
            topology=self._topology if self.epoch == 0 else None,
            active_tasks=_told(self.active),
            standby_tasks=_told(self.standby),
            warmup_tasks=(),
            process_id=self.process_id,
        )
        answer = self.ask(STREAMS_GROUP_HEARTBEAT, request, StreamsGroupHeartbeatResponse)
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active = _named(answer.active_tasks)
        if answer.standby_tasks is not None:
            self.standby = _named(answer.standby_tasks)

    def leave(self) -> None:
        request = StreamsGroupHeartbeatRequest(self.group, self.member_id, LEAVE)
        self.ask(STREAMS_GROUP_HEARTBEAT, request, StreamsGroupHeartbeatResponse)

    def commit(self, topic: str, partition: int, offset: int) -> None:
        rows = (OffsetCommitRequestPartition(partition, offset),)
        topics = (OffsetCommitRequestTopic(topic, partitions=rows),)
        request = OffsetCommitRequest(self.group, self.epoch, self.member_id, topics=topics)
        answer = self.ask(OFFSET_COMMIT, request, OffsetCommitResponse, version=9)
        assert not answer.topics[0].partitions[0].error_code, answer


def _told(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(name, sorted(number for other, number in tasks if other == name))
        for name in sorted({name for name, _ in tasks})
    ]


def _named(given: Iterable[TaskIds]) -> Tasks:
    return frozenset((each.subtopology_id, number) for each in given for number in each.partitions)


@contextmanager
def streams_threads(
    bootstrap: str, group: str, source: str, *clients: str
) -> Iterator[list[StreamsThread]]:
    """Members of one application, none of which has joined; the group gives each state a standby."""
    topology = word_count(group, source)
    with ExitStack() as stack:
        found = [
            stack.enter_context(StreamsThread(bootstrap, group, each, topology)) for each in clients
        ]
        found[0].configure(streams_num_standby_replicas="1", streams_initial_rebalance_delay_ms="0")
        yield found
