"""Simulated TCP connections between processes, with delays, stalls, breaks and half-open ends.

- Bytes of one connection arrive in order; different connections overtake each other freely. Frames
  are encoded and decoded for real, in the dialect of the address that was dialed, and arrive cut
  into pieces now and then.
- Across a partition nothing passes: bytes stall, dials time out. An end that has stalled bytes
  gives up after a while and is told `Closed`; the other end knows nothing (half-open) until it
  sends and is reset.
- A broken connection loses what was in flight, a suffix in each direction; the ends notice it at
  different times. That is how RocketMQ's one-way requests get lost. `drop_oneway` also loses them
  without a break, as a full send buffer of a real client does.
- A host without file descriptors neither dials nor accepts.
- A killed process's kernel closes its connections; a machine without power is silent until it is
  back and then resets connections that are still used.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from steelyard.nodes.seam import REMOTING, Address, Closed, Link, Opened, Received, Refused
from steelyard.sim.dialects import DIALECTS, Decoding, Dialect
from steelyard.sim.world import Host, Process, World
from steelyard.wire.remoting.command import Command, Serialize, is_oneway

CONNECT_TIMEOUT_MS = 3_000
"""NettyClientConfig: connectTimeoutMillis."""

GIVE_UP_MS = (4_000, 40_000)
"""Time after which an end with unacknowledged bytes gives up; TCP_USER_TIMEOUT varies as widely."""

IDLE_MS = 120_000
"""Idle time after which RocketMQ closes a connection (serverChannelMaxIdleTimeSeconds)."""


class NetworkPartition(msgspec.Struct, frozen=True):
    """`inside` hosts and the others do not hear each other.

    With `deaf` only the inside hears nothing.
    """

    inside: frozenset[str]
    deaf: bool = False

    def passes(self, sender: str, receiver: str) -> bool:
        cut = (sender in self.inside) != (receiver in self.inside)
        return not cut or (self.deaf and receiver not in self.inside)


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """The network's behaviour without faults."""

    delay_ms_min: int = 0
    delay_ms_max: int = 5
    spike_every: int = 200
    """One message in this many is slow, 0 never."""
    spike_ms_max: int = 400
    cut_every: int = 12
    """One segment in this many arrives in pieces, 0 never."""


@dataclass(slots=True, eq=False)
class _End:
    """One end of a connection, with the bytes in flight to the other."""

    link: Link
    process: Process
    remote: Address
    """The other end's address as seen from here."""
    serialize: Serialize
    dialect: Dialect
    decoder: Decoding
    peer: _End | None = None
    """None once the connection is broken: bytes in flight are lost."""
    is_open: bool = True
    was_told: bool = True
    """Whether the process has had its `Opened`."""
    arrives_at: int = 0
    """Nothing sent from here may arrive before this time."""
    queue: deque[bytes | None] = field(default_factory=deque)
    """Bytes in flight, in order; None is the end of the stream."""
    stalled: int = 0
    """How many of them are delayed by a partition."""
    gives_up_at: int | None = None
    active_at: int = 0
    muted_until: int = 0
    """Its process takes nothing before this time."""


class TcpNetwork:
    """All connections of a world. Implements `sim.world.Network`."""

    def __init__(self, world: World, weather: Weather) -> None:
        self._world = world
        self._weather = weather
        self._rng = world.rng("network")
        self._listeners: dict[Address, tuple[Process, Dialect]] = {}
        self._ends: dict[Link, _End] = {}
        self._ports: dict[str, int] = {}
        self._partitions: list[NetworkPartition] = []
        self._hosts: dict[str, Host] = {}
        self.serialize: dict[str, Serialize] = {}
        """The header encoding of a process by name; JSON for others."""
        self.slow_ms = 0
        """Maximum random addition to every delay."""
        self.oneway_dropped_of_100 = 0
        self.frames = 0
        self.dropped = 0

    # -- faults ------------------------------------------------------------------------------------

    def cut(self, partition: NetworkPartition) -> None:
        """From now on bytes must pass this partition as well."""
        self._partitions.append(partition)

    def mend(self, partition: NetworkPartition | None = None) -> None:
        """The partition, or all of them, is over."""
        if partition is None:
            self._partitions.clear()
        elif partition in self._partitions:
            self._partitions.remove(partition)
        self.retry()

    def retry(self) -> None:
        """Retry every stalled connection, because the path may be free again."""
        for end in list(self._ends.values()):
            if end.stalled:
                self._unstall(end)

    def break_links(self, count: int) -> int:
        """Break up to `count` random connections; return how many there were."""
        alive = [end for end in self._ends.values() if end.is_open and end.was_told and end.peer]
        broken = 0
        for end in self._rng.sample(alive, min(count, len(alive))):
            peer = end.peer
            if peer is None or not peer.was_told:
                continue  # its other end was drawn as well
            broken += 1
            end.peer = peer.peer = None
            self._learn(end, "reset by peer", self._rng.randrange(50))
            late_ms = max(1, self._rng.randrange(20_000)) if self._rng.random() < 0.3 else 50
            self._learn(peer, "reset by peer", self._rng.randrange(late_ms))
        return broken

    def passes(self, sender: Host, receiver: Host) -> bool:
        """Return whether bytes get from one host to the other."""
        if not (sender.up and receiver.up):
            return False
        if not self._partitions:
            return True
        return all(partition.passes(sender.name, receiver.name) for partition in self._partitions)

    # -- what processes ask ------------------------------------------------------------------------

    def attach(self, host: Host) -> None:
        self._hosts[host.ip] = host

    def listen(self, process: Process, address: Address = "", dialect: str = REMOTING) -> None:
        """Let the process accept connections at its own or at another address of its machine."""
        self._listeners[address or process.address] = process, DIALECTS[dialect]

    def dial(self, process: Process, address: Address, dialect: str) -> None:
        self._world.after(self._delay(), lambda: self._knock(process, address, DIALECTS[dialect]))

    def send(self, process: Process, link: Link, messages: list[object]) -> None:
        end = self._ends.get(link)
        if end is None or not end.is_open:
            return
        assert end.process is process, f"{process.name} sends on a link of {end.process.name}"
        parts = []
        for message in messages:
            data = end.dialect.encode(message, end.serialize)
            self._world.trace.frame(self._world.now, process.name, ">", link, message, data)
            self.frames += 1
            if isinstance(message, Command) and is_oneway(message) and self._drops_oneway():
                continue
            parts.append(data)
        end.active_at = self._world.now
        if parts:
            self._ship(end, b"".join(parts))

    def _drops_oneway(self) -> bool:
        drops = self._rng.randrange(100) < self.oneway_dropped_of_100
        self.dropped += drops
        return drops

    def remote(self, link: Link) -> Address:
        """Return the address at the other end of a link."""
        return self._ends[link].remote

    def hang(self, process: Process, link: Link, reason: str) -> None:
        end = self._ends.get(link)
        if end is None or not end.is_open:
            return
        self._ship(end, None)
        self._shut(end, f"hung up: {reason}")

    def mute(self, process: Process, link: Link, until: int) -> None:
        """Deliver nothing more from a link until then, by the world's time."""
        end = self._ends.get(link)
        if end is not None:
            end.muted_until = until
            end.active_at = until

    def died(self, process: Process, *, silently: bool) -> None:
        """Close the connections of a dead process, unless its machine is down."""
        mine = [address for address, (owner, _) in self._listeners.items() if owner is process]
        for address in mine:
            del self._listeners[address]
        for end in list(self._ends.values()):
            if end.process is process and end.is_open:
                end.is_open = False
                if not silently:
                    self._ship(end, None)

    # -- connecting --------------------------------------------------------------------------------

    def _knock(self, process: Process, address: Address, dialect: Dialect) -> None:
        if not process.alive:
            return
        listener, spoken = self._listeners.get(address, (None, dialect))
        host = self._hosts.get(address.rpartition(":")[0])
        if host is not None and not (
            self.passes(process.host, host) and self.passes(host, process.host)
        ):
            self._refuse(process, address, "timed out", CONNECT_TIMEOUT_MS)
        elif process.host.exhausted:
            self._refuse(process, address, "too many open files", 0)
        elif listener is None or listener.host.exhausted:
            self._refuse(process, address, "connection refused", self._delay())
        else:
            assert dialect is spoken, f"{process.name} speaks {dialect.name} to {address}"
            self._join(process, address, listener, dialect)

    def _refuse(self, process: Process, address: Address, reason: str, delay_ms: int) -> None:
        self._world.after(delay_ms, lambda: process.deliver(Refused(address, reason)))

    def _join(
        self, process: Process, address: Address, listener: Process, dialect: Dialect
    ) -> None:
        port = self._ports.get(process.host.ip, 40_000)
        self._ports[process.host.ip] = port + 1
        near_address = f"{process.host.ip}:{port}"
        near = self._end(process, address, dialect, dialect.dialing())
        far = self._end(listener, near_address, dialect, dialect.accepting())
        near.peer, far.peer = far, near
        near.was_told = False
        near.active_at = far.active_at = self._world.now
        self._ends[near.link] = near
        self._ends[far.link] = far
        listener.deliver(Opened(far.link, near_address, dialect=dialect.name))
        far.arrives_at = self._world.now + self._delay()

        def opened() -> None:
            if near.is_open:
                near.was_told = True
                process.deliver(Opened(near.link, address, dialed=True, dialect=dialect.name))

        self._world.at(far.arrives_at, opened)
        for end in (near, far):
            self._watch_idle(end)

    def _end(self, process: Process, remote: Address, dialect: Dialect, decoder: Decoding) -> _End:
        serialize = self.serialize.get(process.name, Serialize.JSON)
        return _End(self._world.next_link(), process, remote, serialize, dialect, decoder)

    def _watch_idle(self, end: _End) -> None:
        def look() -> None:
            if not end.is_open:
                return
            if self._world.now - end.active_at >= IDLE_MS:
                self._ship(end, None)
                self._shut(end, "idle")
            else:
                self._watch_idle(end)

        self._world.at(end.active_at + IDLE_MS, look)

    # -- bytes under way ---------------------------------------------------------------------------

    def _delay(self) -> int:
        weather, rng = self._weather, self._rng
        delay_ms = weather.delay_ms_min
        delay_ms += _below(rng, weather.delay_ms_max - weather.delay_ms_min + 1)
        if weather.spike_every and _below(rng, weather.spike_every) == 0:
            delay_ms += rng.randrange(weather.spike_ms_max)
        if self.slow_ms:
            delay_ms += rng.randrange(self.slow_ms)
        return delay_ms

    def _ship(self, end: _End, data: bytes | None) -> None:
        """Send bytes, or the end of the stream, to the peer."""
        peer = end.peer
        if peer is None:
            return  # broken: the ends will learn it
        cut_every = self._weather.cut_every
        if data is not None and cut_every and _below(self._rng, cut_every) == 0:
            first = self._rng.randrange(len(data))
            second = first + self._rng.randrange(len(data) - first)
            end.queue.extend((data[:first], data[first:second], data[second:]))
            self._schedule(end)
            self._schedule(end)
        else:
            end.queue.append(data)
        self._schedule(end)

    def _schedule(self, end: _End) -> None:
        end.arrives_at = max(self._world.now + self._delay(), end.arrives_at)
        self._world.at(end.arrives_at, partial(self._arrive, end))

    def _arrive(self, end: _End) -> None:
        """Deliver the oldest bytes in flight from `end`, or stall them."""
        peer = end.peer
        if peer is None or not end.queue:
            return
        if peer.muted_until > self._world.now:
            self._world.at(peer.muted_until, partial(self._arrive, end))
            return
        if end.stalled or not self.passes(end.process.host, peer.process.host):
            self._stall(end)
            return
        data = end.queue.popleft()
        if not peer.is_open:
            if data is not None:  # nobody has this connection open any more
                end.peer = None
                self._learn(end, "reset by peer", self._delay())
        elif data is None:
            self._shut(peer, "closed by peer")
        else:
            peer.active_at = self._world.now
            for message in peer.decoder.feed(data):
                if not peer.is_open:
                    break
                self._world.trace.frame(
                    self._world.now, peer.process.name, "<", peer.link, message, b""
                )
                peer.process.deliver(Received(peer.link, message))

    def _stall(self, end: _End) -> None:
        end.stalled += 1
        if end.gives_up_at is None and end.is_open:
            low, high = GIVE_UP_MS
            gives_up_at = self._world.now + low + self._rng.randrange(high - low)
            end.gives_up_at = gives_up_at

            def give_up() -> None:
                if end.gives_up_at == gives_up_at and end.is_open:
                    end.queue.clear()
                    end.stalled = 0
                    self._shut(end, "timed out")

            self._world.at(gives_up_at, give_up)

    def _unstall(self, end: _End) -> None:
        """Resend stalled bytes in order; the kernel of a dead owner may have given up."""
        stalled, end.stalled = end.stalled, 0
        end.gives_up_at = None
        if not end.is_open and self._rng.random() < 0.5:
            end.queue.clear()
            return
        for _ in range(stalled):
            self._schedule(end)

    # -- endings -----------------------------------------------------------------------------------

    def _learn(self, end: _End, reason: str, delay_ms: int) -> None:
        self._world.after(delay_ms, lambda: self._shut(end, reason))

    def _shut(self, end: _End, reason: str) -> None:
        """Close this end and notify its process, once."""
        if end.is_open:
            end.is_open = False
            self._world.after(0, lambda: end.process.deliver(Closed(end.link, reason)))


def _below(rng: Random, limit: int) -> int:
    """Equivalent to `rng.randrange(limit)` in a third of its time.

    Called three times per segment.
    """
    bits = limit.bit_length()
    drawn = rng.getrandbits(bits)
    while drawn >= limit:
        drawn = rng.getrandbits(bits)
    return drawn
