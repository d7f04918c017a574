"""RocketMQ clusters: what a move reads from nameservers and brokers, and creates there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from steelyard.client.administration.asking import masters_of
from steelyard.client.blocking.admin import Admin
from steelyard.errors import BrokerError, ConfigError, MessageError, RouteError
from steelyard.produce.rules import check_topic
from steelyard.spark.move.contract import (
    MoveCluster,
    OffsetRange,
    expired_meanwhile,
    packed,
)
from steelyard.spark.move.messages import MovedMessage, moved, size_of
from steelyard.spark.move.rocketmq_writer import RocketMQAppender
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.reading import Options
from steelyard.spark.reading.catalog import INTERNAL, Catalog, readable_queues
from steelyard.spark.reading.planning import QueueRange
from steelyard.spark.reading.pull import messages
from steelyard.spark.servers.patience import persist
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.message import decode_records

ROUTE_TIMEOUT_S = 10
"""Longest wait until nameservers know a new topic."""

Layout = dict[QueueName, QueueName]


class RocketMQSide:
    """A cluster, by its nameservers. `options`: how it is reached, with any topic."""

    def __init__(self, options: Options) -> None:
        self.address = ";".join(options.nameservers)
        self._options = options
        self._addresses: dict[QueueName, str] = {}

    def _catalog(self) -> Catalog:
        return Catalog(self._options)

    def _admin(self) -> Admin:
        access = self._options.access
        return Admin(
            list(self._options.nameservers),
            access_key=access.access_key,
            secret_key=access.secret_key,
            security_token=access.security_token,
            tls=access.context(),
            timeout_ms=self._options.timeout_ms,
        )

    # -- topics ------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        with self._admin() as admin:
            system = set(admin.system_topics())
            return sorted(
                topic
                for topic in admin.topics()
                if topic not in system and not INTERNAL.fullmatch(topic)
            )

    def queues(self, topic: str) -> list[QueueName]:
        try:
            check_topic(topic)
        except MessageError as error:
            raise ConfigError(str(error)) from None
        if INTERNAL.fullmatch(topic):
            raise ConfigError(f"topic {topic!r} belongs to the servers and cannot be moved")
        with self._catalog() as catalog:
            found = readable_queues(catalog.route(topic), topic)
        self._addresses |= found
        return sorted(found)

    def layout(
        self, source: MoveCluster[MovedMessage], topic: str, queues: Sequence[QueueName]
    ) -> Layout | None:
        del source  # the number of its queues says all
        try:
            here = self.queues(topic)
        except RouteError:
            return None
        made = placed(queues, sorted({broker for _, broker, _ in here}))
        if sorted(made.values()) != here:
            raise ConfigError(
                f"topic {topic!r} exists at the target with other queues ({_counts(here)}) than are"
                f" needed ({_counts(made.values())}); change it there, or delete it to have it"
                " created"
            )
        return made

    def create(
        self, source: MoveCluster[MovedMessage], topic: str, queues: Sequence[QueueName]
    ) -> Layout:
        with self._admin() as admin:
            brokers = self._masters(admin, topic)
            made = placed(queues, sorted(brokers))
            for broker, count in sorted(Counter(broker for _, broker, _ in made.values()).items()):
                admin.create_topic(topic, broker=brokers[broker], queues=count)
        deadline = time.monotonic() + ROUTE_TIMEOUT_S
        while True:
            try:
                if (found := self.layout(source, topic, queues)) is not None:
                    return found
            except ConfigError:  # not all brokers have registered it yet
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise RouteError(f"topic {topic!r} was created, but no nameserver knows it")
            time.sleep(0.1)

    def _masters(self, admin: Admin, topic: str) -> dict[str, str]:
        """Return the addresses of the brokers on which topics are created, by name."""
        info = admin.clusters()
        if len(info.cluster_addr_table) != 1:
            names = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ConfigError(
                f"the target has not one cluster, but {names}; create topic {topic!r} in the right"
                " one first"
            )
        found = masters_of(info)
        if not found:
            raise RouteError("the target has no broker that topics can be created on")
        return found

    # -- records -----------------------------------------------------------------------------------

    def _located(self, queues: Collection[QueueName]) -> dict[QueueName, str]:
        """Return the addresses of queues."""
        for topic in sorted({queue[0] for queue in queues if queue not in self._addresses}):
            self.queues(topic)
        for queue in queues:
            if queue not in self._addresses:
                raise RouteError(
                    f"{self.address} knows no queue {queue[2]} of topic {queue[0]!r} on broker"
                    f" {queue[1]!r}; if the broker is down, start the move again when it is back"
                )
        return {queue: self._addresses[queue] for queue in queues}

    def extents(self, queues: Collection[QueueName]) -> dict[QueueName, OffsetRange]:
        def look() -> dict[QueueName, OffsetRange]:
            located = self._located(queues)
            with self._catalog() as catalog:
                first, end = catalog.earliest(located), catalog.latest(located)
            return {queue: OffsetRange(max(first[queue], 0), end[queue]) for queue in queues}

        return persist(look, self._options.retry_timeout_ms)

    def read(
        self, queue: QueueName, extent: OffsetRange, *, strict: bool
    ) -> Iterator[list[MovedMessage]]:
        address = self._located([queue])[queue]
        wanted = QueueRange(*queue, address, *extent)
        options = replace(self._options, fail_on_data_loss=strict)
        try:
            for body in messages(wanted, options):
                views = decode_records(body, queue[1])
                yield [moved(view) for view in views if view.queue_offset < extent.end]
        except ConfigError:
            raise expired_meanwhile(queue) from None

    def writer(self, queue: QueueName) -> RocketMQAppender:
        return RocketMQAppender(self._options, queue)

    def content(self, record: MovedMessage) -> bytes:
        numbers = b"%d %d" % (record.born_timestamp, record.flag)
        properties = sorted(record.properties.items())
        texts = [text.encode() for pair in properties for text in pair]
        return packed(record.body, numbers, *texts)

    def size(self, record: MovedMessage) -> int:
        return size_of(record)

    # -- groups ------------------------------------------------------------------------------------

    def groups(self, topic: str) -> list[str]:
        with self._admin() as admin:
            return list(admin.groups_of(topic))

    def progress(self, group: str, queues: Collection[QueueName]) -> dict[QueueName, int]:
        def look() -> dict[QueueName, int]:
            located = self._located(queues)
            with Catalog(replace(self._options, consumer_group=group)) as catalog:
                return catalog.committed(located)

        return persist(look, self._options.retry_timeout_ms)

    def commit(self, group: str, offsets: Mapping[QueueName, int]) -> str:
        located = self._located(offsets.keys())
        if self._has_members(group):
            return "it has members there; stop them first"
        with Catalog(replace(self._options, consumer_group=group)) as catalog:
            catalog.introduce_group(located)
            catalog.commit(located, offsets)
        return ""

    def _has_members(self, group: str) -> bool:
        with self._admin() as admin:
            try:
                return bool(admin.members(group).connection_set)
            except RouteError:
                return False
            except BrokerError as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    return False
                raise


def placed(queues: Sequence[QueueName], brokers: Sequence[str]) -> Layout:
    """Return a queue at `brokers` for each of the source's.

    A broker's queues go to the broker of the same name, where there is one; those of others to the
    brokers in turn, numbered on from what is there.
    """
    assert brokers, "a topic has a broker"
    names = sorted({broker for _, broker, _ in queues})
    others = [name for name in names if name not in brokers]
    homes = {name: name for name in names if name in brokers}
    homes |= {name: brokers[place % len(brokers)] for place, name in enumerate(others)}
    following: Counter[str] = Counter()
    made: Layout = {}
    for name in [*(name for name in names if name not in others), *others]:
        for topic, _, number in sorted(queue for queue in queues if queue[1] == name):
            home = homes[name]
            made[topic, name, number] = (topic, home, following[home])
            following[home] += 1
    return made


def _counts(queues: Iterable[QueueName]) -> str:
    counts = Counter(broker for _, broker, _ in queues)
    return ", ".join(f"{count} on {broker}" for broker, count in sorted(counts.items()))
