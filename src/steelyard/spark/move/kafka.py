"""Kafka clusters: what a move reads from brokers, and creates there."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from steelyard.client.blocking.kafka import KafkaConsumer
from steelyard.driver.blocking_links import check_code
from steelyard.errors import ConfigError, ConnectError, NoOffsetError, RouteError
from steelyard.spark.move.contract import (
    MoveCluster,
    OffsetRange,
    expired_meanwhile,
    in_full,
    packed,
)
from steelyard.spark.move.kafka_groups import KafkaGroupOffsets
from steelyard.spark.move.kafka_servers import KafkaAccess, KafkaServers
from steelyard.spark.move.kafka_writer import KafkaAppender
from steelyard.spark.offsets import QueueName
from steelyard.types import TopicPartition
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import (
    DESCRIBE_CONFIGS,
    TOPIC_CONFIG,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.kafka.records import Record

CREATE_VERSION, DESCRIBE_VERSION = 5, 1
TOPIC = 2
"""Kind of resource that has settings."""
BROKERS_DEFAULT = -1
"""The number of replicas that the broker is set to give new topics."""
LARGEST = "max.message.bytes"
ROUTE_TIMEOUT_S = 30
"""Longest wait until a new topic has leaders."""
POLL_MS, POLL_RECORDS = 1_000, 2_000
FETCH_BYTES = 4 << 20

Layout = dict[QueueName, QueueName]


class KafkaSide:
    """A cluster, by brokers to contact first. `compression`: of what is written to it."""

    def __init__(self, given: KafkaAccess, compression: Compression) -> None:
        self.address = ",".join(given.bootstrap)
        self._given = given
        self._compression = compression
        self._groups = KafkaGroupOffsets(given)

    # -- topics ------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        with closing(KafkaServers(self._given)) as servers:
            found = servers.metadata(None).topics
        return sorted(
            one.name for one in found if one.name and not (one.is_internal or is_internal(one.name))
        )

    def queues(self, topic: str) -> list[QueueName]:
        if is_internal(topic):
            raise ConfigError(f"topic {topic!r} belongs to the servers and cannot be moved")
        with closing(KafkaServers(self._given)) as servers:
            found = servers.topic(topic)
        return sorted((topic, "", partition.partition_index) for partition in found.partitions)

    def layout(
        self, source: MoveCluster[Record], topic: str, queues: Sequence[QueueName]
    ) -> Layout | None:
        del source
        try:
            here = self.queues(topic)
        except RouteError:
            return None
        if here != sorted(queues):
            raise ConfigError(
                f"topic {topic!r} has {len(here)} partitions at the target and {len(queues)} at the"
                " source; add partitions where they are missing, or delete it at the target to have"
                " it created"
            )
        return {queue: queue for queue in queues}

    def create(
        self, source: MoveCluster[Record], topic: str, queues: Sequence[QueueName]
    ) -> Layout:
        assert isinstance(source, KafkaSide), "clusters of one move have one protocol"
        configs = [CreatableTopicConfig(LARGEST, text) for text in source.largest(topic)]
        wanted = CreatableTopic(topic, len(queues), BROKERS_DEFAULT, (), configs)
        request = CreateTopicsRequest([wanted], self._given.timeout_ms)
        with closing(KafkaServers(self._given)) as servers:
            address = servers.controller()
            kind = CreateTopicsResponse
            answer = servers.call(address, CREATE_TOPICS, CREATE_VERSION, request, kind)
            code = answer.topics[0].error_code
            if code != ErrorCode.TOPIC_ALREADY_EXISTS:
                check_code(address, code, f"the creation of topic {topic!r}")
        deadline = time.monotonic() + ROUTE_TIMEOUT_S
        while (found := self._led(topic, queues)) is None:
            if time.monotonic() > deadline:
                raise RouteError(f"topic {topic!r} was created, but its partitions have no leaders")
            time.sleep(0.1)
        return found

    def _led(self, topic: str, queues: Sequence[QueueName]) -> Layout | None:
        """Return the layout of a new topic when all partitions have leaders."""
        with closing(KafkaServers(self._given)) as servers:
            partitions = servers.metadata([topic]).topics[0].partitions
        if len(partitions) < len(queues) or any(one.error_code for one in partitions):
            return None
        return self.layout(self, topic, queues)

    def largest(self, topic: str) -> list[str]:
        """Return the limit of batches that a topic has of its own, if it has one."""
        resource = DescribeConfigsResource(TOPIC, topic, [LARGEST])
        request = DescribeConfigsRequest([resource])
        with closing(KafkaServers(self._given)) as servers:
            kind = DescribeConfigsResponse
            address, answer = servers.anyone(DESCRIBE_CONFIGS, DESCRIBE_VERSION, request, kind)
        result = answer.results[0]
        check_code(address, result.error_code, f"the settings of topic {topic!r}")
        found = [one for one in result.configs if one.config_source == TOPIC_CONFIG]
        return [one.value for one in found if one.name == LARGEST and one.value]

    # -- records -----------------------------------------------------------------------------------

    @contextmanager
    def _consumer(self) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=list(self._given.bootstrap),
            tls=self._given.access.context(),
            **self._given.access.consumer_login(),
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=FETCH_BYTES,
            request_timeout_ms=self._given.timeout_ms,
            default_api_timeout_ms=max(self._given.timeout_ms, self._given.retry_timeout_ms),
        )
        with consumer.start(self._given.timeout_ms / 1000):
            yield consumer

    def extents(self, queues: Collection[QueueName]) -> dict[QueueName, OffsetRange]:
        places = {queue: TopicPartition(queue[0], queue[2]) for queue in queues}
        with self._consumer() as consumer:
            first = consumer.beginning_offsets(places.values())
            end = consumer.end_offsets(places.values())
        return {queue: OffsetRange(first[place], end[place]) for queue, place in places.items()}

    def read(
        self, queue: QueueName, extent: OffsetRange, *, strict: bool
    ) -> Iterator[list[Record]]:
        place = TopicPartition(queue[0], queue[2])
        at, end = extent
        if not strict:
            at = max(at, self.extents([queue])[queue].first)
        if at >= end:
            return
        with self._consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, at)
            since = time.monotonic()
            while at < end:
                try:
                    found = consumer.poll(POLL_MS, POLL_RECORDS)
                except NoOffsetError:
                    raise expired_meanwhile(queue) from None
                following = consumer.position(place)
                if following > at:
                    at, since = following, time.monotonic()
                elif time.monotonic() - since > self._given.retry_timeout_ms / 1000:
                    raise ConnectError(
                        f"{in_full(queue)} of {self.address} gives nothing from offset {at} on for"
                        f" {self._given.retry_timeout_ms / 1000:g} s (option 'retryTimeoutMs')"
                    )
                yield [
                    Record(one.offset, one.timestamp, one.key, one.value, one.headers)
                    for one in found
                    if one.offset < end
                ]

    def writer(self, queue: QueueName) -> KafkaAppender:
        return KafkaAppender(self._given, queue, self._compression)

    def content(self, record: Record) -> bytes:
        headers: list[bytes | None] = []
        for name, text in record.headers:
            headers += [name.encode(), text]
        return packed(record.key, record.value, b"%d" % record.timestamp, *headers)

    def size(self, record: Record) -> int:
        headers = sum(len(name) + len(text or b"") + 4 for name, text in record.headers)
        return len(record.key or b"") + len(record.value or b"") + headers + 20

    # -- groups ------------------------------------------------------------------------------------

    def groups(self, topic: str) -> list[str]:
        return self._groups.of_topic(topic, self.queues(topic))

    def progress(self, group: str, queues: Collection[QueueName]) -> dict[QueueName, int]:
        return self._groups.progress(group, queues)

    def commit(self, group: str, offsets: Mapping[QueueName, int]) -> str:
        return self._groups.commit(group, offsets)


def is_internal(topic: str) -> bool:
    """Return whether a topic is Kafka's or a broker's own."""
    return topic.startswith("__")
