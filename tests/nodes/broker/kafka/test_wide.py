"""Requests that name very many partitions are read, handled and answered in turns, and are answered as in one go."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch

from steelyard.config import BrokerConfig, FlushMode, KafkaConfig
from steelyard.groups.kafka.offsets import CommittedOffset
from steelyard.nodes.broker import turns
from steelyard.nodes.broker.kafka import service as side
from steelyard.nodes.broker.kafka.data import fetch, fetch_reads
from steelyard.nodes.broker.kafka.requests import wide
from steelyard.nodes.broker.kafka.requests.channel import TAKEN_PER_TURN
from steelyard.nodes.broker.turns import TURNS_TIMER
from steelyard.nodes.seam import Closed, Dial, Effect, Received
from steelyard.types import TopicPartition, joined
from steelyard.wire.kafka import frame, schema
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from steelyard.wire.kafka.messages.logs import TopicRequest as DescribedTopic
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from steelyard.wire.kafka.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

PARTITIONS = 40
NAMES = [f"name-{number}" for number in range(50)]


def commit(offset: int = 5, names: tuple[str, ...] = (TOPIC, "other", "none")) -> ApiMessage:
    parts = [OffsetCommitRequestPartition(n, offset, -1, "m") for n in range(PARTITIONS + 2)]
    return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(n, b"", parts) for n in names])


def committed(*partitions: int) -> ApiMessage:
    topics = [
        OffsetFetchRequestTopic(name, partition_indexes=partitions) for name in (TOPIC, "other")
    ]
    groups = [OffsetFetchRequestGroup(name, topics=topics) for name in ("g", "h")]
    return OffsetFetchRequest(groups=[*groups, OffsetFetchRequestGroup("g", topics=None)])


def produce(acks: int = -1, names: tuple[str, ...] = (TOPIC, "none")) -> ApiMessage:
    data = [PartitionProduceData(number, batch(b"v")) for number in range(PARTITIONS)]
    topics = [TopicProduceData(name, partition_data=data) for name in names]
    return ProduceRequest(None, acks, 1_000, topics)


def fetched(count: int = PARTITIONS, wait_ms: int = 0) -> FetchRequest:
    parts = [FetchPartition(n, partition_max_bytes=1_000) for n in range(count)]
    topics = [FetchTopic(name, partitions=parts) for name in (TOPIC, "none")]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)


CASES = [
    (commit(), 8, OffsetCommitResponse),
    (committed(*range(PARTITIONS)), 8, OffsetFetchResponse),
    (produce(), 9, ProduceResponse),
    (fetched(), 11, FetchResponse),
    (
        MetadataRequest([MetadataRequestTopic(name=f"n{n}") for n in range(50)], False),
        9,
        MetadataResponse,
    ),
    (
        DeleteRecordsRequest(
            [
                DeleteRecordsTopic(
                    TOPIC, [DeleteRecordsPartition(n, 0) for n in range(PARTITIONS + 5)]
                ),
                DeleteRecordsTopic("empty", []),
            ]
        ),
        2,
        DeleteRecordsResponse,
    ),
    (
        DescribeProducersRequest(
            [DescribedTopic(name, range(PARTITIONS + 5)) for name in (TOPIC, "none")]
        ),
        0,
        DescribeProducersResponse,
    ),
    (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    name, [OffsetForLeaderPartition(n) for n in range(PARTITIONS + 5)]
                )
                for name in (TOPIC, "none")
            ]
        ),
        4,
        OffsetForLeaderEpochResponse,
    ),
    (
        OffsetDeleteRequest(
            "g",
            [
                OffsetDeleteRequestTopic(
                    name, [OffsetDeleteRequestPartition(n) for n in range(PARTITIONS)]
                )
                for name in (TOPIC, "none")
            ],
        ),
        0,
        OffsetDeleteResponse,
    ),
    (
        TxnOffsetCommitRequest(
            "t",
            "g",
            topics=[
                TxnOffsetCommitRequestTopic(
                    name, [TxnOffsetCommitRequestPartition(n, 1) for n in range(PARTITIONS)]
                )
                for name in (TOPIC, "none")
            ],
        ),
        4,
        TxnOffsetCommitResponse,
    ),
    (CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in NAMES]), 7, CreateTopicsResponse),
    (DeleteTopicsRequest(topic_names=[*NAMES, TOPIC]), 5, DeleteTopicsResponse),
    (
        WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    number,
                    0,
                    True,
                    [WritableTxnMarkerTopic(name, range(PARTITIONS)) for name in (TOPIC, "none")],
                )
                for number in (7, 8)
            ]
        ),
        1,
        WriteTxnMarkersResponse,
    ),
    (FindCoordinatorRequest(coordinator_keys=NAMES), 4, FindCoordinatorResponse),
    (DescribeGroupsRequest(NAMES), 6, DescribeGroupsResponse),
    (DeleteGroupsRequest(NAMES), 2, DeleteGroupsResponse),
    (DescribeTransactionsRequest(NAMES), 0, DescribeTransactionsResponse),
    (ConsumerGroupDescribeRequest(NAMES), 1, ConsumerGroupDescribeResponse),
]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is a large one, and a few partitions are a turn's work."""
    monkeypatch.setattr(frame, "AT_ONCE_BYTES", 60)
    monkeypatch.setattr(wide, "PART_ITEMS", 7)
    cuts = {key: cut._replace(items=7) for key, cut in wide.CUTS.items()}
    monkeypatch.setattr(wide, "CUTS", cuts)
    monkeypatch.setattr(schema, "_STEP_EFFORT", 10)
    monkeypatch.setattr(schema, "_STEP_PIECES", 20)
    for module in (fetch, fetch_reads):
        monkeypatch.setattr(module, "STEP_PARTITIONS", 10)
    monkeypatch.setattr(fetch, "STEP_ASKED", 10)
    monkeypatch.setattr(fetch, "ANSWERS_PER_STEP", 10)


def prepared(flush: FlushMode = "async") -> KafkaRig:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush=flush))
    for name in (TOPIC, "other"):
        rig.create_topic(name, PARTITIONS)
    for index in range(3):
        topics = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(index, batch())])]
        rig.ask(ProduceRequest(None, -1, 1_000, topics), 9, ProduceResponse)
    return rig


def turns_until_answered(rig: KafkaRig, correlation: int) -> int:
    turns = 0
    while correlation not in rig.answers:
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
        turns += 1
    return turns


def data_of(rig: KafkaRig, correlation: int, kind: type[ApiMessage], version: int) -> bytes:
    message = rig.answer_to(correlation, kind)
    assert message is not None
    api = next(api for api in APIS.values() if api.response is kind)
    return joined(schema.write(message, version, flexible=api.is_flexible(version)))


@pytest.fixture(params=["async", "sync"])
def pair(request: pytest.FixtureRequest) -> tuple[KafkaRig, KafkaRig]:
    return prepared(request.param), prepared(request.param)


@pytest.mark.parametrize(
    ("message", "version", "kind"), CASES, ids=[type(case[0]).__name__ for case in CASES]
)
def test_the_answer_is_that_of_one_go(
    message: ApiMessage,
    version: int,
    kind: type[ApiMessage],
    pair: tuple[KafkaRig, KafkaRig],
    request: pytest.FixtureRequest,
) -> None:
    at_once, in_turns = pair
    if kind in (OffsetFetchResponse, OffsetDeleteResponse):
        for rig in pair:
            rig.ask(commit(names=(TOPIC, "other")), 8, OffsetCommitResponse)
    one = at_once.post(message, version)
    assert TURNS_TIMER not in at_once.timers
    request.getfixturevalue("slow")
    many = in_turns.post(message, version)
    assert turns_until_answered(in_turns, many) > 4
    assert data_of(in_turns, many, kind, version) == data_of(at_once, one, kind, version)


def test_a_turn_handles_a_part_and_no_more(slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = prepared()
    assert rig.node._kafka is not None
    coordinator = rig.node._kafka.groups.coordinator
    stored: list[int] = []
    original = coordinator.offsets.commit

    def count(
        group: str, offsets: Mapping[TopicPartition, CommittedOffset], producer_id: int | None
    ) -> None:
        stored.append(len(offsets))
        original(group, offsets, producer_id)

    monkeypatch.setattr(coordinator.offsets, "commit", count)
    correlation = rig.post(commit(names=(TOPIC,)), 8)
    while correlation not in rig.answers:
        stored.clear()
        rig.advance(1)
        assert sum(stored) <= 7


def test_what_follows_a_large_request_is_handled_after_it(slow: None) -> None:
    rig = prepared()
    first = rig.post(commit(5), 8)
    second = rig.post(commit(6), 8)
    asked = rig.post(OffsetFetchRequest("g", topics=None), 5)
    assert not rig.answers.keys() & {first, second, asked}
    turns_until_answered(rig, asked)
    assert list(rig.answers)[-3:] == [first, second, asked]
    answer = rig.answer_to(asked, OffsetFetchResponse)
    assert answer is not None
    offsets = {part.committed_offset for topic in answer.topics for part in topic.partitions}
    assert offsets == {6}


def test_a_long_api_versions_is_answered(rig: KafkaRig) -> None:
    """It is answered before everything else, and has nothing that takes long to read."""
    request = ApiVersionsRequest("librdkafka", "1" * 2 * frame.AT_ONCE_BYTES)
    assert rig.ask(request, 3, ApiVersionsResponse).error_code == 0


def test_others_are_served_meanwhile(slow: None) -> None:
    rig = prepared()
    first = rig.post(commit(), 8)
    other = rig.connect()
    second = rig.post(ApiVersionsRequest(), 0, link=other)
    assert second in rig.answers
    assert first not in rig.answers


@pytest.mark.parametrize("key", [*wide.CUTS, 9])
def test_a_cut_names_arrays_that_are_there(key: int) -> None:
    api = APIS[key]
    for version in range(api.versions[0], api.versions[1] + 1):
        cut = wide.cut_of(key, version)
        assert cut is not None
        assert len(cut.request) == len(cut.response)
        for kind, path in ((api.request, cut.request), (api.response, cut.response)):
            item: Any = kind
            for name in path:
                assert name in item.__struct_fields__
                found = [f for f in schema._fields(item, version, False) if f.name == name]
                if not found:
                    break  # in other versions only
                assert found[0].is_array
                item = found[0].kind


def test_a_few_of_those_that_follow_are_taken_in_one_turn(slow: None) -> None:
    rig = prepared()
    rig.post(commit(), 8)
    others = [rig.post(ApiVersionsRequest(), 0) for _ in range(3 * TAKEN_PER_TURN)]
    served = rig.connect()
    while others[-1] not in rig.answers:
        before = len(rig.answers)
        rig.advance(1)
        assert len(rig.answers) - before <= TAKEN_PER_TURN + 1
        assert rig.post(ApiVersionsRequest(), 0, link=served) in rig.answers
    assert [each for each in rig.answers if each in others] == others


def test_a_client_that_sends_too_much_behind_a_large_request_is_disconnected(
    slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LINK_BYTES_MAX", 10_000)
    rig = prepared()
    size = 0
    while not rig.hung:
        rig.post(commit(), 8)
        size += 1_000
        assert size < 20_000, "it takes any number of large requests"
    assert rig.hung == [rig.link]
    assert any("too many requests wait" in told.text for told in rig.told)
    other = rig.connect()
    turns_until_answered(rig, rig.post(commit(), 8, link=other))


@pytest.mark.parametrize("turns", [0, 1, 5, 20])
def test_a_client_that_is_gone_gets_no_more_turns(slow: None, turns: int) -> None:
    rig = prepared("sync")
    rig.disk_answers = False
    rig.post(commit(), 8)
    rig.post(ApiVersionsRequest(), 0)
    rig.advance(turns)
    rig.event(Closed(rig.link, "gone"))
    rig.advance(2)
    assert TURNS_TIMER not in rig.timers
    rig.answer_flushes()
    rig.advance(10)
    assert not rig.hung


def test_a_large_produce_without_acks_has_no_answer(slow: None) -> None:
    rig = prepared()
    first = rig.post(produce(0, (TOPIC,)), 9)
    second = rig.post(ApiVersionsRequest(), 0)
    turns_until_answered(rig, second)
    assert first not in rig.answers
    assert rig.log(TOPIC, PARTITIONS - 1).max_offset == 1


def test_a_large_request_that_is_none_closes_its_link(slow: None) -> None:
    rig = prepared()
    data = frame.encode(frame.Request(OFFSET_COMMIT, 8, 1, "c", commit()))
    cut = struct.pack(">i", len(data) - 14) + data[4:-10]
    (request,) = frame.server_decoder().feed(cut)
    rig.event(Received(rig.link, request))
    rig.advance(100)
    assert rig.hung == [rig.link]
    assert any("ends too early" in told.text for told in rig.told)


def test_a_wide_fetch_waits_for_its_time_only(slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "QUEUES_MAX", 30)
    rig = prepared()
    parts = [FetchPartition(n, partition_max_bytes=1_000) for n in range(5, PARTITIONS)]
    topics = [FetchTopic(TOPIC, partitions=parts)]
    asked = rig.post(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=topics), 11)
    rig.advance(50)
    assert asked not in rig.answers
    topic = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(7, batch(b"late"))])]
    rig.ask(ProduceRequest(None, -1, 1_000, topic), 9, ProduceResponse, link=rig.connect())
    assert asked not in rig.answers
    rig.advance(2 * fetch.TIMED_MS)
    answer = rig.answer_to(asked, FetchResponse)
    assert answer is not None
    assert [p.partition_index for p in answer.responses[0].partitions if p.records] == [7]


def reads_noted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[object]:
    """The calls of a method of Reads, which go on as they were."""
    calls: list[object] = []
    original = getattr(fetch_reads.Reads, name)

    def note(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(fetch_reads.Reads, name, note)
    return calls


def test_a_fetch_in_turns_does_not_wait_for_what_has_come_meanwhile(
    slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = reads_noted(monkeypatch, "_find")
    rig = prepared()
    parts = [FetchPartition(n, partition_max_bytes=1_000) for n in range(5, PARTITIONS)]
    topics = [FetchTopic(TOPIC, partitions=parts)]
    asked = rig.post(FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=topics), 11)
    while not seen:
        rig.advance(1)
    other = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(5, batch(b"late"))])]
    rig.post(ProduceRequest(None, -1, 1_000, other), 9, link=rig.connect())
    turns_until_answered(rig, asked)


def test_wide_fetches_that_one_append_wakes_are_answered_in_turns(
    slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = reads_noted(monkeypatch, "_read")
    rig = prepared()
    parts = [FetchPartition(n, partition_max_bytes=1_000) for n in range(5, PARTITIONS)]
    request = FetchRequest(
        max_wait_ms=10_000, min_bytes=1, topics=[FetchTopic(TOPIC, partitions=parts)]
    )
    asked = [rig.post(request, 11, link=rig.connect()) for _ in range(3)]
    rig.advance(100)
    assert not rig.answers.keys() & set(asked)
    topic = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(7, batch(b"late"))])]
    read.clear()
    produced = rig.post(ProduceRequest(None, -1, 1_000, topic), 9, link=rig.connect())
    assert produced in rig.answers
    assert len(read) <= 10
    while set(asked) - rig.answers.keys():
        read.clear()
        rig.advance(1)
        assert len(read) <= 10
    for correlation in asked:
        answer = rig.answer_to(correlation, FetchResponse)
        assert answer is not None
        assert [p.partition_index for p in answer.responses[0].partitions if p.records] == [7]


class Waiting(KafkaRig):
    """A broker that has not found its nameserver yet."""

    def _make_other_true(self, effect: Effect) -> None:
        assert isinstance(effect, Dial)


def test_what_comes_before_the_broker_is_ready_is_bounded_in_bytes(
    slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side, "EARLY_BYTES_MAX", 10_000)
    rig = Waiting(BrokerConfig(kafka=KafkaConfig(), nameservers=("10.0.0.9:9876",)))
    sent = 0
    while not rig.hung:
        rig.post(commit(), 8, link=rig.connect())
        sent += 1
        assert sent < 20, "it keeps any number of large requests"
    assert rig.hung == [rig.links]
    assert not rig.answers


def test_a_long_list_of_short_names_is_handled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has few bytes, but takes as long as a large request."""
    rig = prepared()
    assert rig.node._kafka is not None
    requests = rig.node._kafka.groups.requests
    seen: list[str] = []
    original = requests.refusal

    def count(group_id: str) -> Any:
        seen.append(group_id)
        return original(group_id)

    monkeypatch.setattr(requests, "refusal", count)
    names = [f"{number}" for number in range(1_000)]
    correlation = rig.post(DescribeGroupsRequest(names), 6)
    second = rig.post(ApiVersionsRequest(), 0)
    assert len(seen) <= wide.PART_GROUPS
    while correlation not in rig.answers:
        assert len(seen) <= wide.PART_GROUPS
        seen.clear()
        assert TURNS_TIMER in rig.timers, "it waits for nothing"
        rig.advance(1)
    answer = rig.answer_to(correlation, DescribeGroupsResponse)
    assert answer is not None
    assert [group.group_id for group in answer.groups] == names
    turns_until_answered(rig, second)
