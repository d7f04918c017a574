"""What a move will do: topics, queues, and where each of them goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from steelyard.errors import ConfigError
from steelyard.spark.move.contract import MoveCluster, OffsetRange, R, in_full, label
from steelyard.spark.move.journal import Journal, MoveFolder, QueueBegun
from steelyard.spark.offsets import QueueName
from steelyard.wording import counted


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic of the source.

    `extents`: what each queue has now; `layout`: where the queues go, None if the target does not
    have the topic yet.
    """

    topic: str
    extents: dict[QueueName, OffsetRange]
    layout: dict[QueueName, QueueName] | None


class Planner(Generic[R]):
    """Looks at both clusters, and at the record of earlier runs."""

    def __init__(self, source: MoveCluster[R], target: MoveCluster[R], folder: MoveFolder) -> None:
        self._source = source
        self._target = target
        self._folder = folder

    def plan(self, topic: str) -> TopicPlan:
        """Look at a topic; nothing is changed. Raises what stands in the way of moving it."""
        queues = self._source.queues(topic)
        extents = self._source.extents(queues)
        layout = self._target.layout(self._source, topic, queues)
        known = [queue for queue in queues if self._folder.journal_path(queue).exists()]
        if layout is None and known:
            raise ConfigError(
                f"topic {topic!r} was moved before and is not at the target any more; to move it"
                " again, choose a new --state"
            )
        if layout is not None:
            self._check_empty([layout[queue] for queue in queues if queue not in known])
        return TopicPlan(topic, extents, layout)

    def _check_empty(self, targets: Sequence[QueueName]) -> None:
        for queue, extent in self._target.extents(targets).items() if targets else ():
            if extent.end > extent.first:
                raise ConfigError(
                    f"{in_full(queue)} at the target has"
                    f" {counted(extent.end - extent.first, 'message')} that --state has no"
                    " record of; give the folder of the move that brought them, or delete the topic"
                    " there"
                )

    def groups(self, plans: Sequence[TopicPlan], named: Sequence[str] | None) -> list[str]:
        """Return the groups to move; None: all that have offsets of the topics.

        Raises ConfigError for a named group without offsets.
        """
        if named is None:
            return sorted({group for one in plans for group in self._source.groups(one.topic)})
        queues = [queue for one in plans for queue in one.extents]
        for group in named:
            if not self._source.progress(group, queues):
                raise ConfigError(
                    f"group {group!r} has no committed offsets of these topics at the source"
                )
        return list(dict.fromkeys(named))

    def open(self, plan: TopicPlan) -> dict[QueueName, Journal]:
        """Open the record of each queue; the topic is created if it does not exist."""
        queues = sorted(plan.extents)
        layout = plan.layout
        if layout is None:
            layout = self._target.create(self._source, plan.topic, queues)
        found = {queue: Journal.open(self._folder.journal_path(queue)) for queue in queues}
        ends = self._target.extents([layout[queue] for queue in queues if found[queue] is None])
        journals: dict[QueueName, Journal] = {}
        for queue, journal in found.items():
            if journal is None:
                place = layout[queue]
                begun = QueueBegun(queue, plan.extents[queue].first, place, ends[place].end)
                journal = Journal.begin(self._folder.journal_path(queue), begun)
            journals[queue] = journal
        return journals

    def explained(self, plan: TopicPlan) -> list[str]:
        """Return what would be done with a topic, in lines."""
        exists = "exists" if plan.layout else "would be created"
        lines = [f"{plan.topic}: {counted(len(plan.extents), 'queue')}; {exists} at the target"]
        for queue, extent in sorted(plan.extents.items()):
            path = self._folder.journal_path(queue)
            journal = Journal.open(path) if path.exists() else None
            start = extent.first if journal is None else max(journal.next, extent.first)
            home = "" if plan.layout is None else f" to {label(plan.layout[queue])}"
            done = 0 if journal is None else journal.total.records
            lines.append(
                f"  {label(queue)}{home}: offsets {start:,} to {extent.end:,}"
                f" ({extent.end - start:,} at most); {done:,} moved before"
            )
            if journal is not None:
                journal.close()
        return lines
