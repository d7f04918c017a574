"""Producers with an id: no batch twice, none out of order; and all of it known after a kill."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.test_list_offsets import delete
from tests.nodes.broker.kafka.test_produce import send as send_batch

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.kafka.data import producers
from steelyard.nodes.broker.kafka.data.producer_states import (
    BATCHES_KEPT,
    SEQUENCE_MAX,
    sequence_after,
)
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import PartitionProduceResponse
from steelyard.wire.kafka.messages.logs import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from steelyard.wire.kafka.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.records import read_headers, read_records

DAY_MS = 86_400_000
"""producer.id.expiration.ms"""


def init(rig: KafkaRig, version: int = 4) -> InitProducerIdResponse:
    return rig.ask(InitProducerIdRequest(None, 0), version, InitProducerIdResponse)


def send(
    rig: KafkaRig, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0
) -> PartitionProduceResponse:
    values = [b"%d" % number for number in range(sequence, sequence + count)]
    data = batch(*values, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return send_batch(rig, data)


def outcome(answer: PartitionProduceResponse) -> tuple[int, int]:
    return answer.error_code, answer.base_offset


OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_no_id_is_given_twice(rig: KafkaRig, version: int) -> None:
    given_ids = []
    for _ in range(3):
        given_ids += [init(rig, version).producer_id for _ in range(700)]
        rig.restart()
    assert len(set(given_ids)) == 2100
    assert min(given_ids) >= 0
    assert init(rig, version).producer_epoch == 0


def test_brokers_give_different_ids() -> None:
    ids = [
        init(KafkaRig(BrokerConfig(kafka=KafkaConfig(node_id=node)))).producer_id
        for node in (0, 1, 2, 2**31 - 1)
    ]
    assert len(set(ids)) == 4
    assert all(0 <= each < 2**63 for each in ids)


def test_no_id_without_a_disk_to_note_it() -> None:
    disk = MemoryDisk()
    rig = KafkaRig(disk=disk)
    disk.room_bytes = 0
    assert init(rig).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.room_bytes = None
    assert init(rig).error_code == 0


def test_an_empty_transactional_id_is_none(rig: KafkaRig) -> None:
    answer = rig.ask(InitProducerIdRequest("", 0), 4, InitProducerIdResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# -- order -----------------------------------------------------------------------------------------


def test_a_batch_that_was_stored_is_answered_as_the_first_time(rig: KafkaRig) -> None:
    rig.create_topic()
    assert outcome(send(rig, 0, 3)) == (0, 0)
    assert outcome(send(rig, 3, 2)) == (0, 3)
    assert outcome(send(rig, 0, 3)) == (0, 0)
    assert outcome(send(rig, 3, 2)) == (0, 3)
    assert rig.log().max_offset == 5


def test_with_log_append_time_the_first_timestamp_comes_again(rig: KafkaRig) -> None:
    rig.create_topic(settings={"message.timestamp.type": "LogAppendTime"})
    send(rig, 0)
    rig.now += 1000
    again = send(rig, 0)
    assert (again.base_offset, again.log_append_time_ms) == (0, START)


def test_five_batches_are_remembered(rig: KafkaRig) -> None:
    rig.create_topic()
    for number in range(BATCHES_KEPT + 1):
        send(rig, number)
    assert outcome(send(rig, 1)) == (0, 1)
    assert outcome(send(rig, 0)) == OUT_OF_ORDER
    assert rig.log().max_offset == BATCHES_KEPT + 1


def test_a_gap_is_refused(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, 0, 3)
    assert outcome(send(rig, 4)) == OUT_OF_ORDER
    assert outcome(send(rig, 2)) == OUT_OF_ORDER, "part of a batch is not a duplicate"
    assert outcome(send(rig, 3)) == (0, 3)


def test_a_producer_that_nobody_knows_begins_anywhere(rig: KafkaRig) -> None:
    rig.create_topic()
    assert outcome(send(rig, 42)) == (0, 0)
    assert outcome(send(rig, 44)) == OUT_OF_ORDER


def test_partitions_know_nothing_of_each_other(rig: KafkaRig) -> None:
    rig.create_topic()
    rig.create_topic("other")
    send(rig, 0)
    data = batch(producer_id=7, epoch=0, sequence=9)
    assert send_batch(rig, data, topic="other").error_code == 0


def test_sequences_begin_anew_after_the_largest(rig: KafkaRig) -> None:
    rig.create_topic()
    assert outcome(send(rig, SEQUENCE_MAX - 1, 4)) == (0, 0)
    assert outcome(send(rig, SEQUENCE_MAX - 1, 4)) == (0, 0)
    assert outcome(send(rig, 2)) == (0, 4)
    assert sequence_after(SEQUENCE_MAX, 1) == 0


def test_a_new_epoch_begins_at_0_and_ends_the_old_one(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, 0, epoch=1)
    assert outcome(send(rig, 5, epoch=2)) == OUT_OF_ORDER
    assert outcome(send(rig, 0, epoch=2)) == (0, 1)
    assert outcome(send(rig, 0, epoch=1)) == FENCED
    assert outcome(send(rig, 1, epoch=1)) == FENCED
    assert outcome(send(rig, 1, epoch=2)) == (0, 2)


def test_a_refused_batch_changes_nothing() -> None:
    disk = MemoryDisk()
    rig = KafkaRig(disk=disk)
    rig.create_topic()
    send(rig, 0)
    disk.room_bytes = 0
    assert send(rig, 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.room_bytes = None
    assert outcome(send(rig, 1)) == (0, 1)


# -- forgetting ------------------------------------------------------------------------------------


def test_silent_producers_are_forgotten(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, 0)
    rig.now += DAY_MS - 1
    assert outcome(send(rig, 9)) == OUT_OF_ORDER
    rig.now += 1
    assert described(rig) == []
    assert outcome(send(rig, 9)) == (0, 1)


def test_producers_are_bounded(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    rig.create_topic()
    for producer_id in range(5):
        send(rig, 0, producer_id=producer_id)
    assert [each.producer_id for each in described(rig)] == [2, 3, 4]
    assert outcome(send(rig, 5, producer_id=2)) == OUT_OF_ORDER
    assert outcome(send(rig, 5, producer_id=0)) == (0, 5)


# -- after a kill ----------------------------------------------------------------------------------


def described(rig: KafkaRig) -> list[ProducerState]:
    request = DescribeProducersRequest([TopicRequest(TOPIC, (0,))])
    answer = rig.ask(request, 0, DescribeProducersResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    return list(answer.topics[0].partitions[0].active_producers)


def test_producers_are_known_after_a_kill(rig: KafkaRig) -> None:
    rig.create_topic()
    for number in range(4):
        send(rig, 2 * number, 2)
    before = described(rig)
    assert before == [ProducerState(7, 0, 7, START + 1, -1, -1)]
    rig.restart()
    assert described(rig) == before
    assert outcome(send(rig, 4, 2)) == (0, 4)
    assert outcome(send(rig, 9)) == OUT_OF_ORDER
    assert outcome(send(rig, 8)) == (0, 8)


def test_a_log_is_read_from_its_snapshot_on(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "SNAPSHOT_BATCHES", 3)
    rig.create_topic()
    for number in range(8):
        send(rig, number)
        rig.restart()
        assert rig.node._kafka is not None
        of_log = rig.node._kafka.producers.of(rig.log())
        assert of_log.snapshot_upto <= rig.log().max_offset
        assert outcome(send(rig, number)) == (0, number)
    assert described(rig)[0].last_sequence == 7


def test_expiry_goes_on_over_a_restart(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, 0)
    rig.now += DAY_MS
    rig.restart()
    assert described(rig) == []


def test_what_a_power_cut_took_was_never_sent() -> None:
    """A snapshot may outlive the batches that it tells of."""
    disk = MemoryDisk()
    rig = KafkaRig(disk=disk)
    rig.create_topic()
    send(rig, 0)
    send(rig, 1)
    path = next(p for p in disk.files if f"/{TOPIC}/" in p and p.endswith(".log"))
    whole = disk.files[path]
    size = len(whole.data) // 2
    rig.advance(120_000)  # a snapshot of both
    whole.truncate(size)
    rig.restart()
    assert rig.log().max_offset == 1
    assert described(rig)[0].last_sequence == 0
    assert outcome(send(rig, 1)) == (0, 1)


def test_a_deleted_topic_takes_its_producers_along(rig: KafkaRig) -> None:
    rig.create_topic()
    send(rig, 0)
    rig.store.delete_topic(TOPIC)
    rig.advance(120_000)
    assert len(rig.store.table("kafka_producers")) == 0


class Model:
    """What Kafka's rules say of one producer in one log."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, int, int, int]] = []  # epoch, first, count, offset
        self.end = 0

    def send(self, epoch: int, first: int, count: int) -> tuple[int, int]:
        current = self.stored[-1][0] if self.stored else None
        kept = [each for each in self.stored if each[0] == current][-BATCHES_KEPT:]
        for known_epoch, known_first, known_count, offset in kept:
            if (known_epoch, known_first, known_count) == (epoch, first, count):
                return 0, offset
        if current is not None:
            if epoch < current:
                return FENCED
            wanted = 0 if epoch > current else kept[-1][1] + kept[-1][2]
            if first != wanted:
                return OUT_OF_ORDER
        self.stored.append((epoch, first, count, self.end))
        self.end += count
        return 0, self.end - count


steps = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 3)) | st.just("restart"),
    max_size=25,
)


@settings(max_examples=examples(60))
@given(steps=steps, snapshot_batches=st.integers(1, 4))
def test_it_does_what_the_rules_say(steps: list[object], snapshot_batches: int) -> None:
    rig, model = KafkaRig(), Model()
    rig.create_topic()
    before = producers.SNAPSHOT_BATCHES
    producers.SNAPSHOT_BATCHES = snapshot_batches
    try:
        for step in steps:
            if isinstance(step, tuple):
                epoch, first, count = step
                answer = send(rig, first, count, epoch=epoch)
                assert outcome(answer) == model.send(epoch, first, count)
            else:
                rig.restart()
    finally:
        producers.SNAPSHOT_BATCHES = before


def test_a_kill_in_the_middle_of_anything() -> None:
    """The process dies after every so many bytes; what was answered is known, what was not may be sent again."""
    rng = random.Random(3)
    config = replace(KafkaConfig(), num_partitions=1)
    rig = KafkaRig(BrokerConfig(kafka=config))
    rig.create_topic()
    sequence = 0
    for _ in range(60):
        rig.disk.kill_after_bytes = rng.randrange(400)
        try:
            while True:
                assert send(rig, sequence).error_code == 0
                sequence += 1
        except Killed:
            rig.disk = rig.disk.copy()
            rig.restart()
    while send(rig, sequence).error_code:
        sequence += 1
    values = []
    log = rig.log()
    offset = 0
    while offset < log.max_offset:
        run = log.read_run(offset, 1 << 20)
        for at, _ in read_headers(run.data):
            values += [record.value for record in read_records(run.data, at)]
        offset = run.next_offset
    assert values == [b"%d" % number for number in range(sequence + 1)]


def test_a_log_that_begins_within_a_batch_has_its_producers(rig: KafkaRig) -> None:
    """DeleteRecords deletes a part of a batch that was written since the last snapshot."""
    rig.create_topic()
    send(rig, 0)
    send(rig, 1, 10)
    assert delete(rig, 5).low_watermark == 5
    before = described(rig)
    rig.restart()
    assert described(rig) == before
    assert outcome(send(rig, 11)) == (0, 11)


def test_a_snapshot_older_than_the_log_says_nothing_of_its_producers(
    rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on is taken for a producer that nobody knows."""
    rig.create_topic()
    monkeypatch.setattr(producers, "SNAPSHOT_BATCHES", 1)
    send(rig, 0)
    monkeypatch.undo()
    for number in range(1, 6):
        send(rig, number)
    send(rig, 0, producer_id=8)
    assert delete(rig, 6).low_watermark == 6
    rig.restart()
    assert [each.producer_id for each in described(rig)] == [8]
    assert outcome(send(rig, 6)) == (0, 7)
    assert outcome(send(rig, 8)) == OUT_OF_ORDER
