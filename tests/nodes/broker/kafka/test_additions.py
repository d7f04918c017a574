"""Partitions that leaders have added to transactions, or verify (KIP-890), over two brokers."""

from __future__ import annotations

import pytest
from tests.nodes.broker.driver import TOPIC as RIG_TOPIC
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import producing
from tests.nodes.broker.kafka.test_transactions import (
    NAMES,
    TOPIC,
    Client,
    add_offsets,
    committed,
    groups_of_both,
)

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.kafka.cluster.cluster import coordinator_partition
from steelyard.nodes.broker.kafka.transactions import producing as transactional
from steelyard.nodes.broker.kafka.transactions.additions import RETRY_MAX_MS
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.requests import FORWARD
from steelyard.nodes.seam import KAFKA, Opened, Received
from steelyard.types import TopicPartition
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Request
from steelyard.wire.kafka.messages.data import ProduceRequest, ProduceResponse
from steelyard.wire.kafka.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from steelyard.wire.kafka.records import TRANSACTIONAL
from steelyard.wire.remoting.command import is_response

E = ErrorCode
V2 = 12
"""The version of Produce from which on partitions are added."""


class Newer(Client):
    """A producer of version 2: it adds nothing itself, and its epoch changes with each end."""

    def request(self, partition: int, sequence: int | None = None) -> ProduceRequest:
        if sequence is None:
            sequence = self.sequences.get(partition, 0)
            self.sequences[partition] = sequence + 1
        data = batch(
            b"t",
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        return producing(TOPIC, partition, data, self.transactional_id)

    def leader(self, partition: int) -> str:
        return NAMES[self.brokers.leaders(self.asked, TOPIC)[partition]]

    def produce(self, partition: int, version: int = V2, sequence: int | None = None) -> ErrorCode:
        """One batch, answered without the clock; a refused one will have to be sent again."""
        request = self.request(partition, sequence)
        return error_of(self.brokers.ask(self.leader(partition), request, version, ProduceResponse))

    def end(self, *, commit: bool, version: int = 5) -> ErrorCode:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        answer = self.brokers.ask(self.coordinator, request, version, EndTxnResponse)
        if not answer.error_code and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return ErrorCode(answer.error_code)

    def commit_offset(self, group: str, offset: int, version: int = 5) -> ErrorCode:
        part = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.producer_id,
            self.epoch,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, [part])],
        )
        broker = self.coordinator_of(group, 0)
        answer = self.brokers.ask(broker, request, version, TxnOffsetCommitResponse)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


def error_of(answer: ProduceResponse) -> ErrorCode:
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.fixture(params=["", "server.pem"], ids=["plain", "encrypted"])
def brokers(request: pytest.FixtureRequest) -> Brokers:
    return made(ssl_certificate_file=request.param)


def made(**kafka: int | bool | str) -> Brokers:
    brokers = Brokers("broker-a", "broker-b", **kafka)  # type: ignore[arg-type]
    brokers.create("broker-a", TOPIC, 4)
    assert set(brokers.leaders("broker-a", TOPIC)) == {1, 2}
    return brokers


@pytest.fixture
def client(brokers: Brokers) -> Newer:
    client = Newer(brokers)
    assert client.init() == E.NONE
    return client


@pytest.fixture
def plain() -> Newer:
    client = Newer(made())
    assert client.init() == E.NONE
    return client


def far(client: Client) -> int:
    """A partition whose leader is not the transaction's coordinator."""
    leaders = client.brokers.leaders(client.asked, TOPIC)
    return next(number for number in range(4) if NAMES[leaders[number]] != client.coordinator)


def near(client: Client) -> int:
    leaders = client.brokers.leaders(client.asked, TOPIC)
    return next(number for number in range(4) if NAMES[leaders[number]] == client.coordinator)


def test_partitions_of_both_brokers_are_added_by_what_is_written(client: Newer) -> None:
    for number, commit in enumerate((True, False, True, True), 1):
        for partition in (0, 1, 2, 3, 0):
            assert client.produce(partition) == E.NONE
        state = client.state()
        assert state.transaction_state == "Ongoing"
        assert [list(topic.partitions) for topic in state.topics] == [[0, 1, 2, 3]]
        assert client.end(commit=commit) == E.NONE
        assert client.epoch == number
        client.brokers.advance(1_000)
        assert client.state().producer_epoch == number
    for partition in range(4):
        found = client.fetched(partition)
        assert found.last_stable_offset == (12 if partition == 0 else 8)
        assert [each.first_offset for each in found.aborted_transactions or ()] == [
            3 if partition == 0 else 2
        ]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_add_their_group(client: Newer, commit: bool) -> None:
    groups = groups_of_both(client)
    assert len(groups) == 2
    for group in groups:
        assert client.commit_offset(group, 17) == E.NONE
        assert committed(client, group)[1] == E.UNSTABLE_OFFSET_COMMIT
    assert [topic.topic for topic in client.state().topics] == ["__consumer_offsets"]
    assert client.end(commit=commit) == E.NONE
    client.brokers.advance(1_000)
    for group in groups:
        assert committed(client, group) == (17 if commit else -1, 0)
    client.epoch -= 1
    for group in groups:
        assert client.commit_offset(group, 18) == E.INVALID_PRODUCER_EPOCH


def test_a_late_marker_commits_no_offsets_of_the_next_transaction(plain: Newer) -> None:
    client, group = plain, groups_of_both(plain)[0]
    place = TopicPartition("__consumer_offsets", coordinator_partition(group, 50))

    def mark(epoch: int) -> ErrorCode:
        topic = WritableTxnMarkerTopic(place.topic, [place.partition])
        marker = WritableTxnMarker(client.producer_id, epoch, True, [topic], 0, 2)
        answer = client.brokers.ask(
            client.coordinator_of(group, 0),
            WriteTxnMarkersRequest([marker]),
            2,
            WriteTxnMarkersResponse,
        )
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert client.commit_offset(group, 1) == E.NONE
    assert client.end(commit=True) == E.NONE
    client.brokers.advance(1_000)
    assert mark(client.epoch) == E.NONE
    assert client.commit_offset(group, 2) == E.NONE
    assert mark(client.epoch) == E.INVALID_PRODUCER_EPOCH
    assert client.end(commit=False) == E.NONE
    client.brokers.advance(1_000)
    assert committed(client, group) == (1, E.NONE)


def test_offsets_wait_for_the_coordinator(plain: Newer) -> None:
    """It may be lost, or the transaction may end meanwhile."""
    client = plain
    group = next(
        each
        for each in groups_of_both(client)
        if client.coordinator_of(each, 0) != client.coordinator
    )
    client.brokers.lost = lambda command: command.code == FORWARD
    part = TxnOffsetCommitRequestPartition(0, 5)
    request = TxnOffsetCommitRequest(
        *(client.transactional_id, group, client.producer_id, client.epoch),
        topics=[TxnOffsetCommitRequestTopic(TOPIC, [part])],
    )
    broker = client.coordinator_of(group, 0)
    for version, error in ((0, E.COORDINATOR_NOT_AVAILABLE), (5, E.COORDINATOR_LOAD_IN_PROGRESS)):
        number = client.brokers.post(broker, request, version)
        client.brokers.advance(10_000)
        answer = client.brokers.answer(number, TxnOffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == error
    client.brokers.lost = lambda command: False
    for version, error in ((4, E.INVALID_TXN_STATE), (5, E.INVALID_PRODUCER_EPOCH)):
        bumps = version >= 5
        if not bumps:
            add_offsets(client, group)
        client.brokers.late = lambda command: is_response(command) and bool(command.body)
        number = client.brokers.post(broker, request, version)
        client.brokers.late = lambda command: False
        assert client.end(commit=True, version=5 if bumps else 3) == E.NONE
        client.brokers.advance(1_000)
        client.brokers.release()
        answer = client.brokers.answer(number, TxnOffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == error
        assert committed(client, group) == (-1, E.NONE)


@pytest.mark.parametrize(
    ("version", "error"), [(3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)]
)
def test_offsets_of_an_older_client_are_verified(client: Newer, version: int, error: E) -> None:
    for group in groups_of_both(client):
        assert client.commit_offset(group, 1, version) == error
        assert add_offsets(client, group) == E.NONE
        assert client.commit_offset(group, 1, version) == E.NONE


# -- the defect that KIP-890 mends -------------------------------------------------------------------


def late(client: Newer, partition: int, version: int) -> ErrorCode:
    """A transaction ends, and a batch of it that was held up arrives afterwards."""
    bumps = version >= V2
    if not bumps:
        assert client.add(0, 1, 2, 3) == [E.NONE] * 4
    assert client.produce((partition + 2) % 4, version) == E.NONE
    request = client.request(partition)
    assert client.end(commit=False, version=5 if bumps else 3) == E.NONE
    client.brokers.advance(1_000)
    answer = client.brokers.ask(client.leader(partition), request, version, ProduceResponse)
    return error_of(answer)


@pytest.mark.parametrize("partition", range(4))
@pytest.mark.parametrize(
    ("version", "error"),
    [(9, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE), (12, E.INVALID_PRODUCER_EPOCH)],
)
def test_a_late_batch_is_refused(client: Newer, partition: int, version: int, error: E) -> None:
    assert late(client, partition, version) == error
    assert client.stable(partition) == client.fetched(partition).high_watermark


@pytest.mark.parametrize("version", [9, 12])
def test_without_verification_it_hangs_for_older_clients(version: int) -> None:
    """The same sequence: nobody will ever end what the late batch has begun, unless the epoch was bumped."""
    client = Newer(made(transaction_partition_verification_enable=False))
    client.init()
    partition = far(client)
    error = late(client, partition, version)
    client.brokers.advance(1_000_000)  # more than any time-out of a transaction
    found = client.fetched(partition)
    if version >= V2:
        assert error == E.INVALID_PRODUCER_EPOCH
        assert found.last_stable_offset == found.high_watermark
    else:
        assert error == E.NONE
        assert found.last_stable_offset < found.high_watermark
        assert client.state().error_code == E.NONE
        assert client.state().transaction_state == "CompleteAbort"


@pytest.mark.parametrize("version", [9, 12])
def test_a_transaction_may_end_while_a_leader_is_told_of_it(plain: Newer, version: int) -> None:
    """The coordinator has answered, but the marker is faster: the answer is about another transaction."""
    client, partition = plain, far(plain)
    if version < V2:
        client.add(partition)
    leader = client.leader(partition)
    client.brokers.late = lambda command: is_response(command) and bool(command.body)
    number = client.brokers.post(leader, client.request(partition), version)
    client.brokers.late = lambda command: False
    assert client.end(commit=False, version=5 if version >= V2 else 3) == E.NONE
    client.brokers.advance(1_000)
    client.brokers.release()
    error = error_of(client.brokers.answer(number, ProduceResponse))
    assert error == (E.INVALID_PRODUCER_EPOCH if version >= V2 else E.INVALID_TXN_STATE)
    assert client.stable(partition) == client.fetched(partition).high_watermark


# -- who cannot be asked, and who waits --------------------------------------------------------------


def test_a_coordinator_that_is_down_is_asked_again_by_the_client(plain: Newer) -> None:
    client, partition = plain, far(plain)
    client.asked = client.leader(partition)
    client.brokers.kill(client.coordinator)
    client.brokers.advance(1_000)
    assert client.produce(partition) == E.NOT_ENOUGH_REPLICAS
    client.brokers.start(client.coordinator)
    client.brokers.advance(5_000)
    client.sequences = {}
    assert client.produce(partition) == E.NONE


def test_a_question_that_is_lost_ends_after_a_while(plain: Newer) -> None:
    client, partition = plain, far(plain)
    client.brokers.lost = lambda command: command.code == FORWARD
    number = client.brokers.post(client.leader(partition), client.request(partition), V2)
    client.brokers.advance(10_000)
    answer = client.brokers.answer(number, ProduceResponse)
    assert error_of(answer) == E.NOT_ENOUGH_REPLICAS
    client.brokers.lost = lambda command: False
    later = client.produce(partition, sequence=1)
    assert later == E.OUT_OF_ORDER_SEQUENCE_NUMBER  # the first one comes first
    assert [client.produce(partition, sequence=each) for each in (0, 1)] == [E.NONE] * 2


@pytest.mark.parametrize("version", [9, 12])
def test_requests_of_a_link_keep_their_order(plain: Newer, version: int) -> None:
    client, partition = plain, far(plain)
    if version < V2:
        client.add(partition)
    leader = client.leader(partition)
    link = client.brokers.connect(leader)
    client.brokers.late = lambda command: command.code == FORWARD
    posted = [
        client.brokers.post(leader, client.request(partition), version, link) for _ in range(5)
    ]
    assert not client.brokers.replies.keys() & set(posted)
    other = Newer(client.brokers, "other")
    client.brokers.late = lambda command: False
    assert other.init() == E.NONE  # nobody else waits
    client.brokers.release()
    answers = [client.brokers.answer(number, ProduceResponse) for number in posted]
    assert [error_of(answer) for answer in answers] == [E.NONE] * 5
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(5))


def test_what_waits_is_limited(plain: Newer, monkeypatch: pytest.MonkeyPatch) -> None:
    client, partition = plain, far(plain)
    monkeypatch.setattr(transactional, "WAITING_BYTES_MAX", 200)
    leader = client.leader(partition)
    link = client.brokers.connect(leader)
    client.brokers.late = lambda command: command.code == FORWARD
    posted = [client.brokers.post(leader, client.request(partition), V2, link) for _ in range(5)]
    client.brokers.release()
    answers = [error_of(client.brokers.answer(number, ProduceResponse)) for number in posted]
    assert answers == [E.NONE] * 3 + [E.NOT_ENOUGH_REPLICAS] * 2


def test_a_client_that_leaves_meanwhile(plain: Newer) -> None:
    client, partition = plain, far(plain)
    leader = client.leader(partition)
    link = client.brokers.connect(leader)
    client.brokers.late = lambda command: command.code == FORWARD
    for _ in range(3):
        client.brokers.post(leader, client.request(partition), V2, link)
    process = client.brokers.processes[leader]
    client.brokers._hang(process, link)
    client.brokers.release()
    client.brokers.advance(100)
    process.node.check()
    assert client.end(commit=True) == E.NONE


def test_the_next_transaction_waits_for_the_markers_of_the_last(plain: Newer) -> None:
    """For a moment at the leader, then at the client."""
    client = plain
    here, there = near(client), far(client)
    assert client.produce(there) == E.NONE
    other = client.leader(there)
    client.brokers.kill(other)
    assert client.end(commit=True) == E.NONE
    number = client.brokers.post(client.leader(here), client.request(here), V2)
    assert number not in client.brokers.replies
    client.brokers.advance(RETRY_MAX_MS + 100)
    assert error_of(client.brokers.answer(number, ProduceResponse)) == E.CONCURRENT_TRANSACTIONS
    client.brokers.start(other)
    client.brokers.advance(10_000)
    client.sequences = {}
    assert client.produce(here) == E.NONE
    assert client.state().producer_epoch == 1


def test_an_older_client_is_told_to_come_again_while_markers_are_written(plain: Newer) -> None:
    client = plain
    here, there = near(client), far(client)
    client.add(here, there)
    client.brokers.kill(client.leader(there))
    assert client.end(commit=True, version=3) == E.NONE
    assert client.produce(here, version=11) == E.NOT_ENOUGH_REPLICAS


def test_a_marker_that_comes_in_time_costs_the_client_nothing() -> None:
    client = Newer(made(ssl_certificate_file="server.pem"))
    client.init()
    here, there = near(client), far(client)
    assert client.produce(there) == E.NONE
    client.brokers.late = lambda command: command.code == FORWARD
    assert client.end(commit=True) == E.NONE
    number = client.brokers.post(client.leader(here), client.request(here), V2)
    client.brokers.advance(30)
    assert number not in client.brokers.replies
    client.brokers.release()
    client.brokers.advance(30)
    assert error_of(client.brokers.answer(number, ProduceResponse)) == E.NONE


def test_two_producers_in_one_request(plain: Newer) -> None:
    client = plain
    partition = far(client)
    leaders = client.brokers.leaders(client.asked, TOPIC)
    (other,) = [n for n in range(4) if leaders[n] == leaders[partition] and n != partition]
    both = [
        client.request(partition),
        producing(
            TOPIC,
            other,
            batch(b"t", producer_id=99, epoch=0, sequence=0, attributes=TRANSACTIONAL),
            client.transactional_id,
        ),
    ]
    topics = [topic for request in both for topic in request.topic_data]
    request = ProduceRequest(client.transactional_id, -1, 1_000, topics)
    answer = client.brokers.ask(client.leader(partition), request, V2, ProduceResponse)
    found = [part.error_code for topic in answer.responses for part in topic.partition_responses]
    assert found == [E.INVALID_PRODUCER_ID_MAPPING] * 2


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_without_its_transactional_id_is_refused(plain: Newer, version: int) -> None:
    client, partition = plain, far(plain)
    client.add(partition)
    (topic,) = client.request(partition).topic_data
    request = ProduceRequest(None, -1, 1_000, [topic])
    answer = client.brokers.ask(client.leader(partition), request, version, ProduceResponse)
    assert error_of(answer) == E.INVALID_TXN_STATE


def test_strangers_are_refused(plain: Newer) -> None:
    client, partition = plain, far(plain)
    client.producer_id += 5
    assert client.produce(partition) == E.INVALID_PRODUCER_ID_MAPPING
    client.producer_id -= 5
    client.epoch += 1
    assert client.produce(partition) == E.INVALID_PRODUCER_EPOCH
    client.transactional_id = ""
    assert client.produce(partition) == E.INVALID_REQUEST


# -- what brokers ask ----------------------------------------------------------------------------------


def test_brokers_ask_for_several_transactions_at_once(plain: Newer) -> None:
    """Versions 4 and 5 at the Kafka listener; each transaction has its own results."""
    client = plain
    topic = AddPartitionsToTxnTopic(TOPIC, [0, 1])
    unknown = AddPartitionsToTxnTopic("none", [0])

    def one(name: str, *topics: AddPartitionsToTxnTopic, dry: bool = False) -> object:
        return AddPartitionsToTxnTransaction(name, client.producer_id, client.epoch, dry, topics)

    asked = [one("tx", topic, dry=True), one("nobody", topic), one("tx2", topic, unknown)]
    request = AddPartitionsToTxnRequest(transactions=asked)  # type: ignore[arg-type]
    answer = client.brokers.ask(client.coordinator, request, 5, AddPartitionsToTxnResponse)
    found = {
        result.transactional_id: [
            part.partition_error_code
            for topic in result.topic_results
            for part in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    }
    assert found["tx"] == [E.TRANSACTION_ABORTABLE] * 2
    assert set(found["nobody"]) <= {E.INVALID_PRODUCER_ID_MAPPING, E.NOT_COORDINATOR}
    untried = E.OPERATION_NOT_ATTEMPTED
    assert found["tx2"] == [untried, untried, E.UNKNOWN_TOPIC_OR_PARTITION]
    request = AddPartitionsToTxnRequest(transactions=[one("tx", topic)])  # type: ignore[list-item]
    client.brokers.ask(client.coordinator, request, 4, AddPartitionsToTxnResponse)
    assert client.state().transaction_state == "Ongoing"


# -- clients of both versions ----------------------------------------------------------------------


def test_an_id_is_used_by_clients_of_both_versions_in_turn(client: Newer) -> None:
    for _ in range(2):
        assert client.produce(0) == E.NONE
        assert client.end(commit=True) == E.NONE
        client.brokers.advance(1_000)
        older = Client(client.brokers)
        assert older.init() == E.NONE
        assert older.epoch > client.epoch
        for _ in range(2):
            older.begin(0, 1, 2, 3)
            assert older.end(commit=True) == E.NONE
            client.brokers.advance(1_000)
        assert client.produce(0) == E.INVALID_PRODUCER_EPOCH
        assert client.end(commit=False) == E.PRODUCER_FENCED
        assert client.init() == E.NONE
        assert older.write(1) == E.INVALID_PRODUCER_EPOCH
    assert client.stable(0) == client.fetched(0).high_watermark


@pytest.mark.parametrize("first", [Client, Newer])
@pytest.mark.parametrize("second", [Client, Newer])
def test_who_comes_later_fences_who_still_writes(
    client: Newer, first: type[Client], second: type[Client]
) -> None:
    def write(who: Client) -> ErrorCode:
        if isinstance(who, Newer):
            return who.produce(0)
        who.add(0)
        return who.write(0)

    zombie = first(client.brokers, "shared")
    assert zombie.init() == E.NONE
    assert write(zombie) == E.NONE
    other = second(client.brokers, "shared")
    assert other.init() == E.CONCURRENT_TRANSACTIONS
    client.brokers.advance(1_000)
    assert other.init() == E.NONE
    assert write(zombie) == E.INVALID_PRODUCER_EPOCH
    assert write(other) == E.NONE
    assert zombie.end(commit=True) == E.PRODUCER_FENCED
    assert other.end(commit=True) == E.NONE
    client.brokers.advance(1_000)
    assert [each.first_offset for each in client.fetched(0).aborted_transactions or ()] == [0]


# -- the disk ----------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_disk_has_the_addition() -> None:
    """With flush=sync: after a power failure the coordinator must know of what is in the log."""
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic()
    started = InitProducerIdRequest("tx", 60_000)
    producer = rig.ask(started, 4, InitProducerIdResponse)
    data = batch(
        b"t",
        producer_id=producer.producer_id,
        epoch=producer.producer_epoch,
        sequence=0,
        attributes=TRANSACTIONAL,
    )
    assert isinstance(rig.node, BrokerNode)
    request = Request(APIS[0], V2, 10_000, "client", producing(RIG_TOPIC, 0, data, "tx"))
    rig.node.handle(Opened(99, "10.0.0.9:1", dialect=KAFKA), rig.now)
    effects = rig.node.handle(Received(99, request), rig.now)
    log = rig.store.log(RIG_TOPIC, 0)
    assert log is None or log.max_offset == 0
    rig._make_true(effects)
    assert rig.log().max_offset == 1


def test_a_full_disk_adds_nothing() -> None:
    rig = KafkaRig()
    rig.create_topic()
    producer = rig.ask(InitProducerIdRequest("tx", 60_000), 4, InitProducerIdResponse)
    data = batch(
        b"t",
        producer_id=producer.producer_id,
        epoch=producer.producer_epoch,
        sequence=0,
        attributes=TRANSACTIONAL,
    )
    rig.disk.room_bytes = 0
    request = producing(RIG_TOPIC, 0, data, "tx")
    assert error_of(rig.ask(request, V2, ProduceResponse)) == E.NOT_ENOUGH_REPLICAS
    rig.disk.room_bytes = None
    assert error_of(rig.ask(request, V2, ProduceResponse)) == E.NONE
