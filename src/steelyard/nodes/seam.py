"""The seam between nodes, which decide, and drivers, which do.

A driver calls `node.handle(event, now)` and applies the returned effects, in order. Events are
facts in the past tense, effects are orders. `now` is milliseconds since the epoch and never goes
back within one run of a node. Nothing here knows asyncio or virtual time: `driver/` and `sim/` do.

Rules the drivers keep:
- `Opened` comes once per link, before anything `Received` on it; after `Closed` the link is dead and
  is never reused. A node that says `Hang` still gets `Closed`.
- `Dial` is answered by `Opened(dialed=True)` with the same address, or by `Refused`. A node has at
  most one `Dial` pending per address.
- `SetTimer` replaces a timer of the same key; `Due` comes once, at or after the time.
- `Send` to a dead link is dropped silently: the `Closed` for it is on its way or was handled.
- `Flush(ticket)` is answered by `Flushed(ticket)` after everything written before it is on disk.
- `Deliver` gives messages to the application, or something else that it must act on; `Handled` tells the
  verdict, once, in any order.
- `Persist` has no answer. What was kept last is given to the node when it is made anew.
- `Asked` brings a call of the application or an operator in; `Answer` gives the result, once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

import msgspec

from steelyard.types import ConsumeOrderlyStatus, ConsumeStatus, LogLine, TransactionState

Link = int
"""A connection, numbered by the driver."""

Address = str
"""`host:port`."""

REMOTING = "remoting"
KAFKA = "kafka"
"""Dialects that a link may speak; a listening port speaks one."""

T_co = TypeVar("T_co", covariant=True)


class Call(msgspec.Struct, Generic[T_co], frozen=True):
    """Root of what an application or an operator may ask of a node: the contracts name each node's.

    The parameter is the type of the answer. Any call may be answered with an exception instead, which is raised at
    the caller.
    """


Verdict = ConsumeStatus | ConsumeOrderlyStatus | TransactionState | str | None
"""What the application says of what it was handed; None where there is nothing to decide, a text where it was
asked for one or where it must say how it failed."""


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Root of the events, so that they are plain, comparable data."""


class Opened(Fact, frozen=True):
    link: Link
    address: Address
    dialed: bool = False
    dialect: str = REMOTING


class Refused(Fact, frozen=True):
    """A `Dial` came to nothing."""

    address: Address
    reason: str


class Received(Fact, frozen=True):
    """A whole message of the link's dialect, e.g. a `wire.remoting.command.Command`."""

    link: Link
    message: object


class Closed(Fact, frozen=True):
    link: Link
    reason: str


class Due(Fact, frozen=True):
    key: Hashable


class Flushed(Fact, frozen=True):
    ticket: int


class Handled(Fact, frozen=True):
    """The application is done with what `Deliver` gave it under this ticket."""

    ticket: int
    status: Verdict


class Asked(Fact, frozen=True):
    """`call` is a `Call` of the node's contract."""

    call_id: int
    call: object


Event = Opened | Refused | Received | Closed | Due | Flushed | Handled | Asked


class Order(msgspec.Struct, frozen=True, gc=False):
    """Root of the effects."""


class Dial(Order, frozen=True):
    address: Address
    dialect: str = REMOTING


class Send(Order, frozen=True):
    link: Link
    message: object


class Hang(Order, frozen=True):
    """Close the link after what was sent on it."""

    link: Link
    reason: str


class SetTimer(Order, frozen=True):
    key: Hashable
    at: int


class DropTimer(Order, frozen=True):
    key: Hashable


class Flush(Order, frozen=True):
    ticket: int


class Deliver(Order, frozen=True):
    """Give `batch` to the application: messages for its listener, or what else the node's contract names."""

    ticket: int
    batch: object


class Answer(Order, frozen=True):
    """The result of an `Asked` call: a value, or an exception instance to raise at the caller."""

    call_id: int
    result: object


class Persist(Order, frozen=True):
    """Write `data` down on the client's own disk, in place of what was kept before (LocalFileOffsetStore)."""

    data: bytes


Effect = Dial | Send | Hang | SetTimer | DropTimer | Flush | Deliver | Answer | Persist | LogLine


class HandlerError(Exception):
    """A bug ended the handling of an event half-way; raised `from` the exception that it met.

    `effects` must become true all the same: what was ordered before the exception, for the node's state counts on it
    (timers, flushes, others' replies), and the error that the asker of a request gets, where its protocol has one.
    """

    def __init__(self, effects: list[Effect]) -> None:
        super().__init__("a handler failed")
        self.effects = effects


class Node(Protocol):
    """Anything with an address: nameserver, broker, producer, consumer, admin."""

    def start(self, now: int) -> list[Effect]:
        """Called once, before any event."""

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Take one event in, give the effects out. Raises only for bugs: HandlerError where the node knows what must
        happen all the same, else anything; then what it had ordered for this event is lost.

        After a bug a live driver runs `check`, and goes on unless that raises; see `driver/driver.py` for who pays.
        The simulator takes every bug for a failed run.
        """

    def check(self) -> None:
        """Assert every invariant of the node's state. Run after each event in tests and simulation."""
