"""How much a client may send or read now, and for how long it is silent if that was too much.

Whoever was silent for WINDOW_MS may have at once what its quota gives in that time, as in Apache
Kafka with its defaults (quota.window.num, quota.window.size.seconds). From then on it gets the
quota, however large its requests are: what was too much is waited for. (Kafka measures the rate
over samples of a second and forgets them, so that clients with large requests get more.)
Source: server/quota/QuotaUtils.java, KIP-13.
"""

from __future__ import annotations

WINDOW_MS = 10_000
THROTTLE_MS_MAX = 3_600_000
"""Longest silence; a debt that is larger is forgotten."""


class Allowance:
    """What one owner of a quota may have."""

    def __init__(self) -> None:
        self._paid_at = 0.0
        """When what was taken will be paid for at the quota's rate, in ms since the epoch."""

    def take(self, size: int, limit: float, now: int) -> int:
        """Take bytes at a quota of `limit` bytes/s; return for how many ms to be silent then."""
        paid_at = max(self._paid_at, now - WINDOW_MS) + size / limit * 1000
        self._paid_at = min(paid_at, now + THROTTLE_MS_MAX)
        return self.owed_ms(now)

    def owed_ms(self, now: int) -> int:
        """Return for how many ms more to be silent, because of what was taken before."""
        return max(0, round(self._paid_at - now))
