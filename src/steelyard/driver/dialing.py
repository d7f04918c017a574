"""Connections that the node asks for, and who it was that closed one without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from steelyard.config import translation
from steelyard.driver.links import Dialect, Wire, dialect
from steelyard.driver.probing import probe
from steelyard.nodes.seam import REMOTING, Dial, Refused
from steelyard.wire.strangers import named

if TYPE_CHECKING:
    import ssl

    from steelyard.driver.encryption import TlsContext

PROBE_MS = 500
"""Time for a server that closed a connection without responding to answer a probe."""
PROBED_MS = 60_000
"""Minimum time between two probes of one address."""
PROBED_MAX = 1_000
"""Maximum number of results that are remembered."""


class Dialing:
    """Dials, and probes servers. In the loop's thread only.

    `wire`: makes a link's protocol, for a dialect and an address. `refused`: gets failed dials.
    `closed`: gets links with the reason why they are closed. `tls` and `peer_tls`: as of `Driver`.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int],
        wire: Callable[[Dialect, str], Wire],
        refused: Callable[[Refused], None],
        closed: Callable[[Wire, str], None],
        timeout_ms: int,
        tls: ssl.SSLContext | None,
        peer_tls: TlsContext | None,
        address_translation: Sequence[str],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._wire = wire
        self._refused = refused
        self._closed = closed
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._peer_tls = peer_tls
        self._translation = translation(address_translation)
        self._tasks: set[asyncio.Task[None]] = set()
        self._probed: dict[str, tuple[int, str]] = {}
        """Servers that closed a connection without a response: when they were probed, and what they
        are.
        """
        self._is_stopped = False

    def stop(self) -> None:
        """Probe nobody any more."""
        self._is_stopped = True

    def cancel(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- dials -------------------------------------------------------------------------------------

    def dial(self, effect: Dial, now: int) -> None:
        """Apply the effect."""
        self._begin(self._loop.create_task(self._connect(effect.address, effect.dialect)))

    async def _connect(self, address: str, dialect_name: str) -> None:
        spoken = dialect(dialect_name)
        name = address.rpartition(":")[0].strip("[]")
        tls = self._tls_to(dialect_name)
        try:
            host, _, port = self._translation.get(address, address).rpartition(":")
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._loop.create_connection(
                    lambda: self._wire(spoken, address),
                    host.strip("[]"),
                    int(port),
                    ssl=tls,
                    server_hostname=None if tls is None else name,
                )
        except TimeoutError:
            self._refused(Refused(address, f"no connection in {self._timeout_ms} ms"))
        except (OSError, ValueError, OverflowError, RuntimeError) as error:
            # RuntimeError: no thread to look up the name, for want of memory or at the program's
            # end. The node must hear of it all the same: it waits for this dial before the next.
            reason = getattr(error, "strerror", None) or str(error)
            if tls is not None and not isinstance(error, ConnectionRefusedError):
                reason += "; check that this port speaks TLS and that its certificate is trusted"
            self._refused(Refused(address, reason))

    def _tls_to(self, dialect_name: str) -> ssl.SSLContext | None:
        """Return the TLS context of links that are dialed in that dialect."""
        if self._peer_tls is not None and dialect_name == REMOTING:
            return self._peer_tls.current
        return self._tls

    # -- probes ------------------------------------------------------------------------------------

    def unanswered(self, wire: Wire, reason: str) -> None:
        """Probe a dialed server that closed the link without a response, then close it here."""
        probed_at, found = self._probed.get(wire.address, (0, ""))
        now = self._clock()
        is_fresh = now - probed_at < PROBED_MS
        if self._is_stopped or self._tls_to(wire.dialect) is not None or is_fresh:
            self._closed(wire, found or reason)
            return
        if len(self._probed) >= PROBED_MAX:
            self._probed.clear()
        self._probed[wire.address] = (now, "")
        self._begin(self._loop.create_task(self._probe(wire, reason)))

    async def _probe(self, wire: Wire, reason: str) -> None:
        """Close the link for the node, naming the server if it answers the probe."""
        found = ""
        try:
            reached = self._translation.get(wire.address, wire.address)
            found = named(wire.speech, await probe(reached, wire.speech, PROBE_MS))
            self._probed[wire.address] = (self._clock(), found)
        except (OSError, ValueError, OverflowError):
            pass  # not reachable any more, or no response
        finally:
            self._closed(wire, found or reason)
