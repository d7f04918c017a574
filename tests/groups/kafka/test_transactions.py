"""The transaction coordinator: who may write, what is decided, what must be marked."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.edges import assert_every_edge
from tests.examples import examples

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka.transactional_ids import (
    EPOCH_MAX,
    PREPARED,
    TRANSACTIONS,
    Marking,
    TransactionalIdState,
)
from steelyard.groups.kafka.transactions import SCAN_INTERVAL_MS, TransactionCoordinator
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.store.tables import Table
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_000_000
TIMEOUT_MS = 60_000


def table() -> Table:
    store = Store(MemoryDisk(), StoreConfig())
    store.open(NOW)
    return store.table("transactions")


def begun(rows: Table | None = None) -> TransactionCoordinator:
    return TransactionCoordinator(
        KafkaConfig(), table() if rows is None else rows, count(1000).__next__, NOW
    )


def init(transactions: TransactionCoordinator, name: str = "tx") -> tuple[int, int]:
    producer = transactions.init_producer_id(name, TIMEOUT_MS, -1, -1, NOW)
    assert producer.error == ErrorCode.NONE
    return producer.producer_id, producer.epoch


def deliver(transactions: TransactionCoordinator) -> list[Marking]:
    """All markers, written."""
    markings, transactions.markings = transactions.markings, []
    for marking in markings:
        transactions.marked(marking, marking.partitions, NOW)
    return markings


def test_a_transaction_from_begin_to_commit() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    assert transactions.add_partitions("tx", producer_id, epoch, [P0], NOW) == ErrorCode.NONE
    assert transactions.add_partitions("tx", producer_id, epoch, [P1], NOW) == ErrorCode.NONE
    assert transactions.verify("tx", producer_id, epoch) == ErrorCode.NONE
    assert transactions.end("tx", producer_id, epoch, commit=True, now=NOW) == ErrorCode.NONE
    again = transactions.end("tx", producer_id, epoch, commit=True, now=NOW)
    assert again == ErrorCode.CONCURRENT_TRANSACTIONS  # decided, not yet marked everywhere
    (marking,) = deliver(transactions)
    assert marking == Marking("tx", producer_id, epoch, True, (P0, P1))
    assert transactions.end("tx", producer_id, epoch, commit=True, now=NOW) == ErrorCode.NONE
    other = transactions.end("tx", producer_id, epoch, commit=False, now=NOW)
    assert other == ErrorCode.INVALID_TXN_STATE


def test_it_is_complete_when_every_partition_is_marked() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    transactions.add_partitions("tx", producer_id, epoch, [P0, P1], NOW)
    transactions.end("tx", producer_id, epoch, commit=False, now=NOW)
    (marking,) = transactions.markings
    transactions.marked(marking, [P1], NOW)
    found = transactions.get("tx")
    assert found is not None
    assert found.state == TransactionalIdState.PREPARE_ABORT
    transactions.marked(marking, [P0], NOW)
    found = transactions.get("tx")
    assert found is not None
    assert found.state == TransactionalIdState.COMPLETE_ABORT


def test_a_new_producer_fences_the_old_one() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    assert init(transactions) == (producer_id, epoch + 1)
    fenced = transactions.add_partitions("tx", producer_id, epoch, [P0], NOW)
    assert fenced == ErrorCode.PRODUCER_FENCED
    fenced = transactions.end("tx", producer_id, epoch, commit=True, now=NOW)
    assert fenced == ErrorCode.PRODUCER_FENCED


def test_a_new_producer_aborts_what_the_old_one_left() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    transactions.add_partitions("tx", producer_id, epoch, [P0], NOW)
    busy = transactions.init_producer_id("tx", TIMEOUT_MS, -1, -1, NOW)
    assert busy.error == ErrorCode.CONCURRENT_TRANSACTIONS
    (marking,) = deliver(transactions)
    assert not marking.commit
    assert marking.producer_epoch == epoch + 1
    assert init(transactions) == (producer_id, epoch + 2)


def test_a_transaction_past_its_time_out_is_aborted() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    transactions.add_partitions("tx", producer_id, epoch, [P0], NOW)
    transactions.due(NOW + TIMEOUT_MS)
    assert not transactions.markings
    transactions.due(NOW + TIMEOUT_MS + SCAN_INTERVAL_MS)
    (marking,) = deliver(transactions)
    assert not marking.commit
    late = transactions.end("tx", producer_id, epoch, commit=True, now=NOW)
    assert late == ErrorCode.PRODUCER_FENCED


def test_a_clock_that_was_set_back_before_a_restart_delays_no_time_out() -> None:
    """Until the restart the coordinator's time went on from where it was, ahead of the clock."""
    rows = table()
    transactions = begun(rows)
    producer_id, epoch = init(transactions)
    transactions.add_partitions("tx", producer_id, epoch, [P0], NOW + 100 * TIMEOUT_MS)
    again = begun(rows)
    again.due(NOW + TIMEOUT_MS)
    assert not again.markings
    again.due(NOW + TIMEOUT_MS + SCAN_INTERVAL_MS)
    (marking,) = deliver(again)
    assert not marking.commit


def test_an_exhausted_epoch_renews_the_id() -> None:
    rows = table()
    transactions = begun(rows)
    producer_id, _ = init(transactions)
    found = transactions.get("tx")
    assert found is not None
    found.producer_epoch = EPOCH_MAX
    new_id, epoch = init(transactions)
    assert new_id != producer_id
    assert epoch == 0


def test_a_producer_asks_again_for_its_bumped_epoch() -> None:
    """KIP-360: the answer to the bump was lost, the client repeats it with the epoch it had."""
    transactions = begun()
    producer_id, epoch = init(transactions)
    first = transactions.init_producer_id("tx", TIMEOUT_MS, producer_id, epoch, NOW)
    again = transactions.init_producer_id("tx", TIMEOUT_MS, producer_id, epoch, NOW)
    assert first == again
    assert first.epoch == epoch + 1
    other = transactions.init_producer_id("tx", TIMEOUT_MS, producer_id + 1, epoch, NOW)
    assert other.error == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", TIMEOUT_MS, ErrorCode.INVALID_REQUEST),
        ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_bad_beginnings(name: str, timeout_ms: int, error: ErrorCode) -> None:
    assert begun().init_producer_id(name, timeout_ms, -1, -1, NOW).error == error


def test_strangers() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    for name, theirs in (("other", producer_id), ("tx", producer_id + 1)):
        error = transactions.end(name, theirs, epoch, commit=True, now=NOW)
        assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nothing = transactions.end("tx", producer_id, epoch, commit=True, now=NOW)
    assert nothing == ErrorCode.INVALID_TXN_STATE


def test_unused_ids_are_forgotten() -> None:
    rows = table()
    transactions = begun(rows)
    init(transactions)
    transactions.due(NOW + KafkaConfig().transactional_id_expiration_ms - 1)
    assert transactions.get("tx") is not None
    transactions.due(NOW + KafkaConfig().transactional_id_expiration_ms)
    assert transactions.get("tx") is None
    assert not len(rows)


class Life(RuleBasedStateMachine):
    """Producers come, write, end, vanish; markers are delivered late; the broker restarts at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = table()
        self.ids = count(1)
        self.transactions = self.restarted()
        self.latest = (-1, -1)
        self.decided: dict[tuple[int, int], bool] = {}
        self.epochs: dict[int, int] = {}

    def restarted(self) -> TransactionCoordinator:
        return TransactionCoordinator(KafkaConfig(), self.rows, self.ids.__next__, NOW)

    @rule()
    def begin(self) -> None:
        producer = self.transactions.init_producer_id("tx", TIMEOUT_MS, -1, -1, NOW)
        if producer.error == ErrorCode.NONE:
            assert producer.epoch > self.epochs.get(producer.producer_id, -1)
            self.epochs[producer.producer_id] = producer.epoch
            self.latest = (producer.producer_id, producer.epoch)

    @precondition(lambda self: self.latest[0] >= 0)
    @rule(partition=st.sampled_from((P0, P1)))
    def write(self, partition: TopicPartition) -> None:
        self.transactions.add_partitions("tx", *self.latest, [partition], NOW)

    @precondition(lambda self: self.latest[0] >= 0)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        found = self.transactions.get("tx")
        assert found is not None
        was_ongoing = found.state == TransactionalIdState.ONGOING
        error = self.transactions.end("tx", *self.latest, commit=commit, now=NOW)
        if error == ErrorCode.NONE and was_ongoing:
            self.decided[self.latest] = commit

    @precondition(lambda self: self.latest[0] >= 0)
    @rule(commit=st.booleans(), loses_answer=st.booleans())
    def end_and_bump(self, commit: bool, loses_answer: bool) -> None:
        """By a client of version 2; it may ask again with the epoch that it had."""
        old = self.latest
        ended = self.transactions.end_and_bump("tx", *old, commit=commit, now=NOW)
        if ended.error == ErrorCode.NONE:
            new = (ended.producer_id, ended.epoch)
            assert new == (old[0], old[1] + 1)
            found = self.transactions.get("tx")
            assert found is not None
            if found.state in PREPARED:
                self.decided[new] = commit
            if not loses_answer:
                self.epochs[ended.producer_id] = ended.epoch
                self.latest = new

    @rule(late=st.sampled_from((P0, P1)))
    def deliver_some(self, late: TopicPartition) -> None:
        markings, self.transactions.markings = self.transactions.markings, []
        for marking in markings:
            self.transactions.marked(marking, [p for p in marking.partitions if p != late], NOW)
            found = self.transactions.get("tx")
            assert found is not None
            if found.state not in (
                TransactionalIdState.COMPLETE_ABORT,
                TransactionalIdState.COMPLETE_COMMIT,
            ):
                self.transactions.markings.append(marking)

    @rule()
    def deliver_all(self) -> None:
        for marking in deliver(self.transactions):
            key = (marking.producer_id, marking.producer_epoch)
            if key in self.decided:
                assert marking.commit == self.decided[key]
                del self.decided[key]
            else:
                assert not marking.commit or key == self.latest

    @rule()
    def restart(self) -> None:
        self.transactions = self.restarted()

    @invariant()
    def holds(self) -> None:
        self.transactions.check()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(60), stateful_step_count=40)


# -- the machine ----------------------------------------------------------------------------------


def states_survive_a_restart_and_a_handover() -> None:
    """Ids in every state; another coordinator takes over all that are not decided."""
    rows = table()
    transactions = begun(rows)
    for name in ("empty", "ongoing", "commit", "abort", "committed", "aborted", "taken"):
        producer_id, epoch = init(transactions, name)
        if name != "empty":
            transactions.add_partitions(name, producer_id, epoch, [P0, P1], NOW)
        if name.startswith(("commit", "abort")):
            commit = name.startswith("commit")
            assert transactions.end(name, producer_id, epoch, commit=commit, now=NOW) == 0
    for marking in transactions.markings:
        parts = [P0, P1] if marking.transactional_id.endswith("ted") else [P0]
        transactions.marked(marking, parts, NOW)
    again = begun(rows)
    assert [each.state for each in again.all()] == [each.state for each in transactions.all()]
    other = begun()
    init(other, "taken")
    moved, more = again.offered(lambda _: True, 100)
    assert more
    for each in moved:
        other.take(each)
    assert [marking.transactional_id for marking in other.markings] == ["taken"]
    for name in ("committed", "aborted"):
        found = other.get(name)
        assert found is not None
        parts_added = other.add_partitions(name, found.producer_id, found.producer_epoch, [P0], NOW)
        assert parts_added == ErrorCode.NONE
    for name in ("committed", "aborted"):
        init(again, name)
    other.check()
    again.check()


def nothing_written_is_aborted() -> None:
    """By a client of version 2, in each state in which no transaction is under way."""
    transactions = begun()
    producer_id, epoch = init(transactions)
    for name in ("Empty", "CompleteAbort", "CompleteCommit"):
        if name == "CompleteCommit":
            transactions.add_partitions("tx", producer_id, epoch, [P0], NOW)
            transactions.end("tx", producer_id, epoch, commit=True, now=NOW)
            deliver(transactions)
        found = transactions.get("tx")
        assert found is not None
        assert found.state == name
        ended = transactions.end_and_bump("tx", producer_id, epoch, commit=False, now=NOW)
        assert ended.error == ErrorCode.NONE
        epoch = ended.epoch
        deliver(transactions)


def test_every_edge_of_a_transaction_is_taken() -> None:
    assert_every_edge(
        TRANSACTIONS,
        test_a_transaction_from_begin_to_commit,
        test_a_new_producer_aborts_what_the_old_one_left,
        test_it_is_complete_when_every_partition_is_marked,
        test_a_transaction_past_its_time_out_is_aborted,
        states_survive_a_restart_and_a_handover,
        nothing_written_is_aborted,
    )
