"""The parts that serve share groups, composed for the Kafka listener."""

from __future__ import annotations

from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.groups.kafka.share.groups import ShareGroups
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.group_settings import GroupSettings
from steelyard.nodes.broker.kafka.data.fetch_reads import MayRead
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.shares.acknowledge import ShareAcknowledgements
from steelyard.nodes.broker.kafka.shares.acknowledging import Acknowledging
from steelyard.nodes.broker.kafka.shares.acquiring import Acquiring
from steelyard.nodes.broker.kafka.shares.fetch import ShareFetches
from steelyard.nodes.broker.kafka.shares.local_offsets import LocalShareOffsets
from steelyard.nodes.broker.kafka.shares.offsets import ShareOffsets
from steelyard.nodes.broker.kafka.shares.other_leaders import OtherLeaders
from steelyard.nodes.broker.kafka.shares.places import SharePlaces
from steelyard.nodes.broker.kafka.shares.reads import ShareReads
from steelyard.nodes.broker.kafka.shares.sessions import ShareSessions
from steelyard.nodes.broker.kafka.shares.stored import SharePartitions
from steelyard.nodes.broker.parts import Parts
from steelyard.wire.kafka.messages.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
)


class ShareService:
    """Share groups at one broker: those that it coordinates, and the partitions that it leads."""

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        groups: CoordinatedGroups,
        settings: GroupSettings,
        forwarding: Forwarding,
        partitions: Partitions,
        producers: Producers,
        faults: Faults,
        may_read: MayRead | None,
        now: int,
    ) -> None:
        config, clock, durability = parts.config.kafka, parts.pulse.clock, parts.durability
        assert config is not None
        table = parts.store.table("kafka_share_groups")
        self.groups = ShareGroups(config, cluster, groups, table, settings.share, clock)
        self.groups.load(now)
        table = parts.store.table("kafka_share_partitions")
        self._partitions = SharePartitions(table, settings, clock)
        self._cluster = cluster
        reads = ShareReads(producers, durability)
        places = SharePlaces(self._partitions, partitions, settings, reads, faults, may_read)
        places.bound_all()
        sessions = ShareSessions(config.group_share_max_share_sessions)
        acknowledging = Acknowledging(self._partitions, places, faults)
        acquiring = Acquiring(self._partitions, reads, parts.statistics, faults)
        self.fetches = ShareFetches(
            parts, self._partitions, places, sessions, acknowledging, acquiring, faults
        )
        local = LocalShareOffsets(self._partitions, partitions, cluster, durability, faults)
        others = OtherLeaders(cluster, forwarding)
        self.offsets = ShareOffsets(self.groups, local, others, cluster, durability, faults)
        forwarding.serve(DESCRIBE_SHARE_GROUP_OFFSETS.key, self.offsets.describe)
        forwarding.serve(ALTER_SHARE_GROUP_OFFSETS.key, self.offsets.alter)
        forwarding.serve(DELETE_SHARE_GROUP_OFFSETS.key, self.offsets.delete)
        acknowledgements = ShareAcknowledgements(
            parts.turns,
            self._partitions,
            places,
            sessions,
            acknowledging,
            self.fetches,
            durability,
        )
        self.serving = (self.fetches, acknowledgements, self.offsets)

    def topic_deleted(self, topic: str) -> None:
        """Delete what is kept of a deleted topic. Raises StorageError."""
        self._partitions.delete_topic(topic, self._cluster.id_of(topic))
