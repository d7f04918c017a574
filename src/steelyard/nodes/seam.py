"""The interface between nodes, which decide, and drivers, which act.

A driver calls `node.handle(event, now)` and applies the returned effects, in order. Events are
facts in the past tense, effects are orders. `now` is in milliseconds since the epoch and never
decreases within one run of a node. Nothing here depends on asyncio or virtual time: `driver/` and
`sim/` do.

Rules that drivers obey:
- `Opened` comes once per link, before any `Received` on it; after `Closed` the link is dead and its
  number is never reused. A node that returns `Hang` still receives `Closed`.
- `Dial` is answered by `Opened(dialed=True)` with the same address, or by `Refused`. A node has at
  most one pending `Dial` per address.
- `SetTimer` replaces a timer with the same key; `Due` comes once, at or after the time.
- `Send` to a dead link is silently dropped: its `Closed` is queued or was already handled.
- `Flush(ticket)` is answered by `Flushed(ticket)` after everything written before it is on disk.
- `Deliver` passes messages, or something else that requires action, to the application; `Handled`
  returns the result, once, in any order.
- `Persist` has no answer. The data persisted last is passed to the node when it is created again.
- `Measured` comes now and then, if the driver of the node measures: only servers' drivers do.
- `Asked` delivers a call of the application or an operator; `Answer` returns the result, once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

import msgspec

from steelyard.types import ConsumeOrderlyStatus, ConsumeStatus, LogLine, TransactionState
from steelyard.wire.figures import ProcessFigures

Link = int
"""A connection, numbered by the driver."""

Address = str
"""`host:port`."""

REMOTING = "remoting"
KAFKA = "kafka"
"""Dialects that a link may speak; a listening port speaks one."""

T_co = TypeVar("T_co", covariant=True)


class Call(msgspec.Struct, Generic[T_co], frozen=True):
    """Base of the calls of an application or operator to a node; contracts define each node's.

    The parameter is the type of the answer. Any call may be answered with an exception instead,
    which is raised at the caller.
    """


Verdict = (
    ConsumeStatus | tuple[ConsumeStatus, ...] | ConsumeOrderlyStatus | TransactionState | str | None
)
"""The application's result for a delivery.

None if there is nothing to decide; for a batch one status for all its messages, or one for each; a
text if one was requested, or to say how it failed.
"""


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Base of the events, which are plain, comparable data."""


class Opened(Fact, frozen=True):
    """`owner`: of the peer's verified certificate, its distinguished name; empty without one."""

    link: Link
    address: Address
    dialed: bool = False
    dialect: str = REMOTING
    owner: str = ""


class Refused(Fact, frozen=True):
    """A `Dial` failed."""

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
    """The application has finished with what `Deliver` passed to it under this ticket."""

    ticket: int
    status: Verdict


class Asked(Fact, frozen=True):
    """`call` is a `Call` of the node's contract."""

    call_id: int
    call: object


class Measured(Fact, frozen=True):
    """What the driver has measured of its process. A node reports it and decides nothing by it."""

    figures: ProcessFigures


Event = Opened | Refused | Received | Closed | Due | Flushed | Handled | Asked | Measured


class Order(msgspec.Struct, frozen=True, gc=False):
    """Base of the effects."""


class Dial(Order, frozen=True):
    address: Address
    dialect: str = REMOTING


class Send(Order, frozen=True):
    link: Link
    message: object


class Hang(Order, frozen=True):
    """Close the link after sending what was queued on it.

    `at_once`: without sending it, because a dead peer never takes it.
    """

    link: Link
    reason: str
    at_once: bool = False


class Admit(Order, frozen=True):
    """The peer of an accepted link has logged in: the limits of strangers hold no longer."""

    link: Link


class Mute(Order, frozen=True):
    """Take nothing more from the link until then (ms since the epoch); what was sent to it, is."""

    link: Link
    until: int


class SetTimer(Order, frozen=True):
    key: Hashable
    at: int


class DropTimer(Order, frozen=True):
    key: Hashable


class Flush(Order, frozen=True):
    ticket: int


class Deliver(Order, frozen=True):
    """Pass `batch` to the application: messages, or what the node's contract defines."""

    ticket: int
    batch: object


class Answer(Order, frozen=True):
    """The result of an `Asked` call: a value, or an exception instance to raise at the caller."""

    call_id: int
    result: object


class Persist(Order, frozen=True):
    """Write `data` to the client's disk, replacing the previous data (LocalFileOffsetStore)."""

    data: bytes


Effect = (
    Dial
    | Send
    | Hang
    | Admit
    | Mute
    | SetTimer
    | DropTimer
    | Flush
    | Deliver
    | Answer
    | Persist
    | LogLine
)


class HandlerError(Exception):
    """A bug ended the handling of an event prematurely; raised `from` the original exception.

    `effects` must be applied nevertheless: those ordered before the exception, because the node's
    state relies on them (timers, flushes, responses to others), and the error response to the
    requester, if its protocol has one.
    """

    def __init__(self, effects: list[Effect]) -> None:
        super().__init__("a handler failed")
        self.effects = effects


class Node(Protocol):
    """Anything with an address: nameserver, broker, producer, consumer, admin."""

    def start(self, now: int) -> list[Effect]:
        """Return the first effects; called once, before any event."""

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle one event and return the effects.

        Raises only for bugs: HandlerError if the node knows which effects must be applied
        nevertheless; with any other exception the effects of this event are lost.

        After a bug a live driver runs `check`, and continues unless that raises; see
        `driver/driver.py` for the consequences. The simulator treats every bug as a failed run.
        """

    def check(self) -> None:
        """Assert every invariant of the node's state.

        Run after each event in tests and simulation.
        """


def earliest(*times: int | None) -> int | None:
    """Return the earliest of these times, for a timer; None if there is none."""
    found: int | None = None
    for at in times:
        if at is not None and (found is None or at < found):
            found = at
    return found
