"""Which connections a server lets in: bounds for the process, for each listener and for each client address.

What is above a bound is closed at once, logged and counted. But who connects and says nothing keeps nobody out: where
the process or the listener is full, the connection that was silent for longest makes room, if it never sent a whole
message. Bytes that the kernel has are not silence: a server that accepts a thousand connections in one pass reads
late, and a good client among them must not pay for that. (Apache Kafka closes the one idle for longest, and only for
other brokers' connections: SocketServer.scala, ConnectionQuotas; the names of the bounds are its `max.connections`
and `max.connections.per.ip`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import logging
    from collections.abc import Callable

    from steelyard.driver.links import Listening, Wire

LOOKED_AT_MAX = 16
"""So many silent connections are looked at for one that has nothing to be read; each look is a call of the kernel."""

TELL_MS = 30_000
"""How often refusals are logged."""

OUT_OF_RESOURCE = "socket.accept() out of system resource"
"""What asyncio's own loop says, for each of up to 1,024 tries at a time (selector_events.py)."""


RETRIES = "._start_serving("
"""In what asyncio's own loop says when a listener was closed before it was tried again."""


class Accepting:
    """See the module's text. `descriptors_max`: for accepted connections, and for what they open besides."""

    def __init__(self, descriptors_max: int, log: logging.Logger) -> None:
        self._descriptors_max = descriptors_max
        self._log = log
        self._listeners: list[Listening] = []
        self._tell_at: int | None = None
        self._reason = ""
        self._untold = 0
        self.descriptors = 0
        self.refused = 0
        """Connections that were not let in, so far."""
        self.displaced = 0
        """Silent connections that were closed to make room, so far."""

    def add(self, listening: Listening) -> None:
        self._listeners.append(listening)

    def admits(self, wire: Wire, now: int) -> bool:
        """Whether a new connection may stay. It counts until `closed`."""
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
        elif self.descriptors >= self._descriptors_max and not self._make_room(
            self._listeners, now
        ):
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
        """Close the connection that was silent for longest; False where there is none."""
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
        wire.cut("it never sent a request, and its place was needed for another for another")
        self.displaced += 1
        self._untold += 1
        self._reason = f"{wire.address} never sent a request, and its place was needed"
        self.tell(now)

    def spoke(self, wire: Wire) -> None:
        """The first whole message came."""
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
        """Whether a connection may open a second descriptor; it counts until the connection is `closed`."""
        if self.descriptors >= self._descriptors_max:
            return False
        self.descriptors += 1
        return True

    def tell(self, now: int) -> None:
        """Log what was refused since the last time; called now and then as well."""
        if not self._untold or (self._tell_at is not None and now < self._tell_at):
            return
        self._tell_at = now + TELL_MS
        self._log.warning(
            "%d connections closed for lack of room, the last one: %s; in all %d were refused, and %d that never sent a "
            "request were closed",
            *(self._untold, self._reason, self.refused, self.displaced),
        )
        self._untold = 0


class QuietLoop:
    """An exception handler for asyncio's own loop, which else logs up to 1,024 times a second that it cannot accept."""

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
    """Have the loop say once in TELL_MS that it cannot accept connections."""
    if not isinstance(loop.get_exception_handler(), QuietLoop):
        loop.set_exception_handler(QuietLoop(loop, log))
