"""What the broker's node and its two wings share. Each part is made once, and gets all that it needs when it is made."""

from __future__ import annotations

import msgspec

from steelyard.config import BrokerConfig
from steelyard.groups.remoting.registry import Registry
from steelyard.nodes.broker.backlogs import Backlogs
from steelyard.nodes.broker.damage import DamageReports
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.broker.peers.joining import ClusterJoining
from steelyard.nodes.broker.peers.registration import Purpose, Registration
from steelyard.nodes.broker.retention import Retention
from steelyard.nodes.broker.scrubbing import Scrubbing
from steelyard.nodes.broker.statistics import BrokerStatistics
from steelyard.nodes.broker.topics import TopicConfigs
from steelyard.nodes.broker.turns import Turns
from steelyard.nodes.broker.writer import Watcher, Writer
from steelyard.nodes.calls.remoting import Calls
from steelyard.store.store import Store
from steelyard.types import Random


class Parts(msgspec.Struct, frozen=True):
    """See the module's text. `calls`: to nameservers and other brokers; `faults`: of the disk, but for those that Kafka's clients meet."""

    config: BrokerConfig
    store: Store
    rng: Random
    calls: Calls[Purpose]
    turns: Turns
    registry: Registry
    ledger: Ledger
    durability: Durability
    topics: TopicConfigs
    registration: Registration
    joining: ClusterJoining
    retention: Retention
    statistics: BrokerStatistics
    writer: Writer
    faults: Faults
    damage: DamageReports
    scrubbing: Scrubbing


def make_parts(
    config: BrokerConfig, store: Store, rng: Random, appended: Watcher, now: int
) -> Parts:
    """The parts of a broker that starts. `appended` is called of every queue that has something new to read."""

    def end(topic: str, queue_id: int) -> int:
        """The offset behind the last message that can be read of a queue."""
        log = store.log(topic, queue_id)
        return 0 if log is None else durability.readable_end(log)

    calls: Calls[Purpose] = Calls()
    registry = Registry()
    durability = Durability(sync=config.flush == "sync")
    topics = TopicConfigs(config, store.table("topics"), now)
    registration = Registration(config, topics, calls, durability)
    retention = Retention(config.store, store, topics)
    statistics = BrokerStatistics(now)
    faults = Faults()
    return Parts(
        config,
        store,
        rng,
        calls,
        Turns(),
        registry,
        Ledger(config, registry, Backlogs(config.name, end)),
        durability,
        topics,
        registration,
        ClusterJoining(config, calls, registration, now),
        retention,
        statistics,
        Writer(store, durability, retention, statistics, config.address, appended),
        faults,
        DamageReports(store.findings),
        Scrubbing(store, config.store, faults),
    )
