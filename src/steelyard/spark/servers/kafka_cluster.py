"""The Kafka listeners of a cluster of Steelyard, found through its nameservers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from steelyard.decoding import prepared
from steelyard.driver.blocking_links import KafkaLink
from steelyard.errors import KafkaError, ProtocolError, RemotingError, SteelyardError
from steelyard.routes import layout as layouts
from steelyard.routes.brokers import BrokerEntry, brokers_namespace
from steelyard.routes.layout import LAYOUT_ATTRIBUTE, Layout, layouts_namespace
from steelyard.spark.options.writing import SinkOptions
from steelyard.spark.servers.kafka_link import kafka_link
from steelyard.spark.servers.server_links import ServerLinks
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

VERSION = 4
TRANSACTION = 1
"""Kind of coordinator."""
BATCH_LIMIT = "max.message.bytes"
CANDIDATES = 64
"""Ids that are tried at once, to find one with the right coordinator."""


class KafkaCluster:
    """Where the partitions and coordinators of a cluster are, and connections to its brokers."""

    def __init__(self, options: SinkOptions, servers: ServerLinks) -> None:
        self._options = options
        self._servers = servers
        self._links: dict[str, KafkaLink] = {}
        self._brokers: dict[str, BrokerEntry] = {}
        self._cluster = ""

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def link(self, address: str) -> KafkaLink:
        """Return the connection to a listener, opened if there is none."""
        link = self._links.get(address)
        if link is not None and time.monotonic() >= link.ends_at:
            self.drop(link)
            link = None
        if link is None:
            options = self._options
            link = self._links[address] = kafka_link(address, options.timeout_ms, options.access)
        return link

    @contextmanager
    def using(self, address: str) -> Iterator[KafkaLink]:
        """Lend the connection to a listener, and close it if what it is used for fails."""
        link = self.link(address)
        try:
            yield link
        except SteelyardError:
            self.drop(link)
            raise

    def drop(self, link: KafkaLink) -> None:
        """Close a connection that failed."""
        link.close()
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def refresh(self) -> None:
        """Look up the brokers. Raises RemotingError if they have no Kafka listener.

        They tell nameservers of it in rounds of seconds: one that was started anew learns it late.
        """
        clusters = self._servers.cluster().cluster_addr_table
        for cluster in clusters:
            found = self._servers.settings(brokers_namespace(cluster))
            if found:
                self._cluster = cluster
                self._brokers = {
                    name: msgspec.json.decode(text, type=prepared(BrokerEntry))
                    for name, text in found.items()
                }
                return
        raise RemotingError(
            "option 'exactlyOnce' needs brokers of Steelyard with a Kafka listener (`steelyard up"
            f" --kafka-port 9092`), and {' and '.join(clusters)} has none"
        )

    def broker(self, name: str) -> BrokerEntry:
        """Return the addresses of a broker. Raises RemotingError if it is not there yet."""
        if name not in self._brokers:
            self.refresh()
        if name not in self._brokers:
            raise RemotingError(f"broker {name!r} has no Kafka listener yet")
        return self._brokers[name]

    def layout(self, topic: str) -> tuple[Layout, int | None]:
        """Return the partitions of a topic, and the limit that it sets for a record batch.

        Raises RemotingError if there are no partitions yet.
        """
        text = self._servers.setting(layouts_namespace(self._cluster), topic)
        attributes = msgspec.json.decode(text, type=prepared(dict[str, str])) if text else {}
        if LAYOUT_ATTRIBUTE not in attributes:
            raise RemotingError(
                f"the Kafka listeners of {self._cluster} do not know topic {topic!r} yet"
            )
        limit = attributes.get(BATCH_LIMIT, "")
        found = layouts.read(attributes[LAYOUT_ATTRIBUTE])
        return found, int(limit) if limit.isdecimal() else None

    def coordinated(self, writer: str, task: str) -> tuple[str, BrokerEntry]:
        """Return an id for the transactions of a task, and the broker that coordinates the writer.

        The broker coordinates the id, too, because all transactions of a writer are decided there.
        """
        self.refresh()
        ids = [f"{writer}:{task}"] + [f"{writer}:{task}:{salt}" for salt in range(1, CANDIDATES)]
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[writer, *ids])
        failed: RemotingError | None = None
        for entry in self._brokers.values():
            try:
                with self.using(entry.address) as link:
                    kind = FindCoordinatorResponse
                    answer = link.call(FIND_COORDINATOR, VERSION, request, kind)
            except RemotingError as error:
                failed = error
                continue
            first, *others = answer.coordinators
            link.check(first.error_code, "the search for a coordinator")
            for coordinator, name in zip(others, ids, strict=True):
                if coordinator.node_id == first.node_id:
                    return name, self._by_node(first.node_id)
            raise ProtocolError(f"no id of {len(ids)} has the coordinator {first.node_id}")
        assert failed is not None, "refresh finds at least one"
        raise failed

    def _by_node(self, node_id: int) -> BrokerEntry:
        for entry in self._brokers.values():
            if entry.node_id == node_id:
                return entry
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"no nameserver has an address of the coordinator, broker {node_id}",
            retriable=True,
        )
