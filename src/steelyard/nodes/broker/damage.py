"""Reports of damage on the disk: log lines that name the place, and counters.

A damaged entry is an ERROR, and is refused to every reader of either dialect; a damaged index row
was rebuilt, and is a WARNING. Each place is reported when a read first meets it and, while reads
still do, again once in REPEAT_MS: a consumer at a damaged message asks for it every few seconds.
Operators see the counters in the runtime information of the broker.
"""

from __future__ import annotations

from collections import OrderedDict

from steelyard.nodes.seam import Effect
from steelyard.store.findings import Finding, Findings
from steelyard.types import LogLine

REPEAT_MS = 600_000
PLACES_MAX = 10_000
"""Maximum places remembered; those reported the longest ago are forgotten, and reported again."""


class DamageReports:
    """Reports the findings of a store; call `report` after each event that found something."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._reported_at: OrderedDict[tuple[str, int], int] = OrderedDict()
        self.entries = 0
        """Damaged log entries met since the start, each counted once."""
        self.rows = 0
        """Index rows, or runs of them, that were damaged and rebuilt since the start."""

    def report(self, now: int, effects: list[Effect]) -> None:
        for finding in self._findings.take():
            place = finding.path, finding.position
            reported_at = self._reported_at.get(place)
            if finding.mended:
                self.rows += 1
            elif reported_at is None:
                self.entries += 1
            if reported_at is None or now >= reported_at + REPEAT_MS:
                self._reported_at[place] = now
                self._reported_at.move_to_end(place)
                effects.append(LogLine("WARNING" if finding.mended else "ERROR", _text(finding)))
            if len(self._reported_at) > PLACES_MAX:
                self._reported_at.popitem(last=False)

    def runtime_info(self) -> dict[str, str]:
        return {
            "damagedEntries": str(self.entries),
            "damagedReadsRefused": str(self._findings.damaged),
            "indexRowsMended": str(self.rows),
        }


def _text(finding: Finding) -> str:
    last = finding.offset + finding.count - 1
    offsets = (
        f"offset {finding.offset}" if finding.count == 1 else f"offsets {finding.offset} to {last}"
    )
    where = (
        f"{finding.path}, byte {finding.position}, {finding.size} bytes:"
        f" topic {finding.topic!r}, queue {finding.queue_id}, {offsets}"
    )
    if finding.mended:
        return f"damage on the disk was repaired: {finding.problem} ({where}); look at the disk"
    return (
        f"damage on the disk: {finding.problem} ({where}). These messages are not served; groups"
        f" that reach them wait there. To skip them, reset the groups' offsets to {last + 1}, or"
        " stop the broker and run 'steelyard check --repair' on its data directory; to recover"
        " them, restore the file from a backup"
    )
