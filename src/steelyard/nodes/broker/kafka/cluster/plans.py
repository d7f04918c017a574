"""What a new topic is to look like, and where further partitions go."""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.config import BrokerConfig
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, coordinator_partition
from steelyard.nodes.broker.kafka.cluster.topic import (
    FIXED,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    KafkaTopic,
    fixed_id,
)
from steelyard.routes.layout import Extent, Layout, spread


class Plans:
    """See the module's text."""

    def __init__(self, config: BrokerConfig, cluster: Cluster) -> None:
        assert config.kafka is not None
        self._config = config.kafka
        self._cluster_name = config.cluster
        self._cluster = cluster

    def new_topic(
        self, name: str, partitions: int = -1, settings: Mapping[str, str] | None = None
    ) -> KafkaTopic:
        """A topic that is to be made, its partitions spread over the live brokers. -1: as many as is usual."""
        if partitions < 0:
            partitions = self._usual_partitions(name)
        brokers = self._live()
        topic_id = self._cluster.new_id()
        if name in FIXED:
            # All of them are there when it is made, and each broker comes to the same layout and id.
            brokers = sorted(self._cluster.membership.names)
            topic_id = fixed_id(self._cluster_name, name)
        first = coordinator_partition(name, len(brokers))  # small topics are not all on one broker
        layout = Layout().grown(spread(partitions, brokers[first:] + brokers[:first]))
        return KafkaTopic(name, topic_id, layout, settings or {})

    def more_partitions(self, topic: KafkaTopic, partitions: int) -> list[Extent]:
        """The extents to add to a topic that is to have so many partitions; brokers with few of them go first."""
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
