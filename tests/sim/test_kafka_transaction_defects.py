"""Defects planted in what brokers do for Kafka's producers, which the simulator must find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.sim.planted import run

from steelyard.groups.kafka import transactions
from steelyard.groups.kafka.committing import Committing
from steelyard.groups.kafka.transactional_ids import (
    Marking,
    Move,
    Transaction,
    TransactionalIdState,
    ended,
    markers_of,
)
from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.nodes.broker.kafka.data.producer_states import LogProducers
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.transactions.offsets import TxnOffsets
from steelyard.sim.scenario import Fault, Scenario
from steelyard.store.log import Log
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

CALM = Scenario(
    brokers=2,
    members=1,
    messages=30,
    kafka_producers=4,
    kafka_transactional=3,
    kafka_transactional_ids=2,
    kafka_transaction_version="both",
    kafka_transaction_timeout_ms=5_000,
    settle_ms=60_000,
)
"""Two applications share an id, so that each replaces the other."""
FAULTY = replace(
    CALM,
    messages=100,
    faults=(
        Fault(kind="break_links", at_ms=6_000, count=10),
        Fault(kind="kill_broker", target="broker-a", at_ms=8_000, for_ms=500),
        Fault(kind="kill_member", target="kafka-producer-0", at_ms=10_000, for_ms=2_000),
        Fault(kind="break_links", at_ms=11_000, count=10),
        Fault(kind="partition", target="broker-b", at_ms=12_000, for_ms=5_000),
        Fault(kind="kill_broker", target="broker-a", at_ms=14_000, for_ms=500),
        Fault(kind="kill_member", target="kafka-producer-1", at_ms=18_000),
        Fault(kind="stall", target="kafka-producer-2", at_ms=19_000, for_ms=7_000),
    ),
)
"""A coordinator dies while it cannot reach the other broker; an application never comes back."""
SEEDS = range(6)


def failure(scenario: Scenario) -> str:
    """The first failure of some seeds."""
    for seed in SEEDS:
        found = run(replace(scenario, seed=seed)).failure
        if found is not None:
            return found
    raise AssertionError("not found")


@pytest.mark.parametrize("version", ["1", "2", "both"])
@pytest.mark.parametrize("scenario", [CALM, FAULTY], ids=["calm", "faulty"])
def test_sound_brokers(scenario: Scenario, version: str) -> None:
    outcome = run(replace(scenario, seed=2, kafka_transaction_version=version))
    assert outcome.failure is None
    counts = outcome.counts
    assert counts["kafka_records_acknowledged"] > 50
    assert counts["kafka_transactions_committed"] >= 8
    assert counts["kafka_transactions_aborted"] > 0
    assert counts["kafka_fenced"] > 0


def test_a_coordinator_that_forgets_markers_when_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored = TransactionCoordinator.__init__

    def restore(self: TransactionCoordinator, *arguments: Any, **options: Any) -> None:
        restored(self, *arguments, **options)
        self.markings = []

    monkeypatch.setattr(TransactionCoordinator, "__init__", restore)
    assert "a transaction is open" in failure(FAULTY)


def test_a_coordinator_that_marks_one_partition_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = TransactionCoordinator.marked

    def mark(
        self: TransactionCoordinator, marking: Marking, places: Iterable[TopicPartition], now: int
    ) -> None:
        found = self._all.get(marking.transactional_id)
        one = [TopicPartition(*each) for each in sorted(found.partitions if found else ())[-1:]]
        marked(self, marking, [*places, *one], now)

    def markers(decided: Transaction) -> Marking:
        found = markers_of(decided)
        return msgspec.structs.replace(found, partitions=found.partitions[:-1])

    monkeypatch.setattr(TransactionCoordinator, "marked", mark)
    monkeypatch.setattr(transactions, "markers_of", markers)
    assert "a transaction is open" in failure(CALM)


def test_a_coordinator_that_forgets_how_a_transaction_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When it starts again, it aborts what it has committed."""
    restored = TransactionCoordinator.__init__

    def restore(self: TransactionCoordinator, *arguments: Any, **options: Any) -> None:
        restored(self, *arguments, **options)
        self.markings = [msgspec.structs.replace(each, commit=False) for each in self.markings]

    monkeypatch.setattr(TransactionCoordinator, "__init__", restore)
    assert "was committed" in failure(FAULTY)


def test_a_coordinator_that_commits_what_a_successor_should_abort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def abort(self: TransactionCoordinator, found: Transaction, event: Move, now: int) -> None:
        self._decide(found, Move.COMMITTED, now, version=self._version())

    monkeypatch.setattr(TransactionCoordinator, "_abort", abort)
    assert "whose transaction is not committed" in failure(CALM)


def test_a_coordinator_that_does_not_look_at_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = TransactionCoordinator._found

    def any_epoch(
        self: TransactionCoordinator, transactional_id: str, producer_id: int, epoch: int
    ) -> Transaction | ErrorCode:
        known = self._all.get(transactional_id)
        epoch = epoch if known is None else known.producer_epoch
        return found(self, transactional_id, producer_id, epoch)

    monkeypatch.setattr(TransactionCoordinator, "_found", any_epoch)
    assert "of a producer that was replaced" in failure(CALM)


def test_transactions_that_never_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def due(self: TransactionCoordinator, now: int) -> None:
        self._scan_at = now + 1_000

    monkeypatch.setattr(TransactionCoordinator, "due", due)
    assert "a transaction is open" in failure(FAULTY)


def test_transactions_of_version_2_that_do_not_bump_the_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_before(
        found: Transaction, event: Move, now: int, *, version: int, new_id: int
    ) -> Transaction:
        return ended(found, event, now, version=0, new_id=new_id)

    monkeypatch.setattr(transactions, "ended", as_before)
    assert "is called out of order" in failure(CALM)


def test_partitions_of_a_transaction_that_a_restart_forgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored = TransactionCoordinator.__init__

    def restore(self: TransactionCoordinator, *arguments: Any, **options: Any) -> None:
        restored(self, *arguments, **options)
        for found in self._all.values():
            if found.state is TransactionalIdState.ONGOING:
                found.partitions = set(sorted(found.partitions)[:1])

    monkeypatch.setattr(TransactionCoordinator, "__init__", restore)
    assert "a transaction is open" in failure(FAULTY)


def test_sequences_that_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent again after a lost answer is stored again."""
    fault = Producers.fault

    def no_order(self: Producers, *arguments: Any) -> ErrorCode:
        found = fault(self, *arguments)
        is_order = found is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE if is_order else found

    monkeypatch.setattr(Producers, "fault", no_order)
    monkeypatch.setattr(Producers, "duplicate", lambda self, *arguments: None)
    assert "as well" in failure(FAULTY)


def test_a_log_that_forgets_its_producers_when_it_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recovered = Producers._recovered

    def forgotten(self: Producers, log: Log) -> LogProducers:
        known = recovered(self, log)
        known.known, known.open = {}, {}
        return known

    monkeypatch.setattr(Producers, "_recovered", forgotten)
    assert failure(FAULTY)


def test_a_last_stable_offset_beyond_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(self: Producers, log: Log) -> int:
        return self._durability.readable_end(log)

    monkeypatch.setattr(Producers, "last_stable", end)
    assert "whose transaction is not committed" in failure(CALM)


def test_aborted_transactions_that_readers_are_not_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Producers, "aborted", lambda self, *arguments: [])
    assert "whose transaction is" in failure(CALM)


def test_offsets_that_are_valid_before_the_transaction_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = Committing.txn_commit

    def at_once(self: Committing, request: Any, version: int, now: int) -> object:
        answer = commit(self, request, version, now)
        self.end_transaction(request.producer_id, lambda group: True, committed=True, effects=[])
        return answer

    monkeypatch.setattr(Committing, "txn_commit", at_once)
    assert "no such commit was asked for" in failure(CALM)


def test_offsets_that_do_not_end_with_their_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TxnOffsets, "end", lambda self, *arguments: ErrorCode.NONE)
    assert "has written nothing since the faults" in failure(CALM)
