"""Which broker may lay out a topic next: the one that asked about the topic last.

To lay out a topic is to say which queues of which brokers its partitions are. The controller asks
the other brokers about the topic before it does so (`surveys`). Each of them promises to accept the
new layout from the broker that asked last, and from none that asked before. While a cluster starts,
two brokers may both believe that they are the controller. Both need a majority (`membership`), so
some broker is asked by both: either it stores the first one's topic before the second one asks,
which then learns of it, or it refuses the first one's. A broker that asks promises for itself, too.
A restart forgets promises; a broker without a promise refuses, and the controller asks again.

Source: prepare and accept of Lamport, "Paxos Made Simple" (2001), with the order in which a broker
was asked in place of ballot numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PROMISES_MAX = 10_000
"""Most topics with a promise; the oldest promises are forgotten."""


class TopicClaim(NamedTuple):
    """A broker's claim to lay out topics. `number` distinguishes the claims of one broker."""

    broker: str
    number: int


class Claims:
    """The promises of one broker."""

    def __init__(self) -> None:
        self._promised: dict[str, TopicClaim] = {}
        self._number = 0

    def new(self, broker: str, topics: Iterable[str], now: int) -> TopicClaim:
        """Return a new claim of this broker, which it promises itself to respect."""
        self._number = max(now, self._number + 1)
        claim = TopicClaim(broker, self._number)
        self.promise(topics, claim)
        return claim

    def promise(self, topics: Iterable[str], claim: TopicClaim) -> None:
        """Promise topics to a claim: earlier claims on them are refused from now on."""
        for name in topics:
            self._promised.pop(name, None)
            self._promised[name] = claim
        while len(self._promised) > PROMISES_MAX:
            del self._promised[next(iter(self._promised))]

    def holds(self, topic: str, claim: TopicClaim) -> bool:
        """Return whether the claim is the latest on the topic."""
        return self._promised.get(topic) == claim
