"""The driver: runs one node on an asyncio loop, passing events in and applying effects.

The driver holds no policy: the node decides what an event means, the driver when and how bytes
move. One pass serves one event source: the bytes of all links that were ready together, a timer, a
drain of other threads' posts; at its end every link that got frames is written once. Reading all
links first, then deciding, then writing costs a broker a quarter less CPU per request than link by
link, because every system call evicts Python from the processor's caches.

Threads: everything runs in the loop's thread, except `post` and `ask_from_thread`, which may be
called from any thread and wake the loop at most once per drain, and the result of `prepare_flush`:
that is called in the loop's thread and returns what to sync, which runs in a thread of its own.

A node that raises has a bug. The driver then guarantees:

- The event is not repeated, and no later event is lost or handled before the following is done.
- Effects carried by a HandlerError are applied. With any other exception the effects are lost: a
  timer that the handler should have set fires again (see below); messages that the node should have
  sent are missing, and whoever waits for them depends on time-outs.
- The cause of the event bears the cost: a link (`Received`, `Opened`) is closed, after the error
  reply if the node provided one, and the node gets its `Closed`; a call (`Asked`) ends with
  InternalError; a timer (`Due`) fires again after DUE_AGAIN_MS, unless it was set again, so that
  periodic work continues.
- The node's `check` runs before the next event. If that raises, the node's state is broken: the
  node is stopped for good, every link is cut, all calls get a ClosedError that names the cause, and
  `failed` is done. After a slow check the next one waits twenty times as long as it took, and
  covers all errors until then, so that nobody can keep a broker busy by provoking errors.
- If a decoder fails on bytes, their link is closed; the node has not seen them.
- Partial changes that `check` does not detect stay. If an effect fails (such as a reply that cannot
  be encoded), its link is closed; the effects after it are applied.
- `driver/failures.py` defines what is logged. A node that cannot start, and a flush that failed,
  stop it at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from steelyard.driver.accepting import Accepting, quiet
from steelyard.driver.dialing import Dialing
from steelyard.driver.failures import EVENT_BYTES_MAX, Failures, brief
from steelyard.driver.links import UNLIMITED, LinkLimits, Listening, Wire, dialect
from steelyard.driver.logs import logger
from steelyard.driver.measuring import Measuring
from steelyard.driver.strangers import StrangerReports
from steelyard.driver.timers import NodeTimers
from steelyard.errors import ClosedError, InternalError, ProtocolError
from steelyard.nodes.seam import (
    KAFKA,
    REMOTING,
    Admit,
    Answer,
    Asked,
    Call,
    Closed,
    Deliver,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    HandlerError,
    Hang,
    Measured,
    Mute,
    Node,
    Opened,
    Persist,
    Received,
    Send,
    SetTimer,
)
from steelyard.session_clock import STOOD_STILL_MS
from steelyard.types import LogLine
from steelyard.wire.certificates import distinguished_name
from steelyard.wire.figures import ProcessFigures
from steelyard.wire.strangers import Signs

if TYPE_CHECKING:
    import socket
    import ssl

    from steelyard.driver.encryption import TlsContext
    from steelyard.driver.flushing import Flushing

T = TypeVar("T")

DRAIN_MAX = 4096
"""Maximum posts of other threads taken in one pass, so that sockets get their turn."""

DUE_AGAIN_MS = 1_000
"""Delay after which a timer whose handler raised fires again."""

CHECK_SHARE = 20
"""Minimum time between two checks of a failing node, as a multiple of the last check's duration."""

_HEAVY = frozenset((Answer, Deliver, Persist))
"""Effects that may hold much memory and are not remembered for reports."""


class Driver:
    """The driver of a node. Build it in the loop's thread, then `start`, then `listen`.

    `tls`: encrypts dialed links; for accepted ones see `listen`. `peer_tls`: of a server, encrypts
    links that it dials to others' RocketMQ ports. `measures`: pass the node a `Measured` every
    second. `address_translation`: what to dial in place of what the node asks for,
    as in ClientConfig.
    """

    def __init__(
        self,
        node: Node,
        *,
        name: str = "node",
        on_hand: Callable[[int, object], None] | None = None,
        on_keep: Callable[[bytes], None] | None = None,
        prepare_flush: Callable[[], Callable[[], None]] | None = None,
        limits: LinkLimits | None = None,
        tls: ssl.SSLContext | None = None,
        peer_tls: TlsContext | None = None,
        measures: bool = False,
        address_translation: Sequence[str] = (),
    ) -> None:
        self.node = node
        self.limits = limits or LinkLimits()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Done when the node was stopped because its state or its disk failed: the error."""
        self.unfinished = 0
        self._loop = asyncio.get_running_loop()
        self._log = logger(f"steelyard.{name}")
        self._failures = Failures(self._log)
        self._remember = self._failures.remember
        self._check_at = 0.0
        self._checking: asyncio.TimerHandle | None = None
        self._closed_by: BaseException | None = None
        self._on_hand = on_hand
        self._on_keep = on_keep
        self._stopped = False
        self._time_last = 0
        self._time_skew = 0
        self._link_numbers = count(1)
        self._links: dict[int, Wire] = {}
        self.accepting = Accepting(self.limits.accepted_max, self._log)
        self._dirty: list[Wire] = []
        self._write_scheduled = False
        self._read: list[tuple[Wire, bytes]] = []
        self._read_bytes = 0
        self._strangers = StrangerReports(self._log, self.clock)
        self._servers: list[asyncio.Server] = []
        self._watched: list[TlsContext] = []
        if peer_tls is not None:
            self._watch(peer_tls)
        self._dialing = Dialing(
            loop=self._loop,
            clock=self.clock,
            wire=lambda spoken, address: Wire(self, spoken, address),
            refused=self.handle,
            closed=self.link_closed,
            timeout_ms=self.limits.dial_timeout_ms,
            tls=tls,
            peer_tls=peer_tls,
            address_translation=address_translation,
        )
        self._timers = NodeTimers(self._loop, self.clock, lambda key: self.handle(Due(key)))
        self._call_numbers = count(1)
        self._asked: dict[int, Callable[[Any], None]] = {}
        self._inbox: deque[Event] = deque()
        self._woken = False
        self._flushing: Flushing | None = None
        if prepare_flush is not None:
            from steelyard.driver.flushing import Flushing

            self._flushing = Flushing(
                prepare_flush,
                loop=self._loop,
                log=self._log,
                synced=self._synced,
                flushed=lambda ticket: self.handle(Flushed(ticket)),
                failed=lambda error: self._crash("the disk failed; the broker is stopped", error),
            )
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0
        self._measuring: Measuring | None = None
        if measures:
            self._measuring = Measuring(self._loop, self.accepting, self._failures, self._measured)
        self._perform_other: dict[type, Callable[[Any, int], None]] = {
            Answer: self._answer,
            SetTimer: self._timers.set,
            DropTimer: self._timers.drop,
            Dial: self._dialing.dial,
            Hang: self._hang,
            Admit: self._admit,
            Mute: self._mute,
            Flush: self._flush,
            Deliver: self._deliver,
            Persist: self._persist,
            LogLine: self._log_line,
        }

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the node."""
        now = self.clock()
        self._sweep_later()
        try:
            self._perform(self.node.start(now), now)
        except Exception as error:
            self._crash("the node could not start", error)
        if self._measuring is not None and not self._stopped:
            self._measuring.start()
        self._write_soon()

    async def listen(
        self,
        listener: socket.socket,
        dialect_name: str = REMOTING,
        *,
        connections_max: int = UNLIMITED,
        connections_per_ip_max: int = UNLIMITED,
        signs: Signs | None = None,
        also: Sequence[socket.socket] = (),
        tls: TlsContext | None = None,
        is_tls_optional: bool = False,
        has_logins: bool = False,
    ) -> None:
        """Accept connections on a bound socket from peers that speak that dialect.

        `also`: further sockets of the same listener, for which its limits and figures hold, too.
        `tls`: encrypts connections; the driver watches and closes it. `is_tls_optional`: peers
        without TLS are served as well. `has_logins`: peers log in first, and until then the
        dialect's limits for strangers hold.
        """
        spoken = dialect(dialect_name)
        if has_logins:
            assert spoken.admitting is not None, f"there are no logins in {dialect_name}"
            spoken = replace(spoken, accepting=spoken.admitting)
        listening = Listening(
            name=dialect_name,
            connections_max=connections_max,
            connections_per_ip_max=connections_per_ip_max,
            signs=signs or Signs(),
        )
        self.accepting.add(listening)
        quiet(self._loop, self._log)

        def accepted() -> Wire:
            if tls is None:
                return Wire(self, spoken, None, listening)
            from steelyard.driver.encryption import LinkEncryption

            encryption = LinkEncryption(tls.current, is_optional=is_tls_optional)
            return Wire(self, spoken, None, listening, encryption)

        if tls is not None:
            self._watch(tls)
        for each in (listener, *also):
            server = await self._loop.create_server(accepted, sock=each, backlog=1024)
            self._servers.append(server)

    def _watch(self, tls: TlsContext) -> None:
        tls.watch(self._loop)
        self._watched.append(tls)

    async def close(self, *, timeout_seconds: float = 1.0) -> None:
        """Stop for good: no more events to the node; links are closed after pending output."""
        self._write_all()
        self._stop()
        for server in self._servers:
            server.close()
        self._dialing.cancel()
        for wire in list(self._links.values()):
            wire.hang("the driver was closed")
        deadline = self._loop.time() + timeout_seconds
        while self._links and self._loop.time() < deadline:
            await asyncio.sleep(0.002)
        for wire in list(self._links.values()):
            wire.cut("the driver was closed")
        await asyncio.sleep(0)
        if self._flushing is not None:
            await self._flushing.close()

    def _stop(self) -> None:
        self._stopped = True
        self._timers.stop()
        self._dialing.stop()
        if self._flushing is not None:
            self._flushing.stop()
        for tls in self._watched:
            tls.close()
        if self._measuring is not None:
            self._measuring.stop()
        for timer in (self._sweep, self._checking):
            if timer is not None:
                timer.cancel()
        for call_id in list(self._asked):
            self._asked.pop(call_id)(self._closed_error("closed while the call was in progress"))

    def _closed_error(self, text: str) -> ClosedError:
        if self._closed_by is None:
            return ClosedError(text)
        error = ClosedError(f"stopped after an internal error: {self._closed_by!r}; see the log")
        error.__cause__ = self._closed_by
        return error

    # -- errors ------------------------------------------------------------------------------------

    def _failed(self, event: Event, error: Exception, now: int) -> None:
        """Handle an exception of the node: see the module docstring."""
        effects: Sequence[Effect] = ()
        cause: BaseException = error
        if isinstance(error, HandlerError):
            effects, cause = error.effects, error.__cause__ or error
        self._remember((now, self._kept(event), ("raised", type(cause))))
        self._failures.report(f"the node failed to handle {brief(self._kept(event))}", cause, now)
        self._perform(effects, now)
        if isinstance(event, Received | Opened):
            self._hang(Hang(event.link, "an internal error"), now)
        elif isinstance(event, Asked):
            on_answer = self._asked.pop(event.call_id, None)
            if on_answer is not None:
                wrong = InternalError(f"an internal error ended the call: {cause!r}; see the log")
                wrong.__cause__ = cause
                on_answer(wrong)
        elif isinstance(event, Due) and event.key not in self._timers:
            self._timers.arm(event.key, now + DUE_AGAIN_MS, now)
        self._check_soon()

    def _effect_failed(self, effect: Effect, error: Exception, now: int) -> None:
        """Handle an effect that could not be applied."""
        what = f"an effect failed: {type(effect).__name__}"
        if isinstance(effect, Send):
            wire = self._links.get(effect.link)
            if wire is not None:
                what = f"{brief(effect)} to {wire.address} failed; its connection is closed"
                if wire in self._dirty:
                    self._dirty.remove(wire)
                wire.out.clear()  # possibly half a frame
                wire.out_bytes = 0
                wire.cut("an internal error")
        self._failures.report(what, error, now)
        self._check_soon()

    def _check_soon(self) -> None:
        """Check the node now, or as soon as enough time has passed since the last check."""
        if self._checking is not None or self._stopped:
            return
        wait_seconds = self._check_at - time.monotonic()
        if wait_seconds <= 0:
            self._check()
        else:
            self._checking = self._loop.call_later(wait_seconds, self._check)

    def _check(self) -> None:
        self._checking = None
        begun = time.monotonic()
        try:
            self.node.check()
        except Exception as error:
            self._crash("the node's state is broken after an error; it is stopped", error)
        ended = time.monotonic()
        self._check_at = ended + CHECK_SHARE * (ended - begun)

    def _crash(self, what: str, error: BaseException) -> None:
        """Stop the node, which cannot continue, and everything that depends on it."""
        if self._stopped:
            return
        self._failures.report_end(what, error, self.clock())
        self._closed_by = error
        self._stop()
        for server in self._servers:
            server.close()
        for wire in list(self._links.values()):
            wire.cut("the node failed")
        if not self.failed.done():
            self.failed.set_result(error)

    # -- events ------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Milliseconds since the epoch, never decreasing.

        If the system's clock is set back, the node's continues from where it was, ahead by the
        step.
        """
        now = time.time_ns() // 1_000_000 + self._time_skew
        if now < self._time_last:
            self._time_skew += self._time_last - now
            return self._time_last
        self._time_last = now
        return now

    def handle(self, event: Event) -> None:
        """Pass one event to the node now. In the loop's thread only."""
        if self._stopped:
            return
        self._step(event, self.clock())
        self._write_soon()

    def _step(self, event: Event, now: int) -> None:
        try:
            effects = self.node.handle(event, now)
        except Exception as error:
            self._failed(event, error, now)
            return
        weight = self._perform(effects, now) if effects else 0
        self._remember(
            (
                now,
                event if type(event) is not Asked else self._kept(event),
                effects if weight <= EVENT_BYTES_MAX else tuple(map(type, effects)),
            )
        )

    @staticmethod
    def _kept(event: Event) -> object:
        """Return what is remembered of an event: a call may hold much memory."""
        return (Asked, event.call_id, type(event.call)) if isinstance(event, Asked) else event

    def _measured(self, figures: ProcessFigures) -> None:
        self.handle(Measured(figures))

    def post(self, event: Event) -> None:
        """Pass an event to the node soon, from any thread."""
        self._inbox.append(event)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def ask(self, call: Call[T]) -> asyncio.Future[T]:
        """Pass a call to the node; the future gets the result. In the loop's thread only."""
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T | BaseException) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        if self._stopped:
            settle(self._closed_error("closed"))
            return future
        number = next(self._call_numbers)
        self._asked[number] = settle
        self.handle(Asked(number, call))
        return future

    async def poll(self, call: Call[T], give_back: Call[None]) -> T:
        """As `ask`.

        If it is cancelled, the caller has not seen the result: the node gets `give_back`.
        """
        try:
            return await self.ask(call)
        except asyncio.CancelledError:
            self.ask(give_back).add_done_callback(asyncio.Future.exception)
            raise

    def ask_from_thread(
        self, call: Call[T], on_answer: Callable[[T | BaseException], None]
    ) -> None:
        """Pass a call to the node from any thread; `on_answer` runs in the loop's thread."""
        number = next(self._call_numbers)
        self._asked[number] = on_answer
        self.post(Asked(number, call))
        if self._stopped:
            waiting = self._asked.pop(number, None)
            if waiting is not None:
                waiting(self._closed_error("closed"))

    def _drain(self) -> None:
        self._woken = False
        inbox = self._inbox
        for _ in range(min(len(inbox), DRAIN_MAX)):
            if self._stopped:
                return
            self._step(inbox.popleft(), self.clock())
        self._write_all()
        if inbox and not self._woken:
            self._woken = True
            self._loop.call_soon(self._drain)

    # -- links (called by Wire) --------------------------------------------------------------------

    def link_opened(self, wire: Wire) -> None:
        self.take_read()  # data read before is handled first
        if self._stopped:
            wire.cut("the driver was closed")
            return
        if not wire.dialed and not self.accepting.admits(wire, self.clock()):
            wire.cut("too many connections")
            return
        wire.link = next(self._link_numbers)
        self._links[wire.link] = wire
        if wire.encryption is None:
            self.link_plain(wire)

    def link_plain(self, wire: Wire) -> None:
        """Tell the node of a link without TLS."""
        wire.is_announced = True
        self.handle(Opened(wire.link, wire.address, wire.dialed, wire.dialect))

    def link_secured(self, wire: Wire) -> None:
        """Tell the node of an encrypted link, whose handshake is done."""
        if self._stopped:
            return
        assert wire.encryption is not None
        certificate = wire.encryption.certificate()
        try:
            owner = "" if certificate is None else distinguished_name(certificate)
        except ProtocolError as error:
            self._log.warning("%s: %s", wire.address, error)
            wire.hang(str(error))
            return
        wire.is_announced = True
        self.handle(Opened(wire.link, wire.address, wire.dialed, wire.dialect, owner))

    def link_insecure(self, wire: Wire, error: ssl.SSLError) -> None:
        """Close a link whose handshake failed, or that was tampered with."""
        self._strangers.insecure(wire, error)

    def link_read(self, wire: Wire, data: bytes) -> None:
        """Take received bytes. They wait for those of other links that are ready now."""
        self._read.append((wire, data))
        self._read_bytes += len(data)
        if self._read_bytes > self.limits.read_max:
            self.take_read()
        elif len(self._read) == 1:
            self._loop.call_soon(self.take_read)

    def take_read(self) -> None:
        """Handle everything that was read, in one pass."""
        if not self._read:
            return
        read, self._read, self._read_bytes = self._read, [], 0
        for wire, data in read:
            wire.take(data)
        self._write_all()

    def link_received(self, wire: Wire, messages: Sequence[object]) -> None:
        """Handle whole messages in order. Stops early if the peer does not read the replies."""
        if self._stopped:
            return
        now = wire.active_at = self.clock()
        if wire.is_silent:
            self.accepting.spoke(wire)
        link = wire.link
        handle, remember = self.node.handle, self._remember
        write_high = self.limits.write_high
        is_large = wire.message_bytes > EVENT_BYTES_MAX
        for index, message in enumerate(messages):
            event = Received(link, message)
            try:
                effects = handle(event, now)
            except Exception as error:
                self._failed(event, error, now)
                break
            weight = self._perform(effects, now) if effects else 0
            remember(
                (
                    now,
                    brief(event, 2) if is_large else event,
                    effects if weight <= EVENT_BYTES_MAX else tuple(map(type, effects)),
                )
            )
            if wire.out_bytes > write_high:
                self._write_all()
                if wire.choked and not wire.hung:
                    wire.keep(messages[index + 1 :])
                    break
            if wire.hung:
                break

    def link_resumed(self, wire: Wire, messages: Sequence[object]) -> None:
        """Continue with the kept messages, because the peer reads again."""
        self.link_received(wire, messages)
        self._write_all()

    def link_broken(self, wire: Wire, error: ProtocolError, head: bytes) -> None:
        """Handle an error of the peer. `head`: the connection's first bytes, if they contain it."""
        self._strangers.broken(wire, error, head)

    def link_failed(self, wire: Wire, error: Exception) -> None:
        """Handle a bug in decoding a link's bytes, which the node has not seen."""
        what = f"what {wire.address} sent could not be decoded; its connection was closed"
        self._failures.report(what, error, self.clock())
        wire.cut("an internal error")

    def link_overflows(self) -> None:
        """Cut the link with the largest unfinished frame, of silent ones if there are any."""
        wire = max(
            (each for each in self._links.values() if each.unfinished),
            key=lambda each: (each.is_silent, each.unfinished),
        )
        wire.cut("too many bytes of unfinished frames")

    def link_closed(self, wire: Wire, reason: str) -> None:
        if self._links.pop(wire.link, None) is None:
            return
        if not wire.dialed:
            self.accepting.closed(wire)
        if wire.is_announced:
            self.handle(Closed(wire.link, reason))

    def link_unanswered(self, wire: Wire, reason: str) -> None:
        """Handle a dialed link that its server closed without a response."""
        self._dialing.unanswered(wire, reason)

    def takes_second_descriptor(self, wire: Wire) -> bool:
        """Return whether the link may open another descriptor besides its socket."""
        if not wire.has_second_descriptor and not wire.dialed:
            wire.has_second_descriptor = self.accepting.takes_another()
        return wire.has_second_descriptor or wire.dialed

    def _sweep_links(self) -> None:
        """Close links that have been silent for too long.

        Not if the process did not run for a while: what the links got meanwhile is not read yet.
        """
        now = self.clock()
        self.accepting.tell(now)
        if now - self._sweep_at <= STOOD_STILL_MS:
            idle_ms = {REMOTING: self.limits.idle_ms, KAFKA: self.limits.kafka_idle_ms}
            for wire in list(self._links.values()):
                if now - wire.active_at >= idle_ms[wire.dialect] and not wire.is_muted:
                    wire.cut("idle for too long")
        self._sweep_later()

    def _sweep_later(self) -> None:
        self._sweep_at = self.clock() + self.limits.sweep_ms
        self._sweep = self._loop.call_later(self.limits.sweep_ms / 1000, self._sweep_links)

    # -- writing -----------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        if self._dirty and not self._write_scheduled:
            self._write_scheduled = True
            self._loop.call_soon(self._write_all)

    def _write_all(self) -> None:
        self._write_scheduled = False
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for wire in dirty:
                wire.active_at = self._time_last
                wire.write_out()

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect], now: int) -> int:
        """Apply effects in order. Returns the bytes sent, or more if they hold much memory."""
        weight = 0
        rest = iter(effects)
        effect: Effect | None = None
        try:
            for effect in rest:  # the handler below needs it
                if type(effect) is Send:
                    wire = self._links.get(effect.link)
                    if wire is not None:
                        is_clean = not wire.out
                        size = wire.encode(wire.out, effect.message)
                        wire.out_bytes += size
                        weight += size
                        if is_clean:
                            self._dirty.append(wire)
                else:
                    kind = type(effect)
                    if kind in _HEAVY:
                        weight += EVENT_BYTES_MAX + 1
                    self._perform_other[kind](effect, now)
        except Exception as error:
            assert effect is not None
            self._effect_failed(effect, error, now)
            weight += self._perform(list(rest), now)
        return weight

    def _answer(self, effect: Answer, now: int) -> None:
        on_answer = self._asked.pop(effect.call_id, None)
        if on_answer is not None:
            on_answer(effect.result)

    def _deliver(self, effect: Deliver, now: int) -> None:
        assert self._on_hand is not None, "a node delivered messages to a driver without a listener"
        self._on_hand(effect.ticket, effect.batch)

    def _hang(self, effect: Hang, now: int) -> None:
        wire = self._links.get(effect.link)
        if wire is None:
            return
        if effect.at_once:
            wire.cut(effect.reason)
            return
        if wire.out:
            wire.write_out()
            self._dirty.remove(wire)
        wire.hang(effect.reason)

    def _admit(self, effect: Admit, now: int) -> None:
        wire = self._links.get(effect.link)
        if wire is not None:
            wire.admit()

    def _mute(self, effect: Mute, now: int) -> None:
        wire = self._links.get(effect.link)
        if wire is not None:
            wire.mute(effect.until - now)

    def _persist(self, effect: Persist, now: int) -> None:
        assert self._on_keep is not None, "a node persists data, but its driver has no storage"
        self._on_keep(effect.data)

    def _log_line(self, effect: LogLine, now: int) -> None:
        self._log.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)

    def _flush(self, effect: Flush, now: int) -> None:
        assert self._flushing is not None, "a node asked a driver without a disk for a flush"
        self._flushing.ask(effect.ticket)

    def _synced(self, seconds: float) -> None:
        if self._measuring is not None:
            self._measuring.synced(seconds)
