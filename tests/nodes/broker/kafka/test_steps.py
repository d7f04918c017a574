"""Requests that take long are answered in turns, and others meanwhile."""

from __future__ import annotations

import pytest
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch

from steelyard.nodes.broker.conversion.to_kafka import RECORD_EFFORT
from steelyard.nodes.broker.kafka.topics import configs, metadata
from steelyard.nodes.broker.turns import SLICE, TURNS_TIMER
from steelyard.nodes.seam import Closed
from steelyard.types import joined
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from steelyard.wire.kafka.messages.logs import (
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.records import Record, read_headers, read_records, write_batch
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.remoting.message import encode_record


def turns_until_answered(rig: KafkaRig, correlation: int) -> int:
    turns = 0
    while correlation not in rig.answers:
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
        turns += 1
    return turns


def by_time(timestamp: int) -> ListOffsetsRequest:
    part = ListOffsetsPartition(0, -1, timestamp)
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [part])])


def found(rig: KafkaRig, correlation: int) -> tuple[int, int]:
    answer = rig.answer_to(correlation, ListOffsetsResponse)
    assert answer is not None
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0
    return part.offset, part.timestamp


@pytest.mark.parametrize(
    ("timestamp", "wanted"),
    [
        (START + 59_999, (59_999, START + 59_999)),
        (START + 60_000, (-1, -1)),
        (MAX_TIMESTAMP, (59_999, START + 59_999)),
    ],
)
def test_a_time_in_a_large_batch_is_looked_for_in_turns(
    rig: KafkaRig, timestamp: int, wanted: tuple[int, int]
) -> None:
    rig.create_topic()
    log = rig.store.create_log(TOPIC, 0)
    records = [Record(number, START + number, None, b"") for number in range(60_000)]
    log.append_batch(write_batch(records, compression=Compression.ZSTD), 60_000, START)
    correlation = rig.post(by_time(timestamp), 7)
    other = rig.connect()
    rig.ask(ApiVersionsRequest(), 0, ApiVersionsResponse, link=other)
    if wanted[0] >= 0:
        assert turns_until_answered(rig, correlation) > 3
    assert found(rig, correlation) == wanted


@pytest.fixture
def unlearned(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> KafkaRig:
    """A queue of 300 batches, one each ms, whose times have to be learned, in small blocks."""
    monkeypatch.setattr("steelyard.store.times.BLOCK_BYTES", 1_000)
    rig.create_topic()
    log = rig.store.create_log(TOPIC, 0)
    for number in range(300):
        data = write_batch([Record(number, START + number, None, b"x")])
        log.append_batch(data, 1, START)
    return rig


def test_the_times_of_a_log_are_learned_in_turns(unlearned: KafkaRig) -> None:
    correlation = unlearned.post(by_time(START + 299), 7)
    assert turns_until_answered(unlearned, correlation) > 10
    assert found(unlearned, correlation) == (299, START + 299)
    # What was learned is kept.
    correlation = unlearned.post(by_time(START + 298), 7)
    assert found(unlearned, correlation) == (298, START + 298)


def test_answers_of_a_link_keep_their_order(unlearned: KafkaRig) -> None:
    first = unlearned.post(by_time(START + 299), 7)
    second = unlearned.post(ApiVersionsRequest(), 0)
    assert not unlearned.answers.keys() & {first, second}
    turns_until_answered(unlearned, second)
    assert first in unlearned.answers


def test_a_topic_that_is_deleted_between_two_steps(unlearned: KafkaRig) -> None:
    correlation = unlearned.post(by_time(START + 299), 7)
    unlearned.advance(3)
    unlearned.store.delete_topic(TOPIC)
    turns_until_answered(unlearned, correlation)
    assert found(unlearned, correlation) == (-1, -1)


def test_a_client_that_is_gone_gets_no_more_turns(
    rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "STEP_PARTITIONS", 10)
    for number in range(5):
        rig.create_topic(f"t{number}", 20)
    rig.post(MetadataRequest(None), 9)
    rig.event(Closed(rig.link, "gone"))
    rig.advance(100)
    assert TURNS_TIMER not in rig.timers


def in_one_and_in_many(
    rig: KafkaRig, message: ApiMessage, version: int, kind: type[ApiMessage]
) -> tuple[ApiMessage, ApiMessage]:
    """The same answer, found in one step and in many."""
    at_once = rig.answer_to(rig.post(message, version), kind)
    assert at_once is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "STEP_PARTITIONS", 1)
        patch.setattr(configs, "STEP_RESOURCES", 1)
        correlation = rig.post(message, version)
        assert turns_until_answered(rig, correlation) > 5
    in_turns = rig.answer_to(correlation, kind)
    assert in_turns is not None
    return at_once, in_turns


def test_metadata_in_steps(rig: KafkaRig) -> None:
    for number in range(8):
        rig.create_topic(f"t{number}", 2)
    one, many = in_one_and_in_many(rig, MetadataRequest(None), 9, MetadataResponse)
    assert isinstance(one, MetadataResponse)
    assert isinstance(many, MetadataResponse)
    assert [topic.name for topic in many.topics] == [topic.name for topic in one.topics]
    assert [len(topic.partitions) for topic in many.topics] == [
        len(topic.partitions) for topic in one.topics
    ]


def test_configs_in_steps(rig: KafkaRig) -> None:
    names = [f"t{number}" for number in range(8)]
    for name in names:
        rig.create_topic(name)
    asked = DescribeConfigsRequest([DescribeConfigsResource(2, name, None) for name in names])
    one, many = in_one_and_in_many(rig, asked, 4, DescribeConfigsResponse)
    assert isinstance(one, DescribeConfigsResponse)
    assert isinstance(many, DescribeConfigsResponse)
    assert [len(result.configs) for result in many.results] == [
        len(result.configs) for result in one.results
    ]


def test_a_fetch_that_has_much_to_convert_waits_for_its_turn(rig: KafkaRig) -> None:
    count = 3_000
    rig.create_topic(partitions=2)
    for queue_id in range(2):
        log = rig.store.create_log(TOPIC, queue_id)
        for _ in range(count):
            entry = encode_record(
                topic=TOPIC,
                queue_id=queue_id,
                flag=0,
                queue_offset=log.max_offset,
                physical_offset=log.next_address,
                sys_flag=0,
                born_timestamp=START,
                born_host=bytes(8),
                store_timestamp=START,
                store_host=bytes(8),
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=b"x",
                properties=b"",
            )
            log.append(entry, 0, START)
    rig.event(Closed(rig.link, "gone"))
    rig.link = rig.connect()
    offsets = [0, 0]
    for _ in range(100):
        if offsets == [count, count]:
            break
        order = sorted(
            range(2), key=lambda index: offsets[index]
        )  # as clients do: who had least comes first
        parts = [
            FetchPartition(n, fetch_offset=offsets[n], partition_max_bytes=1 << 20) for n in order
        ]
        request = FetchRequest(
            max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(TOPIC, partitions=parts)]
        )
        correlation = rig.post(request, 11)
        if correlation not in rig.answers:
            assert turns_until_answered(rig, correlation) == 1
        answer = rig.answer_to(correlation, FetchResponse)
        assert answer is not None
        for part in answer.responses[0].partitions:
            data = joined([part.records or b""])
            for at, _header in read_headers(data):
                records = read_records(data, at)
                assert records[0].offset == offsets[part.partition_index]
                assert len(records) <= SLICE // RECORD_EFFORT + 1 < count
                offsets[part.partition_index] = records[-1].offset + 1
    assert offsets == [count, count]


def test_a_small_batch_is_looked_into_at_once(rig: KafkaRig) -> None:
    rig.create_topic()
    log = rig.store.create_log(TOPIC, 0)
    log.append_batch(batch(b"a", b"b", b"c"), 3, START)
    assert found(rig, rig.post(by_time(START + 2), 7)) == (2, START + 2)
