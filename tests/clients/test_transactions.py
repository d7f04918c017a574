"""Transactions with every client: what is committed is seen, what is aborted is not, and the older of two producers is out.

As in Kafka the end of a transaction is acknowledged before its markers are in the partitions: a test waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.clients.libraries import Library, Refused, Sent, Transaction
from tests.waiting import until

Begin = Callable[[str], Transaction]


@pytest.fixture
def transaction(library: Library) -> Iterator[Begin]:
    """Makes transactional producers, and closes them; those that were fenced cannot close in order."""
    made: list[Transaction] = []

    def make(transactional_id: str) -> Transaction:
        made.append(library.transaction(transactional_id))
        return made[-1]

    yield make
    for one in made:
        try:
            one.close()
        except Refused:
            continue


def test_committed_is_seen_and_aborted_is_not(
    library: Library, name: str, transaction: Begin
) -> None:
    library.create_topic(name)
    producer = transaction(name)
    for word, ends in (
        (b"kept", producer.commit),
        (b"dropped", producer.abort),
        (b"kept too", producer.commit),
    ):
        producer.begin()
        producer.send(name, [word] * 3)
        ends()
    values = [record.value for record in library.read(name, {0: 0}, 6, committed_only=True)]
    assert values == [b"kept"] * 3 + [b"kept too"] * 3
    values = [record.value for record in library.read(name, {0: 0}, 9)]
    assert values == [b"kept"] * 3 + [b"dropped"] * 3 + [b"kept too"] * 3
    until(lambda: library.ends(name) == (0, 12), "three records and a marker each")


def test_an_open_transaction_holds_readers_back(
    library: Library, name: str, transaction: Begin
) -> None:
    """Who reads committed records only gets none beyond an open transaction, not even those of others."""
    library.create_topic(name)
    producer = transaction(name)
    library.send(name, [Sent(b"before")])
    producer.begin()
    producer.send(name, [b"inside"])
    library.send(name, [Sent(b"after")])
    (record,) = library.read(name, {0: 0}, 1, committed_only=True)
    assert record.value == b"before"
    assert [record.value for record in library.read(name, {0: 1}, 2)] == [b"inside", b"after"]
    producer.abort()
    values = [record.value for record in library.read(name, {0: 0}, 2, committed_only=True)]
    assert values == [b"before", b"after"]


def test_consume_transform_produce_is_exactly_once(
    library: Library, name: str, transaction: Begin
) -> None:
    """Every second try is aborted, and its records come again; what comes out is each record once, in order."""
    source, sink = f"{name}.in", f"{name}.out"
    library.create_topic(source)
    library.create_topic(sink)
    library.send(source, [Sent(b"%d" % number) for number in range(12)])
    producer = transaction(name)
    done, tries = 0, 0
    while done < 12:
        count = producer.transform(name, source, sink, 4)
        tries += 1
        if tries % 2:
            producer.abort()
            assert (library.committed(name, source) or 0) == done
        else:
            producer.commit()
            done += count
            until(lambda: library.committed(name, source) == done, f"{done} committed")  # noqa: B023
    values = [record.value for record in library.read(sink, {0: 0}, 12, committed_only=True)]
    assert values == [b"<%d>" % number for number in range(12)]
    assert library.ends(sink)[1] >= 24


def test_the_older_producer_is_fenced(library: Library, name: str, transaction: Begin) -> None:
    """1. One has an open transaction. 2. Another comes with its id. 3. The first is refused, and what it sent is aborted."""
    library.create_topic(name)
    older = transaction(name)
    older.begin()
    older.send(name, [b"older"])
    newer = transaction(name)
    newer.begin()
    newer.send(name, [b"newer"])
    newer.commit()
    with pytest.raises(Refused, match=r"(?i)fenced|epoch|newer"):
        older.commit()
    (record,) = library.read(name, {0: 0}, 1, committed_only=True)
    assert record.value == b"newer"
