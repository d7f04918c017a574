"""The parts that serve transactions, composed for the Kafka listener."""

from __future__ import annotations

from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.data.delayed import DelayedRecords
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.data.produce import Produce
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.groups.offsets import GroupOffsets
from steelyard.nodes.broker.kafka.requests.feature_levels import FeatureLevels
from steelyard.nodes.broker.kafka.transactions.additions import PartitionAdditions
from steelyard.nodes.broker.kafka.transactions.markers import Markers
from steelyard.nodes.broker.kafka.transactions.marking import Markings
from steelyard.nodes.broker.kafka.transactions.offsets import TxnOffsets
from steelyard.nodes.broker.kafka.transactions.producer_ids import ProducerIds
from steelyard.nodes.broker.kafka.transactions.producing import TransactionalProduce
from steelyard.nodes.broker.kafka.transactions.together import CommitsTogether
from steelyard.nodes.broker.kafka.transactions.transactions import TransactionRequests
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.messages.transactions import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS


class TransactionService:
    """Transactions at one broker: those that it coordinates, and what others write here.

    `is_private`: markers go to other brokers by their RocketMQ ports, because the Kafka listeners
    want TLS, logins or permissions.
    """

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        forwarding: Forwarding,
        partitions: Partitions,
        producers: Producers,
        delayed: DelayedRecords,
        offsets: GroupOffsets,
        features: FeatureLevels,
        faults: Faults,
        now: int,
        *,
        is_private: bool,
    ) -> None:
        config, store, durability = parts.config.kafka, parts.store, parts.durability
        assert config is not None
        table = store.table("kafka_producer_ids")
        producer_ids = ProducerIds(config.node_id, table, durability, faults)
        self.coordinator = TransactionCoordinator(
            config,
            store.table("kafka_transactions"),
            producer_ids.next_producer_id,
            now,
            version=lambda: features.transaction_version,
            clock=parts.pulse.clock,
        )
        requests = TransactionRequests(self.coordinator, producer_ids, cluster, durability, faults)
        self.additions = PartitionAdditions(cluster, forwarding, durability, requests.result_of)
        verifies = config.transaction_partition_verification_enable
        txn_offsets = TxnOffsets(
            offsets, self.additions, cluster, durability, faults, verifies=verifies
        )
        produce = Produce(parts, partitions, producers, delayed, faults, verifies=verifies)
        self.producing = TransactionalProduce(
            produce, partitions, producers, self.additions, verifies=verifies
        )
        self.markers = Markers(producers, store, parts.writer, faults)
        self.markings = Markings(
            self.coordinator,
            cluster,
            self.markers.write,
            txn_offsets.end,
            durability,
            faults,
            forwarding if is_private else None,
        )
        forwarding.serve(ADD_PARTITIONS_TO_TXN.key, requests.add_partitions)
        forwarding.serve(WRITE_TXN_MARKERS.key, self.markings.write)
        self.serving = (requests, self.markings, txn_offsets, self.producing)
        self.together = CommitsTogether(self.coordinator, cluster, durability, faults)

    def flushed(self, now: int, effects: list[Effect]) -> None:
        """Continue what was waiting for a flush."""
        self.markings.flushed(now, effects)
        self.additions.flushed(now, effects)

    def check(self) -> None:
        """Assert the invariants."""
        self.markings.check()
        self.producing.check()
