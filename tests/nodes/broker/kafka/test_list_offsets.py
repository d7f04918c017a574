"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: the ends of a log, times in it, and its begin moved."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.test_produce import request as produce_request
from tests.nodes.broker.kafka.test_produce import send

from steelyard.config import BrokerConfig, KafkaConfig, StoreConfig
from steelyard.store.memory import MemoryDisk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def ask(
    rig: KafkaRig, timestamp: int, version: int = 11, *, epoch: int = -1, isolation: int = 0
) -> ListOffsetsPartitionResponse:
    part = ListOffsetsPartition(0, epoch, timestamp)
    request = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(TOPIC, [part])])
    return rig.ask(request, version, ListOffsetsResponse).topics[0].partitions[0]


def found(answer: ListOffsetsPartitionResponse) -> tuple[int, int]:
    assert answer.error_code == 0
    assert answer.leader_epoch == (0 if answer.offset >= 0 else -1)
    return answer.offset, answer.timestamp


def delete(
    rig: KafkaRig, offset: int, topic: str = TOPIC, partition: int = 0
) -> DeleteRecordsPartitionResult:
    parts = [DeleteRecordsPartition(partition, offset)]
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, parts)], 1000)
    return rig.ask(request, 2, DeleteRecordsResponse).topics[0].partitions[0]


@pytest.fixture
def filled(rig: KafkaRig) -> KafkaRig:
    """Six records in three batches, two of them compressed; the fourth is the newest."""
    rig.create_topic()
    send(rig, batch(b"a", b"b", timestamps=[10, 20]))
    send(rig, batch(b"c", b"d", timestamps=[15, 50], compression=1))
    send(rig, batch(b"e", b"f", timestamps=[40, 50], compression=4))
    return rig


@pytest.mark.parametrize("version", range(1, 12))
def test_both_ends(filled: KafkaRig, version: int) -> None:
    assert ask(filled, -1, version).offset == 6
    assert ask(filled, -2, version).offset == 0
    delete(filled, 3)
    assert ask(filled, -2, version).offset == 3


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (0, 10)),
        (10, (0, 10)),
        (11, (1, 20)),
        (20, (1, 20)),
        (21, (3, 50)),
        (50, (3, 50)),
        (51, (-1, -1)),
        (-3, (3, 50)),
        (-4, (0, -1)),
        (-5, (-1, -1)),
        (-6, (0, -1)),
    ],
)
def test_by_time_exact_to_the_record(
    filled: KafkaRig, timestamp: int, expected: tuple[int, int]
) -> None:
    assert found(ask(filled, timestamp)) == expected


def test_what_is_deleted_is_not_found(filled: KafkaRig) -> None:
    delete(filled, 1)
    assert found(ask(filled, 0)) == (1, 20)
    delete(filled, 4)
    assert found(ask(filled, 0)) == (4, 40)
    assert found(ask(filled, 41)) == (5, 50)
    assert found(ask(filled, -3)) == (5, 50)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)]
)
def test_meanings_came_with_versions(filled: KafkaRig, timestamp: int, since: int) -> None:
    for version in range(1, 12):
        code = 0 if version >= since else ErrorCode.UNSUPPORTED_VERSION
        assert ask(filled, timestamp, version).error_code == code


def test_a_topic_that_was_never_written_to(rig: KafkaRig) -> None:
    rig.create_topic()
    assert [found(ask(rig, timestamp)) for timestamp in (-1, -2, -3, -4, -5, -6, 0)] == [
        (0, -1),
        (0, -1),
        (-1, -1),
        (0, -1),
        (-1, -1),
        (0, -1),
        (-1, -1),
    ]


def test_what_is_refused(filled: KafkaRig) -> None:
    assert ask(filled, -1, epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(filled, -1, epoch=0).error_code == 0
    twice = [ListOffsetsPartition(0, -1, -1)] * 2
    unknown = [ListOffsetsPartition(9, -1, -1)]
    topics = [ListOffsetsTopic(TOPIC, twice + unknown)]
    answer = filled.ask(ListOffsetsRequest(-1, 0, topics), 7, ListOffsetsResponse)
    assert [part.error_code for part in answer.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_with_sync_flush_the_end_is_what_the_disk_has() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic()
    send(rig, batch(timestamps=[5]))
    rig.disk_answers = False
    rig.post(produce_request(batch(timestamps=[9])), 9, link=rig.connect())
    assert found(ask(rig, -1)) == (1, -1)
    assert found(ask(rig, 6)) == (-1, -1)
    rig.answer_flushes()
    assert found(ask(rig, 6)) == (1, 9)


batches = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=6)


@settings(max_examples=examples(60))
@given(batches=batches, timestamp=st.integers(0, 13), begin=st.integers(0, 8))
def test_the_first_record_of_that_time_or_later(
    batches: list[list[int]], timestamp: int, begin: int
) -> None:
    rig = KafkaRig()
    rig.create_topic()
    for times in batches:
        send(rig, batch(*[b"x"] * len(times), timestamps=times))
    times = [time for each in batches for time in each]
    begin = min(begin, len(times))
    delete(rig, begin)
    kept = list(enumerate(times))[begin:]
    expected = next((pair for pair in kept if pair[1] >= timestamp), (-1, -1))
    assert found(ask(rig, timestamp)) == expected
    largest = max((time for _, time in kept), default=-1)
    newest = next((pair for pair in kept if pair[1] == largest), (-1, -1))
    assert found(ask(rig, -3)) == newest


# -- leader epochs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "current", "expected"),
    [
        (0, -1, (0, 0, 6)),
        (0, 0, (0, 0, 6)),
        (1, -1, (0, -1, -1)),
        (-1, -1, (0, -1, -1)),
        (0, 1, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
def test_the_one_epoch_ends_where_the_log_ends(
    filled: KafkaRig, epoch: int, current: int, expected: tuple[int, int, int]
) -> None:
    part = OffsetForLeaderPartition(0, current, epoch)
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(TOPIC, [part])])
    answer = filled.ask(request, 4, OffsetForLeaderEpochResponse)
    code, its_epoch, end = expected
    assert answer.topics[0].partitions[0] == EpochEndOffset(code, 0, its_epoch, end)


# -- deleting --------------------------------------------------------------------------------------


def test_deleting_moves_the_begin(filled: KafkaRig) -> None:
    assert delete(filled, 2) == DeleteRecordsPartitionResult(0, 2, 0)
    assert delete(filled, 1) == DeleteRecordsPartitionResult(0, 2, 0), "it never moves back"
    filled.restart()
    assert ask(filled, -2).offset == 2
    assert delete(filled, -1) == DeleteRecordsPartitionResult(0, 6, 0)
    assert ask(filled, -1).offset == 6


@pytest.mark.parametrize("offset", [7, -2, 2**62])
def test_what_is_not_there_cannot_be_deleted(filled: KafkaRig, offset: int) -> None:
    answer = delete(filled, offset)
    assert answer == DeleteRecordsPartitionResult(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert ask(filled, -2).offset == 0


def test_other_refusals(rig: KafkaRig) -> None:
    rig.create_topic()
    assert delete(rig, 0) == DeleteRecordsPartitionResult(0, 0, 0)
    assert delete(rig, 0, partition=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ledger = delete(rig, 0, topic="RMQ_SYS_REBALANCE_LEDGER")
    assert ledger.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_deletion_makes_room_on_a_full_disk() -> None:
    """Whole segments go before their deletion is noted; where there is none to go, nothing is deleted."""
    disk = MemoryDisk()
    store = StoreConfig(segment_bytes=250, retention_ms=0)
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), store=store), disk)
    rig.create_topic()
    for _ in range(5):
        send(rig, batch(b"x" * 70))
        send(rig, batch(b"y"))
    disk.room_bytes = 0
    assert delete(rig, 1) == DeleteRecordsPartitionResult(0, -1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert ask(rig, -2).offset == 0
    assert delete(rig, 5) == DeleteRecordsPartitionResult(0, 5)
    rig.restart()
    assert ask(rig, -2).offset == 5
    disk.room_bytes = 0
    assert delete(rig, -1) == DeleteRecordsPartitionResult(0, 10)
    rig.restart()
    assert ask(rig, -2).offset == 10


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0), ("delete", 0), ("", 0)],
)
def test_records_of_a_compacted_topic_are_not_deleted(
    rig: KafkaRig, policy: str, code: int
) -> None:
    rig.create_topic(settings={"cleanup.policy": policy})
    assert delete(rig, 0).error_code == code
