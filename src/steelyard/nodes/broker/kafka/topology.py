"""Composes the parts that know, change and describe the brokers and topics of the cluster."""

from __future__ import annotations

from steelyard.nodes.broker.kafka.cluster.changes import Changes, Delete
from steelyard.nodes.broker.kafka.cluster.claims import Claims
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.config_spreading import ConfigSpreading
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.group_settings import GroupSettings
from steelyard.nodes.broker.kafka.cluster.name_service import NameService
from steelyard.nodes.broker.kafka.cluster.surveys import Surveys
from steelyard.nodes.broker.kafka.data.log_dirs import LogDirs
from steelyard.nodes.broker.kafka.groups.coordinators import Coordinators
from steelyard.nodes.broker.kafka.operations.features import FeatureUpdates
from steelyard.nodes.broker.kafka.operations.quorum import Quorum
from steelyard.nodes.broker.kafka.requests.feature_levels import FeatureLevels
from steelyard.nodes.broker.kafka.topics.altering import Altering
from steelyard.nodes.broker.kafka.topics.configs import Configs
from steelyard.nodes.broker.kafka.topics.creating import Creating
from steelyard.nodes.broker.kafka.topics.deleting import Deleting
from steelyard.nodes.broker.kafka.topics.describing import TopicPages
from steelyard.nodes.broker.kafka.topics.dynamic import DynamicAltering
from steelyard.nodes.broker.kafka.topics.metadata import MetadataHandlers
from steelyard.nodes.broker.kafka.topics.placement import PartitionPlacement
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.registration import Purpose
from steelyard.nodes.broker.peers.requests import (
    PeerRequests,
)
from steelyard.nodes.broker.requests import served
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect


class Topology:
    """The parts that know and change the cluster; see `service`."""

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        peer_requests: PeerRequests,
        delete: Delete,
        spreading: ConfigSpreading,
        group_settings: GroupSettings,
        features: FeatureLevels,
        now: int,
    ) -> None:
        """`delete` deletes a topic of this broker."""
        config, durability = parts.config, parts.durability
        assert config.kafka is not None
        self._cluster = cluster
        self._joining = parts.joining
        claims = Claims(parts.store)
        self._surveys = Surveys(cluster, claims, peer_requests)
        changes = Changes(parts, cluster, peer_requests, claims, self._surveys, delete)
        self._changes = changes
        forwarding = self.forwarding = Forwarding(cluster, peer_requests)
        self._name_service = NameService(parts, cluster, changes, self._surveys, peer_requests, now)
        self.serving = (
            MetadataHandlers(config.kafka, cluster, changes, durability, forwarding),
            TopicPages(cluster),
            PartitionPlacement(cluster),
            Quorum(cluster, config.kafka.security_protocol),
            Coordinators(cluster, changes, durability, forwarding),
            Configs(config, cluster, parts.configs, group_settings),
            LogDirs(parts.store, cluster),
        )
        dynamic = DynamicAltering(config, cluster, parts.configs, group_settings, spreading)
        self.creating = Creating(cluster, changes, durability)
        granted = (
            self.creating,
            Deleting(cluster, changes, durability),
            Altering(cluster, changes, durability, dynamic),
            FeatureUpdates(cluster, features, parts.configs, spreading, durability),
        )
        self.controlled = forwarding.controlled(served(granted))
        """Handlers of requests that only the controller may grant, by API key."""
        self.asked = (forwarding, changes, self._surveys)
        """Parts that serve other brokers."""

    @property
    def next_at(self) -> int | None:
        return self._name_service.next_at if self._joining.may_serve else None

    def due(self, now: int, effects: list[Effect]) -> None:
        self._name_service.due(now, effects)

    def follow(self, now: int, effects: list[Effect]) -> None:
        """Take in what changed in this broker's topics."""
        self._cluster.follow(now, effects)
        self._changes.follow(now, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        """Handle the outcome of a call to a nameserver or to another broker."""
        for part in (self._changes, self._surveys, self.forwarding, self._name_service):
            if part.ended(outcome, now, effects):
                return

    def link_lost(self, address: str, now: int) -> None:
        """Check soon which brokers are up, because a link to one or to a nameserver closed."""
        self._name_service.soon(now)

    def check(self) -> None:
        self._cluster.check()
        self._changes.check()
        self._surveys.check()
        self._name_service.check()
