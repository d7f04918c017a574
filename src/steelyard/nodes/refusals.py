"""Logs requests refused because header or body could not be read, at a limited rate."""

from __future__ import annotations

from steelyard.nodes.seam import Effect
from steelyard.types import LogLine

REFUSAL_INTERVAL_MS = 10_000
"""Interval in which at most one refused request of a peer is reported."""

PEERS_MAX = 1_000
"""Most peers remembered; beyond it all are forgotten and may be reported again."""


class Refusals:
    """Refusals by the peer's host, because its port changes with every connection."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._untold: dict[str, int] = {}

    def tell(self, address: str, code: int, reason: str, now: int, effects: list[Effect]) -> None:
        """Log a request with this code from this address that was refused for this reason."""
        host = address.rpartition(":")[0]
        told = self._told.get(host)
        if told is not None and now - told < REFUSAL_INTERVAL_MS:
            self._untold[host] = self._untold.get(host, 0) + 1
            return
        if told is None and len(self._told) >= PEERS_MAX:
            self._told.clear()
            self._untold.clear()
        self._told[host] = now
        more = self._untold.pop(host, 0)
        since = f" ({more} more of this host were refused before)" if more else ""
        text = f"request {code} of {address} was refused: {reason[:500]}{since}"
        effects.append(LogLine("WARNING", text))
