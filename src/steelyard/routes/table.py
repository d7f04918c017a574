"""The routes of a nameserver: the brokers' addresses, topics and numbers of queues.

Brokers register, clients query. Nothing here outlives the process: brokers register again every 30
seconds. A broker is removed when it unregisters, when its connection closes, or when it was silent
for longer than its expiry; its queue data are removed with its last replica.

- Only a master (id 0) registers topics; replicas register their addresses.
- A topic missing from a later registration stays, as in RocketMQ: deletion is a separate request.
- The same address under a new id (a replica made master) drops the old id.
- A replica set that moved to a new address is refused while a newer `state_version` is known.
- RocketMQ refuses the first registration of a broker that has exactly one topic. We do not.
Source: namesrv/routeinfo/RouteInfoManager.java, namesrv/kvconfig/KVConfigManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from steelyard.session_clock import SessionClock
from steelyard.wire.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from steelyard.wire.remoting.names import MASTER_ID, PERM_READ, PERM_WRITE

BROKERS_MAX = 10_000
"""Maximum broker addresses in one table."""
TOPICS_MAX = 1_000_000
"""Maximum (topic, broker) pairs in one table."""
KV_MAX = 100_000
"""Maximum key-value settings in one table."""

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of strictly ordered topics: topic to `broker:queues;broker:queues`."""


class BrokerRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself. `expiry_ms`: how long it may be silent."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    version: DataVersion
    topics: Mapping[str, TopicConfig]
    expiry_ms: int


class Master(msgspec.Struct, frozen=True):
    """The address of a replica's master.

    Both fields are empty if there is none or it is the replica.
    """

    address: str = ""
    ha_address: str = ""


class Full(msgspec.Struct, frozen=True):
    """The table has no room for the registration; nothing was changed."""

    reason: str


class _Live(msgspec.Struct):
    """A broker that is there. `queues`: its topics as it registered them last."""

    cluster: str
    broker_name: str
    address: str
    ha_address: str
    version: DataVersion
    link: int
    heard_at: int
    expiry_ms: int
    queues: dict[str, QueueData]


class RouteTable:
    """The routes; see the module docstring.

    `link` numbers the connection of a registration. `clock`: what brokers' silence is measured by.
    """

    def __init__(self, clock: SessionClock | None = None) -> None:
        self._clock = clock or SessionClock()
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, list[str]] = {}
        self._live: dict[tuple[str, str], _Live] = {}
        self._settings: dict[str, dict[str, str]] = {}

    # -- brokers ---------------------------------------------------------------------------------

    def register(self, broker: BrokerRegistration, link: int, now: int) -> Master | Full:
        """Take a broker's word in.

        A stale claim to an address is ignored (and answered as accepted, as in RocketMQ).
        """
        key = (broker.cluster, broker.address)
        if key not in self._live and len(self._live) >= BROKERS_MAX:
            return Full(f"more than {BROKERS_MAX} brokers")
        if self._pairs_with(broker) > TOPICS_MAX:
            return Full(f"more than {TOPICS_MAX} topics")
        self._drop_former_selves(broker)
        known = self._live.get(key)
        data = self._brokers.get(broker.broker_name)
        addresses = {} if data is None else dict(data.broker_addrs)
        old = addresses.get(broker.broker_id)
        if old is not None and old != broker.address:
            rival = self._live[(broker.cluster, old)]
            if rival.version.state_version > broker.version.state_version:
                self.unregister(broker.cluster, broker.broker_name, broker.address)
                return Master()
            del self._live[(broker.cluster, old)]
        addresses = {i: a for i, a in addresses.items() if a != broker.address}
        addresses[broker.broker_id] = broker.address
        self._brokers[broker.broker_name] = BrokerData(
            broker.cluster, broker.broker_name, dict(sorted(addresses.items()))
        )
        names = self._clusters.setdefault(broker.cluster, [])
        if broker.broker_name not in names:
            names.append(broker.broker_name)
        queues = {} if old is None or known is None else known.queues
        if broker.broker_id == MASTER_ID:
            changed = not queues or known is None or known.version != broker.version
            self._take_topics(broker, queues, changed=changed)
        self._live[key] = _Live(
            broker.cluster,
            broker.broker_name,
            broker.address,
            broker.ha_address,
            broker.version,
            link,
            now,
            broker.expiry_ms,
            queues,
        )
        return self._master_for(broker)

    def _pairs_with(self, broker: BrokerRegistration) -> int:
        name = broker.broker_name
        new = sum(name not in self._queues.get(topic, ()) for topic in broker.topics)
        return new + sum(len(by_broker) for by_broker in self._queues.values())

    def _drop_former_selves(self, broker: BrokerRegistration) -> None:
        """A broker that changed its name or its cluster leaves under the old one."""
        known = self._live.get((broker.cluster, broker.address))
        if known is not None and known.broker_name != broker.broker_name:
            self.unregister(known.cluster, known.broker_name, known.address)
        data = self._brokers.get(broker.broker_name)
        if data is not None and data.cluster != broker.cluster:
            for address in data.broker_addrs.values():
                self.unregister(data.cluster, data.broker_name, address)

    def _take_topics(
        self, broker: BrokerRegistration, queues: dict[str, QueueData], *, changed: bool
    ) -> None:
        """Take what is new since the broker registered `queues`, and note it there.

        The rest stays as it is: an operator may have forbidden writes.
        """
        name = broker.broker_name
        for topic, config in broker.topics.items():
            by_broker = self._queues.setdefault(topic, {})
            is_known = name in by_broker
            if is_known and not changed:
                continue
            data = QueueData(
                name,
                config.read_queue_nums,
                config.write_queue_nums,
                config.perm,
                config.topic_sys_flag,
            )
            if not is_known or queues.get(topic) != data:
                by_broker[name] = queues[topic] = data

    def _master_for(self, broker: BrokerRegistration) -> Master:
        if broker.broker_id == MASTER_ID:
            return Master()
        address = self._brokers[broker.broker_name].broker_addrs.get(MASTER_ID, "")
        live = self._live.get((broker.cluster, address))
        return Master() if live is None else Master(address, live.ha_address)

    def version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version of the topics that a broker last registered; None if it is unknown."""
        live = self._live.get((cluster, address))
        return None if live is None else live.version

    def touch(self, cluster: str, address: str, now: int) -> None:
        """Mark the broker as alive, although it registered nothing new."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.heard_at = now

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """Remove a broker; unknown ones are ignored."""
        self._live.pop((cluster, address), None)
        data = self._brokers.get(broker_name)
        if data is None or data.cluster != cluster:
            return
        left = {i: a for i, a in data.broker_addrs.items() if a != address}
        if left:
            self._brokers[broker_name] = replace(data, broker_addrs=left)
            return
        del self._brokers[broker_name]
        names = self._clusters[cluster]
        names.remove(broker_name)
        if not names:
            del self._clusters[cluster]
        self._forget_queues([broker_name], list(self._queues))

    def link_closed(self, link: int) -> list[str]:
        """Remove every broker that registered on a closed connection; return their addresses."""
        gone = [live for live in self._live.values() if live.link == link]
        for live in gone:
            self.unregister(live.cluster, live.broker_name, live.address)
        return [live.address for live in gone]

    def expire(self, now: int) -> list[tuple[str, int]]:
        """Remove the brokers that were silent for too long; return (address, link) of each."""
        ago = self._clock.ago
        gone = [live for live in self._live.values() if live.heard_at < ago(live.expiry_ms, now)]
        for live in gone:
            self.unregister(live.cluster, live.broker_name, live.address)
        return [(live.address, live.link) for live in gone]

    def set_write_permission(self, broker_name: str, *, allowed: bool) -> int:
        """Allow or forbid writes to all topics of a broker; return their number.

        Applies to each of them until the broker registers other settings for it, or comes back.
        """
        count = 0
        for by_broker in self._queues.values():
            data = by_broker.get(broker_name)
            if data is not None:
                perm = PERM_READ | PERM_WRITE if allowed else data.perm & ~PERM_WRITE
                by_broker[broker_name] = replace(data, perm=perm)
                count += 1
        return count

    # -- topics ----------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic; None if no live broker has it."""
        by_broker = self._queues.get(topic)
        if not by_broker:
            return None
        return TopicRouteData(
            tuple(by_broker.values()), tuple(self._brokers[name] for name in by_broker)
        )

    def topics(self) -> tuple[str, ...]:
        return tuple(self._queues)

    def topics_of(self, cluster: str) -> tuple[str, ...]:
        """Return the topics of a cluster's brokers."""
        names = set(self._clusters.get(cluster, ()))
        return tuple(t for t, by_broker in self._queues.items() if names & by_broker.keys())

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or in one cluster.

        A broker that still has it registers it again.
        """
        if cluster is None:
            self._queues.pop(topic, None)
        elif topic in self._queues:
            self._forget_queues(self._clusters.get(cluster, []), [topic])

    def _forget_queues(self, broker_names: list[str], topics: list[str]) -> None:
        for topic in topics:
            by_broker = self._queues[topic]
            for name in broker_names:
                by_broker.pop(name, None)
            if not by_broker:
                del self._queues[topic]

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            dict(self._brokers), {name: tuple(names) for name, names in self._clusters.items()}
        )

    # -- settings --------------------------------------------------------------------------------

    def put_setting(self, namespace: str, key: str, value: str) -> Full | None:
        settings = self._settings.get(namespace, {})
        if key not in settings and sum(map(len, self._settings.values())) >= KV_MAX:
            return Full(f"more than {KV_MAX} settings")
        self._settings.setdefault(namespace, {})[key] = value
        return None

    def setting(self, namespace: str, key: str) -> str | None:
        return self._settings.get(namespace, {}).get(key)

    def delete_setting(self, namespace: str, key: str) -> None:
        settings = self._settings.get(namespace, {})
        settings.pop(key, None)
        if not settings:
            self._settings.pop(namespace, None)

    def settings(self, namespace: str) -> dict[str, str] | None:
        """Return all settings of a namespace; None if it has none."""
        settings = self._settings.get(namespace)
        return None if settings is None else dict(settings)

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that brokers, clusters, live entries and queues are consistent."""
        addresses = {
            (data.cluster, address)
            for data in self._brokers.values()
            for address in data.broker_addrs.values()
        }
        assert addresses == set(self._live)
        for name, data in self._brokers.items():
            assert data.broker_addrs, name
            assert name in self._clusters[data.cluster]
        assert sorted(n for names in self._clusters.values() for n in names) == sorted(
            self._brokers
        )
        for topic, by_broker in self._queues.items():
            assert by_broker, topic
            assert by_broker.keys() <= self._brokers.keys(), topic
        assert all(self._settings.values())
        assert len(self._live) <= BROKERS_MAX
