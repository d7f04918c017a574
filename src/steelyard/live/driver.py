"""Runs one node on an asyncio loop: events in, effects made true.

The driver holds no policy: what an event means is the node's business, when and how bytes move is the
driver's. One pass = one event source served: the bytes of all links that were ready together, a timer, a
drain of other threads' posts; at its end every link that got frames is written once. Reading all links
first, then deciding, then writing costs a broker a quarter less CPU per request than link by link: the
kernel empties the processor's caches of Python at every call.

Threads: everything runs in the loop's thread but `post` and `ask_from_thread`, which may be called from
any thread and wake the loop at most once per drain, and what `prepare_flush` returns: it is called in the
loop's thread and says what to sync, and that runs in a thread of its own.

A node that raises has a bug: the driver logs it, stops the node for good and tells `failed`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import TYPE_CHECKING

from steelyard.errors import ClosedError, ProtocolError
from steelyard.live.links import LinkLimits, Wire, dialect
from steelyard.nodes.seam import (
    REMOTING,
    Answer,
    Asked,
    Closed,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    Hand,
    Hang,
    Keep,
    Node,
    Opened,
    Order,
    Received,
    Refused,
    Send,
    SetTimer,
    Tell,
)

if TYPE_CHECKING:
    import socket
    import ssl
    from concurrent.futures import ThreadPoolExecutor

DRAIN_MAX = 4096
"""Most posts of other threads taken in one pass, so that sockets get their turn."""


class Driver:
    """See the module's text. Build it in the loop's thread, then `start`, then `listen`.

    `tls`: links that are dialed are encrypted with it; those that are accepted never are.
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
    ) -> None:
        self.node = node
        self.limits = limits or LinkLimits()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Done when the node raised: the error."""
        self.unfinished = 0
        self._loop = asyncio.get_running_loop()
        self._log = logging.getLogger(f"steelyard.{name}")
        self._on_hand = on_hand
        self._on_keep = on_keep
        self._prepare_flush = prepare_flush
        self._tls = tls
        self._stopped = False
        self._time_last = 0
        self._time_skew = 0
        self._link_numbers = count(1)
        self._links: dict[int, Wire] = {}
        self._accepted = 0
        self._dirty: list[Wire] = []
        self._write_scheduled = False
        self._read: list[tuple[Wire, bytes]] = []
        self._read_bytes = 0
        self._servers: list[asyncio.Server] = []
        self._dials: set[asyncio.Task[None]] = set()
        self._timers: dict[Hashable, tuple[int, asyncio.TimerHandle]] = {}
        self._call_numbers = count(1)
        self._asked: dict[int, Callable[[object], None]] = {}
        self._inbox: deque[Event] = deque()
        self._woken = False
        self._tickets: list[int] = []
        self._flushing = False
        self._flusher: ThreadPoolExecutor | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._perform_other: dict[type, Callable[[Order, int], None]] = {
            Answer: self._answer,
            SetTimer: self._set_timer,
            DropTimer: self._drop_timer,
            Dial: self._dial,
            Hang: self._hang,
            Flush: self._ask_flush,
            Hand: self._hand,
            Keep: self._keep,
            Tell: self._tell,
        }

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the node."""
        now = self.clock()
        self._sweep_later()
        try:
            self._perform(self.node.start(now), now)
        except Exception as error:
            self._crash(error)
        self._write_soon()

    async def listen(self, listener: socket.socket, dialect_name: str = REMOTING) -> None:
        """Accept connections on a bound socket; their peers speak that dialect."""
        spoken = dialect(dialect_name)
        server = await self._loop.create_server(
            lambda: Wire(self, spoken, None), sock=listener, backlog=1024
        )
        self._servers.append(server)

    async def close(self, *, timeout_seconds: float = 1.0) -> None:
        """Stop for good: no more events to the node, links closed after what was written."""
        self._write_all()
        self._stop()
        for server in self._servers:
            server.close()
        for task in self._dials:
            task.cancel()
        for wire in list(self._links.values()):
            wire.hang("the driver was closed")
        deadline = self._loop.time() + timeout_seconds
        while self._links and self._loop.time() < deadline:
            await asyncio.sleep(0.002)
        for wire in list(self._links.values()):
            wire.cut("the driver was closed")
        await asyncio.sleep(0)
        if self._flusher is not None:
            await self._loop.run_in_executor(None, self._flusher.shutdown)

    def _stop(self) -> None:
        self._stopped = True
        for _, handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        if self._sweep is not None:
            self._sweep.cancel()
        for call_id in list(self._asked):
            self._asked.pop(call_id)(ClosedError("closed while the call was under way"))

    def _crash(self, error: BaseException) -> None:
        """The node has a bug. Its state can no longer be trusted."""
        if self._stopped:
            return
        self._log.critical("the node failed and was stopped: %r", error, exc_info=error)
        self._stop()
        for server in self._servers:
            server.close()
        for wire in list(self._links.values()):
            wire.cut("the node failed")
        if not self.failed.done():
            self.failed.set_result(error)

    # -- events ------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Milliseconds since the epoch, never going back: after a step back of the system's clock the
        node's runs on from where it was, ahead by the step."""
        now = time.time_ns() // 1_000_000 + self._time_skew
        if now < self._time_last:
            self._time_skew += self._time_last - now
            return self._time_last
        self._time_last = now
        return now

    def handle(self, event: Event) -> None:
        """Give one event to the node, now. In the loop's thread only."""
        if self._stopped:
            return
        now = self.clock()
        try:
            self._perform(self.node.handle(event, now), now)
        except Exception as error:
            self._crash(error)
        self._write_soon()

    def post(self, event: Event) -> None:
        """Give an event to the node soon, from any thread."""
        self._inbox.append(event)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def ask(self, call: object) -> asyncio.Future[object]:
        """Put a call to the node; the future gets the answer. In the loop's thread only."""
        future: asyncio.Future[object] = self._loop.create_future()

        def settle(result: object) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        if self._stopped:
            settle(ClosedError("closed"))
            return future
        number = next(self._call_numbers)
        self._asked[number] = settle
        self.handle(Asked(number, call))
        return future

    async def poll(self, call: object, give_back: object) -> object:
        """As `ask`. When it is cancelled nobody has seen the answer: the node hears `give_back`."""
        try:
            return await self.ask(call)
        except asyncio.CancelledError:
            self.ask(give_back).add_done_callback(asyncio.Future.exception)
            raise

    def ask_from_thread(self, call: object, on_answer: Callable[[object], None]) -> None:
        """Put a call to the node from any thread; `on_answer` runs in the loop's thread."""
        number = next(self._call_numbers)
        self._asked[number] = on_answer
        self.post(Asked(number, call))
        if self._stopped:
            waiting = self._asked.pop(number, None)
            if waiting is not None:
                waiting(ClosedError("closed"))

    def _drain(self) -> None:
        self._woken = False
        inbox = self._inbox
        for _ in range(min(len(inbox), DRAIN_MAX)):
            if self._stopped:
                return
            now = self.clock()
            try:
                self._perform(self.node.handle(inbox.popleft(), now), now)
            except Exception as error:
                self._crash(error)
        self._write_all()
        if inbox and not self._woken:
            self._woken = True
            self._loop.call_soon(self._drain)

    # -- links (called by Wire) --------------------------------------------------------------------

    def link_opened(self, wire: Wire) -> None:
        if self._stopped:
            wire.cut("the driver was closed")
            return
        if not wire.dialed:
            if self._accepted >= self.limits.accepted_max:
                wire.cut("too many connections")
                return
            self._accepted += 1
        wire.link = next(self._link_numbers)
        self._links[wire.link] = wire
        self.handle(Opened(wire.link, wire.address, wire.dialed, wire.dialect))

    def link_read(self, wire: Wire, data: bytes) -> None:
        """Bytes came. They wait for those of the other links that are ready now."""
        self._read.append((wire, data))
        self._read_bytes += len(data)
        if self._read_bytes > self.limits.read_max:
            self.take_read()
        elif len(self._read) == 1:
            self._loop.call_soon(self.take_read)

    def take_read(self) -> None:
        """One pass over everything that was read."""
        if not self._read:
            return
        read, self._read, self._read_bytes = self._read, [], 0
        for wire, data in read:
            wire.take(data)
        self._write_all()

    def link_received(self, wire: Wire, messages: Sequence[object]) -> None:
        """Whole messages, in their order. Stops early when the peer does not read the replies."""
        if self._stopped:
            return
        now = wire.active_at = self.clock()
        link = wire.link
        handle = self.node.handle
        write_high = self.limits.write_high
        try:
            for index, message in enumerate(messages):
                effects = handle(Received(link, message), now)
                if effects:
                    self._perform(effects, now)
                    if wire.out_bytes > write_high:
                        self._write_all()
                        if wire.choked and not wire.hung:
                            wire.keep(messages[index + 1 :])
                            break
                if wire.hung:
                    break
        except Exception as error:
            self._crash(error)

    def link_resumed(self, wire: Wire, messages: Sequence[object]) -> None:
        """The peer reads again: on with what was kept."""
        self.link_received(wire, messages)
        self._write_all()

    def link_broken(self, wire: Wire, error: ProtocolError) -> None:
        self._log.warning("%s broke the protocol: %s", wire.address, error)
        wire.cut(f"broke the protocol: {error}")

    def link_closed(self, wire: Wire, reason: str) -> None:
        if self._links.pop(wire.link, None) is None:
            return
        if not wire.dialed:
            self._accepted -= 1
        self.handle(Closed(wire.link, reason))

    def _sweep_links(self) -> None:
        """Close links that are silent for too long."""
        now = self.clock()
        for wire in list(self._links.values()):
            if now - wire.active_at >= self.limits.idle_ms:
                wire.cut("idle for too long")
        self._sweep_later()

    def _sweep_later(self) -> None:
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

    def _perform(self, effects: Sequence[Effect], now: int) -> None:
        for effect in effects:
            if type(effect) is Send:
                wire = self._links.get(effect.link)
                if wire is not None:
                    is_clean = not wire.out
                    wire.out_bytes += wire.encode(wire.out, effect.message)
                    if is_clean:
                        self._dirty.append(wire)
            else:
                self._perform_other[type(effect)](effect, now)

    def _answer(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Answer)
        on_answer = self._asked.pop(effect.call_id, None)
        if on_answer is not None:
            on_answer(effect.result)

    def _hand(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Hand)
        assert self._on_hand is not None, "a node handed messages to a driver without a listener"
        self._on_hand(effect.ticket, effect.batch)

    def _hang(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Hang)
        wire = self._links.get(effect.link)
        if wire is not None:
            if wire.out:
                wire.write_out()
                self._dirty.remove(wire)
            wire.hang(effect.reason)

    def _keep(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Keep)
        assert self._on_keep is not None, (
            "a node keeps something and its driver has no place for it"
        )
        self._on_keep(effect.data)

    def _tell(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Tell)
        self._log.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)

    # -- timers ------------------------------------------------------------------------------------

    def _set_timer(self, effect: Order, now: int) -> None:
        assert isinstance(effect, SetTimer)
        armed = self._timers.get(effect.key)
        if armed is not None:
            if armed[0] <= effect.at:
                # The handle fires too early and is then armed anew: cheaper than a cancel per change.
                self._timers[effect.key] = (effect.at, armed[1])
                return
            armed[1].cancel()
        self._arm(effect.key, effect.at, now)

    def _arm(self, key: Hashable, at: int, now: int) -> None:
        delay_seconds = max(0, at - now) / 1000
        handle = self._loop.call_later(delay_seconds, self._fire, key)
        self._timers[key] = (at, handle)

    def _drop_timer(self, effect: Order, now: int) -> None:
        assert isinstance(effect, DropTimer)
        armed = self._timers.pop(effect.key, None)
        if armed is not None:
            armed[1].cancel()

    def _fire(self, key: Hashable) -> None:
        at, _ = self._timers[key]
        now = self.clock()
        if now < at:
            self._arm(key, at, now)
            return
        del self._timers[key]
        self.handle(Due(key))

    # -- dialing -----------------------------------------------------------------------------------

    def _dial(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Dial)
        task = self._loop.create_task(self._connect(effect.address, effect.dialect))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _connect(self, address: str, dialect_name: str) -> None:
        spoken = dialect(dialect_name)
        try:
            host, _, port = address.rpartition(":")
            async with asyncio.timeout(self.limits.dial_timeout_ms / 1000):
                await self._loop.create_connection(
                    lambda: Wire(self, spoken, address),
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls,
                )
        except TimeoutError:
            self.handle(Refused(address, f"no connection in {self.limits.dial_timeout_ms} ms"))
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.handle(Refused(address, reason))

    # -- flushing ----------------------------------------------------------------------------------

    def _ask_flush(self, effect: Order, now: int) -> None:
        assert isinstance(effect, Flush)
        assert self._prepare_flush is not None, "a node asked a driver without a disk for a flush"
        self._tickets.append(effect.ticket)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush_tickets)

    def _flush_tickets(self) -> None:
        """One flush for all tickets so far; those that come meanwhile share the next one."""
        from concurrent.futures import ThreadPoolExecutor

        if self._flusher is None:
            self._flusher = ThreadPoolExecutor(1, "steelyard-flush")
        tickets, self._tickets = self._tickets, []
        assert self._prepare_flush is not None
        future = self._loop.run_in_executor(self._flusher, self._prepare_flush())
        future.add_done_callback(lambda done: self._flush_done(done, tickets))

    def _flush_done(self, done: asyncio.Future[None], tickets: list[int]) -> None:
        if done.cancelled() or self._stopped:
            return
        error = done.exception()
        if error is not None:
            # After a failed fsync the kernel may drop the pages: nothing may be acknowledged any more.
            self._crash(error)
            return
        for ticket in tickets:
            self.handle(Flushed(ticket))
        if self._tickets:
            self._loop.call_soon(self._flush_tickets)
        else:
            self._flushing = False
