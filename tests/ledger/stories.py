"""Ledgers as they may reach a stream: in batches of messages, shuffled, repeated and late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st
from tests.ledger.records import began, ended, got, joined, left, requested, said, waits

from steelyard.ledger.cluster import LedgerGroups
from steelyard.ledger.events import BrokerStarted, BrokerStopped, Record, encode
from steelyard.ledger.order import in_order
from steelyard.ledger.stream import LedgerMessage, row_of
from steelyard.ledger.tables import TableRow

DELAY_MS = 10_000
SPAN_MS = 4_000
"""The longest time that the records of a message span."""


class Story(NamedTuple):
    """Batches of messages, and what is to come of them."""

    batches: list[list[LedgerMessage]]
    records: list[Record]
    """Those that count."""
    late: int
    repeated: int


clients = st.sampled_from("ABC")
brokers = st.sampled_from("ab")
members = st.sets(clients).map(lambda found: "".join(sorted(found)))
steps = st.sampled_from([0, 1, 7, 150, 400, 900, 1_000, 3_000, 20_000, 70_000, 900_000, 5_000_000])
seeds = st.integers(0, 2**32)

kinds = st.one_of(
    *[st.tuples(st.just("got"), clients, st.integers(0, 30), st.integers(1, 10), brokers)] * 3,
    st.tuples(st.just("said"), clients, st.integers(0, 40), brokers),
    st.tuples(st.just("waits"), st.integers(0, 50), brokers),
    st.tuples(st.just("joined"), clients, members, brokers),
    st.tuples(st.just("left"), clients, members, brokers, st.sampled_from(["closed", "expired"])),
    st.tuples(st.just("requested"), clients, st.integers(0, 1), brokers),
    st.tuples(st.just("began"), members),
    st.tuples(st.just("ended"), members),
    st.tuples(st.just("started"), brokers),
    st.tuples(st.just("stopped"), brokers),
)


def record(at: int, kind: tuple[object, ...], random: Random) -> Record:
    match kind:
        case "got", str(client), int(first), int(size), str(broker):
            until, stored = at + random.randrange(1_000), at - random.choice([0, 100, 5_000])
            queue = random.randrange(2)
            return got(
                at,
                client,
                first,
                first + size,
                until=until,
                stored=stored,
                queue=queue,
                broker=broker,
            )
        case "said", str(client), int(offset), str(broker):
            handed = random.choice([None, None, offset])
            return said(at, client, offset, handed=handed, handed_at=handed and at, broker=broker)
        case "waits", int(count), str(broker):
            return waits(at, count, peak=2 * count, peak_at=at - 200, broker=broker)
        case "joined", str(client), str(present), str(broker):
            return joined(at, client, present, broker)
        case "left", str(client), str(present), str(broker), str(cause):
            return left(at, client, present, broker, cause, at - random.choice([100, 30_000]))
        case "requested", str(client), int(queue), str(broker):
            return requested(at, client, queue, broker)
        case "began", str(present):
            return began(at, "leader", present)
        case "ended", str(present):
            return ended(at, present)
        case "started", str(broker):
            return BrokerStarted(at=at, broker=broker)
        case "stopped", str(broker):
            return BrokerStopped(at=at, broker=broker)
    raise AssertionError(kind)


@st.composite
def _stories(draw: st.DrawFn) -> Story:
    happened = draw(st.lists(st.tuples(steps, kinds), max_size=60))
    random = Random(draw(seeds))
    at, records = 1_000_000, list[Record]()
    for step, kind in happened:
        at += step
        records.append(record(at, kind, random))
    return told(records, random)


stories = _stories()


def told(records: Sequence[Record], random: Random) -> Story:
    """Put the records into messages and these into batches; some change places, come again or late."""
    messages = _messages(records, random)
    batches: list[list[LedgerMessage]] = [[]]
    for message in messages:
        if random.random() < 0.3:
            batches.append([])
        batches[-1].append(message)
    for number, batch in enumerate(batches[:-1]):
        for message in list(batch):
            if not _is_about_brokers(message) and random.random() < 0.2:
                if random.random() < 0.5:
                    batch.remove(message)
                later = min(number + random.randrange(1, 4), len(batches) - 1)
                batches[later].append(message)
    for batch in batches:
        random.shuffle(batch)
    return judged(batches)


def _messages(records: Iterable[Record], random: Random) -> list[LedgerMessage]:
    waiting: dict[str, list[Record]] = {}
    messages: list[LedgerMessage] = []
    offsets = dict.fromkeys("ab", 0)

    def write(broker: str) -> None:
        found = waiting.pop(broker)
        at = max(one.at for one in found)
        messages.append(LedgerMessage((broker, 0, offsets[broker]), at, encode(found)))
        offsets[broker] += 1

    for one in records:
        for broker in list(waiting):
            if one.at - waiting[broker][0].at > SPAN_MS:
                write(broker)
        waiting.setdefault(one.broker, []).append(one)
        if random.random() < 0.4:
            write(one.broker)
    for broker in list(waiting):
        write(broker)
    return messages


def _is_about_brokers(message: LedgerMessage) -> bool:
    return b'"broker_s' in message.body


def judged(batches: list[list[LedgerMessage]]) -> Story:
    """What is to come of the batches, told in the simplest way."""
    seen: set[tuple[str, int, int]] = set()
    counted: list[Record] = []
    late = repeated = 0
    newest, released = 0, 0
    for batch in batches:
        for message in sorted(batch, key=lambda one: one.at):
            records = msgspec.json.decode(message.body, type=list[Record])
            if message.place in seen and message.at >= released:
                repeated += 1
                continue
            seen.add(message.place)
            late += sum(one.at < released for one in records)
            counted += [one for one in records if one.at >= released]
            newest = max(newest, message.at)
        released = max(released, newest - DELAY_MS)
    return Story(batches, counted, late, repeated)


def expected(records: Iterable[Record]) -> list[bytes]:
    """All rows of all tables of the records, encoded and sorted."""
    cluster = LedgerGroups()
    rows: list[TableRow] = []
    for one in in_order(records):
        rows += (each.row for each in cluster.add([one]))
        row = row_of(one)
        rows += [] if row is None else [row]
    return encoded([*rows, *(each.row for each in cluster.finish())])


def encoded(rows: Iterable[TableRow]) -> list[bytes]:
    return sorted(type(row).__name__.encode() + msgspec.json.encode(row) for row in rows)
