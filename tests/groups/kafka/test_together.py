"""Transactions that are committed together: all or none, once, and over a kill at any point."""

from __future__ import annotations

from itertools import count

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka.transactional_ids import (
    CommitTogether,
    OpenTransaction,
    TransactionalIdState,
)
from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.store.tables import Table
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_000_000
WEEK_MS = 7 * 86_400_000


def table(rows: dict[str, bytes] | None = None) -> Table:
    store = Store(MemoryDisk(), StoreConfig())
    store.open(NOW)
    made = store.table("transactions")
    made.put_many(list((rows or {}).items()))
    return made


def begun(rows: Table | None = None) -> TransactionCoordinator:
    return TransactionCoordinator(
        KafkaConfig(), table() if rows is None else rows, count(1000).__next__, NOW
    )


def opened(transactions: TransactionCoordinator, name: str) -> OpenTransaction:
    made = transactions.init_producer_id(name, 60_000, -1, -1, NOW)
    assert made.error == ErrorCode.NONE
    added = transactions.add_partitions(name, made.producer_id, made.epoch, [P0, P1], NOW)
    assert added == ErrorCode.NONE
    return OpenTransaction(name, made.producer_id, made.epoch)


def ended(transactions: TransactionCoordinator) -> dict[str, bool]:
    """Deliver all markers; whether each transaction was committed."""
    markings, transactions.markings = transactions.markings, []
    for marking in markings:
        transactions.marked(marking, marking.partitions, NOW)
    return {marking.transactional_id: marking.commit for marking in markings}


def test_all_are_committed_and_what_else_the_writer_has_is_aborted() -> None:
    transactions = begun()
    one, two, _ = (opened(transactions, name) for name in ("w:0", "w:1", "w:2"))
    opened(transactions, "w")
    opened(transactions, "other:0")
    asked = CommitTogether("w", 7, (one, two))
    assert transactions.commit_together(asked, NOW) == ErrorCode.NONE
    assert ended(transactions) == {"w:0": True, "w:1": True, "w:2": False}
    transactions.check()


def test_a_part_is_committed_once_and_an_earlier_one_not_any_more() -> None:
    transactions = begun()
    first = CommitTogether("w", 7, (opened(transactions, "w:0"),))
    assert transactions.commit_together(first, NOW) == ErrorCode.NONE
    again = transactions.commit_together(first, NOW)
    assert again == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert ended(transactions) == {"w:0": True}
    repeat, late = opened(transactions, "w:0"), opened(transactions, "w:1")
    for number, each in ((7, repeat), (6, late)):
        refused = transactions.commit_together(CommitTogether("w", number, (each,)), NOW)
        assert refused == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        assert ended(transactions) == {each.transactional_id: False}
    following = CommitTogether("w", 8, (opened(transactions, "w:0"),))
    assert transactions.commit_together(following, NOW) == ErrorCode.NONE
    assert ended(transactions) == {"w:0": True}


def test_a_late_request_for_a_part_that_is_over_leaves_the_next_part_alone() -> None:
    transactions = begun()
    first = CommitTogether("w", 7, (opened(transactions, "w:0"),))
    assert transactions.commit_together(first, NOW) == ErrorCode.NONE
    ended(transactions)
    following = CommitTogether("w", 8, (opened(transactions, "w:0"),))
    assert transactions.commit_together(first, NOW) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert transactions.commit_together(following, NOW) == ErrorCode.NONE
    assert ended(transactions) == {"w:0": True}


def test_one_that_is_over_refuses_all() -> None:
    transactions = begun()
    one, two, three = (opened(transactions, name) for name in ("w:0", "w:1", "w:2"))
    aborted = transactions.end(*(two.transactional_id, two.producer_id, two.producer_epoch), commit=False, now=NOW)  # fmt: skip
    assert aborted == ErrorCode.NONE
    ended(transactions)
    fenced = OpenTransaction("w:2", three.producer_id, three.producer_epoch - 1)
    for wrong, error in (
        (two, ErrorCode.INVALID_TXN_STATE),
        (fenced, ErrorCode.PRODUCER_FENCED),
        (OpenTransaction("w:9", 1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        assert transactions.commit_together(CommitTogether("w", 1, (one, wrong)), NOW) == error
    assert transactions.commit_together(CommitTogether("w", 1, ()), NOW) == ErrorCode.INVALID_REQUEST  # fmt: skip
    assert ended(transactions) == {}
    assert transactions.commit_together(CommitTogether("w", 1, (one,)), NOW) == ErrorCode.NONE


def test_a_kill_at_any_point_commits_all_or_none() -> None:
    """The write of a decision is cut after each of its rows."""
    rows = table()
    transactions = begun(rows)
    parts = tuple(opened(transactions, f"w:{n}") for n in range(3))
    before = dict(rows.items())
    asked = CommitTogether("w", 7, parts)
    assert transactions.commit_together(asked, NOW) == ErrorCode.NONE
    written = {name: value for name, value in rows.items() if before.get(name) != value}
    order = ["w", "w:0", "w:1", "w:2"]  # as they are written
    assert sorted(written) == order
    for cut in range(5):
        kept = {name: written[name] for name in order[:cut]}
        restored = begun(table(before | kept))
        again = restored.commit_together(asked, NOW)
        expected = ErrorCode.DUPLICATE_SEQUENCE_NUMBER if cut else ErrorCode.NONE
        assert again == expected
        assert ended(restored) == {"w:0": True, "w:1": True, "w:2": True}


def test_what_a_kill_left_undecided_survives_the_next_part_and_another_kill() -> None:
    rows = table()
    transactions = begun(rows)
    first = CommitTogether("w", 7, (opened(transactions, "w:0"), opened(transactions, "w:1")))
    before = dict(rows.items())
    assert transactions.commit_together(first, NOW) == ErrorCode.NONE
    decision_only = table(before | {"w": rows.get("w") or b""})
    restored = begun(decision_only)
    following = CommitTogether("w", 8, (opened(restored, "w:2"),))
    assert restored.commit_together(following, NOW) == ErrorCode.NONE
    again = begun(decision_only)  # no marker was written before the second kill
    assert ended(again) == {"w:0": True, "w:1": True, "w:2": True}


def test_the_writer_is_remembered_when_unused_ids_are_forgotten() -> None:
    transactions = begun()
    first = CommitTogether("w", 7, (opened(transactions, "w:0"),))
    assert transactions.commit_together(first, NOW) == ErrorCode.NONE
    ended(transactions)
    transactions.due(NOW + WEEK_MS + 1)
    assert [each.transactional_id for each in transactions.all()] == ["w"]
    (writer,) = transactions.all()
    assert (writer.state, writer.decided) == (TransactionalIdState.EMPTY, first)
    repeat = CommitTogether("w", 7, (opened(transactions, "w:0"),))
    assert transactions.commit_together(repeat, NOW) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
