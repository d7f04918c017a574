"""Which batches of a log were aborted, and which markers nobody needs any more."""

from __future__ import annotations

import pytest

from steelyard.compaction.transactions import CleanedTransactions
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Marker,
    Record,
    read_header,
    write_batch,
    write_marker,
)


def data(offset: int, producer_id: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    record = Record(offset, 1, b"k", b"v")
    return read_header(
        write_batch((record,), producer_id=producer_id, producer_epoch=0, attributes=attributes)
    )


def is_bare(transactions: CleanedTransactions, offset: int, producer_id: int, kind: int) -> bool:
    batch = write_marker(
        Marker(kind), base_offset=offset, producer_id=producer_id, producer_epoch=0, timestamp=1
    )
    return transactions.is_bare(read_header(batch), batch)


def test_only_batches_of_aborted_transactions_are_aborted() -> None:
    transactions = CleanedTransactions([(7, 2, 5), (8, 3, 4)])
    assert not transactions.is_aborted(data(1, 7))
    assert not transactions.is_aborted(data(1, 9, 0))
    assert transactions.is_aborted(data(2, 7))
    assert transactions.is_aborted(data(3, 8))
    assert not is_bare(transactions, 4, 8, ABORT)
    assert not is_bare(transactions, 5, 7, ABORT)
    assert not transactions.is_aborted(data(6, 7))
    assert not transactions.is_aborted(data(7, 8))


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_is_needed_while_a_batch_of_its_transaction_is_there(kind: int) -> None:
    aborted = [(7, 1, 2)] if kind == ABORT else []
    transactions = CleanedTransactions(aborted)
    transactions.is_aborted(data(1, 7))
    assert not is_bare(transactions, 2, 7, kind)
    assert is_bare(transactions, 3, 7, kind)
    assert is_bare(CleanedTransactions(aborted), 2, 7, kind)


def test_control_batches_without_marker() -> None:
    transactions = CleanedTransactions([])
    other = write_batch(
        (Record(0, 1, b"\0\0\0\5", b""),), producer_id=7, attributes=TRANSACTIONAL | CONTROL
    )
    assert not transactions.is_bare(read_header(other), other)
    short = write_batch((Record(0, 1, b"", b""),), producer_id=7, attributes=CONTROL)
    assert not transactions.is_bare(read_header(short), short)
