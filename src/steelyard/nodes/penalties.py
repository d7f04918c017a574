"""Slows down who guesses passwords: the answer to a failed login is late, and later each time.

Per address, the delay doubles with each failure after the first ones within a minute. While many
answers of an address are delayed, its further logins are refused at once, without a look at their
secrets: guesses come at most at a known rate, however many connections they use. Clients with a
right password wait for nothing, unless their address has that many delayed answers.
(Apache Kafka has the delay only: connection.failed.authentication.delay.ms.)
"""

from __future__ import annotations

import msgspec

PATIENT_FAILURES = 5
"""Failures within WINDOW_MS after which the delay begins to double."""
WINDOW_MS = 60_000
"""Time without a failure after which an address begins anew."""
DELAY_MAX_MS = 5_000
DELAYED_MAX = 20
"""Most delayed answers of one address."""
ADDRESSES_MAX = 10_000
"""Most addresses remembered; the one that failed longest ago is forgotten first."""


class _Failures(msgspec.Struct):
    count: int = 0
    last_at: int = 0
    delayed: int = 0


class Penalties:
    """The failures of each address. `delay_ms`: of the first ones."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._by_ip: dict[str, _Failures] = {}

    def may_try(self, ip: str) -> bool:
        """Return whether a login from an address is looked at."""
        found = self._by_ip.get(ip)
        return found is None or found.delayed < DELAYED_MAX

    def failed(self, ip: str, now: int) -> int:
        """Note a failure whose answer is to be delayed; return when to answer."""
        found = self._by_ip.pop(ip, None) or _Failures()
        if now - found.last_at > WINDOW_MS:
            found.count = 0
        found.count += 1
        found.last_at = now
        found.delayed += 1
        self._by_ip[ip] = found
        self._forget()
        doublings = min(max(0, found.count - PATIENT_FAILURES), 32)
        return now + min(self._delay_ms << doublings, max(DELAY_MAX_MS, self._delay_ms))

    def answered(self, ip: str) -> None:
        """Note that a delayed answer was given."""
        found = self._by_ip.get(ip)
        if found is not None and found.delayed:
            found.delayed -= 1

    def _forget(self) -> None:
        while len(self._by_ip) > ADDRESSES_MAX:
            del self._by_ip[next(iter(self._by_ip))]
