"""Which broker may number a topic's partitions next: the one that asked about the topic last.

The controller asks the others about a topic before it gives out partitions (`surveys`). Each of them promises to keep what
the topic is to be from the broker that asked last, and from nobody who asked before. While a cluster starts, two brokers may
take themselves for the controller. Both need a majority (`membership`), so some broker is asked by both: either it keeps
the first one's topic before the second one asks, which then hears of it, or it refuses the first one's. A broker promises
for itself, too. A promise is forgotten with a restart; who has made none refuses, and the controller asks again.

Source: prepare and accept of Lamport, "Paxos Made Simple" (2001), with the order in which a broker was asked for ballots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PROMISES_MAX = 10_000
"""Most topics with a promise; the oldest ones are forgotten."""


class TopicClaim(NamedTuple):
    """`number`: tells the claims of one broker apart."""

    broker: str
    number: int


class Claims:
    """The promises of one broker."""

    def __init__(self) -> None:
        self._promised: dict[str, TopicClaim] = {}
        self._number = 0

    def new(self, broker: str, topics: Iterable[str], now: int) -> TopicClaim:
        """A claim of this broker's own, which it promises itself to keep."""
        self._number = max(now, self._number + 1)
        claim = TopicClaim(broker, self._number)
        self.promise(topics, claim)
        return claim

    def promise(self, topics: Iterable[str], claim: TopicClaim) -> None:
        """Whoever claimed these topics before is refused from now on."""
        for name in topics:
            self._promised.pop(name, None)
            self._promised[name] = claim
        while len(self._promised) > PROMISES_MAX:
            del self._promised[next(iter(self._promised))]

    def holds(self, topic: str, claim: TopicClaim) -> bool:
        """Nobody claimed the topic after this claim."""
        return self._promised.get(topic) == claim
