"""What the witness of simulated Kafka producers takes for a broken rule."""

from __future__ import annotations

import pytest

from steelyard.sim.kafka.producers.committed_view import PartitionEnd
from steelyard.sim.kafka.producers.witness import KafkaTransactionWitness
from steelyard.sim.kafka.producers.written import ProducedTransaction, Span
from steelyard.sim.world import Violation

ID = "application"


@pytest.fixture
def witness() -> KafkaTransactionWitness:
    return KafkaTransactionWitness()


def transaction(
    witness: KafkaTransactionWitness,
    *partitions: int,
    epoch: int = 0,
    span: Span | None = None,
    commit: bool = True,
) -> ProducedTransaction:
    """Return a transaction with a record in each of these partitions, whose end was asked for."""
    found = witness.begins("producer", ID, epoch, span)
    for partition in partitions:
        witness.writes(partition, ID, epoch, found)
    found.asks_commit = commit
    return found


def read_to_end(witness: KafkaTransactionWitness, *ends: int) -> None:
    for partition, end in enumerate(ends):
        witness.view.reached(partition, end, PartitionEnd(end, end))


# -- reading ---------------------------------------------------------------------------------------


def test_a_record_is_read_where_it_was_written(witness: KafkaTransactionWitness) -> None:
    value = witness.writes(0, "producer 1", 0)
    with pytest.raises(Violation, match=r"offset 5 of partition 1 has .*nobody has written there"):
        witness.view.read(1, 5, value)
    with pytest.raises(Violation, match="nobody has written there"):
        witness.view.read(0, 5, b"something else")


def test_a_record_is_read_once(witness: KafkaTransactionWitness) -> None:
    value = witness.writes(0, "producer 1", 0)
    witness.view.read(0, 5, value)
    with pytest.raises(Violation, match=r"which is at \(0, 5\) as well"):
        witness.view.read(0, 7, value)


def test_records_are_in_the_order_of_their_producer(witness: KafkaTransactionWitness) -> None:
    first, second = (witness.writes(0, "producer 1", 0) for _ in range(2))
    other = witness.writes(0, "producer 2", 0)
    witness.view.read(0, 0, second)
    witness.view.read(0, 1, other)
    with pytest.raises(Violation, match="comes after a later one"):
        witness.view.read(0, 2, first)


def test_a_producer_writes_nothing_after_its_successor(witness: KafkaTransactionWitness) -> None:
    """Its transaction began later, but in an earlier epoch."""
    successor, late = transaction(witness, 0, epoch=1), transaction(witness, 0, epoch=0)
    witness.view.read(0, 0, successor.values[0])
    with pytest.raises(Violation, match="comes after a later one"):
        witness.view.read(0, 1, late.values[0])


def test_what_is_not_committed_is_not_read(witness: KafkaTransactionWitness) -> None:
    open_, aborted = transaction(witness, 0, commit=False), transaction(witness, 0)
    with pytest.raises(Violation, match="whose transaction is not committed"):
        witness.view.read(0, 0, open_.values[0])
    witness.ended(aborted, commit=False)
    with pytest.raises(Violation, match="whose transaction is aborted"):
        witness.view.read(0, 0, aborted.values[0])


def test_what_was_read_is_not_aborted(witness: KafkaTransactionWitness) -> None:
    found = transaction(witness, 0)
    witness.view.read(0, 0, found.values[0])
    with pytest.raises(Violation, match="was read, and its transaction is aborted"):
        witness.ended(found, commit=False)


def test_nothing_is_read_beyond_the_last_stable_offset(witness: KafkaTransactionWitness) -> None:
    with pytest.raises(Violation, match="up to 4, beyond its last stable offset 3"):
        witness.view.reached(0, 4, PartitionEnd(3, 4))


def test_another_reading_has_the_same_records(witness: KafkaTransactionWitness) -> None:
    first, second = (witness.writes(0, "producer 1", 0) for _ in range(2))
    witness.view.read(0, 0, first)
    witness.view.reached(0, 1, PartitionEnd(1, 1))
    witness.reads_anew()
    for offset, value in ((1, first), (0, second)):
        with pytest.raises(Violation, match="which another reader did not get there"):
            witness.view.read(0, offset, value)


def test_what_was_read_once_does_not_disappear(witness: KafkaTransactionWitness) -> None:
    witness.view.read(0, 0, witness.writes(0, "producer 1", 0))
    witness.reads_anew()
    read_to_end(witness, 1)
    assert "was read before at (0, 0), and is gone" in (witness.incomplete(1) or "")


# -- acknowledgements ------------------------------------------------------------------------------


def test_who_was_replaced_is_not_acknowledged(witness: KafkaTransactionWitness) -> None:
    found = transaction(witness, 0)
    assert not witness.is_replaced(ID, 0)
    witness.initialized(ID, 1)
    assert witness.is_replaced(ID, 0)
    assert not witness.is_replaced(ID, 1)
    with pytest.raises(Violation, match="of a producer that was replaced is acknowledged"):
        witness.acknowledged(found.values, was_replaced=True)
    with pytest.raises(Violation, match="replaced in epoch 0 ends its transaction"):
        witness.ended(found, commit=True, was_replaced=True)


def test_what_follows_the_acknowledged_is_in_order(witness: KafkaTransactionWitness) -> None:
    with pytest.raises(Violation, match="sequence 3 of producer in partition 1 is called out of"):
        witness.out_of_order("producer", 1, 3)


# -- offsets ---------------------------------------------------------------------------------------


def test_an_offset_comes_with_its_transaction(witness: KafkaTransactionWitness) -> None:
    open_ = transaction(witness, 0, span=(0, 3), commit=False)
    with pytest.raises(Violation, match="the offset of 'application' is 3: no such commit"):
        witness.fetched(ID, 3, 0, stable=False)
    open_.asks_commit = True
    witness.fetched(ID, 3, 0, stable=False)
    assert witness.floor(ID, stable=False) == 3


def test_a_committed_offset_is_there_for_those_who_want_stable_ones(
    witness: KafkaTransactionWitness,
) -> None:
    witness.ended(transaction(witness, 0, span=(0, 3)), commit=True)
    assert (witness.floor(ID, stable=True), witness.floor(ID, stable=False)) == (3, 0)
    witness.fetched(ID, 0, witness.floor(ID, stable=False), stable=False)
    with pytest.raises(Violation, match="the stable offset of 'application' is 0, it was 3"):
        witness.fetched(ID, 0, witness.floor(ID, stable=True), stable=True)


def test_an_offset_does_not_go_back(witness: KafkaTransactionWitness) -> None:
    transaction(witness, 0, span=(0, 3))
    witness.fetched(ID, 3, 0, stable=False)
    with pytest.raises(Violation, match="the offset of 'application' is 0, it was 3"):
        witness.fetched(ID, 0, witness.floor(ID, stable=False), stable=False)


# -- the end ---------------------------------------------------------------------------------------


def test_transactions_that_are_whole(witness: KafkaTransactionWitness) -> None:
    committed = transaction(witness, 0, 1, span=(0, 2))
    unknown = transaction(witness, 0, span=(2, 5))
    nowhere = transaction(witness, 0, 1, span=(5, 6))
    aborted = transaction(witness, 1, commit=False)
    witness.ended(committed, commit=True)
    witness.ended(aborted, commit=False)
    for offset, value in enumerate([committed.values[0], *unknown.values]):
        witness.view.read(0, offset, value)
    witness.view.read(1, 0, committed.values[1])
    assert witness.incomplete(1) == "partition 0 was not read"
    read_to_end(witness, 4, 2)
    assert witness.incomplete(2) == ("application has processed up to 5, its group's offset is 0")
    witness.fetched(ID, 5, 0, stable=True)
    assert witness.incomplete(2) is None
    assert nowhere.outcome is None
    assert witness.counts() == {
        "kafka_records_acknowledged": 0,
        "kafka_transactions_committed": 1,
        "kafka_transactions_aborted": 1,
        "kafka_transactions_unknown": 2,
        "kafka_fenced": 0,
    }


def test_a_transaction_that_is_open(witness: KafkaTransactionWitness) -> None:
    witness.view.reached(0, 3, PartitionEnd(3, 7))
    assert witness.incomplete(1) == "a transaction is open in partition 0 from 3 on"
    witness.view.reached(0, 3, PartitionEnd(7, 7))
    assert witness.incomplete(1) == "partition 0 was not read from 3 on"


def test_transactions_that_are_not_whole(witness: KafkaTransactionWitness) -> None:
    found = transaction(witness, 0, 1)
    read_to_end(witness, 2, 2)
    assert witness.incomplete(2) is None
    witness.view.read(0, 0, found.values[0])
    assert "a transaction of application is there in part" in (witness.incomplete(2) or "")
    witness.ended(found, commit=True)
    assert "a transaction of application was committed" in (witness.incomplete(2) or "")


def test_acknowledged_records_are_there(witness: KafkaTransactionWitness) -> None:
    value = witness.writes(0, "producer 1", 0)
    read_to_end(witness, 1)
    assert witness.incomplete(1) is None
    witness.acknowledged([value])
    assert witness.incomplete(1) == f"{value!r} was acknowledged, and is missing"


def test_what_was_processed_twice(witness: KafkaTransactionWitness) -> None:
    for offset, span in enumerate([(0, 3), (2, 4)]):
        found = transaction(witness, 0, span=span)
        witness.ended(found, commit=True)
        witness.view.read(0, offset, found.values[0])
    read_to_end(witness, 4)
    assert witness.incomplete(1) == "application has processed up to 3, and then from 2 on"


def test_every_producer_goes_on_after_the_faults(witness: KafkaTransactionWitness) -> None:
    witness.joined("producer")
    witness.joined("gone")
    read_to_end(witness, 1)
    witness.is_wanted = lambda name: name != "gone"
    assert witness.wants("producer")
    witness.heal()
    assert witness.incomplete(1) == "producer has written nothing since the faults"
    for _ in range(2):
        assert witness.wants("producer")
        witness.achieved("producer")
    assert not witness.wants("producer")
    assert witness.incomplete(1) is None
