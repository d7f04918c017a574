"""What a fetch brought, as records."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.kafka.rig import START, T0

from steelyard.errors import ProtocolError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
from steelyard.nodes.consumer.kafka.decoding import Fetched
from steelyard.wire.kafka.messages.data import AbortedTransaction
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Marker,
    Record,
    write_batch,
    write_marker,
)


def batch(base: int, count: int, producer: int = -1, attributes: int = 0) -> bytes:
    records = [Record(base + n, START, None, b"%d" % (base + n)) for n in range(count)]
    return write_batch(records, producer_id=producer, producer_epoch=0, attributes=attributes)


def transactional(base: int, count: int, producer: int) -> bytes:
    return batch(base, count, producer, TRANSACTIONAL)


def end(base: int, kind: int, producer: int) -> bytes:
    return write_marker(
        Marker(kind), base_offset=base, producer_id=producer, producer_epoch=0, timestamp=START
    )


def offsets(data: bytes, at: int, *aborted: tuple[int, int], committed: bool = True) -> list[int]:
    """The offsets of the records, and where to go on."""
    transactions = [AbortedTransaction(*one) for one in aborted] if committed else None
    fetched = Fetched(T0, data, at, transactions, check_crcs=True)
    return [*(record.offset for record in all_of(fetched)), fetched.next_offset]


def all_of(fetched: Fetched) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while more := fetched.more():
        found += more
    return found


def test_from_the_middle_of_a_batch_to_a_batch_that_is_cut() -> None:
    data = batch(0, 3) + batch(3, 2) + batch(5, 2)
    assert offsets(data[:-1], 1) == [1, 2, 3, 4, 5]
    assert offsets(data[:30], 0) == [0]
    assert offsets(b"", 4) == [4]


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    """Producer 1 aborts 0-1 and commits 4, producer 2 commits 2 in between; 7 has no transaction."""
    data = b"".join(
        [
            transactional(0, 2, 1),
            transactional(2, 1, 2),
            end(3, ABORT, 1),
            transactional(4, 1, 1),
            end(5, COMMIT, 1),
            end(6, COMMIT, 2),
            batch(7, 1),
        ]
    )
    assert offsets(data, 0, (1, 0)) == [2, 4, 7, 8]
    assert offsets(data, 0, (1, 0), committed=False) == [0, 1, 2, 4, 7, 8]


def test_a_transaction_that_began_before_the_fetch() -> None:
    data = transactional(5, 1, 1) + end(6, ABORT, 1) + transactional(7, 1, 1)
    assert offsets(data, 5, (1, 2)) == [7, 8]
    assert offsets(data[: len(transactional(5, 1, 1))], 5, (1, 2)) == [6]


def test_two_aborts_of_one_producer() -> None:
    data = b"".join(
        [
            transactional(0, 1, 1),
            end(1, ABORT, 1),
            transactional(2, 1, 1),
            end(3, COMMIT, 1),
            transactional(4, 1, 1),
            end(5, ABORT, 1),
        ]
    )
    assert offsets(data, 0, (1, 4), (1, 0)) == [2, 6]


def test_markers_are_passed_over() -> None:
    assert offsets(end(0, COMMIT, 1), 0, committed=False) == [1]


def test_what_a_record_says() -> None:
    headers = (("a", b"1"), ("a", None))
    data = write_batch(
        [Record(3, START, b"k", None, headers)], leader_epoch=4, attributes=LOG_APPEND_TIME
    )
    (record,) = Fetched(T0, data, 0, None, check_crcs=True).more()
    assert (record.topic, record.partition, record.offset) == ("t", 0, 3)
    assert (record.key, record.value, record.headers) == (b"k", None, headers)
    assert (record.timestamp, record.timestamp_type, record.leader_epoch) == (START, 1, 4)
    data = write_batch([Record(0, 5, None, b"")], leader_epoch=-1)
    (record,) = Fetched(T0, data, 0, None, check_crcs=True).more()
    assert (record.timestamp_type, record.leader_epoch) == (0, None)


def test_damage() -> None:
    good, bad = batch(0, 2), bytearray(batch(2, 2))
    bad[-2] ^= 1
    fetched = Fetched(T0, good + bytes(bad), 0, None, check_crcs=True)
    assert [record.offset for record in fetched.more()] == [0, 1]
    with pytest.raises(ProtocolError, match="batch at 2"):
        fetched.more()
    assert fetched.next_offset == 2
    assert offsets(bytes(bad[: len(good) - 1]), 2) == [2]  # it is cut: it comes whole next time
    unchecked = Fetched(T0, bytes(bad), 2, None, check_crcs=False)
    assert [record.offset for record in unchecked.more()] == [2, 3]
