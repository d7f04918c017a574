"""What ends the waits of heartbeats of groups in which coordinators assign: KIP-848 and KIP-1071.

Something else on the link of a heartbeat that waits, its end, time, another coordinator of the
group, and other topics. What a heartbeat does is in `consumer_groups` and `streams_groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.seam import Effect, Link, earliest
from steelyard.wire.kafka.errors import ErrorCode

Report = Callable[[done.Effects, int, list[Effect]], None]
"""(what the groups did, now, effects to add to): notes it in the ledger, or logs it."""


class LateGroups(Protocol):
    """Groups with heartbeats that wait: `ConsumerGroups` or `StreamsGroups`."""

    @property
    def next_at(self) -> int | None: ...
    def due(self, now: int, effects: done.Effects) -> None: ...
    def wake(self, now: int, effects: done.Effects) -> None: ...
    def waiting_groups(self) -> list[str]: ...
    def look_at_topics(self, now: int, effects: done.Effects) -> None: ...
    def released(self, link: int, now: int, effects: done.Effects) -> None: ...
    def closed(self, link: int, now: int, effects: done.Effects) -> None: ...
    def refused(self, group_id: str, error: ErrorCode, effects: done.Effects) -> None: ...


class LateGroupCalls:
    """Ends waits; the base of the handlers of heartbeats."""

    def __init__(self, late: LateGroups, cluster: Cluster, report: Report, faults: Faults) -> None:
        self._late = late
        self._cluster = cluster
        self._report = report
        self._faults = faults
        self._cluster_version = -1
        self._look_at: int | None = None

    def release(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Answer what waits on a link, because something else came on it."""
        happened: done.Effects = []
        self._late.released(link, now, happened)
        self._report(happened, now, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """End what waits on a link that is closed."""
        happened: done.Effects = []
        self._late.closed(link, now, happened)
        self._report(happened, now, effects)

    def follow(self, now: int) -> None:
        """Note after each event whether topics or coordinators have changed, for those who wait."""
        if self._cluster.version != self._cluster_version:
            self._cluster_version = self._cluster.version
            if self._late.waiting_groups():
                self._look_at = now

    def _look(self, now: int, happened: done.Effects, effects: list[Effect]) -> None:
        """Answer those that wait in groups of other brokers, or whose topics have changed."""
        self._look_at = None
        for group_id in self._late.waiting_groups():
            fault = self._fault(group_id)
            if fault is not ErrorCode.NONE:
                self._late.refused(group_id, fault, happened)
        try:
            self._late.look_at_topics(now, happened)
        except StorageError as error:
            self._faults.tell(f"groups cannot be stored: {error}", now, effects)

    def _fault(self, group_id: str) -> ErrorCode:
        """Return why this broker does not answer for a group; NONE if it does."""
        if self._cluster.coordinator_of(group_id) is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._cluster.coordinator_fault(group_id)

    @property
    def next_at(self) -> int | None:
        return earliest(self._late.next_at, self._look_at)

    def due(self, now: int, effects: list[Effect]) -> None:
        happened: done.Effects = []
        if self._look_at is not None:
            self._look(now, happened, effects)
        self._late.due(now, happened)
        self._late.wake(now, happened)
        self._report(happened, now, effects)
