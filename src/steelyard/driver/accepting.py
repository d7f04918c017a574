"""Admission of connections: limits per process, per listener and per client address.

Connections above a limit are closed at once, logged and counted. But idle connections do not keep
others out: if the process or the listener is full, the one that was silent for longest is closed to
make room, provided that it never sent a whole message. Unread bytes in the kernel count as
activity: a server that accepts a thousand connections in one pass reads late, and valid clients
among them must not suffer. (Apache Kafka closes the one idle for longest, and only for other
brokers' connections: SocketServer.scala, ConnectionQuotas; the limits are called `max.connections`
and `max.connections.per.ip` there.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import logging
    from collections.abc import Callable

    from steelyard.driver.links import Listening, Wire

LOOKED_AT_MAX = 16
"""Silent connections examined for one without unread data; each check is a system call."""

TELL_MS = 30_000
"""How often refusals are logged."""

OUT_OF_RESOURCE = "socket.accept() out of system resource"
"""Text of asyncio's loop, for each of up to 1,024 attempts at a time (selector_events.py)."""


RETRIES = "._start_serving("
"""Part of a text of asyncio's loop when a listener was closed before a retry."""


class Accepting:
    """Admission control.

    `descriptors_max`: for accepted connections and their second descriptors.
    """

    def __init__(self, descriptors_max: int, log: logging.Logger) -> None:
        self._descriptors_max = descriptors_max
        self._log = log
        self.listeners: list[Listening] = []
        """All that were added; others only read it."""
        self._tell_at: int | None = None
        self._reason = ""
        self._untold = 0
        self.descriptors = 0
        self.refused = 0
        """Connections refused so far."""
        self.displaced = 0
        """Silent connections closed to make room so far."""

    def add(self, listening: Listening) -> None:
        self.listeners.append(listening)

    def admits(self, wire: Wire, now: int) -> bool:
        """Return whether a new connection may stay. It counts until `closed`."""
        listening = wire.listening
        assert listening is not None
        ip = wire.ip
        reason = ""
        if listening.by_ip.get(ip, 0) >= listening.connections_per_ip_max:
            bound = f"{listening.connections_per_ip_max} (max.connections.per.ip)"
            reason = f"{ip} has {bound} connections to the {listening.name} listener"
        elif listening.count >= listening.connections_max:
            if not self._make_room([listening], now):
                bound = f"{listening.connections_max} (max.connections)"
                reason = f"the {listening.name} listener has {bound} connections"
        elif self.descriptors >= self._descriptors_max and not self._make_room(self.listeners, now):
            reason = (
                f"all {self._descriptors_max} descriptors for connections are in use (ulimit -n)"
            )
        if reason:
            self.refused += 1
            self._untold += 1
            self._reason = f"{wire.address} was refused: {reason}"
            self.tell(now)
            return False
        listening.count += 1
        listening.by_ip[ip] = listening.by_ip.get(ip, 0) + 1
        listening.silent[wire] = now
        self.descriptors += 1
        return True

    def _make_room(self, listeners: list[Listening], now: int) -> bool:
        """Close the connection that was silent for longest; return False if there is none."""
        for _ in range(LOOKED_AT_MAX):
            silent = min(
                (listening.silent for listening in listeners if listening.silent),
                key=lambda each: next(iter(each.values())),
                default=None,
            )
            if silent is None:
                return False
            wire = next(iter(silent))
            del silent[wire]
            if not wire.has_unread():
                self._displace(wire, now)
                return True
            silent[wire] = now  # the next pass reads it: until then it is not the oldest
        return False

    def _displace(self, wire: Wire, now: int) -> None:
        wire.is_silent = False
        wire.cut("it never sent a request, and its place was needed for another")
        self.displaced += 1
        self._untold += 1
        self._reason = f"{wire.address} never sent a request, and its place was needed"
        self.tell(now)

    def spoke(self, wire: Wire) -> None:
        """Note that a connection sent its first whole message."""
        wire.is_silent = False
        if wire.listening is not None:
            wire.listening.silent.pop(wire, None)

    def closed(self, wire: Wire) -> None:
        listening = wire.listening
        assert listening is not None
        listening.count -= 1
        self.descriptors -= 1 + wire.has_second_descriptor
        left = listening.by_ip[wire.ip] - 1
        if left:
            listening.by_ip[wire.ip] = left
        else:
            del listening.by_ip[wire.ip]
        listening.silent.pop(wire, None)

    def takes_another(self) -> bool:
        """Return whether a connection may open a second descriptor, counted until `closed`."""
        if self.descriptors >= self._descriptors_max:
            return False
        self.descriptors += 1
        return True

    def tell(self, now: int) -> None:
        """Log what was refused since the last time; called periodically as well."""
        if not self._untold or (self._tell_at is not None and now < self._tell_at):
            return
        self._tell_at = now + TELL_MS
        self._log.warning(
            "%d connections closed for lack of room, the last one: %s; in all %d were refused, and"
            " %d that never sent a "
            "request were closed",
            *(self._untold, self._reason, self.refused, self.displaced),
        )
        self._untold = 0


class QuietLoop:
    """An exception handler for asyncio's loop, which otherwise floods the log if it cannot accept.

    It would log up to 1,024 times a second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
        self._log = log
        self._before: Callable[[asyncio.AbstractEventLoop, dict[str, object]], object] | None
        self._before = loop.get_exception_handler()
        self._tell_at = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        message = str(context.get("message"))
        if RETRIES in message:
            self._log.debug("%s: %r", message, context.get("exception"))
        elif message != OUT_OF_RESOURCE:
            if self._before is None:
                loop.default_exception_handler(context)
            else:
                self._before(loop, context)
        elif loop.time() >= self._tell_at:
            self._tell_at = loop.time() + TELL_MS / 1000
            self._log.warning(
                "connections cannot be accepted: %r; trying again every second",
                context.get("exception"),
            )


def quiet(loop: asyncio.AbstractEventLoop, log: logging.Logger) -> None:
    """Make the loop log at most once in TELL_MS that it cannot accept connections."""
    if not isinstance(loop.get_exception_handler(), QuietLoop):
        loop.set_exception_handler(QuietLoop(loop, log))
