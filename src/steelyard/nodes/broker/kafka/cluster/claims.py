"""Which broker may lay out a topic, and what others had proposed before.

To lay out a topic is to say which queues of which brokers its partitions are. While a cluster
starts or loses brokers, two of them may both believe that they are the controller; and a controller
may fail at any step. So that all brokers use one layout, it is agreed on as follows:

1. The controller claims the topic: it asks the other brokers (9005) with a number higher than any
   that it has seen. Each of them promises to accept no earlier claim, and tells which layout it has
   accepted before, if any. A broker that has promised more refuses, and tells the higher number.
2. If some broker has accepted a layout that is not in use, the controller proposes the one with the
   latest claim, or an extension of it; otherwise what it wants.
3. The others accept the proposal (9003): they store it, but do not use it. One that has promised
   the topic to another claim since, or forgot its promise in a restart, refuses.
4. If enough brokers have accepted (`membership`), the controller stores the layout and uses it, and
   tells the others, who then use it as well.

Both controllers need a majority, so some broker is asked by both, and the later one learns what the
earlier one may have completed. A proposal that fails at step 3 or 4 was never used by anybody: no
record was written under its partition numbers.

Source: Lamport, "Paxos Made Simple" (2001); the claims' numbers are its ballots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.nodes.broker.peers.requests import ProposedTopic
from steelyard.store.store import Store

PROMISES_MAX = 10_000
"""Most topics with a promise; the oldest promises are forgotten."""
PROPOSED_MAX = 10_000
"""Most topics with an accepted proposal; the oldest are forgotten."""


class TopicClaim(NamedTuple):
    """A broker's claim to lay out topics. Claims are ordered by number, then by broker."""

    number: int
    broker: str


class Claims:
    """What one broker has promised, in memory, and accepted, in table `kafka_proposed_topics`."""

    def __init__(self, store: Store) -> None:
        self._promised: dict[str, TopicClaim] = {}
        self._number = 0
        self._table = store.table("kafka_proposed_topics")
        self._proposed = dict(_read(self._table.items()))

    def new(self, broker: str, topics: Iterable[str], now: int) -> TopicClaim:
        """Return a new claim of this broker, which it promises itself to respect."""
        names = list(topics)
        self.saw(max(now, self.latest(names).number + 1, self._number + 1))
        claim = TopicClaim(self._number, broker)
        self.promise(names, claim)
        return claim

    def saw(self, number: int) -> None:
        """Take note of a number: this broker's next claim gets a higher one."""
        self._number = max(self._number, number)

    def latest(self, topics: Iterable[str]) -> TopicClaim:
        """Return the latest claim on any of the topics that was promised or accepted."""
        found = TopicClaim(0, "")
        for name in topics:
            proposed = self._proposed.get(name)
            if proposed is not None:
                found = max(found, TopicClaim(proposed.number, proposed.broker))
            found = max(found, self._promised.get(name, found))
        return found

    def promise(self, topics: Iterable[str], claim: TopicClaim) -> None:
        """Promise topics to a claim: others on them are refused from now on."""
        for name in topics:
            self._promised.pop(name, None)
            self._promised[name] = claim
        while len(self._promised) > PROMISES_MAX:
            del self._promised[next(iter(self._promised))]

    def holds(self, topic: str, claim: TopicClaim) -> bool:
        """Return whether the topic is promised to this claim."""
        return self._promised.get(topic) == claim

    def accept(self, name: str, proposed: ProposedTopic) -> None:
        """Store a proposal in place of an earlier one. Raises StorageError."""
        self._table.put(name, msgspec.json.encode(proposed))
        self._proposed.pop(name, None)
        self._proposed[name] = proposed
        while len(self._proposed) > PROPOSED_MAX:
            self.drop(next(iter(self._proposed)))

    def proposed(self, name: str) -> ProposedTopic | None:
        """Return the proposal that this broker has accepted; its layout may be in use by now."""
        return self._proposed.get(name)

    def drop(self, name: str) -> None:
        """Forget a proposal. Raises StorageError."""
        if name in self._proposed:
            self._table.delete(name)
            del self._proposed[name]


def _read(items: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, ProposedTopic]]:
    """Yield what can be read."""
    for name, data in items:
        try:
            yield name, msgspec.json.decode(data, type=prepared(ProposedTopic))
        except msgspec.DecodeError:
            continue
