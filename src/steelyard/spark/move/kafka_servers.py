"""Requests to the brokers of a Kafka cluster, over connections that are kept; for one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from steelyard.driver.blocking_links import KafkaLink, check_code
from steelyard.errors import KafkaError, ProtocolError, RemotingError, RouteError, SteelyardError
from steelyard.spark.options.access import Access
from steelyard.spark.servers.kafka_link import kafka_link
from steelyard.spark.servers.patience import persist
from steelyard.spark.servers.wrong_port import explained
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    METADATA,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from steelyard.wire.kafka.schema import Api, ApiMessage
from steelyard.wire.strangers import Stranger

METADATA_VERSION, FIND_VERSION = 9, 4
GROUP = 0
"""Kind of coordinator."""

M = TypeVar("M", bound=ApiMessage)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """How a cluster is reached."""

    bootstrap: Sequence[str]
    access: Access
    timeout_ms: int
    retry_timeout_ms: int


class KafkaServers:
    """Connections to the brokers of a cluster; `persistently` retries transient failures."""

    def __init__(self, given: KafkaAccess) -> None:
        self._given = given
        self._links: dict[str, KafkaLink] = {}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def persistently(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, repeated on new connections after transient failures."""

        def once() -> T:
            try:
                return attempt()
            except (RemotingError, ProtocolError):
                self.close()
                raise

        return persist(once, self._given.retry_timeout_ms)

    def call(self, address: str, api: Api, version: int, message: ApiMessage, kind: type[M]) -> M:
        """Return the response of the broker at an address."""
        return self.link(address).call(api, version, message, kind)

    def link(self, address: str) -> KafkaLink:
        """Return the connection to an address, opened if there is none."""
        link = self._links.get(address)
        if link is not None and time.monotonic() >= link.ends_at:
            self._drop(address)
            link = None
        if link is None:
            made = kafka_link(address, self._given.timeout_ms, self._given.access)
            link = self._links[address] = made
        return link

    # -- who does what -----------------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Return what any broker knows of topics (None: of all) and of all brokers."""
        named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(named, allow_auto_topic_creation=False)
        return self.anyone(METADATA, METADATA_VERSION, request, MetadataResponse)[1]

    def topic(self, topic: str) -> MetadataResponseTopic:
        """Return a topic and its partitions. Raises RouteError if there is none."""
        found = self.metadata([topic]).topics[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise RouteError(f"{self._given.bootstrap[0]} knows no topic {topic!r}")
        check_code(self._given.bootstrap[0], found.error_code, f"the partitions of {topic!r}")
        return found

    def leader(self, topic: str, partition: int) -> str:
        """Return the address of the leader of a partition."""
        answer = self.metadata([topic])
        for found in answer.topics[0].partitions:
            if found.partition_index == partition:
                check_code(
                    self._given.bootstrap[0],
                    found.error_code,
                    f"the leader of partition {partition} of {topic!r}",
                )
                return _address(answer, found.leader_id)
        raise RouteError(f"topic {topic!r} has no partition {partition}")

    def brokers(self) -> list[str]:
        """Return the addresses of all brokers."""
        return [f"{broker.host}:{broker.port}" for broker in self.metadata([]).brokers]

    def controller(self) -> str:
        """Return the address of the broker that creates topics."""
        answer = self.metadata([])
        return _address(answer, answer.controller_id)

    def coordinator(self, group: str) -> str:
        """Return the address of a group's coordinator."""
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group])
        kind = FindCoordinatorResponse
        _, answer = self.anyone(FIND_COORDINATOR, FIND_VERSION, request, kind)
        found = answer.coordinators[0]
        check_code(
            self._given.bootstrap[0], found.error_code, f"the coordinator of group {group!r}"
        )
        return f"{found.host}:{found.port}"

    def anyone(self, api: Api, version: int, message: ApiMessage, kind: type[M]) -> tuple[str, M]:
        """Return the response of the first broker of `bootstrap` that answers, and its address."""
        failed: SteelyardError | None = None
        for address in self._given.bootstrap:
            try:
                return address, self.call(address, api, version, message, kind)
            except RemotingError as error:
                self._drop(address)
                given = self._given
                failed = explained(error, address, Stranger.KAFKA, given.timeout_ms, given.access)
        assert failed is not None, "there is at least one address"
        raise failed

    def _drop(self, address: str) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            link.close()


def _address(answer: MetadataResponse, node_id: int) -> str:
    for broker in answer.brokers:
        if broker.node_id == node_id:
            return f"{broker.host}:{broker.port}"
    raise KafkaError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not there now", retriable=True
    )
