"""Transactions of version 2 (KIP-890): each end of a transaction bumps the epoch of its producer."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from tests.groups.kafka.test_transactions import (
    NOW,
    P0,
    P1,
    TIMEOUT_MS,
    begun,
    deliver,
    init,
    table,
)

from steelyard.config import KafkaConfig
from steelyard.groups.kafka.transactional_ids import (
    BUMPS_EPOCH,
    EPOCH_LIMIT,
    EPOCH_MAX,
    Marking,
    ProducerIdAndEpoch,
    Transaction,
    TransactionalIdState,
)
from steelyard.groups.kafka.transactions import SCAN_INTERVAL_MS, TransactionCoordinator
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

E = ErrorCode
State = TransactionalIdState


def write(
    transactions: TransactionCoordinator, producer: tuple[int, int], *partitions: TopicPartition
) -> ErrorCode:
    """What the leader of partitions asks for before their first record of a transaction."""
    return transactions.add_partitions("tx", *producer, partitions, NOW, version=BUMPS_EPOCH)


def end(
    transactions: TransactionCoordinator, producer: tuple[int, int], *, commit: bool
) -> ErrorCode | tuple[int, int]:
    """The next producer id and epoch, or the error."""
    ended = transactions.end_and_bump("tx", *producer, commit=commit, now=NOW)
    if ended.error:
        assert ended == ProducerIdAndEpoch(ended.error)
        return ended.error
    return ended.producer_id, ended.epoch


def state(transactions: TransactionCoordinator) -> Transaction:
    found = transactions.get("tx")
    assert found is not None
    return found


@pytest.mark.parametrize("commit", [True, False])
def test_each_end_bumps_the_epoch(commit: bool) -> None:
    transactions = begun()
    producer_id, epoch = producer = init(transactions)
    for number in range(1, 5):
        assert write(transactions, producer, P0) == E.NONE
        assert write(transactions, producer, P0, P1) == E.NONE
        old, producer = producer, end(transactions, producer, commit=commit)  # type: ignore[assignment]
        assert producer == (producer_id, epoch + number)
        assert end(transactions, old, commit=commit) == E.CONCURRENT_TRANSACTIONS
        assert write(transactions, producer, P0) == E.CONCURRENT_TRANSACTIONS
        assert write(transactions, old, P0) == E.CONCURRENT_TRANSACTIONS
        assert deliver(transactions) == [Marking("tx", *producer, commit, (P0, P1), BUMPS_EPOCH)]
        assert write(transactions, old, P0) == E.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_repeated_with_the_epoch_that_it_had(commit: bool) -> None:
    rows = table()
    transactions = begun(rows)
    producer = init(transactions)
    write(transactions, producer, P0)
    answer = end(transactions, producer, commit=commit)
    deliver(transactions)
    for coordinator in (transactions, begun(rows)):
        assert end(coordinator, producer, commit=commit) == answer
        assert end(coordinator, producer, commit=not commit) == E.INVALID_TXN_STATE
        assert not coordinator.markings


def ready(name: str) -> tuple[TransactionCoordinator, tuple[int, int]]:
    """A coordinator whose transactional id has this state, and what its producer writes with."""
    transactions = begun()
    producer = init(transactions)
    if name != State.EMPTY:
        write(transactions, producer, P0)
    if name not in (State.EMPTY, State.ONGOING):
        producer = end(transactions, producer, commit=name.endswith("Commit"))  # type: ignore[assignment]
    if name.startswith("Complete"):
        deliver(transactions)
    assert state(transactions).state == name
    return transactions, producer


NEXT, REFUSED, BUSY = "next", E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("name", "committed", "aborted"),
    [
        (State.EMPTY, REFUSED, NEXT),
        (State.ONGOING, NEXT, NEXT),
        (State.PREPARE_COMMIT, BUSY, BUSY),
        (State.PREPARE_ABORT, BUSY, BUSY),
        (State.COMPLETE_COMMIT, REFUSED, NEXT),
        (State.COMPLETE_ABORT, REFUSED, NEXT),
    ],
)
def test_the_ends_of_each_state(name: str, committed: object, aborted: object) -> None:
    """A client may abort a transaction of which the coordinator knows nothing; the table is Kafka's."""
    for commit, expected in ((True, committed), (False, aborted)):
        transactions, (producer_id, epoch) = ready(name)
        answer = end(transactions, (producer_id, epoch), commit=commit)
        assert answer == ((producer_id, epoch + 1) if expected == NEXT else expected)
        if expected == NEXT:
            deliver(transactions)
            decided = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
            assert state(transactions).state is decided
            assert state(transactions).started_at == NOW
        transactions.check()


@pytest.mark.parametrize("name", list(State))
@pytest.mark.parametrize("commit", [True, False])
def test_other_epochs_are_fenced(name: str, commit: bool) -> None:
    if name.startswith("Prepare"):
        return
    for distance in (-3, -2, 1, 2):
        transactions, (producer_id, epoch) = ready(name)
        other = (producer_id, epoch + distance)
        assert end(transactions, other, commit=commit) == E.PRODUCER_FENCED
        stranger = (producer_id + 1, epoch)
        assert end(transactions, stranger, commit=commit) == E.INVALID_PRODUCER_ID_MAPPING


def test_no_id_and_unknown_ids() -> None:
    transactions = begun()
    for name, error in (("", E.INVALID_REQUEST), ("other", E.INVALID_PRODUCER_ID_MAPPING)):
        ended = transactions.end_and_bump(name, 1, 0, commit=False, now=NOW)
        assert ended == ProducerIdAndEpoch(error)
        verified = transactions.verify_partitions(name, 1, 0, [P0])
        assert verified == {P0: error}


def test_partitions_are_verified() -> None:
    transactions = begun()
    producer = init(transactions)
    verify = transactions.verify_partitions
    assert verify("tx", *producer, [P0]) == {P0: E.TRANSACTION_ABORTABLE}
    transactions.add_partitions("tx", *producer, [P0], NOW)
    assert verify("tx", *producer, [P0, P1]) == {P0: E.NONE, P1: E.TRANSACTION_ABORTABLE}
    assert verify("tx", producer[0], 7, [P0]) == {P0: E.PRODUCER_FENCED}
    transactions.end("tx", *producer, commit=True, now=NOW)
    assert verify("tx", *producer, [P0, P1]) == dict.fromkeys([P0, P1], E.CONCURRENT_TRANSACTIONS)
    deliver(transactions)
    assert verify("tx", *producer, [P0]) == {P0: E.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("commit", [True, False])
def test_after_the_last_epoch_comes_another_producer_id(commit: bool) -> None:
    rows = table()
    transactions = begun(rows)
    old_id, _ = init(transactions)
    state(transactions).producer_epoch = EPOCH_MAX
    write(transactions, (old_id, EPOCH_MAX), P0)
    answer = end(transactions, (old_id, EPOCH_MAX), commit=commit)
    assert answer == (old_id + 1, 0)
    transactions = TransactionCoordinator(KafkaConfig(), rows, count(2000).__next__, NOW)
    assert write(transactions, (old_id + 1, 0), P0) == E.CONCURRENT_TRANSACTIONS
    (marking,) = deliver(transactions)
    assert (marking.producer_id, marking.producer_epoch) == (old_id, EPOCH_LIMIT)
    assert end(transactions, (old_id, EPOCH_MAX), commit=commit) == answer
    asked_again = transactions.init_producer_id("tx", TIMEOUT_MS, old_id, EPOCH_MAX, NOW)
    assert asked_again == ProducerIdAndEpoch(E.NONE, old_id + 1, 0)
    assert write(transactions, (old_id + 1, 0), P0) == E.NONE
    fenced = end(transactions, (old_id, EPOCH_MAX), commit=commit)
    assert fenced == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_the_coordinator_aborts_itself(level: int) -> None:
    """By the cluster's level: with 2 the client may abort as well, and goes on with the next epoch."""
    transactions = TransactionCoordinator(
        KafkaConfig(), table(), count(1000).__next__, NOW, version=lambda: level
    )
    producer_id, epoch = init(transactions)
    write(transactions, (producer_id, epoch), P0)
    transactions.due(NOW + TIMEOUT_MS + SCAN_INTERVAL_MS)
    (marking,) = deliver(transactions)
    assert marking == Marking("tx", producer_id, epoch + 1, False, (P0,), level)
    assert transactions.end("tx", producer_id, epoch, commit=False, now=NOW) == E.PRODUCER_FENCED
    late = end(transactions, (producer_id, epoch), commit=True)
    again = end(transactions, (producer_id, epoch), commit=False)
    if level < BUMPS_EPOCH:
        assert (late, again) == (E.PRODUCER_FENCED, E.PRODUCER_FENCED)
    else:
        assert (late, again) == (E.INVALID_TXN_STATE, (producer_id, epoch + 1))


def test_a_new_producer_fences_the_old_one() -> None:
    transactions = begun()
    old = init(transactions)
    write(transactions, old, P0)
    busy = transactions.init_producer_id("tx", TIMEOUT_MS, -1, -1, NOW)
    assert busy.error == E.CONCURRENT_TRANSACTIONS
    deliver(transactions)
    new = init(transactions)
    assert new == (old[0], old[1] + 2)
    for commit in (True, False):
        assert end(transactions, old, commit=commit) == E.PRODUCER_FENCED
    assert write(transactions, old, P0) == E.PRODUCER_FENCED
    assert write(transactions, new, P0) == E.NONE


def test_a_fence_may_use_up_the_epochs() -> None:
    transactions = begun()
    old_id, _ = init(transactions)
    state(transactions).producer_epoch = EPOCH_MAX
    write(transactions, (old_id, EPOCH_MAX), P0)
    transactions.init_producer_id("tx", TIMEOUT_MS, -1, -1, NOW)
    deliver(transactions)
    assert init(transactions) == (old_id + 1, 1)


def test_clients_of_both_versions_take_turns() -> None:
    transactions = begun()
    producer_id, epoch = init(transactions)
    write(transactions, (producer_id, epoch), P0)
    end(transactions, (producer_id, epoch), commit=True)
    deliver(transactions)
    older = init(transactions)
    assert older == (producer_id, epoch + 2)
    for _ in range(2):
        assert transactions.add_partitions("tx", *older, [P1], NOW) == E.NONE
        assert transactions.end("tx", *older, commit=True, now=NOW) == E.NONE
        assert deliver(transactions) == [Marking("tx", *older, True, (P1,))]
        for commit in (True, False):
            replaced = end(transactions, (producer_id, epoch + 1), commit=commit)
            assert replaced == E.PRODUCER_FENCED
    newer = init(transactions)
    assert newer == (producer_id, epoch + 3)
    write(transactions, newer, P0)
    assert end(transactions, newer, commit=True) == (producer_id, epoch + 4)
    assert transactions.end("tx", *older, commit=True, now=NOW) == E.PRODUCER_FENCED


def test_rows_of_earlier_versions_are_read() -> None:
    rows = table()
    transactions = begun(rows)
    producer = init(transactions)
    transactions.add_partitions("tx", *producer, [P0], NOW)
    transactions.end("tx", *producer, commit=True, now=NOW)
    row = msgspec.json.decode(rows.get("tx") or b"")
    for added in ("next_producer_id", "client_version"):
        del row[added]
    rows.put("tx", msgspec.json.encode(row))
    transactions = begun(rows)
    assert deliver(transactions) == [Marking("tx", *producer, True, (P0,))]
    assert write(transactions, producer, P0) == E.NONE
