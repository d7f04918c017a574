"""The lag of groups over time: bounded rings of samples, kept by the console since it started."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from steelyard.web.console.answers import LagHistory
from steelyard.web.console.contract import GroupId

SAMPLES_MAX = 720
"""Samples that are kept of each series: two hours of one every ten seconds."""

GROUPS_MAX = 500
"""Most groups with a history; those that were sampled last."""

QUEUES_MAX = 5_000
"""Most series of single queues, of all groups together; further queues have none."""

_MISSING = -1


class _Series:
    """The numbers of one series, a ring as long as the times of its group."""

    __slots__ = ("values",)

    def __init__(self, missing: int) -> None:
        self.values = array("q", [_MISSING]) * missing

    def add(self, value: int | None) -> None:
        self.values.append(_MISSING if value is None else value)
        if len(self.values) > SAMPLES_MAX:
            del self.values[0]

    def last(self, count: int) -> list[int | None]:
        found = self.values[len(self.values) - count :]
        return [None if value == _MISSING else value for value in found]


class _Group:
    def __init__(self) -> None:
        self.times = array("q")
        self.total = _Series(0)
        self.wait = _Series(0)
        self.queues: dict[str, _Series] = {}


class LagRings:
    """The samples of all groups."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, _Group] = {}
        self._queue_count = 0

    def add(
        self,
        group: GroupId,
        now: int,
        total: int | None,
        wait_ms: int | None,
        queues: Mapping[str, int | None],
    ) -> None:
        """Add a sample of a group. `queues`: the lag of single queues, by key."""
        kept = self._groups.pop(group, None) or _Group()
        self._groups[group] = kept
        kept.times.append(now)
        if len(kept.times) > SAMPLES_MAX:
            del kept.times[0]
        kept.total.add(total)
        kept.wait.add(wait_ms)
        for key in sorted(queues.keys() - kept.queues.keys()):
            if self._queue_count >= QUEUES_MAX:
                break
            kept.queues[key] = _Series(len(kept.times) - 1)
            self._queue_count += 1
        for key, series in list(kept.queues.items()):
            series.add(queues.get(key))
            if series.values.count(_MISSING) == len(series.values):
                del kept.queues[key]
                self._queue_count -= 1
        while len(self._groups) > GROUPS_MAX:
            gone = self._groups.pop(next(iter(self._groups)))
            self._queue_count -= len(gone.queues)

    def history(self, group: GroupId, since: int) -> LagHistory:
        """Return the samples of a group since then; none for a group that was never sampled."""
        kept = self._groups.get(group) or _Group()
        times = [at for at in kept.times if at >= since]
        return LagHistory(
            times=times,
            total=kept.total.last(len(times)),
            wait_ms=kept.wait.last(len(times)),
            queues={key: series.last(len(times)) for key, series in sorted(kept.queues.items())},
        )
