"""The Kafka producers of a scenario, the topic that they write to, and the reader of it."""

from __future__ import annotations

from random import Random

from steelyard.nodes.seam import Address, Node
from steelyard.sim.kafka.producers.committed_reader import CommittedReaderNode
from steelyard.sim.kafka.producers.producer import KafkaProducerConfig, KafkaProducerNode
from steelyard.sim.kafka.producers.transactional_producer import TransactionalProducerNode
from steelyard.sim.kafka.producers.witness import KafkaTransactionWitness
from steelyard.sim.scenario import Scenario

PRODUCED_TOPIC = "Produced"
QUEUES = 2
"""Of the topic on each broker."""


class KafkaProducing:
    """Makes the nodes. `bootstrap`: the brokers' Kafka listeners."""

    def __init__(self, scenario: Scenario, bootstrap: tuple[Address, ...]) -> None:
        self._scenario = scenario
        self._bootstrap = bootstrap
        self._partitions = QUEUES * scenario.brokers
        self.witness = KafkaTransactionWitness()

    def producer(self, number: int, name: str, run: int, rng: Random) -> Node:
        """Return a producer for its next run; the first ones are transactional."""
        scenario = self._scenario
        is_transactional = number < scenario.kafka_transactional
        version = scenario.kafka_transaction_version
        config = KafkaProducerConfig(
            name=name,
            run=run,
            bootstrap=self._bootstrap,
            topic=PRODUCED_TOPIC,
            partitions=self._partitions,
            pause_ms_max=scenario.kafka_producer_pause_ms_max,
            transactional_id=self._id_of(number) if is_transactional else None,
            bumps=version == "2" or (version == "both" and number % 3 != 1),
            transaction_timeout_ms=scenario.kafka_transaction_timeout_ms,
        )
        kind = TransactionalProducerNode if is_transactional else KafkaProducerNode
        return kind(config, self.witness, rng)

    def _id_of(self, number: int) -> str:
        return f"application-{number % max(1, self._scenario.kafka_transactional_ids)}"

    def reader(self, rng: Random) -> Node:
        """Return a reader that reads all of the topic."""
        ids = {self._id_of(number) for number in range(self._scenario.kafka_transactional)}
        self.witness.reads_anew()
        return CommittedReaderNode(
            self._bootstrap, PRODUCED_TOPIC, self._partitions, sorted(ids), self.witness, rng
        )

    def incomplete(self) -> str | None:
        """Return what is not well yet, None if all is."""
        return self.witness.incomplete(self._partitions)
