"""The machines of a cluster, and what those need of it who start processes there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from steelyard.nodes.seam import Address, Node
from steelyard.sim.checkers import Witness
from steelyard.sim.scenario import Scenario
from steelyard.sim.world import Host, Process, World
from steelyard.store.store import Store


@dataclass(slots=True, eq=False)
class Seat:
    """A machine and its process; `process` is the latest run."""

    name: str
    host: Host
    process: Process
    store: Store | None = None
    wanted: bool = True
    """False once it has left permanently."""
    runs: int = 0
    identity: int = 0
    """Part of the client id of the next run."""


class Machines(Protocol):
    """A cluster (`cluster.SimCluster`), as the clients' side sees it."""

    world: World
    scenario: Scenario
    witness: Witness
    topics: list[str]
    brokers: list[Seat]
    admin: Seat

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """Return the Kafka listeners of all brokers."""

    @property
    def broker_addresses(self) -> list[Address]: ...

    def new_seat(self, name: str, last_byte: int) -> Seat:
        """Return a new machine, with this last byte of its address."""

    def run(self, seat: Seat, build: Callable[[int], Node]) -> None:
        """Start a node on a machine."""
