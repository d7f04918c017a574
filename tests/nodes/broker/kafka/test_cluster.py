"""Several brokers: who is there, who leads what, and that all of them say the same."""

from __future__ import annotations

import base64
import itertools
import json

import pytest
from tests.nodes.broker.kafka.brokers import Brokers

from steelyard.nodes.broker.kafka.cluster.cluster import coordinator_partition
from steelyard.nodes.broker.peers.requests import FORWARD, NEWS, QUEUES_WANTED, SURVEY
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Reply
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command

A, B, C = "broker-a", "broker-b", "broker-c"
NAMES = {1: A, 2: B, 3: C}


@pytest.fixture
def brokers() -> Brokers:
    return Brokers(A, B, C)


def test_queues_made_on_two_brokers_at_once_are_partitions_at_once() -> None:
    """While the controller asks about a topic, another broker has queues of it, too: they do not wait for the next round.

    A consumer that looks meanwhile may not look again for minutes (librdkafka: topic.metadata.refresh.interval.ms).
    """
    brokers = Brokers(A, B)
    brokers.late = lambda command: command.code == SURVEY
    brokers.create_queues(A, "shared", 2)
    brokers.create_queues(B, "shared", 3)
    assert brokers.held
    brokers.release()
    assert brokers.leaders(A, "shared") == [1, 1, 2, 2, 2]


def _create(topic: str, partitions: int) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(topic, partitions, 1)])


def layouts(brokers: Brokers) -> dict[str, str]:
    """What the nameserver knows of the topics."""
    namespace = "STEELYARD_KAFKA_LAYOUT@DefaultCluster"
    reply = brokers.command(
        "nameserver", RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace}
    )
    table: dict[str, str] = json.loads(reply.body)["table"]
    return table


def find(brokers: Brokers, name: str, group: str) -> FindCoordinatorResponse:
    return brokers.ask(name, FindCoordinatorRequest(group), 2, FindCoordinatorResponse)


def delete(brokers: Brokers, name: str, topic: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic)])
    return brokers.ask(name, request, 6, DeleteTopicsResponse).responses[0].error_code


def test_all_brokers_tell_the_same_cluster(brokers: Brokers) -> None:
    told = [brokers.metadata(name) for name in (A, B, C)]
    assert told[0] == told[1] == told[2]
    assert [(b.node_id, b.host, b.port) for b in told[0].brokers] == [
        (1, A, 9092),
        (2, B, 9092),
        (3, C, 9092),
    ]
    assert told[0].controller_id == 1
    assert told[0].cluster_id is not None
    assert len(told[0].cluster_id) == 22


def test_a_topic_is_spread_and_known_everywhere_at_once(brokers: Brokers) -> None:
    assert brokers.create(C, "spread", 7).error_code == 0
    leaders = brokers.leaders(A, "spread")
    assert sorted(leaders.count(node) for node in (1, 2, 3)) == [2, 2, 3]
    assert leaders == brokers.leaders(B, "spread") == brokers.leaders(C, "spread")
    runs = [leaders[0]] + [b for a, b in itertools.pairwise(leaders) if a != b]
    assert len(runs) == 3, "each broker's partitions are in a row"


def test_small_topics_are_not_all_on_one_broker(brokers: Brokers) -> None:
    for number in range(12):
        brokers.create(A, f"small{number}", 1)
    assert {brokers.leaders(A, f"small{number}")[0] for number in range(12)} == {1, 2, 3}


def test_partitions_are_added_at_the_end(brokers: Brokers) -> None:
    brokers.create(A, "grows", 3)
    before = brokers.leaders(A, "grows")
    request = CreatePartitionsRequest([CreatePartitionsTopic("grows", 8, None)])
    answer = brokers.ask(B, request, 3, CreatePartitionsResponse)
    assert answer.results[0].error_code == 0
    after = brokers.leaders(C, "grows")
    assert len(after) == 8
    assert after[:3] == before
    assert after == brokers.leaders(A, "grows") == brokers.leaders(B, "grows")


def test_a_topic_is_deleted_everywhere_and_stays_away(brokers: Brokers) -> None:
    brokers.create(A, "gone", 6)
    assert delete(brokers, B, "gone") == 0
    for _ in range(3):
        for name in (A, B, C):
            topic = brokers.metadata(name, "gone").topics[0]
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        brokers.advance(10_000)


def test_what_was_read_before_a_deletion_brings_nothing_back(brokers: Brokers) -> None:
    """1. Broker-b asks the nameserver for all layouts. 2. The topic goes. 3. The answer comes, with the topic in it."""
    brokers.create(A, "doomed", 6)
    brokers.late = lambda command: command.flag == RESPONSE_FLAG and b'"doomed"' in command.body
    brokers.advance(3_000)
    assert brokers.held
    assert delete(brokers, A, "doomed") == 0
    brokers.release()
    brokers.advance(10_000)
    assert [brokers.leaders(name, "doomed") for name in (A, B, C)] == [[], [], []]
    assert "doomed" not in layouts(brokers)


def test_a_topic_made_again_has_another_id(brokers: Brokers) -> None:
    first = brokers.create(A, "again", 3).topic_id
    delete(brokers, A, "again")
    second = brokers.create(C, "again", 3).topic_id
    assert first != second
    brokers.advance(10_000)
    assert brokers.metadata(B, "again").topics[0].topic_id == second


def test_auto_creation_is_the_controllers(brokers: Brokers) -> None:
    topic = brokers.metadata(C, "wished", create=True).topics[0]
    assert topic.error_code == 0
    assert len(topic.partitions) == 1
    assert brokers.metadata(B, "wished").topics[0] == topic


def test_settings_reach_every_broker(brokers: Brokers) -> None:
    brokers.create(A, "set", 3)
    config = ConfigOperation("retention.ms", 0, "1234")
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(2, "set", [config])])
    answer = brokers.ask(C, request, 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0
    for name in (A, B, C):
        reply = brokers.command(name, RequestCode.GET_TOPIC_CONFIG, {"topic": "set"})
        assert json.loads(reply.body)["attributes"]["retention.ms"] == "1234"


def test_the_partitions_of_coordinators_stay_as_they_are(brokers: Brokers) -> None:
    find(brokers, A, "g")
    grow = CreatePartitionsRequest([CreatePartitionsTopic("__consumer_offsets", 60, None)])
    answer = brokers.ask(A, grow, 3, CreatePartitionsResponse)
    assert answer.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    code = brokers.ask_for_queues(A, "__consumer_offsets", 60)
    assert code == ResponseCode.INVALID_PARAMETER
    assert len(brokers.leaders(B, "__consumer_offsets")) == 50


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (FORWARD, b""),
        (FORWARD, b"\x00\x00\x00\x04\x00\x00"),
        (FORWARD, b"\x00\x00\x00\x0a\x00\x0c\x00\x00\x00\x00\x00\x01\xff\xff"),
        (QUEUES_WANTED, b"{"),
        (QUEUES_WANTED, b'{"broker":"stranger","queues":{"t":1}}'),
        (NEWS, b"\xff"),
        (NEWS, b'{"broker":{"name":"x","node_id":1,"address":"x","remoting":"x:1"}}'),
        (NEWS, b'{"broker":{"name":"x","node_id":-1,"address":"x:1","remoting":"x:1"}}'),
    ],
)
def test_nonsense_of_neighbours_is_refused(brokers: Brokers, code: int, body: bytes) -> None:
    before = brokers.metadata(A)
    assert brokers.command(A, code, {}, body).code != 0
    assert brokers.metadata(A) == before


def test_news_that_make_no_sense_are_passed_over(brokers: Brokers) -> None:
    entry = {"name": B, "node_id": 2, "address": f"{B}:9092", "remoting": f"{B}:10911"}
    changed = {
        "t": {"steelyard.layout": "nonsense", "steelyard.id": "x"},
        "%RETRY%g": {"steelyard.layout": "broker-a:1", "steelyard.id": "A" * 22},
    }
    body = json.dumps({"broker": entry, "changed": changed}).encode()
    assert brokers.command(A, NEWS, {}, body).code == 0
    assert brokers.leaders(A, "t") == []


def test_old_news_take_no_partitions_away(brokers: Brokers) -> None:
    brokers.create(A, "t", 3)
    old = json.loads(brokers.command(A, RequestCode.GET_TOPIC_CONFIG, {"topic": "t"}).body)
    grow = CreatePartitionsRequest([CreatePartitionsTopic("t", 6, None)])
    brokers.ask(A, grow, 3, CreatePartitionsResponse)
    entry = {"name": A, "node_id": 1, "address": f"{A}:9092", "remoting": f"{A}:10911"}
    body = json.dumps({"broker": entry, "changed": {"t": old["attributes"]}}).encode()
    assert brokers.command(B, NEWS, {}, body).code == 0
    assert len(brokers.leaders(B, "t")) == 6


def test_of_two_ways_in_which_a_topic_grew_all_take_the_same(brokers: Brokers) -> None:
    """While the controller changes, two brokers may each add partitions. The longer layout stays, or the first of equals."""
    brokers.create(A, "t", 6)
    old = json.loads(brokers.command(A, RequestCode.GET_TOPIC_CONFIG, {"topic": "t"}).body)
    entry = {"name": B, "node_id": 2, "address": f"{B}:9092", "remoting": f"{B}:10911"}

    def hears(name: str, layout: str) -> list[int]:
        attributes = old["attributes"] | {"steelyard.layout": layout}
        body = json.dumps({"broker": entry, "changed": {"t": attributes}}).encode()
        brokers.command(name, NEWS, {}, body)
        return brokers.leaders(name, "t")

    base = old["attributes"]["steelyard.layout"]
    before = brokers.leaders(A, "t")
    (one, small), (two, large) = [(n, name) for n, name in NAMES.items() if n != before[-1]]
    assert hears(A, f"{base},{small}:1") == [*before, one]
    assert hears(A, f"{base},{large}:1") == [*before, one]  # as long, and sorts behind
    assert hears(B, f"{base},{large}:2") == [*before, two, two]
    brokers.advance(10_000)
    told = [*before, two, two]  # the longer one
    assert [brokers.leaders(name, "t")[:8] for name in NAMES.values()] == [told, told, told]


def test_attributes_copied_to_another_topic_make_it_no_twin(brokers: Brokers) -> None:
    topic_id = brokers.create(A, "t", 3).topic_id
    for name in (A, B):
        brokers.copy_config(name, "t", topic_name="copy")
    brokers.advance(1_000)
    told = {topic.name: topic for topic in brokers.metadata(A, "t", "copy").topics}
    assert told["t"].topic_id == topic_id
    assert told["copy"].topic_id not in (topic_id, NO_ID)
    assert {partition.leader_id for partition in told["copy"].partitions} == {1, 2}


# -- brokers come and go ---------------------------------------------------------------------------


def test_a_broker_that_is_down_leads_nothing_until_it_is_back(brokers: Brokers) -> None:
    brokers.create(A, "t", 3)
    leaders = brokers.leaders(A, "t")
    brokers.kill(B)
    brokers.advance(4_000)
    told = brokers.metadata(A, "t")
    assert [b.node_id for b in told.brokers] == [1, 3]
    for partition, leader in zip(told.topics[0].partitions, leaders, strict=True):
        if leader == 2:
            assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (partition.leader_id, list(partition.offline_replicas)) == (-1, [2])
        else:
            assert partition.leader_id == leader
    brokers.start(B)
    brokers.advance(1_000)
    assert brokers.leaders(A, "t") == brokers.leaders(B, "t") == brokers.leaders(C, "t") == leaders


def test_the_next_broker_is_the_controller_when_the_first_is_down(brokers: Brokers) -> None:
    brokers.kill(A)
    brokers.advance(4_000)
    assert brokers.metadata(C).controller_id == 2
    assert brokers.create(C, "later", 4).error_code == 0
    assert sorted(set(brokers.leaders(B, "later"))) == [2, 3]
    brokers.start(A)
    brokers.advance(1_000)
    assert brokers.metadata(A).controller_id == 1
    assert brokers.leaders(A, "later") == brokers.leaders(B, "later")


def test_brokers_that_start_at_the_same_moment_find_each_other() -> None:
    """Both are registered before the nameserver has the settings of either; neither may think that it is alone."""
    brokers = Brokers()
    brokers.late = lambda command: (
        command.code == RequestCode.PUT_KV_CONFIG and "_BROKERS@" in command.ext["namespace"]
    )
    brokers.start(A)
    brokers.start(B)
    brokers.advance(50)
    brokers.release()
    brokers.advance(1_000)
    for name in (A, B):
        told = brokers.metadata(name)
        assert ([b.node_id for b in told.brokers], told.controller_id) == ([1, 2], 1)


def test_a_broker_that_was_down_makes_its_part_of_a_topic(brokers: Brokers) -> None:
    lost: list[Command] = []

    def first(command: Command) -> bool:
        """Two of the three have it then, which is enough."""
        if command.code == NEWS and b'"missed"' in command.body and not lost:
            lost.append(command)
            return True
        return False

    brokers.lost = first
    request_at = brokers.now
    brokers.post(A, _create("missed", 3), 7)
    assert lost
    brokers.lost = lambda command: False
    brokers.advance(10_000)
    assert brokers.now > request_at
    for name in (A, B, C):
        reply = brokers.command(name, RequestCode.GET_TOPIC_CONFIG, {"topic": "missed"})
        assert json.loads(reply.body)["readQueueNums"] == 1, name


def test_nobody_but_the_controller_creates(brokers: Brokers) -> None:
    """1. The controller does not hear broker-c. 2. broker-c says NOT_CONTROLLER, and makes nothing."""
    brokers.lost = lambda command: command.code == FORWARD
    correlation = brokers.post(C, _create("lonely", 3), 7)
    brokers.advance(6_000)
    reply = brokers.replies[correlation]
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, CreateTopicsResponse)
    assert reply.message.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    brokers.lost = lambda command: False
    assert brokers.leaders(A, "lonely") == []


def test_a_nameserver_that_forgot_is_told_again(brokers: Brokers) -> None:
    brokers.create(A, "kept", 6)
    brokers.metadata(B)
    before = brokers.leaders(B, "kept")
    brokers.kill("nameserver")
    brokers.advance(20_000)
    assert brokers.leaders(C, "kept") == before, "what is known stays known"
    brokers.start_nameserver()
    brokers.advance(600)
    assert brokers.leaders(C, "kept") == before, "it knows nobody yet: that is not believed"
    brokers.advance(1_500)
    told = [brokers.leaders(name, "kept") for name in (A, B, C)]
    assert told == [before] * 3, "all have registered again"
    brokers.advance(10_000)
    assert "kept" in layouts(brokers)
    for name in (A, B, C):
        brokers.kill(name)
    for name in (C, B, A):
        brokers.start(name)
    brokers.advance(10_000)
    assert brokers.leaders(A, "kept") == brokers.leaders(C, "kept") == before


def test_a_whole_cluster_starts_again_with_a_new_nameserver(brokers: Brokers) -> None:
    topic_id = brokers.create(A, "kept", 6).topic_id
    before = brokers.leaders(B, "kept")
    for name in ("nameserver", A, B, C):
        brokers.kill(name)
    brokers.start_nameserver()
    brokers.start(C)
    brokers.advance(5_000)
    assert brokers.leaders(C, "kept") == [3 if leader == 3 else -1 for leader in before]
    brokers.start(B)
    brokers.start(A)
    brokers.advance(10_000)
    for name in (A, B, C):
        assert brokers.leaders(name, "kept") == before
        assert brokers.metadata(name, "kept").topics[0].topic_id == topic_id


def test_brokers_with_one_node_id_are_told_of_once() -> None:
    brokers = Brokers(A)
    brokers.start(B, node_id=1)
    brokers.advance(20_000)
    errors = [tell.text for tell in brokers.told if tell.level == "ERROR"]
    assert errors
    assert len(errors) <= 2, "each of the two says it once"
    assert all("node id 1" in text for text in errors)


def test_a_broker_without_a_nameserver_serves_what_it_has() -> None:
    brokers = Brokers(A)
    brokers.create(A, "mine", 2)
    brokers.kill(A)
    brokers.kill("nameserver")
    brokers.start(A)
    brokers.advance(1)
    assert brokers.leaders(A, "mine") == [1, 1]


# -- RocketMQ's topics -----------------------------------------------------------------------------


def test_queues_of_the_rocketmq_door_become_partitions(brokers: Brokers) -> None:
    brokers.create_queues(C, "queues", 2)
    assert brokers.leaders(A, "queues") == [3, 3]
    brokers.create_queues(A, "queues", 1)
    assert brokers.leaders(B, "queues") == [3, 3, 1]
    brokers.create_queues(C, "queues", 4)
    assert brokers.leaders(B, "queues") == [3, 3, 1, 3, 3]


def test_queues_that_the_controller_did_not_hear_of_become_partitions_later(
    brokers: Brokers,
) -> None:
    brokers.lost = lambda command: command.code == QUEUES_WANTED
    brokers.create_queues(C, "queues", 2)
    assert brokers.leaders(A, "queues") == []
    brokers.lost = lambda command: False
    brokers.advance(10_000)
    assert brokers.leaders(A, "queues") == [3, 3]


def test_a_topic_deleted_through_the_rocketmq_door_is_gone(brokers: Brokers) -> None:
    brokers.create(A, "gone", 3)
    for name in (A, B, C):
        brokers.command(name, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})
    brokers.advance(10_000)
    assert [brokers.leaders(name, "gone") for name in (A, B, C)] == [[], [], []]


def test_the_ledger_has_a_partition_per_broker(brokers: Brokers) -> None:
    topic = brokers.metadata(B, "RMQ_SYS_REBALANCE_LEDGER").topics[0]
    assert topic.is_internal
    assert sorted(partition.leader_id for partition in topic.partitions) == [1, 2, 3]


# -- coordinators ----------------------------------------------------------------------------------


def test_groups_are_spread_over_the_brokers_and_all_agree(brokers: Brokers) -> None:
    groups = [f"group-{number}" for number in range(30)]
    found = {group: find(brokers, C, group).node_id for group in groups}
    assert set(found.values()) == {1, 2, 3}
    for name in (A, B):
        assert {group: find(brokers, name, group).node_id for group in groups} == found


def test_a_coordinator_that_is_down_is_not_available(brokers: Brokers) -> None:
    group = next(g for g in map(str, range(99)) if find(brokers, A, g).node_id == 2)
    brokers.kill(B)
    brokers.advance(4_000)
    answer = find(brokers, A, group)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.node_id == -1
    brokers.start(B)
    brokers.advance(1_000)
    assert find(brokers, A, group).node_id == 2


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("my-group", 12),
        ("", 0),
        ("a", 47),
        ("group-1", 49),
        ("café", 21),
        ("😀-grp", 27),
        ("polygenelubricants", 0),
        ("console-consumer-12345", 6),
    ],
)
def test_the_partition_of_a_group_is_kafkas(group: str, partition: int) -> None:
    """Computed with Java 17."""
    assert coordinator_partition(group, 50) == partition


def test_the_cluster_id_is_a_uuid_of_kafkas(brokers: Brokers) -> None:
    cluster_id = brokers.metadata(A).cluster_id
    assert cluster_id is not None
    assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
