"""Log lines about disk faults, at a limited rate."""

from __future__ import annotations

from steelyard.nodes.seam import Effect
from steelyard.types import LogLine

FAULT_INTERVAL_MS = 1_000
REPEAT_MS = 30_000


class Faults:
    """Logs at most one fault in FAULT_INTERVAL_MS, and the same one again after REPEAT_MS."""

    def __init__(self) -> None:
        self._tell_at = 0
        self._again_at: dict[str, int] = {}
        """When each recently logged text may be logged again."""
        self.noted = ""
        """The text for the next `report`."""

    def note(self, text: str) -> None:
        """Have a text logged after this event, for callers without effects."""
        self.noted = text

    def report(self, now: int, effects: list[Effect]) -> None:
        """Log the noted text; called after each event."""
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
