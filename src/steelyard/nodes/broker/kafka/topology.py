"""Brokers and topics of the cluster: the parts that know, make and tell them, put together for `side`."""

from __future__ import annotations

from steelyard.config import BrokerConfig
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Delete
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.name_service import NameService
from steelyard.nodes.broker.kafka.cluster.surveys import Surveys
from steelyard.nodes.broker.kafka.data.log_dirs import LogDirs
from steelyard.nodes.broker.kafka.groups.coordinators import Coordinators
from steelyard.nodes.broker.kafka.requests.channel import Handler, Prompt
from steelyard.nodes.broker.kafka.topics.altering import Altering
from steelyard.nodes.broker.kafka.topics.configs import Configs
from steelyard.nodes.broker.kafka.topics.creating import Creating
from steelyard.nodes.broker.kafka.topics.deleting import Deleting
from steelyard.nodes.broker.kafka.topics.metadata import Metadata
from steelyard.nodes.broker.peers.registration import Purpose, Registration
from steelyard.nodes.broker.peers.requests import (
    FORWARD,
    NEWS,
    QUEUES_WANTED,
    SURVEY,
    PeerRequests,
)
from steelyard.nodes.broker.requests import Handler as RemotingHandler
from steelyard.nodes.calls.remoting import Calls, Outcome
from steelyard.nodes.seam import Effect
from steelyard.store.store import Store


class Topology:
    """See the module's text. `handlers`: by API key; `remoting_handlers`: of other brokers' requests, by code."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster: Cluster,
        store: Store,
        calls: Calls[Purpose],
        registration: Registration,
        delete: Delete,
        durability: Durability,
        now: int,
    ) -> None:
        assert config.kafka is not None
        self._cluster = cluster
        peer_requests = PeerRequests(calls)
        self._surveys = Surveys(cluster, peer_requests)
        self._changes = Changes(
            config, cluster, peer_requests, self._surveys, registration, delete, durability
        )
        self._forwarding = Forwarding(cluster, peer_requests)
        self._name_service = NameService(
            config, cluster, self._changes, self._surveys, peer_requests, registration, now
        )
        self.remoting_handlers: dict[int, RemotingHandler] = {
            FORWARD: self._forwarding.requested,
            QUEUES_WANTED: self._changes.queues_wanted,
            NEWS: self._changes.take_news,
            SURVEY: self._surveys.requested,
        }
        self.may_look = False
        """This broker may put itself among the others: see `nodes/broker/peers/joining`."""
        self.handlers: dict[int, Handler] = {}
        self._add_handlers(config, store, durability)

    def _add_handlers(self, config: BrokerConfig, store: Store, durability: Durability) -> None:
        assert config.kafka is not None
        cluster, changes, forwarding = self._cluster, self._changes, self._forwarding
        metadata = Metadata(config.kafka, cluster, changes, durability, forwarding)
        creating = Creating(cluster, changes, durability)
        altering = Altering(cluster, changes, durability)
        log_dirs = LogDirs(store, cluster)
        self.handlers |= {
            3: metadata.metadata_in_steps,
            10: Coordinators(cluster, changes, durability, forwarding).find,
            32: Configs(config, cluster).describe_configs,
            35: log_dirs.describe_log_dirs,
            46: log_dirs.list_partition_reassignments,
            60: metadata.describe_cluster,
        }
        granted_by_the_controller: dict[int, Prompt] = {
            19: creating.create_topics,
            20: Deleting(cluster, changes, durability).delete_topics,
            33: altering.alter_configs,
            37: creating.create_partitions,
            44: altering.incremental_alter_configs,
        }
        for key, handler in granted_by_the_controller.items():
            self.handlers[key] = forwarding.controlled(key, handler)

    @property
    def next_at(self) -> int | None:
        return self._name_service.next_at if self.may_look else None

    def due(self, now: int, effects: list[Effect]) -> None:
        self._name_service.due(now, effects)

    def follow(self, now: int, effects: list[Effect]) -> None:
        """See what became of this broker's topics."""
        self._cluster.follow(now, effects)
        self._changes.follow(now, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        """A call to a nameserver or to another broker ended."""
        for part in (self._changes, self._surveys, self._forwarding, self._name_service):
            if part.ended(outcome, now, effects):
                return

    def link_lost(self, address: str, now: int) -> None:
        """A link to a nameserver or another broker closed: see who is still there."""
        self._name_service.soon(now)

    def check(self) -> None:
        self._cluster.check()
        self._changes.check()
        self._surveys.check()
        self._name_service.check()
