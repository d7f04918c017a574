"""What was decided once about partitions and coordinators stays: whoever starts first, whoever is away, whatever nameservers forget."""

from __future__ import annotations

import json
import os
import random

import pytest
from msgspec.structs import replace
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.requests import committing

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.nodes.broker.faults import REPEAT_MS
from steelyard.nodes.broker.kafka.cluster import claims
from steelyard.nodes.broker.kafka.cluster.catalogue import Catalogue
from steelyard.nodes.broker.kafka.cluster.claims import Claims
from steelyard.nodes.broker.kafka.cluster.membership import SETTLE_MS
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic, attributes_of, topic_of
from steelyard.nodes.broker.kafka.cluster.topic_settings import TopicSettingsReader
from steelyard.nodes.broker.peers.requests import NEWS, SURVEY, ProposedTopic
from steelyard.nodes.broker.topics import QUEUES_MAX
from steelyard.routes.layout import Extent, Layout
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.configs import (
    ConfigOperation,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.remoting.codes import RequestCode

A, B, C = "broker-a", "broker-b", "broker-c"
NAMES = {1: A, 2: B, 3: C}
READERS = TopicSettingsReader(KafkaConfig(address="broker-a:9092", node_id=1), StoreConfig())
Told = tuple[bytes, list[tuple[int, ...]]]
"""A topic's id, and the replicas of each of its partitions."""
GROUPS, TRANSACTIONS = 0, 1
"""Types of key of FindCoordinator."""


def find(brokers: Brokers, name: str, key: str, kind: int = GROUPS) -> FindCoordinatorResponse:
    """What a broker answers to FindCoordinator."""
    return brokers.ask(name, FindCoordinatorRequest(key, kind), 2, FindCoordinatorResponse)


def poll(brokers: Brokers, key: str, kind: int = GROUPS) -> str | None:
    """Ask every broker that runs for a coordinator, as a client does that waits; the name of the one found."""
    found = None
    for name in [name for name in (A, B, C) if name in brokers.processes]:
        answer = find(brokers, name, key, kind)
        if answer.error_code == ErrorCode.NONE:
            found = NAMES[answer.node_id]
        else:
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    return found


def commit(brokers: Brokers, name: str, group: str, offset: int) -> ErrorCode:
    answer = brokers.ask(name, committing(group, "orders", {0: offset}), 8, OffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def committed(brokers: Brokers, name: str, group: str) -> int | ErrorCode:
    """A group's committed offset as a broker tells it, -1 for none; or what it answers instead."""
    topics = (OffsetFetchRequestTopic("orders", partition_indexes=(0,)),)
    fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=topics),))
    (answer,) = brokers.ask(name, fetch, 8, OffsetFetchResponse).groups
    if answer.error_code != ErrorCode.NONE:
        return ErrorCode(answer.error_code)
    return answer.topics[0].partitions[0].committed_offset


def layout(brokers: Brokers, name: str, topic: str) -> list[tuple[int, tuple[int, ...]]]:
    """The replicas of a topic's partitions, which are known also where their broker is down, as a broker tells them."""
    told = brokers.metadata(name, topic).topics[0]
    return [(each.partition_index, tuple(each.replica_nodes)) for each in told.partitions]


def errors(brokers: Brokers) -> list[str]:
    return [tell.text for tell in brokers.told if tell.level == "ERROR"]


def restart(brokers: Brokers, *order: str, pause_ms: int = 5_000) -> None:
    """Kill everything, the nameserver with it, and start the brokers in this order, with clients that ask all the while."""
    for name in list(brokers.processes):
        brokers.kill(name)
    brokers.start_nameserver()
    for name in order:
        brokers.start(name)
        for _ in range(5):
            brokers.advance(pause_ms // 5)
            poll(brokers, "g")
            poll(brokers, "tx", TRANSACTIONS)
    brokers.advance(10_000)


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_committed_offsets_survive_a_first_start_under_clients_and_any_restart(
    order: tuple[str, str],
) -> None:
    """1. A client polls while the brokers start for the first time. 2. It commits. 3. All is killed, the nameserver too,
    and started again in any order, while the client polls."""
    brokers = Brokers()
    for name in order:
        brokers.start(name)
        brokers.advance(1_000)
        poll(brokers, "g")
    brokers.advance(4_000)
    brokers.create(A, "orders", 1)
    coordinator = poll(brokers, "g")
    assert coordinator is not None
    assert commit(brokers, coordinator, "g", 7) == ErrorCode.NONE
    for again in ((A, B), (B, A)):
        restart(brokers, *again)
        assert poll(brokers, "g") == coordinator
        assert committed(brokers, coordinator, "g") == 7


@pytest.mark.parametrize("down", [A, B])
@pytest.mark.parametrize("kind", [GROUPS, TRANSACTIONS])
def test_nothing_is_decided_while_one_of_the_brokers_is_missing(down: str, kind: int) -> None:
    brokers = Brokers()
    (up,) = {A, B} - {down}
    brokers.start(up)
    for _ in range(30):
        brokers.advance(1_000)
        answer = find(brokers, up, "g", kind)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.error_message is not None
    assert down in answer.error_message
    told = [tell.text for tell in brokers.told if "no coordinator yet" in tell.text]
    assert len(told) == 1, "once a minute"
    assert down in told[0]
    brokers.start(down)
    brokers.advance(4_000)
    assert poll(brokers, "g", kind) is not None


def test_a_broker_with_no_part_of_a_layout_knows_it_when_it_starts_alone() -> None:
    """The nameserver has forgotten, and the brokers that have the partitions are down."""
    brokers = Brokers(A, B, C)
    brokers.create(A, "one", 1)
    (leader,) = brokers.leaders(A, "one")
    before = layout(brokers, A, "one")
    topic_id = brokers.metadata(A, "one").topics[0].topic_id
    for name in list(brokers.processes):
        brokers.kill(name)
    brokers.start_nameserver()
    for name in (A, B, C):
        if name == NAMES[leader]:
            continue
        brokers.start(name)
        brokers.advance(30_000)
        assert layout(brokers, name, "one") == before
        assert brokers.metadata(name, "one", create=True).topics[0].topic_id == topic_id
        brokers.kill(name)


def test_one_of_two_brokers_makes_new_topics_and_the_other_alone_does_not() -> None:
    """Half of the brokers are enough where the first is among them, so that no two halves can give out partitions."""
    brokers = Brokers(A, B)
    brokers.kill(A)
    brokers.advance(4_000)
    refused = brokers.create(B, "t", 2)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    assert refused.error_message is not None
    assert A in refused.error_message
    topic = brokers.metadata(B, "t", create=True).topics[0]
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    brokers.start(A)
    brokers.advance(4_000)
    brokers.kill(B)
    brokers.advance(4_000)
    assert brokers.create(A, "t", 2).error_code == 0
    brokers.start(B)
    brokers.advance(4_000)
    assert brokers.leaders(B, "t") == [1, 1]


def test_queues_of_a_broker_alone_get_their_numbers_when_enough_are_there() -> None:
    brokers = Brokers(A, B)
    brokers.kill(A)
    brokers.advance(4_000)
    brokers.create_queues(B, "queues", 2)
    brokers.advance(10_000)
    assert brokers.leaders(B, "queues") == []
    brokers.start(A)
    brokers.advance(10_000)
    assert brokers.leaders(A, "queues") == brokers.leaders(B, "queues") == [2, 2]
    assert not errors(brokers)


def test_a_topic_is_not_made_again_by_a_controller_that_has_not_heard_of_it() -> None:
    """1. Broker-a and broker-b know a topic that broker-c never heard of. 2. All is killed, the nameserver forgets. 3. Broker-c
    and broker-b start, and at once somebody asks for the topic."""
    brokers = Brokers(A, B, C)
    brokers.kill(C)
    brokers.advance(4_000)
    topic_id = brokers.create(A, "t", 3).topic_id
    for name in list(brokers.processes):
        brokers.kill(name)
    brokers.start_nameserver()
    brokers.start(C)
    brokers.start(B)
    brokers.advance(200)
    for name in (C, B):
        topic = brokers.metadata(name, "t", create=True).topics[0]
        assert topic.topic_id == topic_id


def test_two_that_ask_for_a_new_topic_at_once_get_the_same() -> None:
    brokers = Brokers(A, B, C)
    brokers.late = lambda command: command.code == SURVEY
    asked = [brokers.post(name, _wish("t"), 12) for name in (A, B, A)]
    assert not [number for number in asked if number in brokers.replies]
    brokers.release()
    answers = [brokers.answer(number, MetadataResponse).topics[0] for number in asked]
    assert answers[0].error_code == 0
    assert answers[0] == answers[1] == answers[2]


def test_a_topic_that_too_few_have_kept_is_not_made() -> None:
    """1. The others do not know the topic. 2. They do not hear what it is to be. 3. It is not there; the next try makes it."""
    brokers = Brokers(A, B, C)
    brokers.lost = lambda command: command.code == NEWS and b"steelyard.layout" in command.body
    number = brokers.post(A, _wish("t"), 12)
    brokers.advance(6_000)
    assert brokers.answer(number, MetadataResponse).topics[0].error_code != 0
    assert brokers.leaders(A, "t") == []
    brokers.lost = lambda command: False
    topic = brokers.metadata(A, "t", create=True).topics[0]
    assert topic.error_code == 0
    assert brokers.metadata(C, "t").topics[0] == topic


def test_of_two_controllers_the_one_that_asked_last_numbers_a_topic() -> None:
    """1. Broker-a has asked the others about a topic and proposes what it is to be; they do not hear it yet. 2. Broker-b takes
    itself for the controller, and asks. 3. What broker-a proposed arrives, and is refused; what broker-b tells holds."""
    brokers = Brokers(A, B, C)
    brokers.late = lambda command: command.code == NEWS and b"steelyard.layout" in command.body
    number = brokers.post(A, _wish("t"), 12)
    brokers.advance(100)
    for name in (A, B, C):  # broker-b promises it to itself, too
        answer = brokers.command(name, SURVEY, {}, _claiming(topics={"t": ""}, claim=LATE + 1))
        assert json.loads(answer.body).get("known", {}) == {}
    brokers.release()
    brokers.advance(1_000)
    assert brokers.answer(number, MetadataResponse).topics[0].error_code != 0
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[], [], []]

    changed = {"t": attributes_of(OF_B)}
    assert _propose(brokers, C, LATE) != 0
    for name in (A, B, C):
        assert _propose(brokers, name, LATE + 1) == 0
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[], [], []], "not in use yet"
    for name in (A, B, C):
        assert brokers.command(name, NEWS, {}, _claiming(changed=changed)).code == 0
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[2, 2]] * 3
    assert not errors(brokers)


def test_who_promised_nothing_refuses_the_numbers_of_a_topic() -> None:
    """As a broker does that was started between the question and the news."""
    brokers = Brokers(A, B, C)
    assert _propose(brokers, C, LATE) != 0
    assert brokers.leaders(C, "t") == []


def test_a_layout_that_the_controller_could_not_store_is_used_by_nobody() -> None:
    """1. Broker-b accepts a layout; broker-a's disk is full and does not take it. 2. Broker-a, alone, lays the topic out otherwise.
    (Found by seed 7029994: both were in use, and records of two queues had the numbers of one partition.)"""
    brokers = Brokers(A, B)
    brokers.create(A, "t", 1)
    (leader,) = brokers.leaders(A, "t")
    first, other = (A, B) if leader == 1 else (B, A)
    brokers.create_queues(first, "t", 1)
    brokers.create_queues(other, "t", 1)
    brokers.advance(10_000)
    before = layout(brokers, A, "t")
    assert len(before) == 2
    brokers.disks[A].room_bytes = 0
    brokers.create_queues(B, "t", 2)
    brokers.advance(10_000)
    assert layout(brokers, A, "t") == layout(brokers, B, "t") == before
    assert any("layout of topic t is not kept" in text for text in errors(brokers))
    brokers.kill(B)
    brokers.disks[A].room_bytes = None
    brokers.create_queues(A, "t", 3)
    brokers.advance(10_000)
    alone = layout(brokers, A, "t")
    assert alone == [*before, (2, (1,)), (3, (1,))]
    brokers.start(B)
    brokers.advance(20_000)
    assert layout(brokers, A, "t") == layout(brokers, B, "t") == [*alone, (4, (2,))]
    assert not any("laid out twice" in text for text in errors(brokers))


def test_a_layout_that_enough_have_accepted_is_completed_by_the_next_controller() -> None:
    """1. The others accept what broker-a proposes, and restart. 2. Broker-a is gone before it hears that. 3. Whoever asks for the
    topic next gets that one."""
    brokers = Brokers(A, B, C)
    brokers.lost = lambda command: command.code == 0 and not command.body  # their answers
    brokers.post(A, _wish("t"), 12)
    brokers.kill(A)
    brokers.lost = lambda command: False
    accepted = Claims(_store(brokers, C)).proposed("t")
    assert accepted is not None
    for name in (B, C):
        brokers.kill(name)
        brokers.start(name)
    brokers.advance(10_000)
    assert brokers.leaders(B, "t") == []
    topic = brokers.metadata(B, "t", create=True).topics[0]
    assert topic.error_code == 0
    wanted = topic_of("t", accepted.attributes, READERS)
    assert wanted is not None
    assert topic.topic_id == wanted.topic_id
    assert brokers.leaders(C, "t") == brokers.leaders(B, "t")
    assert len(brokers.leaders(C, "t")) == wanted.layout.partitions
    assert Claims(_store(brokers, C)).proposed("t") is None, "in use, and no longer a proposal"


def test_of_two_layouts_that_were_accepted_the_one_claimed_last_is_completed() -> None:
    """And what a client wants instead has to come after it."""
    brokers = Brokers(A, B, C)
    other = replace(OF_B, topic_id=bytes(16)[1:] + b"x", layout=Layout((Extent(C, 3),)))
    for name, topic, claim in ((B, other, LATE), (C, OF_B, LATE + 1)):
        assert brokers.command(name, SURVEY, {}, _claiming(topics={"t": ""}, claim=claim)).code == 0
        assert _propose(brokers, name, claim, topic) == 0
    refused = brokers.create(A, "t", 5)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER, (
        "the others have promised it to later claims"
    )
    answer = brokers.create(A, "t", 5)
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[2, 2]] * 3
    grow = CreatePartitionsRequest([CreatePartitionsTopic("t", 5, None)], 1_000)
    assert brokers.ask(A, grow, 3, CreatePartitionsResponse).results[0].error_code == 0
    assert [len(brokers.leaders(name, "t")) for name in (A, B, C)] == [5] * 3


def test_partitions_that_were_accepted_come_before_others() -> None:
    brokers = Brokers(A, B, C)
    brokers.create(A, "t", 1)
    known = brokers.metadata(A, "t").topics[0]
    (leader,) = brokers.leaders(A, "t")
    base = Layout((Extent(NAMES[leader], 1),))
    grown = KafkaTopic("t", known.topic_id, base.grown([Extent(B, 2), Extent(C, 1)]), {})
    brokers.command(C, SURVEY, {}, _claiming(topics={"t": ""}, claim=LATE))
    assert _propose(brokers, C, LATE, grown) == 0
    grow = CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)], 1_000)
    first = brokers.ask(A, grow, 3, CreatePartitionsResponse).results[0].error_code
    second = brokers.ask(A, grow, 3, CreatePartitionsResponse).results[0].error_code
    assert first == ErrorCode.NOT_CONTROLLER
    assert second == ErrorCode.INVALID_PARTITIONS, "it has four"
    brokers.advance(4_000)  # broker-c, which had promised it to a later claim, asks the nameserver
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[leader, 2, 2, 3]] * 3


def test_a_claim_earlier_than_another_is_refused() -> None:
    brokers = Brokers(A, B, C)
    for claim, promised in ((LATE, 0), (LATE - 1, LATE), (LATE + 1, 0)):
        body = _claiming(topics={"t": ""}, claim=claim)
        answer = json.loads(brokers.command(C, SURVEY, {}, body).body)
        assert answer.get("promised", 0) == promised
    assert _propose(brokers, C, LATE) != 0


def test_a_layout_that_a_broker_has_no_room_for_is_not_accepted() -> None:
    brokers = Brokers(A, B, C)
    topic = replace(OF_B, layout=Layout((Extent(C, QUEUES_MAX + 1),)))
    brokers.command(C, SURVEY, {}, _claiming(topics={"t": ""}, claim=LATE))
    assert _propose(brokers, C, LATE, topic) != 0
    assert Claims(_store(brokers, C)).proposed("t") is None


def test_the_oldest_promises_and_proposals_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "PROMISES_MAX", 2)
    monkeypatch.setattr(claims, "PROPOSED_MAX", 2)
    store = Store(MemoryDisk(), StoreConfig())
    store.open(0)
    subject = Claims(store)
    first = subject.new(A, ["t", "u"], 5)
    second = subject.new(A, ["u", "v"], 5)
    assert first < second
    held = [name for name in "tuv" if subject.holds(name, second)]
    assert (subject.holds("t", first), held) == (False, ["u", "v"])
    for number, name in enumerate("tuv"):
        subject.accept(name, ProposedTopic(number, A, {}))
    subject.drop("v")
    for found in (subject, Claims(store)):
        assert [name for name in "tuv" if found.proposed(name) is not None] == ["u"]


LATE = 10**15
"""The number of a claim later than any that a broker makes in these tests."""

OF_B = KafkaTopic("t", bytes(range(16)), Layout((Extent(B, 2),)), {})


def _claiming(**fields: object) -> bytes:
    """A survey's or news' body as broker-b sends it."""
    entry = {"name": B, "node_id": 2, "address": f"{B}:9092", "remoting": f"{B}:10911"}
    return json.dumps({"broker": entry, **fields}).encode()


def _propose(brokers: Brokers, name: str, claim: int, topic: KafkaTopic = OF_B) -> int:
    """The code of a broker's answer to a layout that broker-b proposes."""
    changed = {topic.name: attributes_of(topic)}
    body = _claiming(changed=changed, claimed=[topic.name], claim=claim)
    return brokers.command(name, NEWS, {}, body).code


def _store(brokers: Brokers, name: str) -> Store:
    """A broker's disk as another process sees it."""
    store = Store(brokers.disks[name], StoreConfig())
    store.open(brokers.now)
    return store


def test_a_topic_that_was_deleted_while_a_broker_was_away_stays_deleted() -> None:
    brokers = Brokers(A, B, C)
    brokers.create(A, "t", 3)
    brokers.kill(C)
    brokers.advance(4_000)
    request = DeleteTopicsRequest(topics=[DeleteTopicState("t")])
    assert brokers.ask(A, request, 6, DeleteTopicsResponse).responses[0].error_code == 0
    brokers.kill("nameserver")
    brokers.start_nameserver()
    brokers.start(C)
    brokers.advance(30_000)
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[], [], []]
    assert brokers.command(C, RequestCode.GET_TOPIC_CONFIG, {"topic": "t"}).code != 0


def test_a_topic_that_was_deleted_while_most_were_away_can_be_created_again_at_once() -> None:
    brokers = Brokers(A, B, C)
    brokers.create(A, "t", 3)
    for name in (B, C):
        brokers.kill(name)
    brokers.advance(4_000)
    request = DeleteTopicsRequest(topics=[DeleteTopicState("t")])
    assert brokers.ask(A, request, 6, DeleteTopicsResponse).responses[0].error_code == 0
    for name in (B, C):
        brokers.start(name)
    brokers.advance(100)
    created = brokers.create(A, "t", 2)
    assert created.error_code == 0
    brokers.advance(10_000)
    told = [brokers.metadata(name, "t").topics[0] for name in (A, B, C)]
    assert [(each.topic_id, len(each.partitions)) for each in told] == [(created.topic_id, 2)] * 3


def test_a_topic_that_its_brokers_deleted_through_the_rocketmq_door_is_forgotten_by_the_others() -> (
    None
):
    brokers = Brokers(A, B, C)
    brokers.create(A, "t", 1)
    (leader,) = brokers.leaders(A, "t")
    brokers.command(NAMES[leader], RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    brokers.advance(15_000)
    assert [brokers.leaders(name, "t") for name in (A, B, C)] == [[], [], []]


def test_what_groups_committed_for_a_topic_outlives_a_nameserver_that_forgot_it() -> None:
    """The broker with the topic's only partition is down meanwhile; that does not mean that the topic is deleted."""
    brokers = Brokers(A, B, C)
    brokers.create(A, "orders", 1)
    (leader,) = brokers.leaders(A, "orders")
    group = next(g for g in map(str, range(99)) if poll(brokers, g) not in (NAMES[leader], None))
    coordinator = poll(brokers, group)
    assert coordinator is not None
    assert commit(brokers, coordinator, group, 7) == ErrorCode.NONE
    brokers.kill(NAMES[leader])
    brokers.kill("nameserver")
    brokers.start_nameserver()
    brokers.advance(60_000)
    assert committed(brokers, coordinator, group) == 7


def test_more_topics_than_a_survey_takes_get_their_numbers_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.kafka.cluster.changes.TOPICS_MAX", 2)
    brokers = Brokers(A, B)
    brokers.lost = lambda command: command.code == SURVEY
    names = [f"t{number}" for number in range(5)]
    for name in names:
        brokers.create_queues(A, name, 1)
    brokers.lost = lambda command: False
    brokers.advance(20_000)
    assert [brokers.leaders(B, name) for name in names] == [[1]] * 5


def test_a_survey_of_too_many_topics_is_refused() -> None:
    brokers = Brokers(A)
    entry = {"name": B, "node_id": 2, "address": f"{B}:9092", "remoting": f"{B}:10911"}
    body = json.dumps({"broker": entry, "topics": {f"t{n}": "" for n in range(1_001)}}).encode()
    answer = brokers.command(A, SURVEY, {}, body)
    assert answer.code != 0
    assert "at most 1000" in answer.remark


def test_so_many_changes_of_one_topic_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.kafka.cluster.changes.WAITING_MAX", 2)
    brokers = Brokers(A, B)
    brokers.late = lambda command: command.code == SURVEY
    asked = [brokers.post(A, _wish("t"), 12) for _ in range(5)]
    refused = [number for number in asked if number in brokers.replies]
    assert refused == asked[3:]
    brokers.release()
    for number in asked[:3]:
        assert brokers.answer(number, MetadataResponse).topics[0].error_code == 0


def test_changes_of_one_topic_that_wait_for_each_other_are_all_made() -> None:
    """1. New partitions are asked for. 2. Meanwhile come two settings, and once more partitions. 3. Each finds what the others
    have changed."""
    brokers = Brokers(A, B)
    brokers.create(A, "t", 1)
    brokers.late = lambda command: command.code == SURVEY

    def growing(count: int) -> int:
        request = CreatePartitionsRequest([CreatePartitionsTopic("t", count, None)], 5_000)
        return brokers.post(A, request, 3)

    def setting(name: str, value: str) -> int:
        operation = ConfigOperation(name, 0, value)
        resource = IncrementalAlterConfigsResource(2, "t", [operation])
        return brokers.post(A, IncrementalAlterConfigsRequest([resource]), 1)

    grown = [growing(2)]
    altered = [setting("retention.ms", "60000"), setting("cleanup.policy", "compact")]
    grown.append(growing(3))
    brokers.release()
    for number in grown:
        assert brokers.answer(number, CreatePartitionsResponse).results[0].error_code == 0
    for number in altered:
        assert brokers.answer(number, IncrementalAlterConfigsResponse).responses[0].error_code == 0
    for name in (A, B):
        assert len(layout(brokers, name, "t")) == 3
        described = DescribeConfigsRequest([DescribeConfigsResource(2, "t")])
        (told,) = brokers.ask(name, described, 4, DescribeConfigsResponse).results
        own = {each.name: each.value for each in told.configs if each.config_source == 1}
        assert own == {"retention.ms": "60000", "cleanup.policy": "compact"}


def test_the_oldest_deleted_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.kafka.cluster.catalogue.DELETED_MAX", 2)
    store = Store(MemoryDisk(), StoreConfig())
    store.open(0)
    catalogue = Catalogue(store)
    ids = [bytes([number]) * 16 for number in range(3)]
    for topic_id in ids:
        catalogue.bury(topic_id, whole=True)
    assert [catalogue.is_deleted(topic_id) for topic_id in ids] == [False, True, True]


def test_a_full_disk_is_named_once_when_it_does_not_take_what_is_known_of_others() -> None:
    brokers = Brokers(listed=(A, B))
    brokers.start(A)
    brokers.disks[A].room_bytes = 0
    brokers.start(B)
    brokers.advance(10_000)
    (text,) = {text for text in errors(brokers) if "cluster metadata" in text}
    assert errors(brokers).count(text) == 1
    brokers.disks[A].room_bytes = None
    brokers.advance(4_000)
    brokers.kill(A)
    store = Store(brokers.disks[A], StoreConfig())
    store.open(brokers.now)
    assert [entry.name for entry in Catalogue(store).brokers()] == [B]


def test_a_disk_that_is_full_again_is_named_again() -> None:
    brokers = Brokers(listed=(A, B, C))
    brokers.start(A)
    for name in (B, C):
        brokers.told.clear()
        brokers.disks[A].room_bytes = 0
        brokers.start(name)
        brokers.advance(REPEAT_MS)
        brokers.disks[A].room_bytes = None
        brokers.advance(REPEAT_MS)
        assert any("cluster metadata" in text for text in errors(brokers))


# -- which brokers there are -------------------------------------------------------------------------


def test_a_broker_without_a_list_decides_when_it_has_looked_for_others() -> None:
    brokers = Brokers(listed=())
    brokers.start(A)
    brokers.advance(SETTLE_MS - 1_000)
    answer = find(brokers, A, "g")
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.advance(2_000)
    assert find(brokers, A, "g").node_id == 1


def test_brokers_without_a_list_that_start_together_decide_together() -> None:
    brokers = Brokers(listed=())
    brokers.start(A)
    brokers.advance(SETTLE_MS // 2)
    poll(brokers, "g")
    brokers.start(B)
    brokers.advance(2 * SETTLE_MS)
    assert poll(brokers, "g") is not None
    assert set(brokers.leaders(A, "__consumer_offsets")) == {1, 2}


def test_a_broker_without_a_list_waits_for_one_that_it_met_before_anything_was_decided() -> None:
    brokers = Brokers(A, B)
    brokers.listed = ()
    for name in (A, B):
        brokers.kill(name)
    brokers.start(B)
    for _ in range(6):
        brokers.advance(10_000)
        assert poll(brokers, "g") is None
    brokers.start(A)
    brokers.advance(2 * SETTLE_MS)
    assert poll(brokers, "g") is not None


def test_a_broker_that_joins_later_learns_the_layout_and_keeps_it() -> None:
    brokers = Brokers(A, B)
    assert poll(brokers, "g") is not None
    before = layout(brokers, A, "__consumer_offsets")
    brokers.listed = (A, B, C)
    brokers.start(C)
    brokers.advance(4_000)
    assert poll(brokers, "g") is not None
    for name in list(brokers.processes):
        brokers.kill(name)
    brokers.start_nameserver()
    brokers.start(C)
    brokers.advance(20_000)
    poll(brokers, "g")
    assert layout(brokers, C, "__consumer_offsets") == before
    brokers.start(B)
    brokers.start(A)
    brokers.advance(4_000)
    assert layout(brokers, C, "__consumer_offsets") == before
    assert not errors(brokers)


def test_a_folder_of_the_version_before_keeps_its_layout() -> None:
    """It has the layout among the attributes of its own topics only."""
    brokers = Brokers(listed=())
    brokers.start(A)
    brokers.create_queues(A, "old", 50)
    attributes = {"steelyard.layout": "broker-a:50", "steelyard.id": "A" * 22}
    brokers.copy_config(A, "old", topic_name="__consumer_offsets", attributes=attributes)
    brokers.kill(A)
    brokers.listed = (A, B)
    brokers.start(B)
    brokers.start(A)
    brokers.advance(4_000)
    assert poll(brokers, "g") == A
    brokers.kill(A)
    brokers.advance(4_000)
    assert set(layout(brokers, B, "__consumer_offsets")) == {(n, (1,)) for n in range(50)}


# -- storms ----------------------------------------------------------------------------------------


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(6))
def test_in_whatever_order_all_is_killed_and_started_nothing_changes(seed: int) -> None:
    """Three brokers and a nameserver; 15 times most of it is killed and started in any order, under clients that ask for
    everything all the while, also for what would be made if it were not there."""
    rng = random.Random(seed)
    brokers = Brokers(A, B, C)
    brokers.create(B, "orders", 1)
    brokers.create(A, "small", 1)
    brokers.create(C, "large", 8)
    keys = [f"g{number}" for number in range(12)]
    offsets: dict[str, int] = {}
    truth = _facts(brokers, keys)
    assert None not in truth[1]
    for number in range(15):
        names = [*brokers.processes]
        rng.shuffle(names)
        for name in names[: rng.randrange(2, len(names) + 1)]:
            brokers.kill(name)
            brokers.advance(rng.randrange(3_000))
            _pester(brokers, keys)
        down = [name for name in ("nameserver", A, B, C) if name not in brokers.processes]
        rng.shuffle(down)
        for name in down:
            if name == "nameserver":
                brokers.start_nameserver()
            else:
                brokers.start(name)
            brokers.advance(rng.randrange(3_000))
            _pester(brokers, keys)
        brokers.advance(10_000)
        assert _facts(brokers, keys) == truth
        for key, coordinator in zip(keys, truth[1], strict=True):
            assert coordinator is not None
            assert committed(brokers, coordinator, key) == offsets.get(key, -1)
            offsets[key] = number
            assert commit(brokers, coordinator, key, number) == ErrorCode.NONE
    assert not errors(brokers)


def _facts(
    brokers: Brokers, keys: list[str]
) -> tuple[dict[str, object], list[str | None], list[str | None]]:
    """Ids and layouts of all topics, coordinators of all groups and of all transactional ids; every broker says the same."""
    groups = [poll(brokers, key) for key in keys]
    ids = [poll(brokers, key, TRANSACTIONS) for key in keys]
    names = ("orders", "small", "large", "__consumer_offsets", "__transaction_state")
    told = [
        {topic.name: topic for topic in brokers.metadata(n, *names).topics} for n in NAMES.values()
    ]
    assert told[0] == told[1] == told[2]
    return {str(name): topic for name, topic in told[0].items()}, groups, ids


def _pester(brokers: Brokers, keys: list[str]) -> None:
    """Clients that wait ask for coordinators and topics, and let topics be made."""
    for name in (A, B, C):
        if name in brokers.processes:
            for topic in ("orders", "small", "large"):
                brokers.post(name, _wish(topic), 12)
            for kind in (GROUPS, TRANSACTIONS):
                brokers.post(name, FindCoordinatorRequest(keys[0], kind), 2)


@pytest.mark.parametrize("seed", range(int(os.environ.get("STEELYARD_LAYOUT_SEEDS", "20"))))
def test_layouts_in_use_never_contradict_each_other(seed: int) -> None:
    """While brokers are killed, disks are full, and requests and answers are lost or late, clients of both listeners create and
    grow one topic through any broker. Whatever a broker ever told of it extends, or is extended by, all that was told before."""
    rng = random.Random(seed)
    names = rng.choice([(A, B), (A, B, C)])
    brokers = Brokers(*names)
    told: Told = (b"", [])
    for _ in range(80):
        _hinder(brokers, names, rng)
        up = [name for name in names if name in brokers.processes]
        for name in rng.sample(up, rng.randrange(len(up) + 1)):
            _want(brokers, name, rng)
        brokers.advance(rng.choice([0, 1, 50, 700, 4_000]))
        for name in up:
            told = _extended(told, brokers, name)
    brokers.lost = lambda command: False
    brokers.release()
    for name in ("nameserver", *names):
        if name not in brokers.processes:
            brokers.start_nameserver() if name == "nameserver" else brokers.start(name)
        if name in brokers.disks:
            brokers.disks[name].room_bytes = None
    brokers.advance(20_000)
    brokers.post(A, _wish("t"), 12)
    brokers.advance(20_000)
    assert len({repr(layout(brokers, name, "t")) for name in names}) == 1
    for name in names:
        told = _extended(told, brokers, name)
    assert not any("laid out twice" in text for text in errors(brokers))


def _hinder(brokers: Brokers, names: tuple[str, ...], rng: random.Random) -> None:
    """Kill or start something, fill or empty a disk, lose or delay what brokers tell each other, or none of these."""
    name = rng.choice([*names, "nameserver"])
    match rng.randrange(9):
        case 0 if name in brokers.processes:
            brokers.kill(name)
        case 1 | 2 if name not in brokers.processes and name == "nameserver":
            brokers.start_nameserver()
        case 1 | 2 if name not in brokers.processes:
            brokers.start(name)
        case 3 if name in brokers.disks:
            brokers.disks[name].room_bytes = rng.choice([0, None])
        case 4:
            part = rng.random()
            brokers.lost = lambda command: rng.random() < part
        case 5:
            brokers.late = lambda command: command.code in (NEWS, SURVEY) and rng.random() < 0.5
        case 6:
            brokers.lost = lambda command: False
            brokers.release()
        case 7:  # nobody hears what is in use from now on
            brokers.lost = lambda command: (
                command.code == RequestCode.PUT_KV_CONFIG
                or (command.code == NEWS and b'"claim":0' in command.body)
            )
        case _:
            pass


def _want(brokers: Brokers, name: str, rng: random.Random) -> None:
    """Ask a broker for the topic, for more partitions of it, or for queues."""
    count = rng.randrange(1, 9)
    match rng.randrange(3):
        case 0:
            topic = CreatableTopic("t", count, 1)
            brokers.post(name, CreateTopicsRequest([topic]), 7)
        case 1:
            partitions = CreatePartitionsTopic("t", count, None)
            brokers.post(name, CreatePartitionsRequest([partitions], 1_000), 3)
        case _:
            queues = str(count)
            ext = {"topic": "t", "defaultTopic": "TBW102", "perm": "6"}
            ext |= {"readQueueNums": queues, "writeQueueNums": queues}
            ext |= {"topicFilterType": "SINGLE_TAG"}
            brokers.post_command(name, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def _extended(told: Told, brokers: Brokers, name: str) -> Told:
    """What was told of the topic, with what this broker tells now: the id, and the node of each partition."""
    number = brokers.post(name, MetadataRequest([MetadataRequestTopic(name="t")], False), 12)
    if number not in brokers.replies:
        return told  # it has yet to look for the others
    topic = brokers.answer(number, MetadataResponse).topics[0]
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return told
    layouts = [tuple(each.replica_nodes) for each in topic.partitions]
    shorter, longer = sorted((told[1], layouts), key=len)
    assert topic.topic_id == (told[0] or topic.topic_id)
    assert longer[: len(shorter)] == shorter
    return topic.topic_id, longer


def _wish(topic: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=topic)], True)
