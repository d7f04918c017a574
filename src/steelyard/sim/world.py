"""Virtual time, and in it hosts with processes, each running one node.

The world keeps one heap of future actions. A process is a node from `start` to its death, with its
timers, links and application calls. It does what `driver.driver` does: passes events in and applies
effects in order; everything else (network, disk, application, faults) is supplied from outside.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from random import Random
from typing import Protocol, assert_never

from msgspec.structs import replace

from steelyard.errors import DescriptorsError
from steelyard.nodes.seam import (
    Address,
    Admit,
    Answer,
    Asked,
    Deliver,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    Hang,
    Link,
    Mute,
    Node,
    Persist,
    Received,
    Send,
    SetTimer,
)
from steelyard.sim.clock import EPOCH, Clock
from steelyard.sim.disk import SimDisk
from steelyard.sim.trace import Trace
from steelyard.store.memory import Killed
from steelyard.types import LogLine

EVENTS_MAX = 2_000_000
"""Maximum steps of a run; one that takes more is considered endless."""

FLUSH_AGAIN_MS = 100
"""Delay after which a flush without a free file descriptor is retried."""

FLUSH_MS_MAX = 15
"""Maximum duration of an fsync; it takes 1..FLUSH_MS_MAX."""


class Violation(Exception):  # noqa: N818  # the finding of a checker, not an error of the program
    """A broken rule: what, when, and to whom."""


class World:
    """The world.

    `rng(name)` gives each part its own stream, so that their draws are independent.
    """

    def __init__(self, seed: int, trace: Trace | None = None, *, check_every: int = 1) -> None:
        self.seed = seed
        self.now = EPOCH
        self.trace = trace or Trace()
        self.check_every = check_every
        """Run a node's `check` after every n-th of its events, and always before its process ends.
        """
        self.steps = 0
        self.muted = 0
        """How often a link was not read for a while, because its client exceeds its quota."""
        self.told: dict[str, int] = {}
        """Number of `LogLine`s of each level."""
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._link = 0

    def rng(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def at(self, time: int, action: Callable[[], None]) -> None:
        """Schedule `action` at the true time, after actions scheduled there before."""
        self._serial += 1
        heapq.heappush(self._heap, (time if time > self.now else self.now, self._serial, action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay_ms, action)

    def next_link(self) -> Link:
        """Return a link number, unique in the world, so that mix-ups of links are detected."""
        self._link += 1
        return self._link

    def run(self, until: int) -> None:
        """Run up to and including the true time `until`. Raises Violation."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action = heapq.heappop(heap)
            self.steps += 1
            if self.steps > EVENTS_MAX:
                raise Violation(f"more than {EVENTS_MAX} steps: something runs away")
            action()
        self.now = max(self.now, until)


class Host:
    """A machine: name, address, clock and disk; up, or without power."""

    def __init__(self, name: str, ip: str, clock: Clock, disk: SimDisk) -> None:
        self.name = name
        self.ip = ip
        self.clock = clock
        self.disk = disk
        self.up = True
        self.exhausted = False
        """Whether its process has no free file descriptor, so that it can neither accept nor dial.
        """
        self.pauses: list[tuple[int, int]] = []
        """From when until when its processes were paused, in true time."""
        self.was_set_back = False
        """Whether its clock was, so that earlier times of it are not comparable."""

    def exhaust(self, *, exhausted: bool) -> None:
        """Take all free file descriptors, or give them back. Open ones stay open."""
        self.exhausted = self.disk.exhausted = exhausted

    def set_clock_back(self, by_ms: int) -> None:
        """Set its clock back. No process may run on it: a node's time never goes back."""
        self.clock = replace(self.clock, skew_ms=self.clock.skew_ms - by_ms)
        self.was_set_back = True


class Network(Protocol):
    """The network as needed by a process: `sim.network`."""

    def dial(self, process: Process, address: Address, dialect: str) -> None: ...
    def send(self, process: Process, link: Link, messages: list[object]) -> None: ...
    def hang(self, process: Process, link: Link, reason: str) -> None: ...
    def mute(self, process: Process, link: Link, until: int) -> None: ...
    def died(self, process: Process, *, silently: bool) -> None: ...


class Process:
    """One run of a node on a host."""

    def __init__(
        self,
        world: World,
        network: Network,
        host: Host,
        name: str,
        *,
        port: int = 0,
        take_dirty: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self.world = world
        self.host = host
        self.name = name
        self.address: Address = f"{host.ip}:{port}"
        self.port = port
        self.alive = False
        self.on_hand: Callable[[Process, int, object], None] | None = None
        """The application's listener; it answers later with `deliver(Handled(...))`."""
        self.kept = b""
        """What the node persisted last; its next run gets it."""
        self.on_send: Callable[[Process, Link, object], None] | None = None
        self._network = network
        self._take_dirty = take_dirty
        self._tickets: list[int] = []
        self._flushing = False
        self._node: Node | None = None
        self._rng = world.rng(f"process {name} {world.now}")
        self._timers: dict[Hashable, int] = {}
        self._timer_serial = 0
        self._paused_until = 0
        self._timers_first = False
        self._inbox: deque[Callable[[], None]] = deque()
        self._overdue: deque[Callable[[], None]] = deque()
        """Timers that fell due in a pause and come before what else waits."""
        self._calls: list[Callable[[object], None] | None] = []
        self._events = 0

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    # -- life ------------------------------------------------------------------------------------

    def start(self, build: Callable[[int], Node]) -> None:
        """Build the node (recovering its disk, which may kill it) and start it."""
        self.alive = True
        now = self.host.clock.read(self.world.now)
        self.world.trace.note(self.world.now, self.name, f"starts at {self.address}")
        self._take(partial(self._begin, build, now))

    def _begin(self, build: Callable[[int], Node], now: int) -> list[Effect]:
        self._node = build(now)
        return self._node.start(now)

    def die(self, reason: str, *, silently: bool = False) -> None:
        """Kill the process, or with `silently` end its machine: peers are not notified."""
        if self.alive:
            self.check()
            self._end(reason, silently=silently)

    def check(self) -> None:
        """Let the node check its invariants between two of its events."""
        if self._events:
            self.node.check()

    def _end(self, reason: str, *, silently: bool = False) -> None:
        self.alive = False
        now = self.world.now
        self.host.pauses = [(begin, min(end, now)) for begin, end in self.host.pauses]
        self.world.trace.note(now, self.name, f"dies: {reason}")
        self._timers.clear()
        self._inbox.clear()
        self._overdue.clear()
        self.host.disk.unmount()
        self._network.died(self, silently=silently)

    def pause(self, for_ms: int, *, timers_first: bool = False) -> None:
        """Take the CPU from the process for a while; input waits.

        `timers_first`: afterwards it handles its timers before its input, as event loops may.
        """
        self._timers_first |= timers_first
        self._paused_until = max(self._paused_until, self.world.now + for_ms)
        self.host.pauses.append((self.world.now, self._paused_until))
        self.world.trace.note(self.world.now, self.name, f"stalls for {for_ms} ms")
        self.world.at(self._paused_until, self._resume)

    def _resume(self) -> None:
        while self.alive and self.world.now >= self._paused_until:
            waiting = self._overdue or self._inbox
            if not waiting:
                self._timers_first = False
                return
            waiting.popleft()()

    # -- events in -------------------------------------------------------------------------------

    def ask(self, call: object, then: Callable[[object], None]) -> None:
        """Call the node; `then` gets the result, unless the process dies before."""
        call_id = len(self._calls)
        self._calls.append(then)
        self.world.after(0, lambda: self.deliver(Asked(call_id, call)))

    def deliver(self, event: Event) -> None:
        """Pass `event` to the node, now or when its pause is over."""
        self._enter(partial(self._handle, event))

    def _enter(self, step: Callable[[], None], *, is_timer: bool = False) -> None:
        if not self.alive:
            return
        if self.world.now < self._paused_until or self._inbox or self._overdue:
            (self._overdue if is_timer and self._timers_first else self._inbox).append(step)
        else:
            step()

    def _handle(self, event: Event) -> None:
        now = self.host.clock.read(self.world.now)
        if type(event) is not Received:  # frames are noted by the network, as bytes
            self.world.trace.note(self.world.now, self.name, f"< {event!r}")
        self._take(partial(self.node.handle, event, now))

    def _take(self, step: Callable[[], list[Effect]]) -> None:
        try:
            effects = step()
            self._events += 1
            if self._events % self.world.check_every == 0:
                self.node.check()
        except Killed as death:
            self._end(str(death))
            return
        self._perform(effects)

    # -- effects out -----------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        sends: dict[Link, list[object]] = {}
        for effect in effects:
            # Ordered by frequency; each class that a `match` tries in vain costs as much as a call.
            if type(effect) is SetTimer:
                self._set_timer(effect.key, effect.at)
            elif type(effect) is Send:
                if self.on_send is not None:
                    self.on_send(self, effect.link, effect.message)
                sends.setdefault(effect.link, []).append(effect.message)
            else:
                if type(effect) is Hang and effect.link in sends:
                    self._network.send(self, effect.link, sends.pop(effect.link))
                self._perform_one(effect)
        for link, messages in sends.items():
            self._network.send(self, link, messages)

    def _perform_one(self, effect: Effect) -> None:
        """Apply an effect of any but the two most frequent kinds."""
        assert not isinstance(effect, Send | SetTimer)
        match effect:
            case DropTimer(key):
                self._timers.pop(key, None)
            case Flush(ticket):
                self._tickets.append(ticket)
                if not self._flushing:
                    self._flushing = True
                    self.world.after(0, partial(self._enter, self._begin_flush))
            case Answer(call_id, result):
                then, self._calls[call_id] = self._calls[call_id], None
                assert then is not None, f"call {call_id} is answered twice"
                self.world.trace.note(self.world.now, self.name, f"> {effect!r}")
                self.world.after(0, partial(then, result))
            case Deliver(ticket, batch):
                assert self.on_hand is not None, f"{self.name} has no listener"
                self.on_hand(self, ticket, batch)
            case Dial(address, dialect):
                self._network.dial(self, address, dialect)
            case Hang(link, reason):
                self._network.hang(self, link, reason)
            case Admit():
                pass  # links carry messages here, of any size
            case Mute(link, until):
                self.world.muted += 1
                self._network.mute(self, link, self.host.clock.true_time(until))
            case Persist(data):
                self.kept = data
            case LogLine(level, text):
                self.world.told[level] = self.world.told.get(level, 0) + 1
                self.world.trace.note(self.world.now, self.name, f"{level}: {text}")
            case _:
                assert_never(effect)

    def _set_timer(self, key: Hashable, at: int) -> None:
        self._timer_serial += 1
        self._timers[key] = self._timer_serial
        due = partial(self._due, key, self._timer_serial)
        self.world.at(self.host.clock.true_time(at), partial(self._enter, due, is_timer=True))

    def _due(self, key: Hashable, serial: int) -> None:
        if self._timers.get(key) == serial:  # neither set again nor dropped since
            del self._timers[key]
            self._handle(Due(key))

    def _begin_flush(self) -> None:
        """Flush once for all tickets so far; later ones share the next flush."""
        assert self._take_dirty is not None, f"{self.name} has no disk to flush"
        tickets, self._tickets = self._tickets, []
        sync = self._take_dirty()

        def done() -> None:
            try:
                sync()
            except Killed as death:
                self._end(str(death))
            except DescriptorsError:  # as in the live driver: the disk was not accessed
                self.world.after(FLUSH_AGAIN_MS, lambda: self._enter(done))
                return
            for ticket in tickets:
                self.deliver(Flushed(ticket))
            self._flushing = bool(self._tickets)
            if self._tickets:
                self._begin_flush()

        delay_ms = 1 + self._rng.randrange(FLUSH_MS_MAX)
        self.world.after(delay_ms, lambda: self._enter(done))
