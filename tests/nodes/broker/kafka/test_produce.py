"""Produce: what is stored, what is refused and why, and when the answer goes out."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from crc32c import crc32c
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.store.entry import BATCHES
from steelyard.store.memory import MemoryDisk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.records import CONTROL, crc_ok, read_header, read_records
from steelyard.wire.remoting.names import PERM_READ


def request(
    *batches: bytes | None, topic: str = TOPIC, acks: int = -1, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    """A batch for each partition from 0 on."""
    parts = [PartitionProduceData(index, data) for index, data in enumerate(batches)]
    return ProduceRequest(None, acks, 1000, [TopicProduceData(topic, topic_id, parts)])


def send(
    rig: KafkaRig, data: bytes | None, version: int = 9, topic: str = TOPIC
) -> PartitionProduceResponse:
    answer = rig.ask(request(data, topic=topic), version, ProduceResponse)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", range(3, 13))
def test_a_batch_is_kept_as_it_came_but_for_its_offset(rig: KafkaRig, version: int) -> None:
    rig.create_topic()
    sent = batch(b"a", b"b", b"c")
    first = send(rig, sent, version)
    second = send(rig, sent, version)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 3)
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == 0
    run = rig.log().read_run(3, 1, None)
    assert run.kind == BATCHES
    assert run.first_offset == 3
    assert read_header(run.data).base_offset == 3
    assert read_header(run.data).leader_epoch == 0
    assert run.data[16:] == sent[16:]
    assert crc_ok(run.data)


def test_topics_go_by_id_since_version_13(rig: KafkaRig) -> None:
    topic_id = rig.create_topic()
    answer = rig.ask(request(batch(), topic="", topic_id=topic_id), 13, ProduceResponse)
    assert answer.responses[0].topic_id == topic_id
    assert answer.responses[0].partition_responses[0].base_offset == 0
    unknown = rig.ask(request(batch(), topic="", topic_id=b"?" * 16), 13, ProduceResponse)
    assert unknown.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert rig.log().max_offset == 1


def test_each_partition_has_its_own_outcome(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    broken = batch(b"b")[:-1] + b"?"
    answer = rig.ask(request(batch(b"a"), broken, batch(b"c")), 9, ProduceResponse)
    parts = answer.responses[0].partition_responses
    assert [part.index for part in parts] == [0, 1, 2]
    assert [part.error_code for part in parts] == [
        0,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [part.base_offset for part in parts] == [0, -1, -1]


def changed(data: bytes, at: int, value: bytes) -> bytes:
    """With other bytes, and the checksum right again where they are within it."""
    data = data[:at] + value + data[at + len(value) :]
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


GOOD = batch(b"one", b"two")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"x" * 10, ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:60], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD + b"x", ErrorCode.INVALID_RECORD),
        (GOOD[:16] + b"\x01" + GOOD[17:], ErrorCode.INVALID_RECORD),
        (GOOD[:16] + b"\x00" + GOOD[17:], ErrorCode.INVALID_RECORD),
        (GOOD[:8] + b"\x80\0\0\0" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
        (b"\0\0\0\0\0\0\0\x05" + GOOD[8:], ErrorCode.INVALID_RECORD),
        (changed(GOOD, 57, b"\0\0\0\x03"), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 57, b"\0\0\0\0"), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 23, b"\xff\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (changed(changed(GOOD, 57, b"\0\0\x10\0"), 23, b"\0\0\x0f\xff"), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 21, b"\0\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(GOOD, 21, b"\0\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(attributes=CONTROL), ErrorCode.INVALID_RECORD),
        (batch(producer_id=5, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 1_048_589), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "data",
)
def test_bad_batches_are_refused(rig: KafkaRig, data: bytes | None, code: ErrorCode) -> None:
    rig.create_topic()
    answer = send(rig, data)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert answer.error_message
    assert rig.store.log(TOPIC, 0) is None


def test_zstd_is_for_version_7_and_later(rig: KafkaRig) -> None:
    rig.create_topic()
    sent = batch(b"x" * 100, compression=4)
    assert send(rig, sent, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert send(rig, sent, 7).error_code == 0


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_compressed_batches_stay_as_they_are(rig: KafkaRig, compression: int) -> None:
    rig.create_topic()
    sent = batch(b"x" * 100, b"y" * 100, compression=compression)
    assert send(rig, sent).error_code == 0
    assert rig.log().read_run(0, 1).data[16:] == sent[16:]


def test_the_topic_says_how_large_a_batch_may_be(rig: KafkaRig) -> None:
    sent = batch(b"x" * 100)
    rig.create_topic("small", settings={"max.message.bytes": str(len(sent) - 1)})
    rig.create_topic("fits", settings={"max.message.bytes": str(len(sent))})
    assert send(rig, sent, topic="small").error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert send(rig, sent, topic="fits").error_code == 0


def test_log_append_time_is_the_brokers(rig: KafkaRig) -> None:
    rig.create_topic(settings={"message.timestamp.type": "LogAppendTime"})
    rig.now += 77
    answer = send(rig, batch(b"a", b"b", timestamps=[5, 6]))
    assert answer.log_append_time_ms == START + 77
    data = rig.log().read_run(0, 1).data
    assert crc_ok(data)
    assert [record.timestamp for record in read_records(data)] == [START + 77] * 2


def test_acks_0_has_no_answer(rig: KafkaRig) -> None:
    rig.create_topic()
    number = rig.post(request(batch(), acks=0), 9)
    assert rig.answer_to(number, ProduceResponse) is None
    assert rig.log().max_offset == 1
    assert send(rig, batch()).base_offset == 1, "later requests are answered"


def test_an_error_with_acks_0_closes_the_link(rig: KafkaRig) -> None:
    rig.create_topic()
    number = rig.post(request(b"rubbish", acks=0), 9)
    assert rig.answer_to(number, ProduceResponse) is None
    assert rig.hung == [rig.link]


def test_other_acks_are_refused(rig: KafkaRig) -> None:
    rig.create_topic()
    answer = rig.ask(request(batch(), acks=2), 9, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert rig.store.log(TOPIC, 0) is None


def test_a_topic_that_rocketmq_closed_to_writers(rig: KafkaRig) -> None:
    rig.create_topic()
    topics = rig.node._parts.topics
    config = topics.get(TOPIC)
    assert config is not None
    topics.put(msgspec.structs.replace(config, perm=PERM_READ), rig.now)
    assert send(rig, batch()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_internal_topics_are_not_for_clients(rig: KafkaRig) -> None:
    answer = send(rig, batch(), topic="RMQ_SYS_REBALANCE_LEDGER")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_with_sync_flush_the_answer_waits_for_the_disk() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic()
    rig.disk_answers = False
    number = rig.post(request(batch()), 9)
    assert rig.answer_to(number, ProduceResponse) is None
    rig.answer_flushes()
    answer = rig.answer_to(number, ProduceResponse)
    assert answer is not None
    assert answer.responses[0].partition_responses[0].base_offset == 0


def test_a_full_disk_acknowledges_nothing() -> None:
    disk = MemoryDisk()
    rig = KafkaRig(disk=disk)
    rig.create_topic()
    send(rig, batch())
    disk.room_bytes = 500
    answer = send(rig, batch(b"x" * 1000))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.log().max_offset == 1
    assert [tell.level for tell in rig.told] == ["ERROR"]
    disk.room_bytes = None
    assert send(rig, batch()).base_offset == 1


def test_sends_are_counted(rig: KafkaRig) -> None:
    rig.create_topic()
    before = rig.node._parts.statistics.put_messages
    send(rig, batch(b"a", b"b"))
    assert rig.node._parts.statistics.put_messages == before + 2


def test_a_broker_with_a_smaller_limit_of_its_own() -> None:
    config = BrokerConfig(kafka=replace(KafkaConfig(), message_max_bytes=100))
    rig = KafkaRig(config)
    rig.create_topic()
    assert send(rig, batch(b"x" * 100)).error_code == ErrorCode.MESSAGE_TOO_LARGE
