"""3 Metadata and 60 DescribeCluster on one broker, in every version."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.kafka.topics.metadata import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
)
from steelyard.nodes.seam import Opened, Received
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    METADATA,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.schema import NO_ID

VERSIONS = range(METADATA.versions[0], METADATA.versions[1] + 1)
LEDGER = "RMQ_SYS_REBALANCE_LEDGER"


def ask(rig: KafkaRig, *names: str, version: int = 12, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return rig.ask(MetadataRequest(topics, create), version, MetadataResponse)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_told_in_every_version(rig: KafkaRig, version: int) -> None:
    topic_id = rig.create_topic("there", 3)
    answer = ask(rig, "there", version=version)
    topic = answer.topics[0]
    assert (topic.error_code, topic.name) == (0, "there")
    assert topic.topic_id == topic_id
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
        assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([1], [1])
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9092)]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_told(rig: KafkaRig, version: int) -> None:
    rig.create_topic("one")
    rig.create_topic("two")
    request = MetadataRequest(() if version == 0 else None)
    answer = rig.ask(request, version, MetadataResponse)
    assert [topic.name for topic in answer.topics] == [LEDGER, "one", "two"]
    assert [topic.is_internal for topic in answer.topics] == [True, False, False]


def test_no_topics_are_told_where_none_are_asked_for(rig: KafkaRig) -> None:
    rig.create_topic("one")
    assert rig.ask(MetadataRequest(()), 1, MetadataResponse).topics == []


def test_a_topic_is_found_by_its_id(rig: KafkaRig) -> None:
    topic_id = rig.create_topic("there")
    request = MetadataRequest([MetadataRequestTopic(topic_id, None)])
    assert rig.ask(request, 12, MetadataResponse).topics[0].name == "there"
    unknown = MetadataRequest([MetadataRequestTopic(b"x" * 16, None)], True)
    topic = rig.ask(unknown, 12, MetadataResponse).topics[0]
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


def test_an_unknown_topic_is_made_where_the_client_allows_it(rig: KafkaRig) -> None:
    assert ask(rig, "new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = ask(rig, "new", create=True).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert made.topic_id != NO_ID
    assert ask(rig, "new").topics[0] == made


@pytest.mark.parametrize("version", [0, 1, 3])
def test_old_clients_always_allow_it(rig: KafkaRig, version: int) -> None:
    request = MetadataRequest([MetadataRequestTopic(name="new")])
    assert rig.ask(request, version, MetadataResponse).topics[0].error_code == 0


def test_the_broker_may_forbid_it() -> None:
    config = BrokerConfig(kafka=KafkaConfig(auto_create_topics_enable=False))
    topic = ask(KafkaRig(config), "new", create=True).topics[0]
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_made_topics_have_as_many_partitions_as_the_broker_says() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(num_partitions=5)))
    assert len(ask(rig, "new", create=True).topics[0].partitions) == 5


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "%RETRY%g", "x" * 250, "TBW102", "naïve"])
def test_bad_names_are_not_made(rig: KafkaRig, name: str) -> None:
    topic = ask(rig, name, create=True).topics[0]
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_asked_for_twice_is_told_once(rig: KafkaRig) -> None:
    assert len(ask(rig, "twice", "twice", create=True).topics) == 1


def test_operations_are_told_where_asked_for(rig: KafkaRig) -> None:
    rig.create_topic("there")
    topics = [MetadataRequestTopic(name="there")]
    answer = rig.ask(MetadataRequest(topics, False, True, True), 8, MetadataResponse)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    plain = rig.ask(MetadataRequest(topics), 8, MetadataResponse)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED


def test_topics_and_their_ids_outlive_the_broker(rig: KafkaRig) -> None:
    rig.create_topic("there", 3, {"retention.ms": "7"})
    before = ask(rig, "there")
    rig.restart()
    assert ask(rig, "there") == before
    assert rig.node._kafka is not None
    assert rig.node._kafka.cluster.settings_of("there").retention_ms == 7


def test_rocketmq_topics_are_told_where_kafka_can_name_them(rig: KafkaRig) -> None:
    for name in ("plain", "%RETRY%group", "with%percent"):
        _create_queues(rig, name, 4)
    names = {topic.name for topic in rig.ask(MetadataRequest(None), 12, MetadataResponse).topics}
    assert names == {LEDGER, "plain"}
    assert len(ask(rig, "plain").topics[0].partitions) == 4
    _create_queues(rig, "plain", 6)
    assert len(ask(rig, "plain").topics[0].partitions) == 6
    _create_queues(rig, "plain", 2)
    before = ask(rig, "plain").topics[0]
    assert len(before.partitions) == 6, "partitions never go away"
    rig.restart()
    assert ask(rig, "plain").topics[0] == before


def _create_queues(rig: KafkaRig, name: str, queues: int) -> None:
    from steelyard.wire.remoting.codes import RequestCode
    from steelyard.wire.remoting.command import ONEWAY_FLAG, Command

    ext = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    rig.links += 1
    rig.event(Opened(rig.links, "10.0.0.7:5000"))
    code = int(RequestCode.UPDATE_AND_CREATE_TOPIC)
    rig.event(Received(rig.links, Command(code, 1, ONEWAY_FLAG, ext)))


def test_the_cluster_is_described(rig: KafkaRig) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = rig.ask(request, 2, DescribeClusterResponse)
    assert answer.error_code == 0
    assert answer.controller_id == 1
    assert answer.cluster_id == ask(rig).cluster_id
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9092)]
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_endpoints_here(rig: KafkaRig, endpoint: int, error: ErrorCode) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint)
    assert rig.ask(request, 1, DescribeClusterResponse).error_code == error


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_the_coordinator_is_found_in_every_version(
    rig: KafkaRig, version: int, key_type: int
) -> None:
    if version == 0 and key_type == 1:
        return  # asks for groups only
    request = FindCoordinatorRequest("g", key_type, ("g", "h"))
    answer = rig.ask(request, version, FindCoordinatorResponse)
    if version < 4:
        assert (answer.error_code, answer.node_id, answer.port) == (0, 1, 9092)
    else:
        found = [(c.key, c.error_code, c.node_id, c.port) for c in answer.coordinators]
        assert found == [("g", 0, 1, 9092), ("h", 0, 1, 9092)]
    topic = "__transaction_state" if key_type else "__consumer_offsets"
    made = ask(rig, topic).topics[0]
    assert (made.is_internal, len(made.partitions)) == (True, 50)


def test_there_are_no_share_coordinators(rig: KafkaRig) -> None:
    answer = rig.ask(FindCoordinatorRequest("", 2, ("k",)), 6, FindCoordinatorResponse)
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
