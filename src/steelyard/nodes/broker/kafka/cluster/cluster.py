"""The cluster as Kafka clients see it: brokers with node ids, topics, partitions and their leaders.

A partition is a queue; the topic's layout says which one, and on which broker. A topic's layout, id
and Kafka settings are attributes of its RocketMQ topic on every broker that has a part of it, so
that each knows them after a restart. Topics created through the RocketMQ listener are visible here
if their names are legal in Kafka. System topics are hidden, except for the ledger.

Layouts and ids are assigned by the controller, the live broker with the lowest node id; a broker
without nameservers is the whole cluster. `name_service` reports the other brokers, `changes` makes
changes. What is known of topics and brokers is on this broker's disk (`catalogue`), so that a
restarted broker knows it before it asks anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from msgspec.structs import replace

from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.nodes.broker.dynamic_configs import BROKER
from steelyard.nodes.broker.identity import cluster_id
from steelyard.nodes.broker.kafka.cluster.catalogue import Catalogue
from steelyard.nodes.broker.kafka.cluster.membership import ClusterMembership
from steelyard.nodes.broker.kafka.cluster.merging import merged
from steelyard.nodes.broker.kafka.cluster.postponed import PostponedWrites
from steelyard.nodes.broker.kafka.cluster.topic import (
    FIXED,
    OFFSETS_TOPIC,
    KafkaTopic,
    attributes_of,
    topic_of,
)
from steelyard.nodes.broker.kafka.cluster.topic_settings import TopicSettings, TopicSettingsReader
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.topics import is_kafka_name
from steelyard.nodes.seam import Effect
from steelyard.routes.brokers import BrokerEntry, brokers_namespace
from steelyard.routes.layout import Layout, layouts_namespace, write
from steelyard.store.entry import java_hash
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wire.remoting.bodies import TopicConfig
from steelyard.wire.remoting.names import PERM_READ_WRITE

BROKERS_MAX = 1_000
"""Most brokers of a cluster, including those that are down; further ones are ignored."""


class PartitionPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a partition is: on which node, and in which of its queues. `here`: on this broker."""

    node_id: int
    queue_id: int
    here: bool


class Broker(msgspec.Struct, frozen=True, gc=False):
    """A broker of the cluster. `address`: its Kafka listener; `remoting`: its RocketMQ listener."""

    name: str
    node_id: int
    address: str
    remoting: str
    live: bool = True

    @property
    def entry(self) -> BrokerEntry:
        return BrokerEntry(self.name, self.node_id, self.address, self.remoting)

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


class Cluster:
    """The brokers and topics of the cluster; implements `groups.kafka.groups.TopicsView`."""

    def __init__(
        self,
        parts: Parts,
        registered: Callable[[str], None],
        deleted: Callable[[str, int, list[Effect]], None],
    ) -> None:
        """Load what the disk has.

        `registered` is called with the name of every broker that announces its start, `deleted`
        with (topic, now, effects) for every topic that is gone.
        """
        config = parts.config
        assert config.kafka is not None
        self._config = config
        self._kafka = config.kafka
        self._topics = parts.topics
        self.catalogue = Catalogue(parts.store)
        self._rng = parts.rng
        self.readers = TopicSettingsReader(config.kafka, config.store)
        self._configs = parts.configs
        self._configs_seen = -1
        self._settings: dict[str, TopicSettings] = {}
        self._renew_defaults()
        self.is_alone = not config.nameservers
        """Whether this broker is the whole cluster."""
        self.is_ready = self.is_alone
        """Whether this broker has looked for the others."""
        self.brokers_namespace = brokers_namespace(config.cluster)
        self.layouts_namespace = layouts_namespace(config.cluster)
        """Nameserver namespaces: name to `BrokerEntry`, topic to its attributes, both as JSON."""
        self.me = Broker(config.name, config.kafka.node_id, config.kafka.address, config.address)
        self.brokers: dict[str, Broker] = {config.name: self.me}
        """By name, including those that are down."""
        self.membership = ClusterMembership(config.kafka.brokers, lambda: self.brokers)
        if self.is_alone:
            self.membership.settled_at = 0  # there is nobody to look for
        self.brokers_version = 0
        """Incremented when a broker comes, goes or changes."""
        self.registered = registered
        self.cluster_id = cluster_id(config.cluster)
        self.version = 1
        """Incremented when a topic comes, goes or changes."""
        self._deleted = deleted
        self._known: dict[str, KafkaTopic] = {}
        self._names: dict[bytes, str] = {}
        self._places: dict[tuple[str, int], PartitionPlace] = {}
        self._seen: dict[str, TopicConfig] = {}
        self._seen_version = -1
        self.wanted: dict[str, int] = {}
        """Topics of which this broker has more queues than partitions, and how many queues."""
        self.gone: list[str] = []
        """Topics that were deleted through the RocketMQ listener."""
        self.postponed = PostponedWrites()
        """Facts that the disk has refused."""
        self._load()

    def _load(self) -> None:
        """Load what the disk has; earlier versions kept topics as attributes of queues only."""
        for entry in self.catalogue.brokers():
            self.meet(entry, live=False)
        kept = dict(self.catalogue.topics())
        own = {name: config.attributes for name, config in self._topics.all().items()}
        other = [(name, own[name]) for name in own if own[name] != kept.get(name)]
        for name, attributes in (*kept.items(), *other):
            topic = topic_of(name, attributes, self.readers) if self.is_visible(name) else None
            if topic is None or not self.is_free(topic):
                continue
            known = self._known.get(name)
            if known is not None:
                topic = merged(known, topic)[0]
            self.learn(topic)

    # -- topics ----------------------------------------------------------------------------------

    def names(self) -> Iterable[str]:
        """Return all topics, including internal ones."""
        return list(self._known)

    def topic(self, name: str) -> KafkaTopic | None:
        return self._known.get(name)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 for an unknown one."""
        known = self._known.get(topic)
        return 0 if known is None else known.layout.partitions

    def id_of(self, topic: str) -> bytes:
        known = self._known.get(topic)
        return NO_ID if known is None else known.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def settings_of(self, topic: str) -> TopicSettings:
        """Return a topic's effective Kafka settings; the defaults for an unknown topic."""
        settings = self._settings.get(topic)
        if settings is None:
            known = self._known.get(topic)
            if known is None:
                return self._defaults
            settings = self._settings[topic] = self.readers.of(known.settings)
        return settings

    def _renew_defaults(self) -> None:
        """Take in what was changed of this broker's settings at run time."""
        if self._configs_seen != self._configs.changes:
            self._configs_seen = self._configs.changes
            own, of_all = (
                self._configs.of(BROKER, name) for name in (str(self._kafka.node_id), "")
            )
            self.readers.renew(own, of_all)
            self._defaults = self.readers.of({})
            self._settings.clear()

    def is_reserved(self, name: str) -> bool:
        """Return whether a topic of this name is hidden from Kafka clients."""
        return name in self._topics.system and name != LEDGER_TOPIC

    def is_visible(self, name: str) -> bool:
        return is_kafka_name(name) and not self.is_reserved(name)

    # -- places ----------------------------------------------------------------------------------

    def place(self, topic: str, partition: int) -> PartitionPlace | ErrorCode:
        """Return where a partition is, or the error to answer with; its broker may be down."""
        place = self._places.get((topic, partition))
        if place is not None:
            return place
        known = self._known.get(topic)
        found = None if known is None else known.layout.place(partition)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker, queue_id = found
        if broker not in self.brokers:
            return ErrorCode.LEADER_NOT_AVAILABLE
        here = broker == self.me.name
        if here and self._topics.get(topic) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # this broker's part is not created yet
        place = PartitionPlace(self.brokers[broker].node_id, queue_id, here)
        self._places[topic, partition] = place
        return place

    def partition_of(self, topic: str, queue_id: int) -> int | None:
        """Return the partition that a queue of this broker is, or None."""
        known = self._known.get(topic)
        return None if known is None else known.layout.partition_of(self.me.name, queue_id)

    def queue_of(self, partition: TopicPartition) -> tuple[str, int] | None:
        """Return the broker of a partition, which may be down, and the id of its queue there."""
        known = self._known.get(partition.topic)
        return None if known is None else known.layout.place(partition.partition)

    def local_partitions(self, topic: str) -> list[tuple[int, int]]:
        """Return (partition, queue id) of each partition of a topic on this broker."""
        known = self._known.get(topic)
        if known is None or not self.is_local(topic):
            return []
        return [
            (partition, queue_id)
            for partition, (broker, queue_id) in enumerate(known.layout.leaders())
            if broker == self.me.name
        ]

    def coordinator_of(self, key: str, topic: str = OFFSETS_TOPIC) -> int | None:
        """Return the node id of the broker that coordinates a group, None if none does now.

        With TRANSACTIONS_TOPIC, `key` is a transactional id.
        """
        partitions = self.partitions(topic)
        if not partitions:
            # A broker that is the whole cluster coordinates everything even without a layout.
            is_whole = self.is_alone and self.membership.names == (self.me.name,)
            return self.me.node_id if is_whole else None
        place = self.place(topic, coordinator_partition(key, partitions))
        if isinstance(place, ErrorCode) or self.live(place.node_id) is None:
            return None
        return place.node_id

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition of __consumer_offsets that a group belongs to."""
        count = self.partitions(OFFSETS_TOPIC) or self._kafka.offsets_topic_num_partitions
        return TopicPartition(OFFSETS_TOPIC, coordinator_partition(group_id, count))

    def coordinator_fault(self, key: str, topic: str = OFFSETS_TOPIC) -> ErrorCode:
        """Return NONE if this broker coordinates a group, otherwise the error to answer with.

        With TRANSACTIONS_TOPIC, `key` is a transactional id.
        """
        node_id = self.coordinator_of(key, topic)
        if node_id == self.me.node_id:
            if self._awaits(key, topic):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE
        if node_id is None and not self.partitions(topic):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NOT_COORDINATOR

    def _awaits(self, key: str, topic: str) -> bool:
        """Return whether another broker has yet to hand over what it keeps of a key."""
        known = self._known.get(topic)
        return known is not None and any(
            self.awaits_from(topic, layout, broker)
            for layout in known.merged
            for broker, _ in (layout.leaders()[coordinator_partition(key, layout.partitions)],)
        )

    def awaits_any(self, topic: str) -> bool:
        """Return whether any broker has yet to hand over what it keeps under superseded layouts."""
        known = self._known.get(topic)
        return (
            known is not None
            and self.me.name in known.layout.queues()
            and any(
                self.awaits_from(topic, layout, broker)
                for layout in known.merged
                for broker in layout.queues()
            )
        )

    def awaits_from(self, topic: str, layout: Layout, broker: str) -> bool:
        """Return whether a broker has yet to hand over what it keeps under a superseded layout."""
        return (
            broker != self.me.name
            and self.membership.counts(broker)
            and not self.catalogue.is_handed_over(topic, write(layout), broker)
        )

    # -- brokers ---------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self.me.node_id

    def live(self, node_id: int) -> Broker | None:
        """Return the live broker with this node id, or None."""
        return next((each for each in self.live_brokers() if each.node_id == node_id), None)

    def live_brokers(self) -> list[Broker]:
        """Return the live brokers, by node id."""
        live = [broker for broker in self.brokers.values() if broker.live]
        return sorted(live, key=lambda broker: (broker.node_id, broker.name))

    @property
    def controller(self) -> Broker:
        """Return the live broker with the lowest node id, which alone assigns layouts."""
        return self.live_brokers()[0]

    @property
    def is_controller(self) -> bool:
        return self.is_ready and self.controller.name == self.me.name

    @property
    def entry(self) -> BrokerEntry:
        """Return this broker's own entry."""
        return self.me.entry

    def meet(self, entry: BrokerEntry, *, live: bool = True) -> None:
        """Take in what another broker says of itself."""
        broker = Broker(entry.name, entry.node_id, entry.address, entry.remoting, live)
        if entry.name not in self.brokers and len(self.brokers) >= BROKERS_MAX:
            return
        if entry.name != self.me.name and self.brokers.get(entry.name) != broker:
            self.brokers[entry.name] = broker
            self.brokers_version += 1
            self._places.clear()
        if entry.name != self.me.name:
            about = f"broker {entry.name}"
            self.postponed.do(about, partial(self.catalogue.keep_broker, entry))

    # -- changes ---------------------------------------------------------------------------------

    def new_id(self) -> bytes:
        """Return a random id for a new topic."""
        return bytes(self._rng.randrange(256) for _ in range(16))

    def learn(self, topic: KafkaTopic) -> None:
        """Take in a new or changed topic."""
        known = self._known.get(topic.name)
        if known == topic:
            return
        if known is not None:
            self._names.pop(known.topic_id, None)
        self._known[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._changed(topic.name)
        self._weigh(topic.name)

    def is_free(self, topic: KafkaTopic) -> bool:
        """Return whether no other topic has its id.

        One may have it if somebody copied a topic's attributes to another topic.
        """
        return self._names.get(topic.topic_id, topic.name) == topic.name

    def forget(self, name: str, now: int, effects: list[Effect]) -> None:
        """Forget a topic that is gone."""
        self._seen.pop(name, None)
        self.wanted.pop(name, None)
        known = self._known.pop(name, None)
        if known is None:
            return
        self._names.pop(known.topic_id, None)
        self.postponed.do(_topic(name), partial(self.catalogue.drop, name))
        self._changed(name)
        self._deleted(name, now, effects)

    def _changed(self, name: str) -> None:
        self._settings.pop(name, None)
        self._places.clear()
        self.version += 1

    def put_local(self, topic: KafkaTopic, now: int) -> bool:
        """Store a topic and this broker's part of it; return whether that changed the part.

        Raises ProtocolError if the broker has no room for the part, and StorageError.
        """
        self.catalogue.keep(topic)
        self.postponed.cancel(_topic(topic.name))
        self.learn(topic)
        config = self._part_of(topic)
        if config is None or config == self._topics.get(topic.name):
            return False
        self._topics.put(config, now)
        return True

    def check_part(self, topic: KafkaTopic) -> None:
        """Raise ProtocolError if the broker has no room for its part of a topic."""
        config = self._part_of(topic)
        if config is not None:
            self._topics.check_config(config)

    def _part_of(self, topic: KafkaTopic) -> TopicConfig | None:
        """Return this broker's part of a topic, with the queues that it has already."""
        queues = topic.layout.queues().get(self.me.name, 0)
        if not queues:
            return None
        known = self._topics.get(topic.name)
        if known is None:
            known = TopicConfig(topic.name, queues, queues, PERM_READ_WRITE)
        more = max(known.read_queue_nums, known.write_queue_nums) < queues
        return replace(
            known,
            read_queue_nums=queues if more else known.read_queue_nums,
            write_queue_nums=queues if more else known.write_queue_nums,
            attributes=attributes_of(topic),
        )

    def restore(self, topic: KafkaTopic) -> None:
        """Return to a topic's former version, because its change could not be stored."""
        self.postponed.do(_topic(topic.name), partial(self.catalogue.keep, topic))
        self.learn(topic)

    def lacks_part(self, topic: KafkaTopic) -> bool:
        """Return whether this broker should have queues of the topic, but has none."""
        return self.me.name in topic.layout.queues() and not self.is_local(topic.name)

    def is_local(self, name: str) -> bool:
        """Return whether this broker has queues of the topic."""
        return self._topics.get(name) is not None

    def follow(self, now: int, effects: list[Effect]) -> None:
        """Take in changes of this broker's topics and settings, made through either listener."""
        self._renew_defaults()
        if self._topics.version.counter == self._seen_version:
            return
        self._seen_version = self._topics.version.counter
        configs = self._topics.all()
        for name in [name for name in self._seen if name not in configs]:
            topic_id = self.id_of(name)
            if topic_id != NO_ID:
                about = f"deleted {topic_id.hex()}"
                bury = partial(self.catalogue.bury, topic_id, whole=False)
                self.postponed.do(about, bury)
            self.forget(name, now, effects)
            self.gone.append(name)
        for name, config in configs.items():
            if self._seen.get(name) is config or not self.is_visible(name):
                continue
            self._seen[name] = config
            topic = topic_of(name, config.attributes, self.readers)
            if topic is not None and name not in self._known and self.is_free(topic):
                self.postponed.do(_topic(name), partial(self.catalogue.keep, topic))
                self.learn(topic)
            self._weigh(name)

    def weigh_all(self) -> None:
        """Determine again which queues are not partitions yet."""
        for name in self._seen:
            self._weigh(name)

    def _weigh(self, name: str) -> None:
        config = self._topics.get(name)
        if config is None or name in FIXED:
            return
        queues = max(config.read_queue_nums, config.write_queue_nums)
        known = self._known.get(name)
        if known is not None and queues <= known.layout.queues().get(self.me.name, 0):
            self.wanted.pop(name, None)
        else:
            self.wanted[name] = queues

    def check(self) -> None:
        assert self._names == {topic.topic_id: name for name, topic in self._known.items()}
        assert self.brokers[self.me.name] == self.me
        for name, topic in self._known.items():
            assert name == topic.name
            assert self.is_visible(name)
            assert topic.layout.partitions > 0


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition of __consumer_offsets or __transaction_state that a name belongs to.

    `key`: a group id or a transactional id. Source: GroupCoordinatorService.partitionFor;
    Utils.abs, which returns 0 for the smallest integer.
    """
    code = java_hash(key)
    return (0 if code == -(2**31) else abs(code)) % partitions


def _topic(name: str) -> str:
    """Return what a postponed write of a topic is about."""
    return f"topic {name}"
