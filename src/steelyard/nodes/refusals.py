"""Tells people of requests that were refused because their header or body could not be read, but not of each."""

from __future__ import annotations

from steelyard.nodes.seam import Effect
from steelyard.types import LogLine

REFUSAL_INTERVAL_MS = 10_000
"""Of one peer's refused requests, one is told in so long."""

PEERS_MAX = 1_000
"""Most peers that are remembered; beyond, all are forgotten and may be told of again."""


class Refusals:
    """By the peer's host: its ports change with every connection."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._untold: dict[str, int] = {}

    def tell(self, address: str, code: int, reason: str, now: int, effects: list[Effect]) -> None:
        """A request with this code from this address was answered with an error, for this reason."""
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
