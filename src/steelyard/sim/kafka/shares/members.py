"""The members of a scenario's share group, on machines of their own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from steelyard.nodes.seam import Node
from steelyard.sim.kafka.shares.member import ShareMemberConfig, habits_of, limits_of
from steelyard.sim.kafka.shares.witness import ShareWitness
from steelyard.sim.scenario import FaultKind
from steelyard.sim.seats import ClientSeats, Machines, Seat

UNSURE: frozenset[FaultKind] = frozenset({"disk_full", "descriptors", "power_broker"})
"""Faults around which a broker may forget how often it delivered a record."""


class ShareMembers(ClientSeats):
    """Starts the members; to be made when the cluster has its brokers."""

    def __init__(
        self, cluster: Machines, make: Callable[[ShareMemberConfig, ShareWitness, Random], Node]
    ) -> None:
        super().__init__(cluster, "share", 132)
        self._make = make
        scenario = cluster.scenario
        self.witness = ShareWitness(
            cluster.witness,
            lock_ms=scenario.share_lock_ms,
            deliveries_max=scenario.share_deliveries_max,
            session_ms=scenario.kafka_session_timeout_ms,
            is_sure=not any(fault.kind in UNSURE for fault in scenario.faults),
        )
        leaders = dict(zip(cluster.bootstrap, cluster.brokers, strict=True))
        self.witness.now = lambda: cluster.world.now
        self.witness.true_time = lambda name, at: self.seat_of(name).host.clock.true_time(at)
        self.witness.is_alive = self.is_alive
        self.witness.run_of = lambda leader: leaders[leader].runs

    def start(self, seat: Seat) -> None:
        cluster = self.cluster
        config = ShareMemberConfig(
            seat.name,
            f"{seat.name} {seat.runs + 1}",
            cluster.bootstrap,
            tuple(cluster.topics),
            habits_of(cluster.scenario),
            limits_of(cluster.scenario),
        )
        rng = cluster.world.rng(f"{seat.name} {seat.runs}")
        cluster.run(seat, lambda now: self._make(config, self.witness, rng))

    def complaint(self, partitions: dict[str, int]) -> str | None:
        """Return which partition no member has, or None. `partitions`: by topic."""
        alive = [f"{seat.name} {seat.runs}" for seat in self.seats if seat.process.alive]
        return self.witness.unassigned(partitions, alive) if alive else None
