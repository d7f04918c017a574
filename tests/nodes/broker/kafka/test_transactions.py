"""Transactions over two brokers: coordinator on one, partitions and groups on both; brokers die in the middle."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import batch
from tests.nodes.broker.kafka.requests import producing

from steelyard.nodes.broker.kafka.cluster.cluster import coordinator_partition
from steelyard.nodes.broker.kafka.data import producers
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from steelyard.wire.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from steelyard.wire.kafka.records import TRANSACTIONAL

TOPIC = "T"
NAMES = {1: "broker-a", 2: "broker-b"}
READ_COMMITTED = 1


class Client:
    """One transactional producer, and a reader of what it wrote. `asked`: the broker that tells them who is who."""

    def __init__(
        self, brokers: Brokers, transactional_id: str = "tx", asked: str = "broker-a"
    ) -> None:
        self.brokers = brokers
        self.asked = asked
        self.transactional_id = transactional_id
        self.coordinator = self.coordinator_of(transactional_id, 1)
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[int, int] = {}

    def coordinator_of(self, key: str, key_type: int) -> str:
        request = FindCoordinatorRequest(key, key_type)
        found = self.brokers.ask(self.asked, request, 3, FindCoordinatorResponse)
        assert found.error_code == 0
        return NAMES[found.node_id]

    def init(self) -> ErrorCode:
        request = InitProducerIdRequest(self.transactional_id, 60_000)
        answer = self.brokers.ask(self.coordinator, request, 4, InitProducerIdResponse)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return ErrorCode(answer.error_code)

    def add(self, *partitions: int, topic: str = TOPIC) -> list[ErrorCode]:
        wanted = AddPartitionsToTxnTopic(topic, partitions)
        request = AddPartitionsToTxnRequest(
            self.transactional_id, self.producer_id, self.epoch, [wanted]
        )
        answer = self.brokers.ask(self.coordinator, request, 3, AddPartitionsToTxnResponse)
        (result,) = answer.results_by_topic
        return [ErrorCode(each.partition_error_code) for each in result.results_by_partition]

    def write(self, partition: int) -> ErrorCode:
        sequence = self.sequences.get(partition, 0)
        data = batch(
            b"t",
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        request = producing(TOPIC, partition, data, self.transactional_id)
        broker = NAMES[self.brokers.leaders(self.asked, TOPIC)[partition]]
        answer = self.brokers.ask(broker, request, 9, ProduceResponse)
        self.sequences[partition] = sequence + 1
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def begin(self, *partitions: int) -> None:
        assert self.add(*partitions) == [ErrorCode.NONE] * len(partitions)
        for partition in partitions:
            assert self.write(partition) == ErrorCode.NONE

    def end(self, *, commit: bool, version: int = 3) -> ErrorCode:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        answer = self.brokers.ask(self.coordinator, request, version, EndTxnResponse)
        return ErrorCode(answer.error_code)

    def fetched(self, partition: int, broker: str = "") -> PartitionData:
        wanted = FetchTopic(TOPIC, partitions=[FetchPartition(partition, -1, 0, -1, -1, 1 << 20)])
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=READ_COMMITTED, topics=[wanted]
        )
        broker = broker or NAMES[self.brokers.leaders(self.asked, TOPIC)[partition]]
        answer = self.brokers.ask(broker, request, 11, FetchResponse)
        return answer.responses[0].partitions[0]

    def stable(self, partition: int) -> int:
        return self.fetched(partition).last_stable_offset

    def state(self) -> DescribedTransaction:
        request = DescribeTransactionsRequest([self.transactional_id])
        answer = self.brokers.ask(self.coordinator, request, 0, DescribeTransactionsResponse)
        return answer.transaction_states[0]


@pytest.fixture(params=["", "server.pem"], ids=["plain", "encrypted"])
def brokers(request: pytest.FixtureRequest) -> Brokers:
    """Brokers that reach each other by their Kafka listeners, or not, because these want TLS."""
    brokers = Brokers("broker-a", "broker-b", ssl_certificate_file=request.param)
    brokers.create("broker-a", TOPIC, 4)
    assert set(brokers.leaders("broker-a", TOPIC)) == {1, 2}
    return brokers


@pytest.fixture
def client(brokers: Brokers) -> Client:
    client = Client(brokers)
    assert client.init() == ErrorCode.NONE
    return client


@pytest.mark.parametrize("commit", [True, False])
def test_all_partitions_of_both_brokers_end_together(client: Client, commit: bool) -> None:
    client.begin(0, 1, 2, 3)
    assert [client.stable(partition) for partition in range(4)] == [0, 0, 0, 0]
    assert client.end(commit=commit) == ErrorCode.NONE
    client.brokers.advance(1_000)
    for partition in range(4):
        found = client.fetched(partition)
        assert found.last_stable_offset == 2  # the record and the marker
        aborted = [
            (each.producer_id, each.first_offset) for each in found.aborted_transactions or ()
        ]
        assert aborted == ([] if commit else [(client.producer_id, 0)])
    assert client.state().transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    client.begin(0)
    assert client.end(commit=True) == ErrorCode.NONE


def test_markers_wait_for_a_broker_that_is_down(client: Client) -> None:
    client.begin(0, 1, 2, 3)
    (other,) = set(NAMES.values()) - {client.coordinator}
    client.brokers.kill(other)
    assert client.end(commit=True) == ErrorCode.NONE
    client.brokers.advance(5_000)
    assert client.state().transaction_state == "PrepareCommit"
    assert client.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
    client.brokers.start(other)
    client.brokers.advance(10_000)
    assert client.state().transaction_state == "CompleteCommit"
    assert [client.stable(partition) for partition in range(4)] == [2, 2, 2, 2]


def test_a_decision_outlives_its_coordinator(client: Client) -> None:
    client.begin(0, 1, 2, 3)
    (other,) = set(NAMES.values()) - {client.coordinator}
    client.brokers.kill(other)
    assert client.end(commit=False) == ErrorCode.NONE
    client.brokers.kill(client.coordinator)
    client.brokers.start(client.coordinator)
    client.brokers.start(other)
    client.brokers.advance(10_000)
    assert client.state().transaction_state == "CompleteAbort"
    for partition in range(4):
        (aborted,) = client.fetched(partition).aborted_transactions or ()
        assert (aborted.producer_id, aborted.first_offset) == (client.producer_id, 0)


def test_a_transaction_left_alone_is_aborted(client: Client) -> None:
    client.begin(0, 2)
    client.brokers.advance(59_000)
    assert client.stable(0) == 0
    client.brokers.advance(5_000)
    assert client.state().transaction_state == "CompleteAbort"
    assert client.stable(0) == 2
    assert client.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert client.end(commit=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.write(0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_second_producer_fences_the_first(client: Client) -> None:
    client.begin(0, 1)
    second = Client(client.brokers)
    assert second.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    client.brokers.advance(1_000)
    assert second.init() == ErrorCode.NONE
    assert client.end(commit=True) == ErrorCode.PRODUCER_FENCED
    second.begin(0, 1)
    assert client.write(0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert second.end(commit=True) == ErrorCode.NONE


def test_a_topic_deleted_meanwhile_holds_nothing_up(client: Client) -> None:
    client.brokers.create("broker-a", "gone", 4)
    client.begin(0)
    assert client.add(0, 1, 2, 3, topic="gone") == [ErrorCode.NONE] * 4
    request = DeleteTopicsRequest(topic_names=["gone"])
    client.brokers.ask("broker-a", request, 5, DeleteTopicsResponse)
    assert client.end(commit=True) == ErrorCode.NONE
    client.brokers.advance(5_000)
    assert client.state().transaction_state == "CompleteCommit"
    assert client.stable(0) == 2


def test_unknown_partitions_spoil_the_request(client: Client) -> None:
    assert client.add(0, 9) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert client.add(0, topic="none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.state().transaction_state == "Empty"


def test_only_its_coordinator_knows_a_transactional_id(client: Client) -> None:
    (other,) = set(NAMES.values()) - {client.coordinator}
    client.begin(0)
    client.coordinator = other
    assert client.init() == ErrorCode.NOT_COORDINATOR
    assert client.add(0) == [ErrorCode.NOT_COORDINATOR]
    assert client.end(commit=True) == ErrorCode.NOT_COORDINATOR
    assert client.state().error_code == ErrorCode.NOT_COORDINATOR


# -- offsets ---------------------------------------------------------------------------------------


def groups_of_both(client: Client) -> list[str]:
    """A group that is coordinated where the transaction is, and one that is not."""
    found: dict[str, str] = {}
    for number in range(100):
        found.setdefault(client.coordinator_of(f"g{number}", 0), f"g{number}")
    return sorted(found.values())


def commit_offsets(client: Client, group: str, offset: int, epoch: int | None = None) -> ErrorCode:
    part = TxnOffsetCommitRequestPartition(0, offset)
    request = TxnOffsetCommitRequest(
        client.transactional_id,
        group,
        client.producer_id,
        client.epoch if epoch is None else epoch,
        topics=[TxnOffsetCommitRequestTopic(TOPIC, [part])],
    )
    broker = client.coordinator_of(group, 0)
    answer = client.brokers.ask(broker, request, 3, TxnOffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def add_offsets(client: Client, group: str) -> ErrorCode:
    request = AddOffsetsToTxnRequest(
        client.transactional_id, client.producer_id, client.epoch, group
    )
    answer = client.brokers.ask(client.coordinator, request, 3, AddOffsetsToTxnResponse)
    return ErrorCode(answer.error_code)


def committed(client: Client, group: str) -> tuple[int, int]:
    """The group's committed offset, and the error of asking for a stable one."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(TOPIC, partition_indexes=[0])],
        require_stable=True,
    )
    broker = client.coordinator_of(group, 0)
    answer = client.brokers.ask(broker, request, 7, OffsetFetchResponse)
    part = answer.topics[0].partitions[0]
    return part.committed_offset, part.error_code


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_when_the_transaction_commits(client: Client, commit: bool) -> None:
    groups = groups_of_both(client)
    assert len(groups) == 2
    for group in groups:
        assert add_offsets(client, group) == ErrorCode.NONE
        assert commit_offsets(client, group, 17) == ErrorCode.NONE
        assert committed(client, group)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.end(commit=commit) == ErrorCode.NONE
    client.brokers.advance(1_000)
    for group in groups:
        assert committed(client, group) == (17 if commit else -1, 0)


def test_pending_offsets_outlive_the_groups_broker(client: Client) -> None:
    groups = groups_of_both(client)
    for group in groups:
        add_offsets(client, group)
        commit_offsets(client, group, 5)
    for name in NAMES.values():
        client.brokers.kill(name)
        client.brokers.start(name)
        client.brokers.advance(5_000)
    assert client.end(commit=True) == ErrorCode.NONE
    client.brokers.advance(5_000)
    assert [committed(client, group) for group in groups] == [(5, 0), (5, 0)]


def test_a_fenced_producer_leaves_no_offsets(client: Client) -> None:
    (group, *_) = groups_of_both(client)
    add_offsets(client, group)
    old = client.epoch
    client.brokers.advance(70_000)  # aborted, with a higher epoch
    assert commit_offsets(client, group, 9, epoch=old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed(client, group) == (-1, 0)


def test_a_group_must_have_a_name(client: Client) -> None:
    assert add_offsets(client, "") == ErrorCode.INVALID_GROUP_ID


# -- operators -------------------------------------------------------------------------------------


def test_transactions_are_described_and_listed(client: Client) -> None:
    client.begin(1, 3)
    state = client.state()
    assert (state.transaction_state, state.producer_id) == ("Ongoing", client.producer_id)
    assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [(TOPIC, [1, 3])]
    assert state.transaction_start_time_ms == client.brokers.now

    def listed(**asked: object) -> list[str]:
        request = ListTransactionsRequest(**asked)  # type: ignore[arg-type]
        answer = client.brokers.ask(client.coordinator, request, 2, ListTransactionsResponse)
        assert not answer.error_code
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == ["tx"]
    assert listed(state_filters=["Ongoing"]) == ["tx"]
    assert listed(state_filters=["Empty"]) == []
    assert listed(producer_id_filters=[client.producer_id]) == ["tx"]
    assert listed(producer_id_filters=[-5]) == []
    assert listed(transactional_id_pattern="t.") == ["tx"]
    assert listed(transactional_id_pattern="t") == []
    client.brokers.advance(5_000)
    assert listed(duration_filter=4_000) == ["tx"]
    assert listed(duration_filter=6_000) == []
    request = ListTransactionsRequest(["Nonsense"], transactional_id_pattern="(")
    answer = client.brokers.ask(client.coordinator, request, 2, ListTransactionsResponse)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_unknown_id(client: Client) -> None:
    stranger = Client(client.brokers, "stranger")
    assert stranger.state().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_the_vectors_of_coordinator_partitions() -> None:
    vectors = {"my-group": 12, "": 0, "a": 47, "group-1": 49, "café": 21, "polygenelubricants": 0}
    assert {key: coordinator_partition(key, 50) for key in vectors} == vectors


@pytest.mark.parametrize("is_over", [True, False])
def test_a_transaction_whose_records_were_deleted(
    client: Client, is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Readers of committed records may read all that is left. 2. So they may after a restart: a snapshot that is older
    than the log says nothing."""
    brokers = client.brokers
    leader = NAMES[brokers.leaders("broker-a", TOPIC)[0]]
    monkeypatch.setattr(producers, "SNAPSHOT_BATCHES", 1)
    client.begin(0)  # and a snapshot, in which it is open
    monkeypatch.undo()
    if is_over:
        assert client.end(commit=True) == ErrorCode.NONE
        brokers.advance(1_000)
    parts = [DeleteRecordsPartition(0, -1)]
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, parts)], 1_000)
    deleted = brokers.ask(leader, request, 2, DeleteRecordsResponse).topics[0].partitions[0]
    assert deleted.low_watermark == (2 if is_over else 1)
    for _ in range(2):
        part = ListOffsetsPartition(0, -1, -1)
        asked = ListOffsetsRequest(-1, READ_COMMITTED, [ListOffsetsTopic(TOPIC, [part])])
        found = brokers.ask(leader, asked, 11, ListOffsetsResponse).topics[0].partitions[0]
        assert (found.error_code, found.offset) == (0, deleted.low_watermark)
        brokers.kill(leader)
        brokers.start(leader)
        brokers.advance(10_000)
