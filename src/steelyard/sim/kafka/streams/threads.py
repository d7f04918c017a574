"""The threads of a scenario's Kafka Streams application, on machines of their own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from steelyard.nodes.seam import Node
from steelyard.sim.kafka.streams.member import (
    REPARTITIONS,
    REQUEST_TIMEOUTS_MS,
    StreamsMemberConfig,
    application_topology,
)
from steelyard.sim.kafka.streams.witness import StreamsWitness
from steelyard.sim.seats import ClientSeats, Machines, Seat


class StreamsThreads(ClientSeats):
    """Starts the threads, two of which share a process."""

    def __init__(
        self, cluster: Machines, make: Callable[[StreamsMemberConfig, StreamsWitness, Random], Node]
    ) -> None:
        super().__init__(cluster, "streams", 231)
        self._make = make
        self.witness = StreamsWitness(cluster.scenario.kafka_session_timeout_ms)
        self.witness.true_time = lambda who, at: self.seat_of(who).host.clock.true_time(at)
        self.witness.is_alive = self.is_alive

    def start(self, seat: Seat) -> None:
        cluster = self.cluster
        rng = cluster.world.rng(f"{seat.name} {seat.runs}")
        config = StreamsMemberConfig(
            f"{seat.name} {seat.runs + 1}",
            f"process-{self.seats.index(seat) // 2}",
            cluster.bootstrap,
            application_topology(cluster.topics[0]),
            rng.choice(REQUEST_TIMEOUTS_MS),
        )
        cluster.run(seat, lambda now: self._make(config, self.witness, rng))

    def complaint(self, partitions: int) -> str | None:
        """Return what keeps the group from running all its tasks, or None.

        `partitions`: of the topic that it reads.
        """
        if not any(seat.process.alive for seat in self.seats):
            return None
        tasks = {"0": partitions, "1": REPARTITIONS}
        return self.witness.not_running(tasks, {"1"}, self.cluster.scenario.streams_standbys)
