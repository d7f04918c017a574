"""Plans the layouts of new topics, and where further partitions go."""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.config import BrokerConfig
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, coordinator_partition
from steelyard.nodes.broker.kafka.cluster.topic import (
    FIXED,
    FIXED_SETTINGS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    KafkaTopic,
    fixed_id,
)
from steelyard.routes.layout import Extent, Layout, spread


class Plans:
    """Plans of topics, with the defaults of this broker's configuration."""

    def __init__(self, config: BrokerConfig, cluster: Cluster) -> None:
        assert config.kafka is not None
        self._config = config.kafka
        self._cluster_name = config.cluster
        self._cluster = cluster

    def new_topic(
        self, name: str, partitions: int = -1, settings: Mapping[str, str] | None = None
    ) -> KafkaTopic:
        """Return a topic to create, with its partitions spread over the live brokers.

        `partitions`: -1 for the configured number.
        """
        if partitions < 0:
            partitions = self._usual_partitions(name)
        brokers = self._live()
        topic_id = self._cluster.new_id()
        if name in FIXED:
            # All are up when it is created, and each broker arrives at the same layout and id.
            brokers = sorted(self._cluster.membership.names)
            topic_id = fixed_id(self._cluster_name, name)
            settings = FIXED_SETTINGS
        first = coordinator_partition(name, len(brokers))  # small topics are not all on one broker
        layout = Layout().grown(spread(partitions, brokers[first:] + brokers[:first]))
        return KafkaTopic(name, topic_id, layout, settings or {})

    def more_partitions(self, topic: KafkaTopic, partitions: int) -> list[Extent]:
        """Return the extents to add for `partitions` in all; brokers with few queues come first."""
        have = topic.layout.queues()
        live = self._live()
        live.sort(key=lambda name: have.get(name, 0))
        return spread(partitions - topic.layout.partitions, live)

    def _live(self) -> list[str]:
        return [broker.name for broker in self._cluster.live_brokers()]

    def _usual_partitions(self, name: str) -> int:
        if name == OFFSETS_TOPIC:
            return self._config.offsets_topic_num_partitions
        if name == TRANSACTIONS_TOPIC:
            return self._config.transaction_state_log_num_partitions
        return self._config.num_partitions
