"""Transactions in a log: what is stable, what is aborted, and that a kill forgets neither."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing
from tests.nodes.broker.kafka.test_fetch import fetch, offsets, parts, request
from tests.nodes.broker.kafka.test_idempotence import described
from tests.nodes.broker.kafka.test_produce import send
from tests.nodes.broker.test_exhaustion import Exhausted

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka.transactional_ids import EPOCH_LIMIT, Marking, TransactionalIdState
from steelyard.nodes.broker.kafka.data import producers
from steelyard.nodes.broker.kafka.data.producers import SWEEP_MS, Producers
from steelyard.nodes.broker.kafka.service import KafkaService
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    AbortedTransaction,
    FetchResponse,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    read_header,
    read_headers,
    read_marker,
)


def side(rig: KafkaRig) -> KafkaService:
    assert rig.node._kafka is not None
    return rig.node._kafka


def known(rig: KafkaRig) -> Producers:
    return side(rig).producers


def write(rig: KafkaRig, producer_id: int, sequence: int = 0, epoch: int = 0) -> int:
    """A transactional record; the error code."""
    data = batch(
        b"t", producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL
    )
    return send(rig, data).error_code


def mark(
    rig: KafkaRig,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> ErrorCode:
    effects: list[Effect] = []
    marking = Marking("", producer_id, epoch, commit, (), version)
    code = side(rig).transactions.markers.write(
        TOPIC, 0, marking, coordinator_epoch, rig.now, effects
    )
    rig._make_true(effects)
    rig.node.check()
    return code


def stable(rig: KafkaRig) -> int:
    return known(rig).last_stable(rig.log())


def trusting(disk: MemoryDisk | None = None) -> KafkaRig:
    """A broker that does not ask whether a transaction's coordinator knows of a partition."""
    kafka = KafkaConfig(transaction_partition_verification_enable=False)
    return KafkaRig(BrokerConfig(kafka=kafka), disk)


@pytest.fixture
def rig() -> KafkaRig:
    return trusting()


@pytest.fixture
def ready(rig: KafkaRig) -> KafkaRig:
    rig.create_topic()
    return rig


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_a_control_batch(ready: KafkaRig, commit: bool) -> None:
    write(ready, 7)
    assert mark(ready, 7, commit=commit, coordinator_epoch=3) == 0
    data = ready.log().read_run(1, 1).data
    header = read_header(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.producer_id, header.count) == (1, 7, 1)
    marker = read_marker(data)
    assert marker is not None
    assert (marker.kind, marker.coordinator_epoch) == (COMMIT if commit else ABORT, 3)


def test_an_open_transaction_holds_what_follows(ready: KafkaRig) -> None:
    send(ready, batch())
    write(ready, 7)
    send(ready, batch())
    write(ready, 8)
    assert (stable(ready), ready.log().max_offset) == (1, 4)
    mark(ready, 7, commit=True)
    assert stable(ready) == 3
    mark(ready, 8, commit=False)
    assert stable(ready) == 6
    assert known(ready).aborted(ready.log(), 0, 6) == [(8, 3, 5)]


def test_aborted_transactions_that_overlap(ready: KafkaRig) -> None:
    """The one that ended first began last."""
    write(ready, 8)
    write(ready, 7)
    mark(ready, 7, commit=False)
    mark(ready, 8, commit=False)
    write(ready, 7, 1)
    mark(ready, 7, commit=False)
    inner, outer, last = (7, 1, 2), (8, 0, 3), (7, 4, 5)
    aborted = known(ready).aborted
    assert aborted(ready.log(), 0, 1) == [outer]
    assert aborted(ready.log(), 0, 2) == [inner, outer]
    assert aborted(ready.log(), 3, 4) == [outer]
    assert aborted(ready.log(), 2, 9) == [inner, outer, last]


def test_committed_readers_stop_at_the_last_stable_offset(ready: KafkaRig) -> None:
    send(ready, batch())
    write(ready, 7)
    (part,) = parts(fetch(ready, request(0, isolation=1)))
    assert offsets(part.records) == [0]
    assert (part.high_watermark, part.last_stable_offset) == (2, 1)
    assert part.aborted_transactions == []
    (part,) = parts(fetch(ready, request(0)))
    assert offsets(part.records) == [0, 1]
    assert (part.last_stable_offset, part.aborted_transactions) == (1, None)
    for isolation, end in ((0, 2), (1, 1)):
        latest = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, -1)])
        answer = ready.ask(ListOffsetsRequest(-1, isolation, [latest]), 7, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].offset == end


def test_they_are_told_what_was_aborted(ready: KafkaRig) -> None:
    write(ready, 7)
    mark(ready, 7, commit=False)
    write(ready, 7, 1)
    mark(ready, 7, commit=True)
    (part,) = parts(fetch(ready, request(0, isolation=1)))
    assert offsets(part.records) == [0, 1, 2, 3]
    assert part.aborted_transactions == [AbortedTransaction(7, 0)]
    (part,) = parts(fetch(ready, request(2, isolation=1)))
    assert part.aborted_transactions == []


def test_a_waiting_committed_reader_is_woken_by_the_marker(ready: KafkaRig) -> None:
    number = ready.post(request(0, isolation=1, max_wait_ms=500), 12)
    ready.link = ready.connect()
    write(ready, 7)
    assert ready.answer_to(number, FetchResponse) is None
    mark(ready, 7, commit=True)
    answer = ready.answer_to(number, FetchResponse)
    assert answer is not None
    assert offsets(parts(answer)[0].records) == [0, 1]


def test_a_waiting_reader_whose_log_has_a_damaged_index_does_not_concern_the_producer(
    ready: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(ready, batch())
    write(ready, 7)
    asked = request(0, isolation=1, max_wait_ms=500, min_bytes=1_000)
    ready.post(asked, 12, link=ready.connect())

    def damaged(log: Log, offset: int) -> int:
        raise StorageError(f"the index of {log.topic} is damaged at {offset}")

    monkeypatch.setattr(Log, "address_at", damaged)
    assert write(ready, 7, 1) == ErrorCode.NONE


def test_a_committed_reader_that_waits_for_much_counts_the_transaction_that_was_there_before(
    ready: KafkaRig,
) -> None:
    for sequence in range(10):
        write(ready, 7, sequence)
    size = ready.log().next_address - ready.log().address_at(0)
    asked = request(0, isolation=1, max_wait_ms=500, min_bytes=size)
    number = ready.post(asked, 12, link=ready.connect())
    send(ready, batch())
    assert ready.answer_to(number, FetchResponse) is None
    mark(ready, 7, commit=True)
    answer = ready.answer_to(number, FetchResponse)
    assert answer is not None
    assert offsets(parts(answer)[0].records) == list(range(12))


def test_who_is_in_a_transaction_writes_nothing_else(ready: KafkaRig) -> None:
    write(ready, 7)
    plain = batch(producer_id=7, epoch=0, sequence=1)
    assert send(ready, plain).error_code == ErrorCode.INVALID_TXN_STATE
    mark(ready, 7, commit=True)
    assert send(ready, plain).error_code == 0


def test_a_marker_fences_older_epochs(ready: KafkaRig) -> None:
    write(ready, 7)
    mark(ready, 7, commit=False, epoch=1)
    assert write(ready, 7, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(ready, 7, commit=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(ready, 7, 1, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(ready, 7, 0, epoch=1) == 0


def test_a_late_marker_of_version_2_ends_nothing(ready: KafkaRig) -> None:
    """Its epoch is that of the next transaction, which an older marker would end."""
    write(ready, 7)
    assert mark(ready, 7, commit=True, epoch=1, version=2) == 0
    assert mark(ready, 7, commit=True, epoch=1, version=2) == 0, "nothing is open"
    begun = ready.log().max_offset
    assert write(ready, 7, epoch=1) == 0
    late = mark(ready, 7, commit=True, epoch=1, version=2)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(ready) == begun
    assert mark(ready, 7, commit=False, epoch=2, version=2) == 0
    assert known(ready).aborted(ready.log(), 0, 9) == [(7, begun, begun + 1)]
    write(ready, 8)
    assert mark(ready, 8, commit=True, version=0) == 0


def test_the_last_epoch_ends_whatever_is_open(ready: KafkaRig) -> None:
    write(ready, 7, epoch=EPOCH_LIMIT)
    assert mark(ready, 7, commit=False, epoch=EPOCH_LIMIT, version=2) == 0
    assert stable(ready) == 2


def test_sequences_go_on_after_a_marker(ready: KafkaRig) -> None:
    write(ready, 7)
    mark(ready, 7, commit=True)
    assert write(ready, 7, 1) == 0
    assert write(ready, 7, 1) == 0, "a duplicate"
    assert ready.log().max_offset == 3


def test_an_older_coordinator_is_fenced(ready: KafkaRig) -> None:
    write(ready, 7)
    mark(ready, 7, commit=True, coordinator_epoch=5)
    old = mark(ready, 7, commit=True, coordinator_epoch=4)
    assert old == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_may_come_twice_or_for_nothing(ready: KafkaRig) -> None:
    write(ready, 7)
    mark(ready, 7, commit=False)
    assert mark(ready, 7, commit=False) == 0
    assert mark(ready, 99, commit=True) == 0
    assert known(ready).aborted(ready.log(), 0, 9) == [(7, 0, 1)]


def test_an_open_transaction_does_not_expire(ready: KafkaRig) -> None:
    write(ready, 7)
    ready.now += 2 * 86_400_000
    ready.advance(60_000)
    assert [each.current_txn_start_offset for each in described(ready)] == [0]
    assert stable(ready) == 0


def test_a_full_disk_writes_no_marker() -> None:
    disk = MemoryDisk()
    rig = trusting(disk)
    rig.create_topic()
    write(rig, 7)
    disk.room_bytes = 0
    assert mark(rig, 7, commit=True) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.room_bytes = None
    assert stable(rig) == 0
    assert mark(rig, 7, commit=True) == 0
    assert stable(rig) == 2


def test_aborted_transactions_go_with_their_records(ready: KafkaRig) -> None:
    write(ready, 7)
    mark(ready, 7, commit=False)
    write(ready, 7, 1)
    mark(ready, 7, commit=False)
    ready.log().delete_before(2)
    ready.advance(120_000)
    assert known(ready).aborted(ready.log(), 0, 9) == [(7, 2, 3)]
    assert len(ready.store.table("kafka_aborted")) == 1


@pytest.mark.proof
def test_an_aborted_transaction_is_known_after_the_disk_was_full() -> None:
    """There may be room for the marker, but not for what is noted of it."""
    written = 0
    for room in range(0, 400, 10):
        rig = trusting()
        rig.create_topic()
        write(rig, 7)
        rig.disk.room_bytes = room
        expected = [] if mark(rig, 7, commit=False) else [(7, 0, 1)]
        written += len(expected)
        rig.advance(SWEEP_MS)
        rig.disk.room_bytes = None
        rig.advance(SWEEP_MS)
        rig.restart()
        assert known(rig).aborted(rig.log(), 0, 10) == expected, room
    assert 0 < written < 40


@pytest.mark.proof
def test_an_aborted_transaction_is_known_if_a_sweep_was_refused() -> None:
    for room in range(0, 200, 10):
        rig = trusting()
        rig.create_topic()
        write(rig, 7)
        mark(rig, 7, commit=False)
        rig.disk.room_bytes = room
        rig.advance(SWEEP_MS)
        rig.disk.room_bytes = None
        rig.restart()
        assert known(rig).aborted(rig.log(), 0, 10) == [(7, 0, 1)], room


@pytest.mark.proof
def test_an_aborted_transaction_is_known_after_a_kill_at_its_marker() -> None:
    """The marker may be the last that was written: the next snapshot comes after it."""
    written = 0
    for alive in range(0, 400, 10):
        rig = trusting()
        rig.create_topic()
        write(rig, 7)
        rig.disk.kill_after_bytes = alive
        try:
            mark(rig, 7, commit=False)
            rig.advance(SWEEP_MS)
        except Killed:
            pass
        rig.disk = rig.disk.copy()
        rig.restart()
        expected = known(rig).aborted(rig.log(), 0, 10)
        written += len(expected)
        assert expected == ([(7, 0, 1)] if rig.log().max_offset == 2 else [])
        rig.advance(SWEEP_MS)
        rig.restart()
        assert known(rig).aborted(rig.log(), 0, 10) == expected, alive
    assert 0 < written < 40


def test_aborted_transactions_are_known_once_their_log_can_be_read() -> None:
    disk = Exhausted()
    rig = trusting(disk)
    rig.create_topic()
    write(rig, 7)
    mark(rig, 7, commit=False)
    rig.advance(SWEEP_MS)
    send(rig, batch())
    rig.restart()
    rig.store._files.close()
    disk.is_exhausted = True
    with pytest.raises(StorageError):
        known(rig).aborted(rig.log(), 0, 10)
    disk.is_exhausted = False
    assert known(rig).aborted(rig.log(), 0, 10) == [(7, 0, 1)]


def test_aborted_transactions_are_known_if_a_power_cut_took_their_table() -> None:
    """A snapshot may outlive what was written before it to another file."""
    rig = trusting()
    rig.create_topic()
    write(rig, 7)
    mark(rig, 7, commit=False)
    rig.store.flush()
    rig.advance(SWEEP_MS)
    rig.disk.files["tables/kafka_aborted.table"].truncate(0)
    rig.restart()
    assert known(rig).aborted(rig.log(), 0, 10) == [(7, 0, 1)]


def in_log(log: Log) -> tuple[int, list[tuple[int, int, int]]]:
    """The last stable offset and the aborted transactions, from all that the log has."""
    opened: dict[int, int] = {}
    aborted = []
    offset = log.min_offset
    while offset < log.max_offset:
        run = log.read_run(offset, 1 << 20)
        for at, header in read_headers(run.data):
            marker = read_marker(run.data, at) if header.is_control else None
            if marker is None:
                if header.is_transactional:
                    opened.setdefault(header.producer_id, header.base_offset)
            else:
                first = opened.pop(header.producer_id, None)
                if first is not None and marker.kind == ABORT:
                    aborted.append((header.producer_id, first, header.base_offset))
        offset = run.next_offset
    return min([*opened.values(), log.max_offset]), aborted


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(8))
def test_what_the_disk_refuses_or_loses_changes_no_transaction(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full now and then, kills within writes, power cuts: what is known is what the log says."""
    monkeypatch.setattr(producers, "SNAPSHOT_BATCHES", 4)
    rng = random.Random(seed)
    rig = trusting()
    rig.create_topic()
    write(rig, 0)
    rig.store.flush()
    aborted = 0
    for _ in range(150):
        disk = rig.disk
        what = rng.choice(["nothing", "nothing", "full", "kill", "power"])
        disk.room_bytes = rng.randrange(300) if what == "full" else None
        disk.kill_after_bytes = rng.randrange(300) if what == "kill" else None
        try:
            for _ in range(rng.randrange(4)):
                producer_id = rng.randrange(3)
                active = {each.producer_id: each for each in known(rig).active(rig.log(), rig.now)}
                entry = active.get(producer_id)
                if rng.random() < 0.5:
                    write(rig, producer_id, 0 if entry is None else entry.last_sequence + 1)
                else:
                    mark(rig, producer_id, commit=rng.random() < 0.3)
            if rng.random() < 0.2:
                rig.advance(SWEEP_MS)
        except Killed:
            pass
        if what == "power":
            rig.disk = disk.lose_power(rng)
        elif what == "kill":
            rig.disk = disk.copy()
            rig.disk.kill_after_bytes = None
        if what in ("power", "kill") or rng.random() < 0.1:
            rig.disk.room_bytes = None
            rig.restart()
        expected = in_log(rig.log())
        aborted += len(expected[1])
        assert (stable(rig), known(rig).aborted(rig.log(), 0, 1 << 40)) == expected
    assert aborted


steps = st.lists(
    st.tuples(st.sampled_from(["write", "commit", "abort"]), st.integers(0, 2))
    | st.sampled_from(["plain", "restart", "sweep"]),
    max_size=30,
)


@settings(max_examples=examples(60))
@given(steps=steps, snapshot_batches=st.integers(1, 4))
def test_what_is_stable_and_what_is_aborted(steps: list[object], snapshot_batches: int) -> None:
    rig = trusting()
    rig.create_topic()
    opened: dict[int, int] = {}
    sequences = [0, 0, 0]
    aborted: list[tuple[int, int, int]] = []
    end = 0
    before = producers.SNAPSHOT_BATCHES
    producers.SNAPSHOT_BATCHES = snapshot_batches
    try:
        send(rig, batch())
        end = 1
        for step in steps:
            if isinstance(step, tuple):
                action, producer_id = step
                if action == "write":
                    assert write(rig, producer_id, sequences[producer_id]) == 0
                    sequences[producer_id] += 1
                    opened.setdefault(producer_id, end)
                else:
                    assert mark(rig, producer_id, commit=action == "commit") == 0
                    first = opened.pop(producer_id, None)
                    if first is not None and action == "abort":
                        aborted.append((producer_id, first, end))
                end += 1
            elif step == "plain":
                send(rig, batch())
                end += 1
            elif step == "sweep":
                rig.advance(60_000)
            else:
                rig.restart()
            assert stable(rig) == min([*opened.values(), end])
            for first in range(0, end, 3):
                for next_offset in range(first + 1, end + 1, 2):
                    meets = [a for a in aborted if a[2] >= first and a[1] < next_offset]
                    assert known(rig).aborted(rig.log(), first, next_offset) == meets
    finally:
        producers.SNAPSHOT_BATCHES = before


# -- power cuts, with flush=sync -------------------------------------------------------------------


@pytest.mark.parametrize("flushes", range(5))
@pytest.mark.parametrize(
    "written_back", [(), ("tables/",), ("logs/TopicA/0",), ("tables/", "logs/TopicA/0")]
)
def test_a_power_cut_leaves_no_partition_open_or_ended_differently(
    written_back: tuple[str, ...], flushes: int
) -> None:
    """A commit of two partitions is cut off after so many flushes; in doubt the coordinator aborts it later."""
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic(partitions=2)
    answer = rig.ask(InitProducerIdRequest("tx", 60_000), 4, InitProducerIdResponse)
    producer_id, epoch = answer.producer_id, answer.producer_epoch
    wanted = [AddPartitionsToTxnTopic(TOPIC, (0, 1))]
    adding = AddPartitionsToTxnRequest("tx", producer_id, epoch, wanted)
    rig.ask(adding, 3, AddPartitionsToTxnResponse)
    data = batch(b"t", producer_id=producer_id, epoch=epoch, sequence=0, attributes=TRANSACTIONAL)
    for partition in (0, 1):
        rig.ask(producing(TOPIC, partition, data, "tx"), 9, ProduceResponse)
    rig.disk_answers = False
    asked = rig.post(EndTxnRequest("tx", producer_id, epoch, True), 3)
    for _ in range(flushes):
        rig.answer_flushes()
    is_acknowledged = rig.answer_to(asked, EndTxnResponse) is not None
    rig.disk_answers = True
    rig.lose_power(*written_back)
    rig.advance(120_000)
    ends = [in_log(rig.log(TOPIC, partition)) for partition in (0, 1)]
    assert [stable for stable, _ in ends] == [rig.log(TOPIC, p).max_offset for p in (0, 1)]
    is_aborted = [bool(aborted) for _, aborted in ends]
    assert is_aborted in ([False, False], [True, True])
    assert is_acknowledged == (flushes > 0)
    if is_acknowledged:
        assert not any(is_aborted)


def test_a_commit_ends_as_soon_as_the_disk_has_its_markers() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic()
    answer = rig.ask(InitProducerIdRequest("tx", 60_000), 4, InitProducerIdResponse)
    rig.ask(
        AddPartitionsToTxnRequest(
            "tx", answer.producer_id, answer.producer_epoch, [AddPartitionsToTxnTopic(TOPIC, (0,))]
        ),
        3,
        AddPartitionsToTxnResponse,
    )
    ending = EndTxnRequest("tx", answer.producer_id, answer.producer_epoch, True)
    assert rig.ask(ending, 3, EndTxnResponse).error_code == ErrorCode.NONE
    found = side(rig).markings._transactions.get("tx")
    assert found is not None
    assert found.state is TransactionalIdState.COMPLETE_COMMIT
