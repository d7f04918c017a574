"""Producing and consuming with every client: codecs, whole records, acknowledgements, limits, where to begin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from tests.clients.confluent import Confluent
from tests.clients.libraries import Library, Record, Refused, Sent

MAX_BYTES = 1_048_588
"""Kafka's default of message.max.bytes: of a record batch, compressed or not."""

BATCH_OVERHEAD = 200
"""More than what a batch and its one record need around a value."""


def sent_of(record: Record) -> Sent:
    return Sent(record.value, record.key, record.headers, record.timestamp, record.partition)


def test_records_come_back_whole(library: Library, name: str) -> None:
    """Keys, headers, nulls, empty values and timestamps, with every codec that the library has; in the order sent."""
    library.create_topic(name)
    sent: list[Sent] = []
    for number, codec in enumerate(library.codecs):
        now = 1_700_000_000_000 + number
        batch = [
            Sent(b"plain", timestamp=now),
            Sent(b"keyed", b"key", timestamp=now),
            Sent(b"headed", b"k", (("a", b"1"), ("a", b""), ("b", b"\xff")), now),
            Sent(None, b"tombstone", timestamp=now),
            Sent(b"", b"", timestamp=now),
            *(Sent(b"%d" % one * 50, timestamp=now + one) for one in range(50)),
        ]
        first = len(sent)
        assert library.send(name, batch, codec=codec) == [*range(first, first + len(batch))]
        sent += batch
    records = library.read(name, {0: 0}, len(sent))
    assert [record.offset for record in records] == [*range(len(sent))]
    assert [sent_of(record) for record in records] == sent


@pytest.mark.parametrize("idempotent", [False, True])
def test_acknowledgements(library: Library, name: str, idempotent: bool) -> None:
    library.create_topic(name)
    choices: tuple[int | str, ...] = ("all",) if idempotent else (0, 1, "all")
    for number, acks in enumerate(choices):
        library.send(name, [Sent(b"%d" % number)], acks=acks, idempotent=idempotent)
    values = [record.value for record in library.read(name, {0: 0}, len(choices))]
    assert values == [b"%d" % number for number in range(len(choices))]


def test_the_largest_message_and_one_above(library: Library, name: str) -> None:
    """The limit is the topic's, of the batch as it comes; what is refused is not stored."""
    library.create_topic(name, max_message_bytes="100000")
    largest = Sent(b"m" * (100_000 - BATCH_OVERHEAD))
    assert library.send(name, [largest]) == [0]
    with pytest.raises(Refused, match=r"(?i)too.?large|larger than|size"):
        library.send(name, [Sent(b"m" * 100_001)])
    assert library.ends(name) == (0, 1)
    assert library.read(name, {0: 0}, 1)[0].value == largest.value


def test_the_default_limit_is_kafkas(library: Library, name: str) -> None:
    library.create_topic(name)
    assert library.send(name, [Sent(b"m" * (MAX_BYTES - BATCH_OVERHEAD))]) == [0]
    with pytest.raises(Refused, match=r"(?i)too.?large|larger than|size"):
        library.send(name, [Sent(b"m" * MAX_BYTES)])


def test_where_to_begin(library: Library, name: str) -> None:
    """By offset, and by timestamp: the first record that is not older; none where all are."""
    library.create_topic(name, 2)
    times = [1_700_000_000_000 + 1000 * number for number in range(10)]
    for partition in (0, 1):
        library.send(
            name,
            [Sent(b"%d" % at, timestamp=at, partition=partition) for at in times[partition:]],
        )
    assert library.ends(name, 0) == (0, 10)
    assert library.ends(name, 1) == (0, 9)
    assert library.at_time(name, times[4]) == 4
    assert library.at_time(name, times[4] - 999) == 4
    assert library.at_time(name, times[4], 1) == 3
    assert library.at_time(name, 0) == 0
    assert library.at_time(name, times[-1] + 1) is None
    records = library.read(name, {0: 7, 1: 8}, 4)
    found = sorted((record.partition, record.offset) for record in records)
    assert found == [(0, 7), (0, 8), (0, 9), (1, 8)]


def test_groups_go_on_where_they_were(library: Library, name: str) -> None:
    """A committed offset is where the next member begins; without one the reset rule says."""
    library.create_topic(name)
    library.send(name, [Sent(b"%d" % number) for number in range(10)])
    assert library.committed(name, name) is None
    assert [record.offset for record in library.consume(name, name, 4)] == [0, 1, 2, 3]
    assert library.committed(name, name) == 4
    assert [record.offset for record in library.consume(name, name, 3, auto=True)] == [4, 5, 6]
    assert library.committed(name, name) == 7
    assert [record.offset for record in library.consume(name, name, 3)] == [7, 8, 9]


def test_from_the_latest_on(library: Library, name: str) -> None:
    """A group without an offset that begins at the end gets what comes after it joined, and nothing older."""
    library.create_topic(name)
    library.send(name, [Sent(b"old")] * 5)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(library.consume, name, name, 1, reset="latest")
        writer = Confluent(library.bootstrap)
        while not reading.done():
            writer.send(name, [Sent(b"new")])
            wait([reading], 0.2)
    (record,) = reading.result()
    assert record.value == b"new"
