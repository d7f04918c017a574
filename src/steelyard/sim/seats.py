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


class ClientSeats:
    """The machines of clients of one kind, in the order in which they came.

    `name`: of the kind; `first_byte`: the last byte of the first one's address.
    """

    def __init__(self, cluster: Machines, name: str, first_byte: int) -> None:
        self.cluster = cluster
        self.seats: list[Seat] = []
        self._name = name
        self._first_byte = first_byte

    def add(self) -> None:
        """Start a new client, on a machine of its own."""
        number = len(self.seats)
        seat = self.cluster.new_seat(f"{self._name}-{number}", self._first_byte + number)
        self.seats.append(seat)
        self.start(seat)

    def start(self, seat: Seat) -> None:
        """Start the client's next run."""
        raise NotImplementedError

    def seat_of(self, who: str) -> Seat:
        """Return the machine of a client, or of one of its runs (`name run`)."""
        return next(seat for seat in self.seats if seat.name == who.partition(" ")[0])

    def is_alive(self, run: str) -> bool:
        seat = self.seat_of(run)
        return seat.process.alive and run == f"{seat.name} {seat.runs}"
