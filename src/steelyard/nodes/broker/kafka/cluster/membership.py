"""Which brokers form the cluster, and how many must be up before a topic is laid out.

The brokers are those that the operator listed (`KafkaConfig.brokers`, set by `steelyard up`), or
else all that this broker ever met. Only brokers that do not hear of each other can lay out one
topic twice; therefore:

- The topics that determine who coordinates what are laid out once, when *all* brokers are up. A
  broker without a list cannot know of brokers that it has not met: it waits `SETTLE_MS` after a
  nameserver first listed it.
- Any other topic is created, or grows, while a *majority* is up: any two majorities have a broker
  in common, which remembers. Of an even number of brokers, half is enough if it includes the first
  by name. A single broker is thus a majority of one, and of two the first goes on while the other
  is down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from steelyard.nodes.broker.kafka.cluster.topic import FIXED

SETTLE_MS = 10_000
"""How long a broker without a list waits before it takes those it has met for all."""


class ClusterMembership:
    """The brokers of the cluster; see the module docstring.

    `met`: returns the names of all brokers ever met, including this one.
    """

    def __init__(self, listed: Collection[str], met: Callable[[], Iterable[str]]) -> None:
        self._listed = tuple(sorted(listed))
        self._met = met
        self.settled_at: int | None = None
        """When the brokers met count as all; None until a nameserver has listed this broker."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return all brokers of the cluster, sorted."""
        return self._listed or tuple(sorted(self._met()))

    def counts(self, name: str) -> bool:
        """Return whether the broker is in the cluster; others are not waited for."""
        return not self._listed or name in self._listed

    def looked(self, now: int) -> None:
        """Note that a nameserver has listed the brokers that are up, including this one."""
        if self.settled_at is None:
            self.settled_at = now + SETTLE_MS

    def lacks(self, topic: str, there: Collection[str], now: int) -> str:
        """Return why the brokers that are up must not lay out a topic; empty if they may."""
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
