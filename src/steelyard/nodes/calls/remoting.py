"""Requests in flight to remoting peers: opens links, matches responses, times out.

Every node that sends requests (broker to nameserver; producer, consumer and admin to both) has one
`Calls`. It knows no request codes: a caller files each request under a `purpose`, plain data of its
own, which the `Outcome` returns. Responses are matched by `opaque`, which is unique within one
`Calls` (NettyRemotingAbstract.responseTable).

A request to an address without a link waits for the link; there is at most one pending `Dial` per
address. The number of requests waiting or in flight is bounded by `in_flight_max`.

A link on which requests time out, and nothing at all is answered for SILENT_MS, is presumed dead
and closed, so that the next request dials anew. A network that drops packets silently (a firewall
or NAT that forgot the connection, a laptop that moved) may otherwise hold up every request until
TCP gives up, a quarter of an hour by default. Java closes at once a connection on which a
synchronous call timed out (NettyRemotingClient.invokeSync, isClientCloseSocketIfTimeout).
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import msgspec

from steelyard.errors import CallTimeoutError, ConnectError, RemotingError
from steelyard.nodes.seam import (
    Address,
    Closed,
    Dial,
    Effect,
    Hang,
    Link,
    Opened,
    Refused,
    Send,
    SetTimer,
)
from steelyard.wire.remoting.acl import Signer
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command

P = TypeVar("P")

CALLS_TIMER = "calls"
"""Key of the only timer that a `Calls` sets: pass `Due(CALLS_TIMER)` to `expire`."""

IN_FLIGHT_MAX = 65535
"""NettySystemConfig: clientAsyncSemaphoreValue."""

WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Bodies that wait for one link, above which one-way requests are dropped.

As many bytes as a link may have unsent (`LinkLimits.write_max`).
"""

SILENT_MS = 10_000
"""Time without any answer after which a link is presumed dead: a server may pause for a while."""


class Outcome(msgspec.Struct, Generic[P], frozen=True):
    """The outcome of a call: `reply` is the response, or an error if there is none."""

    purpose: P
    address: Address
    reply: Command | RemotingError


class _Pending(msgspec.Struct, Generic[P]):
    purpose: P
    address: Address
    asked_at: int
    deadline: int
    link: Link | None


class Calls(Generic[P]):
    """Requests in flight of one node. `signer`: signs every request that is sent."""

    def __init__(self, *, in_flight_max: int = IN_FLIGHT_MAX, signer: Signer | None = None) -> None:
        self._in_flight_max = in_flight_max
        self._signer = signer
        self._opaque = 0
        self._pending: dict[int, _Pending[P]] = {}
        self._links: dict[Address, Link] = {}
        self._addresses: dict[Link, Address] = {}
        self._heard: dict[Link, int] = {}
        """By link: the latest request of all when something was last answered there."""
        self._silent: dict[Link, int] = {}
        """Links where nothing was answered since a request that timed out: when that was made."""
        self._waiting: dict[Address, deque[Command]] = {}
        self._waiting_bytes: dict[Address, int] = {}
        self._timer_at: int | None = None

    # -- asking ----------------------------------------------------------------------------------

    def call(
        self,
        address: Address,
        request: Command,
        purpose: P,
        now: int,
        timeout_ms: int,
        effects: list[Effect],
    ) -> None:
        """Send `request` (its opaque is replaced).

        One of the methods below returns the `Outcome` later.

        Raises RemotingError if too many calls are in flight: the caller's limit exceeded ours.
        """
        if len(self._pending) >= self._in_flight_max:
            raise RemotingError(f"more than {self._in_flight_max} calls in flight")
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        request = msgspec.structs.replace(request, opaque=self._opaque)
        deadline = now + timeout_ms
        self._ship(address, request, effects)
        link = self._links.get(address)
        self._pending[self._opaque] = _Pending(purpose, address, now, deadline, link)
        if self._timer_at is None or deadline < self._timer_at:
            self._timer_at = deadline
            effects.append(SetTimer(CALLS_TIMER, deadline))

    def tell(self, address: Address, request: Command, effects: list[Effect]) -> None:
        """Send `request` one-way: no outcome, no retry.

        Dropped if too much waits for the link already.
        """
        if (
            len(self._waiting.get(address, ())) >= self._in_flight_max
            or self._waiting_bytes.get(address, 0) + len(request.body) > WAITING_BYTES_MAX
        ):
            return
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        flag = request.flag | ONEWAY_FLAG
        request = msgspec.structs.replace(request, opaque=self._opaque, flag=flag)
        self._ship(address, request, effects)

    def _ship(self, address: Address, request: Command, effects: list[Effect]) -> None:
        if self._signer is not None:
            request = self._signer(request)
        link = self._links.get(address)
        if link is not None:
            effects.append(Send(link, request))
            return
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.append(request)
            self._waiting_bytes[address] += len(request.body)
        else:
            self._waiting[address] = deque([request])
            self._waiting_bytes[address] = len(request.body)
            effects.append(Dial(address))

    # -- what the driver tells -------------------------------------------------------------------

    def opened(self, event: Opened, effects: list[Effect]) -> None:
        """Send everything that waited for a dialed link."""
        self._links[event.address] = event.link
        self._addresses[event.link] = event.address
        self._heard[event.link] = 0
        self._waiting_bytes.pop(event.address, None)
        for request in self._waiting.pop(event.address, ()):
            pending = self._pending.get(request.opaque)
            if pending is not None:
                pending.link = event.link
            elif not request.flag & ONEWAY_FLAG:
                continue  # timed out while the link was being opened
            effects.append(Send(event.link, request))

    def refused(self, event: Refused) -> list[Outcome[P]]:
        """Fail all requests that waited for the address: nothing listens there."""
        error = ConnectError(f"cannot connect to {event.address}: {event.reason}")
        waiting = self._waiting.pop(event.address, ())
        self._waiting_bytes.pop(event.address, None)
        return [
            Outcome(pending.purpose, event.address, error)
            for request in waiting
            if (pending := self._pending.pop(request.opaque, None)) is not None
        ]

    def closed(self, event: Closed) -> list[Outcome[P]]:
        """Fail all requests in flight on a closed link. Foreign links give an empty list."""
        address = self._addresses.pop(event.link, None)
        if address is None:
            return []
        del self._links[address], self._heard[event.link]
        self._silent.pop(event.link, None)
        error = RemotingError(f"connection to {address} closed: {event.reason}")
        dead = [opaque for opaque, pending in self._pending.items() if pending.link == event.link]
        return [Outcome(self._pending.pop(opaque).purpose, address, error) for opaque in dead]

    def replied(self, link: Link, response: Command) -> Outcome[P] | None:
        """Match a response. None: nothing waits for it any more (it came after its time-out)."""
        if link in self._heard:
            self._heard[link] = self._opaque
            self._silent.pop(link, None)
        pending = self._pending.pop(response.opaque, None)
        if pending is None:
            return None
        return Outcome(pending.purpose, pending.address, response)

    def expire(self, now: int, effects: list[Effect]) -> list[Outcome[P]]:
        """Fail calls past their deadline, close silent links, and set the timer again.

        To be called when the timer was due.
        """
        late = [opaque for opaque, pending in self._pending.items() if pending.deadline <= now]
        outcomes = []
        dead: dict[Address, None] = {}
        for opaque in late:
            pending = self._pending.pop(opaque)
            link = pending.link
            if link is not None and self._heard[link] < opaque:
                since = self._silent.setdefault(link, pending.asked_at)
                if now - since >= SILENT_MS:
                    dead[pending.address] = None
            error = CallTimeoutError(f"no reply from {pending.address} within the time-out")
            outcomes.append(Outcome(pending.purpose, pending.address, error))
        for address in dead:
            self.hang_up(address, "nothing was answered for too long", effects)
        self._timer_at = min((p.deadline for p in self._pending.values()), default=None)
        if self._timer_at is not None:
            effects.append(SetTimer(CALLS_TIMER, self._timer_at))
        return outcomes

    # -- links -----------------------------------------------------------------------------------

    def address_of(self, link: Link) -> Address | None:
        """Return the address behind a link that this `Calls` dialed, None for others."""
        return self._addresses.get(link)

    def linked(self) -> list[Address]:
        """Return addresses with a live link, in the order they were opened."""
        return list(self._links)

    def hang_up(self, address: Address, reason: str, effects: list[Effect]) -> None:
        """Close the link to `address`, if there is one: its peer is presumed dead.

        Its calls fail when `Closed` comes.
        """
        link = self._links.get(address)
        if link is not None:
            effects.append(Hang(link, reason, at_once=True))

    def check(self) -> None:
        """Assert that links are known both ways and calls have a link or wait for one."""
        assert {a: k for k, a in self._addresses.items()} == self._links
        assert self._silent.keys() <= self._heard.keys() == self._addresses.keys()
        waiting_bytes = {
            address: sum(len(request.body) for request in waiting)
            for address, waiting in self._waiting.items()
        }
        assert waiting_bytes == self._waiting_bytes
        for opaque, pending in self._pending.items():
            if pending.link is None:
                queued = self._waiting.get(pending.address, ())
                assert any(request.opaque == opaque for request in queued)
            else:
                assert pending.link in self._addresses
