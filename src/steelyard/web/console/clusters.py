"""The two ways to a cluster: by its nameservers, or by Kafka's listeners alone."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence

from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.driver.awaited_links import KafkaRequester
from steelyard.errors import SteelyardError
from steelyard.groups.kafka.report import KafkaGroupReport
from steelyard.routes.brokers import BrokerEntry
from steelyard.sasl.login import Login
from steelyard.types import MessageQueue, TopicPartition
from steelyard.version import __version__
from steelyard.web.console.answers import (
    BrokerView,
    ClusterKind,
    ClusterView,
    Dialect,
    NameserverView,
)
from steelyard.web.console.contract import DialectSource
from steelyard.web.console.fresh import Fresh
from steelyard.web.console.kafka.servers import CLIENT_ID, KafkaBrokers, joined_address
from steelyard.web.console.kafka.source import KafkaSource, Waits
from steelyard.web.console.listeners import kafka_listeners
from steelyard.web.console.rates import Rates
from steelyard.web.console.remoting.figures import has_figures
from steelyard.web.console.remoting.source import RemotingSource
from steelyard.web.consumers import consumer_of
from steelyard.web.reading import BrokerReading, ClusterReader

GROUP = "steelyard-console"
"""The group in whose name messages are read; it commits nothing."""

ENTRIES_FRESH_MS = 3_000


class NameserverCluster:
    """A cluster of Steelyard or of Apache RocketMQ. `admin` must be running."""

    def __init__(
        self,
        admin: Admin,
        reader: ClusterReader,
        *,
        timeout_ms: int,
        tls: ssl.SSLContext | None = None,
        kafka_tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        """`kafka_tls`: for the Kafka listeners, by default `tls`; `login`: at these."""
        self._admin = admin
        self._reader = reader
        self._consumer: PullConsumer | None = None
        self._tls = tls
        self._calls = KafkaRequester(
            CLIENT_ID,
            timeout_ms=timeout_ms,
            tls=kafka_tls or tls,
            address_translation=admin.config.address_translation,
            login=login,
        )
        self._entries = Fresh(lambda: kafka_listeners(admin), ENTRIES_FRESH_MS)
        self._rates = Rates()
        self._remoting = RemotingSource(admin, self._reading, reader)
        self._kafka = KafkaSource(
            KafkaBrokers(self._bootstrap, self._calls), _OurGroups(admin, reader)
        )
        self._kind: ClusterKind = "steelyard"

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()
        await self._calls.close()

    async def _reading(self) -> PullConsumer:
        """Return the consumer that reads messages, which starts when it is first needed."""
        if self._consumer is None:
            self._consumer = consumer_of(self._admin, GROUP, self._tls)
            self._starting = asyncio.create_task(self._consumer.start())
        await asyncio.shield(self._starting)
        return self._consumer

    async def kind(self) -> ClusterKind:
        reading = await self._reader.read()
        answered = [each for each in reading.brokers if not each.error]
        if answered:
            self._kind = "steelyard" if has_figures(reading) else "apache-rocketmq"
        return self._kind

    async def partitions(self) -> Mapping[tuple[str, str, int], int]:
        reading = await self._reader.read()
        return {
            (row.topic, each.name, row.queue_id): row.partition
            for each in reading.brokers
            for row in (() if each.kafka is None else each.kafka.partitions)
        }

    async def sources(self) -> Mapping[Dialect, DialectSource]:
        """Return the sources; while no nameserver answers, both will say so."""
        try:
            has_kafka = bool(await self._listeners())
        except SteelyardError:
            has_kafka = True
        found: dict[Dialect, DialectSource] = {"rocketmq": self._remoting}
        if has_kafka:
            found["kafka"] = self._kafka
        return found

    async def _bootstrap(self) -> Sequence[str]:
        return [entry.address for entry in (await self._listeners()).values()]

    async def _listeners(self) -> dict[str, BrokerEntry]:
        """Return the brokers with a Kafka listener; one that is ready by now is among them."""
        entries = await self._entries.get()
        reading = await self._reader.read()
        ready = {each.name for each in reading.brokers if each.kafka and each.kafka.ready}
        return await self._entries.renewed() if ready - entries.keys() else entries

    # -- servers -----------------------------------------------------------------------------------

    async def view(self, *, allow_changes: bool) -> ClusterView:
        reading = await self._reader.read()
        try:
            entries = await self._listeners()
        except SteelyardError:
            entries = {}
        kind = await self.kind()
        brokers = await asyncio.gather(
            *(self._broker(each, entries.get(each.name), kind) for each in reading.brokers)
        )
        names = [each.figures.cluster for each in reading.brokers if each.figures is not None]
        return ClusterView(
            name=names[0] if names else await self._cluster_name(),
            kind=kind,
            allow_changes=allow_changes,
            version=__version__,
            nameservers=[
                NameserverView(address=address, error=error or None)
                for address, error in reading.nameservers.items()
            ],
            brokers=list(brokers),
        )

    async def _cluster_name(self) -> str:
        try:
            return ", ".join(sorted((await self._admin.clusters()).cluster_addr_table))
        except SteelyardError:
            return ""

    async def _broker(
        self, each: BrokerReading, entry: BrokerEntry | None, kind: ClusterKind
    ) -> BrokerView:
        figures = each.figures
        told = {} if figures is not None or each.error else await self._told(each.address)
        now = time.monotonic()
        rates: tuple[float | None, float | None] = (
            _number(told, "putTps"),
            _number(told, "getTransferedTps"),
        )
        if figures is not None:
            rates = (
                self._rates.rate((each.name, "in"), figures.messages_in, now),
                self._rates.rate((each.name, "out"), figures.messages_out, now),
            )
        size = None if figures is None else sum(row.size_bytes for row in figures.queues)
        used = _number(told, "commitLogDiskRatio")
        if figures is not None and figures.disk_size:
            used = 1 - figures.disk_free / figures.disk_size
        started = _number(told, "bootTimestamp")
        return BrokerView(
            name=each.name,
            address=each.address,
            kafka_address=None if entry is None else entry.address,
            version=told.get("brokerVersionDesc") or None,
            error=each.error or None,
            started_at=figures.started_at
            if figures
            else (None if started is None else int(started)),
            in_per_second=rates[0],
            out_per_second=rates[1],
            log_bytes=size,
            disk_used_ratio=used,
        )

    async def _told(self, address: str) -> dict[str, str]:
        """Return what an Apache broker says of itself."""
        try:
            return await self._admin.runtime(address)
        except SteelyardError:
            return {}


def _number(table: Mapping[str, str], name: str) -> float | None:
    """Return the first number of a broker's figure: rates are over 10 s, 60 s and 600 s."""
    try:
        return float(table[name].split()[0])
    except (KeyError, ValueError, IndexError):
        return None


class _OurGroups:
    """What our coordinators tell of their groups."""

    def __init__(self, admin: Admin, reader: ClusterReader) -> None:
        self._admin = admin
        self._reader = reader

    async def report(self, group: str) -> KafkaGroupReport:
        return await self._admin.kafka_group(group)

    async def waits(self) -> Waits:
        reading = await self._reader.read()
        ends = {
            MessageQueue(row.topic, each.name, row.queue_id): row.end
            for each in reading.brokers
            if each.figures is not None
            for row in each.figures.queues
        }
        now = time.time_ns() // 1_000_000
        waits: dict[str, dict[TopicPartition, int]] = {}
        for each in reading.brokers:
            for group in each.kafka.groups if each.kafka else ():
                of_group = waits.setdefault(group.group, {})
                for row in group.offsets:
                    queue = MessageQueue(row.topic, row.broker, row.queue_id)
                    stored = reading.waiting.get((queue, row.reached))
                    if stored and row.reached < ends.get(queue, 0):
                        of_group[TopicPartition(row.topic, row.partition)] = max(0, now - stored)
        return waits


class ListenerCluster:
    """Any cluster that is reached by Kafka's protocol. `bootstrap`: some brokers, `host:port`."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        timeout_ms: int,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        self._addresses = tuple(bootstrap)
        self._calls = KafkaRequester(CLIENT_ID, timeout_ms=timeout_ms, tls=tls, login=login)
        self._servers = KafkaBrokers(self._bootstrap, self._calls)
        self._source = KafkaSource(self._servers)

    async def _bootstrap(self) -> Sequence[str]:
        return self._addresses

    async def close(self) -> None:
        await self._calls.close()

    async def kind(self) -> ClusterKind:
        return "apache-kafka"

    async def partitions(self) -> Mapping[tuple[str, str, int], int]:
        return {}

    async def sources(self) -> Mapping[Dialect, DialectSource]:
        return {"kafka": self._source}

    async def view(self, *, allow_changes: bool) -> ClusterView:
        try:
            metadata = await self._servers.metadata()
            name, brokers = metadata.cluster_id or "", metadata.brokers
            views = [
                _unmeasured(str(one.node_id), joined_address(one.host, one.port), None)
                for one in sorted(brokers, key=lambda broker: broker.node_id)
            ]
        except SteelyardError as error:
            name = ""
            views = [_unmeasured(address, address, str(error)) for address in self._addresses]
        return ClusterView(
            name=name,
            kind="apache-kafka",
            allow_changes=allow_changes,
            version=__version__,
            nameservers=[],
            brokers=views,
        )


def _unmeasured(name: str, address: str, error: str | None) -> BrokerView:
    """Return a broker of which nothing else is known: Kafka's protocol has no figures."""
    return BrokerView(
        name=name,
        address=address,
        kafka_address=address,
        version=None,
        error=error,
        started_at=None,
        in_per_second=None,
        out_per_second=None,
        log_bytes=None,
        disk_used_ratio=None,
    )
