"""The ledger as a stream: records in nearly any order become the rows of all tables.

    stream = Stream(delay_ms=10_000)
    made = stream.take(messages, load)      # load(group): its state, None if it is new
    made.rows, made.states                  # to be written, and to be stored with the stream

A message of the ledger's topic has the records of about a second. They wait until the newest record
is `delay_ms` younger than they are, and are then added to the states of their groups in the order
of their times (`ledger.order`). A message that came before is dropped; so is a record that comes
after later ones were added, and both are counted. (But not that a broker stopped: its
last records may be read when it is back, and it would seem to have died.)

Rows are final, or open: those are as of now, and replace the group's open rows of before. So the
final rows and the newest open ones are always what the records up to now amount to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.ledger.cluster import BrokerRecord, LedgerGroups, NamedRow
from steelyard.ledger.events import (
    Backlog,
    BrokerStarted,
    BrokerStopped,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
    decode,
    encode,
)
from steelyard.ledger.group import FORGET_MS, KEPT_MS, GroupState, copy_of
from steelyard.ledger.order import in_order
from steelyard.ledger.tables import GroupEvent, Lag, TableRow

_NOT_SHOWN = (Delivered, Committed)
_at = attrgetter("at")

DELAY_MS = 10_000
"""How long records may come after records of a later time, by default.

Brokers write records up to a second after what they tell; the rest is for their clocks.
"""

CHUNK = 20_000
"""Records that are decoded before those are added that are old enough."""

Place = tuple[str, int, int]
"""Broker, queue and offset of a message."""


class LedgerMessage(NamedTuple):
    """A message of the ledger's topic: where it is, the time of its latest record, its records."""

    place: Place
    at: int
    body: bytes


def ledger_message(place: Place, body: bytes) -> LedgerMessage | None:
    """Return a message as it was read; None for one without records."""
    records = decode(body)
    return LedgerMessage(place, max(map(_at, records)), body) if records else None


class OutputRow(NamedTuple):
    """A row of a table. `is_open`: it may change, or go."""

    group: str
    row: TableRow
    is_open: bool


class LateRecords(NamedTuple):
    """Records of a broker that came too late: how many, and the times of the first and the last."""

    number: int
    first_at: int
    last_at: int


class Taken(NamedTuple):
    """What came of some messages."""

    groups: set[str]
    """All open rows of these groups are in `rows`; "" stands for what is of no group."""
    rows: list[OutputRow]
    states: Mapping[str, GroupState | None]
    """States that changed; None: it is not needed any more."""
    late: int
    repeated: int
    late_of: Mapping[str, LateRecords] = {}
    """The late ones by the broker that recorded them."""


class Stream(msgspec.Struct, array_like=True):
    """What is known besides the states of groups. `delay_ms`: see the module docstring."""

    delay_ms: int
    newest: int = 0
    """The time of the newest record."""
    released_to: int = -(2**53)
    """Records before that were added to their groups."""
    held: bytes = b"[]"
    """The records that were not."""
    seen: dict[Place, int] = {}
    """Messages that may come again, and the times of their latest records."""
    brokers: dict[str, BrokerRecord] = {}
    groups: dict[str, int] = {}
    """When each group was last heard of."""
    unsettled: dict[str, int] = {}
    """Groups that may have open rows, and when something was added to each last."""

    def take(
        self, messages: Iterable[LedgerMessage], load: Callable[[str], GroupState | None]
    ) -> Taken:
        """Take messages; return the rows that are new, or open."""
        run = _Run(self, load)
        held = run.take(messages)
        run.settle()
        run.add_open(held)
        self.held = encode(held)
        self.seen = {place: at for place, at in self.seen.items() if at >= self.released_to}
        self.brokers, self.groups = run.cluster.brokers, run.cluster.heard
        return Taken(run.touched, run.rows, run.states, run.late, run.repeated, run.late_of)


class _Run:
    """One call of `take`."""

    def __init__(self, stream: Stream, load: Callable[[str], GroupState | None]) -> None:
        self._stream = stream
        self.cluster = LedgerGroups(load, stream.groups, stream.brokers)
        self.states: dict[str, GroupState | None] = {}
        self.rows: list[OutputRow] = []
        self.touched: set[str] = set()
        self.late = 0
        self.late_of: dict[str, LateRecords] = {}
        self.repeated = 0

    def take(self, messages: Iterable[LedgerMessage]) -> list[Record]:
        """Add the records that are old enough to their groups; return the others."""
        stream = self._stream
        waiting = [*decode(stream.held)]
        chunk = CHUNK + len(waiting)
        for message in sorted(messages, key=lambda one: (one.at, one.place)):
            if message.place in stream.seen:
                self.repeated += 1
                continue
            stream.seen[message.place] = message.at
            stream.newest = max(stream.newest, message.at)
            waiting += decode(message.body)
            if len(waiting) > chunk:
                waiting = self._release(waiting)
                chunk = CHUNK + len(waiting)
        return self._release(waiting)

    def _release(self, waiting: list[Record]) -> list[Record]:
        stream = self._stream
        before = max(stream.released_to, stream.newest - stream.delay_ms)
        waiting.sort(key=_at)
        late = waiting[: bisect_left(waiting, stream.released_to, key=_at)]
        ready = waiting[len(late) : bisect_left(waiting, before, key=_at)]
        kept = waiting[len(late) + len(ready) :]
        news = [record for record in late if self._is_news(record)]
        self._drop(record for record in late if not self._is_news(record))
        ordered = in_order([*news, *ready])
        found = self.cluster.add(ordered)
        self._show(found, ordered, is_open=False)
        stream.unsettled |= self.cluster.added
        stream.released_to = before
        return kept

    def _drop(self, late: Iterable[Record]) -> None:
        for record in late:
            writer = record.writer if isinstance(record, Committed) else ""
            broker, at = writer or record.broker, record.at
            number, first, last = self.late_of.get(broker, LateRecords(0, at, at))
            self.late_of[broker] = LateRecords(number + 1, min(first, at), max(last, at))
            self.late += 1

    def _show(self, found: Iterable[NamedRow], records: Iterable[Record], *, is_open: bool) -> None:
        """Add the rows that came of records, and those that show them."""
        self.rows += (OutputRow(group, row, is_open) for group, row in found)
        for record in records:
            if isinstance(record, _NOT_SHOWN):  # nearly all
                continue
            group = _group_of(record)
            if not group:
                self.touched.add(group)
            row = row_of(record)
            if row is not None:
                self.rows.append(OutputRow(group, row, is_open))

    def _is_news(self, record: Record) -> bool:
        """Return whether a record that is late tells that a broker had stopped."""
        known = self.cluster.brokers.get(record.broker)
        return isinstance(record, BrokerStopped) and (known is None or record.at > known.at)

    def settle(self) -> None:
        """Make rows final of groups that have been silent for long; forget some groups."""
        stream, cluster = self._stream, self.cluster
        now = stream.released_to
        for name in sorted(n for n, at in stream.unsettled.items() if now - at >= KEPT_MS):
            found = cluster.state(name).advance(now)
            self.rows += [OutputRow(name, row, False) for row in found]
            del stream.unsettled[name]
        for name in [name for name, at in cluster.heard.items() if now - at >= FORGET_MS]:
            if name not in stream.unsettled:
                if cluster.states.pop(name, None):
                    self.touched.add(name)
                self.states[name] = None
                del cluster.heard[name]

    def add_open(self, held: list[Record]) -> None:
        """Add the rows that would be if no more records came, of all groups that may have new."""
        cluster = self.cluster

        def copied(name: str) -> GroupState | None:
            return copy_of(cluster.state(name)) if name in cluster.heard else None

        copies = LedgerGroups(copied, cluster.heard, cluster.brokers)
        ordered = in_order(held)
        self._show(copies.add(ordered), ordered, is_open=True)
        for name in cluster.states:
            copies.state(name)
        self.rows += [OutputRow(*each, True) for each in copies.finish()]
        self.states |= cluster.states
        self.touched |= copies.states.keys()


def _group_of(record: Record) -> str:
    return "" if isinstance(record, BrokerStarted | BrokerStopped) else record.group


def row_of(record: Record) -> GroupEvent | Lag | None:
    """Return the row of `events` or `lag` that shows a record, None for other records."""
    match record:
        case Backlog():
            return Lag(
                group=record.group,
                at=record.at,
                broker=record.broker,
                topic=record.topic,
                waiting=sum(record.waiting),
                queues=record.waiting,
                peak=record.peak,
                peak_at=record.peak_at,
            )
        case BrokerStarted() | BrokerStopped():
            return _event(record)
        case MemberJoined() | MemberLeft():
            return _event(record, record.client, record.cause, record.members)
        case RebalanceBegan():
            return _event(record, "", record.trigger, record.members)
        case RebalanceEnded():
            return _event(record, "", record.protocol, record.members)
    return None


def _event(
    record: Record, client: str = "", cause: str = "", members: tuple[str, ...] = ()
) -> GroupEvent:
    return GroupEvent(
        group=_group_of(record),
        at=record.at,
        broker=record.broker,
        kind=str(record.__struct_config__.tag),
        client=client,
        cause=cause,
        members=members,
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(prepared(Stream))


def encode_stream(stream: Stream) -> bytes:
    """Encode a stream, to be stored."""
    return _encoder.encode(stream)


def decode_stream(body: bytes) -> Stream:
    """Decode what `encode_stream` returned."""
    return _decoder.decode(body)
