"""What the figures of Steelyard's brokers tell of groups and topics. Pure."""

from __future__ import annotations

from steelyard.types import MessageQueue
from steelyard.web.console.answers import GroupLine
from steelyard.web.console.remoting.picture import EMPTY, STABLE, QueueReach
from steelyard.web.reading import ClusterReading
from steelyard.wire.figures import BrokerFigures, GroupFigures
from steelyard.wire.remoting.names import RETRY_PREFIX


def has_figures(reading: ClusterReading) -> bool:
    """Return whether a broker of the cluster is one of Steelyard's."""
    return any(each.figures is not None for each in reading.brokers)


class ClusterFigures:
    """One reading, by group and by queue. `ends`: the offset after the last message."""

    def __init__(self, reading: ClusterReading) -> None:
        found = [each.figures for each in reading.brokers if each.figures is not None]
        self.ends = {
            MessageQueue(row.topic, figures.name, row.queue_id): row.end
            for figures in found
            for row in figures.queues
        }
        self._groups: dict[str, list[tuple[BrokerFigures, GroupFigures]]] = {}
        for figures in found:
            for group in figures.groups:
                self._groups.setdefault(group.group, []).append((figures, group))

    def knows(self, name: str) -> bool:
        """Return whether a group has members or has committed something."""
        return name in self._groups

    def line(self, name: str, protocol: str | None) -> GroupLine:
        """Return a group's line in the list."""
        found = self._groups.get(name, [])
        rows = [(figures.now, row) for figures, group in found for row in group.offsets]
        waits = [max(0, now - row.waiting_since) for now, row in rows if row.waiting_since]
        members = max((group.members for _, group in found), default=0)
        return GroupLine(
            dialect="rocketmq",
            kind="rocketmq",
            name=name,
            state=STABLE if members else EMPTY,
            protocol=protocol,
            members=members,
            topics=sorted({row.topic for _, row in rows if not row.topic.startswith(RETRY_PREFIX)}),
            lag=sum(row.lag for _, row in rows),
            oldest_wait_ms=max(waits, default=0),
            rebalancing=False,
            last_rebalance_at=None,
        )

    def reach(self, name: str) -> dict[MessageQueue, QueueReach]:
        """Return how far a group came in each queue that it has committed an offset of."""
        reach: dict[MessageQueue, QueueReach] = {}
        for figures, group in self._groups.get(name, []):
            for row in group.offsets:
                queue = MessageQueue(row.topic, figures.name, row.queue_id)
                age = max(0, figures.now - row.waiting_since) if row.waiting_since else 0
                committed = row.offset if row.offset >= 0 else None
                reach[queue] = QueueReach(committed, self.ends.get(queue), row.lag, age)
        return reach


def kept_messages(reading: ClusterReading) -> dict[str, tuple[int, int, int]]:
    """Return messages, bytes and the sum of the ends of each topic."""
    kept: dict[str, tuple[int, int, int]] = {}
    for each in reading.brokers:
        for row in () if each.figures is None else each.figures.queues:
            messages, size, end = kept.get(row.topic, (0, 0, 0))
            messages += row.end - row.begin
            kept[row.topic] = messages, size + row.size_bytes, end + row.end
    return kept
