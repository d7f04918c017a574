"""The Kafka producers of a scenario, the topic that they write to, and the reader of it."""

from __future__ import annotations

from random import Random

from steelyard.nodes.seam import Node
from steelyard.sim.kafka.producers.committed_reader import CommittedReaderNode
from steelyard.sim.kafka.producers.producer import KafkaProducerConfig, KafkaProducerNode
from steelyard.sim.kafka.producers.transactional_producer import TransactionalProducerNode
from steelyard.sim.kafka.producers.witness import KafkaTransactionWitness
from steelyard.sim.seats import ClientSeats, Machines, Seat
from steelyard.sim.topics import TopicAdministrator

PRODUCED_TOPIC = "Produced"
QUEUES = 2
"""Of the topic on each broker."""


class KafkaProducing(ClientSeats):
    """Starts the producers and the reader, on machines of their own."""

    def __init__(self, cluster: Machines) -> None:
        super().__init__(cluster, "kafka-producer", 121)
        self._scenario = cluster.scenario
        self._partitions = QUEUES * cluster.scenario.brokers
        self._reader: Seat | None = None
        self.witness = KafkaTransactionWitness()
        self.witness.is_wanted = lambda name: self.seat_of(name).wanted

    def create_topic(self) -> None:
        """Let the administrator create the topic."""
        cluster = self.cluster
        process, addresses = cluster.admin.process, cluster.broker_addresses
        TopicAdministrator(cluster.world, process, [PRODUCED_TOPIC], addresses, QUEUES).create()

    def start(self, seat: Seat) -> None:
        number, run = self.seats.index(seat), seat.runs + 1
        rng = self.cluster.world.rng(f"{seat.name} {seat.runs}")
        self.cluster.run(seat, lambda now: self._producer(number, seat.name, run, rng))

    def start_reader(self) -> None:
        """Start the reader of what is written, or start it anew."""
        cluster = self.cluster
        if self._reader is None:
            self._reader = cluster.new_seat("kafka-reader", 131)
        seat = self._reader
        seat.process.die("it is to read all again")
        rng = cluster.world.rng(f"{seat.name} {seat.runs}")
        cluster.run(seat, lambda now: self._read_anew(rng))

    def _producer(self, number: int, name: str, run: int, rng: Random) -> Node:
        """Return a producer for its next run; the first ones are transactional."""
        scenario = self._scenario
        is_transactional = number < scenario.kafka_transactional
        version = scenario.kafka_transaction_version
        config = KafkaProducerConfig(
            name=name,
            run=run,
            bootstrap=self.cluster.bootstrap,
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

    def _read_anew(self, rng: Random) -> Node:
        """Return a reader that reads all of the topic."""
        ids = {self._id_of(number) for number in range(self._scenario.kafka_transactional)}
        self.witness.reads_anew()
        return CommittedReaderNode(
            self.cluster.bootstrap,
            PRODUCED_TOPIC,
            self._partitions,
            sorted(ids),
            self.witness,
            rng,
        )

    def incomplete(self) -> str | None:
        """Return what is not well yet, None if all is."""
        return self.witness.incomplete(self._partitions)
