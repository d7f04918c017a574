"""Tells people of faults of the disk, but not with every request that met one."""

from __future__ import annotations

from steelyard.nodes.seam import Effect
from steelyard.types import LogLine

FAULT_INTERVAL_MS = 1_000
REPEAT_MS = 30_000


class Faults:
    """Of all faults that its owners meet, one is told in `FAULT_INTERVAL_MS`, and the same one again after `REPEAT_MS`."""

    def __init__(self) -> None:
        self._tell_at = 0
        self._again_at: dict[str, int] = {}
        """When a text may be told again, of those that were told a short while ago."""
        self.noted = ""
        """What the next `report` tells."""

    def note(self, text: str) -> None:
        """Tell it after this event: for those who have no effects at hand."""
        self.noted = text

    def report(self, now: int, effects: list[Effect]) -> None:
        """Called after each event."""
        if self.noted:
            text, self.noted = self.noted, ""
            self.tell(text, now, effects)

    def tell(self, text: str, now: int, effects: list[Effect]) -> None:
        if now < self._tell_at or now < self._again_at.get(text, now):
            return
        self._tell_at = now + FAULT_INTERVAL_MS
        self._again_at = {told: at for told, at in self._again_at.items() if at > now}
        self._again_at[text] = now + REPEAT_MS
        effects.append(LogLine("ERROR", text))
