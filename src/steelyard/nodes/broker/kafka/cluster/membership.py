"""Whose word counts when partitions are numbered: the brokers of the cluster, and which of them are there.

The brokers are those that the operator listed (`KafkaConfig.brokers`; `steelyard up` does), or else those that this broker
ever met. Two numberings of one topic can only come about between brokers that do not hear of each other, so:

- Who coordinates what is decided once, when *all* brokers are there. A broker without a list cannot know of brokers that it
  has not met: it waits `SETTLE_MS` after its first look at the nameserver.
- Any other topic is made, or grows, when a *majority* is there: any two majorities have a broker in common, which remembers.
  Of an even number of brokers half is enough where it has the first by name. So a single broker is a majority of one, and
  of two the first goes on while the other is down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from steelyard.nodes.broker.kafka.cluster.topic import FIXED

SETTLE_MS = 10_000
"""How long a broker without a list looks for others before it takes those that it met for all."""


class ClusterMembership:
    """See the module's text. `met`: the names of the brokers that were ever met, this one too."""

    def __init__(self, listed: Collection[str], met: Callable[[], Iterable[str]]) -> None:
        self._listed = tuple(sorted(listed))
        self._met = met
        self.settled_at: int | None = None
        """When a broker without a list may take those that it met for all; None while it has seen no nameserver."""

    @property
    def names(self) -> tuple[str, ...]:
        """All brokers whose word counts, sorted."""
        return self._listed or tuple(sorted(self._met()))

    def counts(self, name: str) -> bool:
        """The broker is of the cluster. Whom the operator's list leaves out is not waited for."""
        return not self._listed or name in self._listed

    def looked(self, now: int) -> None:
        """A nameserver told who is there, us included."""
        if self.settled_at is None:
            self.settled_at = now + SETTLE_MS

    def lacks(self, topic: str, there: Collection[str], now: int) -> str:
        """Why the brokers that are there must not give out partitions of a topic; empty where they may."""
        names = self.names
        missing = [name for name in names if name not in there]
        shown = ", ".join(missing[:10])
        if topic in FIXED:
            if missing:
                return f"it is laid out once all brokers are up; missing: {shown}"
            if not self._listed and (self.settled_at is None or now < self.settled_at):
                return "it is laid out once this broker has waited for others"
            return ""
        present = len(names) - len(missing)
        if 2 * present > len(names) or (2 * present == len(names) and names[0] in there):
            return ""
        return f"partitions are assigned only while a majority of brokers is up; missing: {shown}"
