"""Clients that speak something else than what is served where they knock (`wire.strangers`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from steelyard.errors import ProtocolError
from steelyard.nodes.seam import KAFKA
from steelyard.wire.strangers import Stranger, recognise, refusal

if TYPE_CHECKING:
    import ssl

    from steelyard.driver.links import Wire

TOLD_MS = 60_000
"""Minimum time between log lines about clients of one IP address at the wrong port."""
TOLD_MAX = 1_000
"""Maximum number of these that are remembered."""


class StrangerReports:
    """Tells such clients, and the log, which port is the right one; then closes their links."""

    def __init__(self, log: logging.Logger, clock: Callable[[], int]) -> None:
        self._log = log
        self._clock = clock
        self._told: dict[tuple[str, Stranger], int] = {}
        """When a client of another protocol was last logged, by IP address."""

    def broken(self, wire: Wire, error: ProtocolError, head: bytes) -> None:
        """Handle bytes of another protocol. `head`: the first of the connection, if known."""
        stranger = recognise(head) if head and wire.listening is not None else None
        is_bare = wire.encryption is not None and not wire.encryption.has_begun
        if stranger is Stranger.KAFKA and wire.dialect == KAFKA and not is_bare:
            stranger = None  # it asks for what is not served
        if stranger is None:
            self._log.warning("%s broke the protocol: %s", wire.address, error)
            wire.cut(f"broke the protocol: {error}")
            return
        assert wire.listening is not None
        signs = wire.listening.signs
        if self._may_tell(wire.ip, stranger):
            self._log.warning(
                "%s speaks %s to %s; %s",
                wire.address,
                stranger.value,
                signs.here,
                signs.advice(stranger),
            )
        answer = refusal(stranger, signs)
        if answer:
            wire.transport.write(answer)
        wire.hang(f"speaks {stranger.value}")

    def insecure(self, wire: Wire, error: ssl.SSLError) -> None:
        """Close a link whose handshake failed, or that was tampered with."""
        from steelyard.driver.encryption import words

        assert wire.listening is not None
        if self._may_tell(wire.ip, Stranger.TLS):
            self._log.warning(
                "no TLS with %s at %s: %s", wire.address, wire.listening.signs.here, words(error)
            )
        wire.hang("TLS failed")

    def _may_tell(self, ip: str, stranger: Stranger) -> bool:
        """Return whether it is time for another line about such clients of an address."""
        now = self._clock()
        if now - self._told.get((ip, stranger), now - TOLD_MS) < TOLD_MS:
            return False
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told[ip, stranger] = now
        return True
