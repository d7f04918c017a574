"""What is known of one record of the simulated share group, and of answers that nobody got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from steelyard.nodes.broker.kafka.shares.share_partition import ACCEPT, REJECT
from steelyard.nodes.seam import Address, Link
from steelyard.types import TopicPartition

FINAL = (ACCEPT, REJECT)
"""Acknowledgements after which a record does not come again."""


Where = tuple[TopicPartition, int]
"""A partition, and the offset of a record."""


class Who(NamedTuple):
    """A run of a member, and the leader whose records it has, on one connection to it."""

    name: str
    leader: Address
    link: Link


@dataclass(frozen=True, slots=True)
class ShareDelivery:
    """One delivery of a record, in true time.

    It was acquired between `sent_at` and `received_at`; `run`: of the broker, at `sent_at`.
    """

    who: Who
    count: int
    sent_at: int
    received_at: int
    run: int


@dataclass(frozen=True, slots=True)
class Final:
    """The answer to an acceptance or rejection. `is_exact`: `count` is that of the acquisition."""

    count: int
    answered_at: int
    is_exact: bool


class Fate:
    """What became of a record."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.told: ShareDelivery | None = None
        """The delivery with the highest count."""
        self.hold: ShareDelivery | None = None
        """The delivery to the member that has it, if that is known and it may have it still."""
        self.ending: dict[str, ShareDelivery] = {}
        """By member: what it had when it sent an acknowledgement that is not answered yet."""
        self.final: Final | None = None
        self.maybe = 0
        """Acceptances and rejections without an answer so far, or for ever."""


class UnseenAnswers:
    """How often records may have been delivered in answers that nobody got.

    Each fetch without an answer may have been such a delivery, unless its member still waits.
    """

    def __init__(self, is_alive: Callable[[str], bool]) -> None:
        self._is_alive = is_alive
        self._waiting: Counter[tuple[str, Address]] = Counter()
        self._lost: Counter[tuple[str, Address]] = Counter()

    def fetches(self, name: str, leader: Address) -> None:
        """Note that a member fetches."""
        self._waiting[name, leader] += 1

    def fetched(self, name: str, leader: Address, *, heard: bool) -> None:
        """Note the end of a fetch. `heard`: it was answered."""
        self._waiting[name, leader] -= 1
        self._lost[name, leader] += not heard

    def has_heard_all(self, who: Who) -> bool:
        """Return whether a member knows all that this leader delivered to it."""
        return not self._lost[who.name, who.leader]

    def of(self, leader: Address) -> int:
        """Return how often, at most, a record of a leader was delivered so."""
        dead = sum(
            count
            for (name, at), count in self._waiting.items()
            if at == leader and not self._is_alive(name)
        )
        return dead + sum(count for (_, at), count in self._lost.items() if at == leader)

    def most(self) -> int:
        """Return how often, at most, a record was delivered so."""
        leaders = sorted({leader for _, leader in self._waiting})
        return max((self.of(leader) for leader in leaders), default=0)
