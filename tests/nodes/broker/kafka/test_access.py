"""Access rules at the Kafka listener: every API key, with and without the rights that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from tests.acl.test_rules import rule
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig, batch

from steelyard.acl.bindings import (
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from steelyard.config import BrokerConfig, KafkaConfig, check
from steelyard.errors import ConfigError
from steelyard.nodes.broker.acls import AclEntry
from steelyard.nodes.broker.kafka.access import changes as changes_module
from steelyard.nodes.broker.kafka.access.needs import NEEDS
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.requests import ACLS
from steelyard.nodes.seam import KAFKA, Opened
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import (
    acls,
    cluster,
    configs,
    consumer_groups,
    controllers,
    data,
    groups,
    logins,
    logs,
    offsets,
    placement,
    quotas,
    share_data,
    share_groups,
    streams_groups,
    topics,
    transactions,
)
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.remoting.codes import ResponseCode

Op, P, R = AclOperation, PatternType, ResourceType
TOPIC, GROUP, CLUSTER, TXN = R.TOPIC, R.GROUP, R.CLUSTER, R.TRANSACTIONAL_ID
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIED = {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED}

OWNER, ALICE = "CN=root", "User:CN=alice"


class Rig(KafkaRig):
    """A broker with access rules; the rig's own link is a super user's, `alice` may do what is granted."""

    def __init__(self, **settings: Any) -> None:
        kafka = KafkaConfig(
            authorizer="acl",
            super_users=(f"User:{OWNER}",),
            group_join_window_max_ms=0,
            group_consumer_migration_policy="bidirectional",
            **settings,
        )
        super().__init__(BrokerConfig(kafka=kafka, delayed_answers=True))
        self.alice = self.connect("CN=alice")
        self.ids: list[bytes] = []

    def connect(self, owner: str = OWNER) -> int:
        self.links += 1
        address = f"10.0.0.{self.links}:5000"
        self.event(Opened(self.links, address, dialect=KAFKA, owner=owner))
        return self.links

    def grant(self, *granted: AclBinding) -> None:
        store = self.node._parts.acls
        store.merge([store.changed(each) for each in granted])

    def take(self, *taken: AclBinding) -> None:
        store = self.node._parts.acls
        store.merge([store.changed(each, is_deleted=True) for each in taken])

    def alice_asks(self, message: ApiMessage, version: int | None = None) -> Any:
        api = next(api for api in APIS.values() if api.request is type(message))
        version = api.versions[1] if version is None else version
        return self.ask(message, version, api.response, link=self.alice)


@pytest.fixture
def access() -> Rig:
    rig = Rig()
    rig.ids = [rig.create_topic("orders"), rig.create_topic("secret")]
    return rig


def right(operation: AclOperation, kind: ResourceType, name: str = "") -> AclBinding:
    names = {TOPIC: "orders", GROUP: "g", CLUSTER: "kafka-cluster", TXN: "t"}
    return rule(name or names[kind], operation, principal=ALICE, kind=kind)


def codes_in(part: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(part, list | tuple):
        for each in part:
            yield from codes_in(each)
    elif hasattr(part, "__struct_fields__"):
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if name in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from codes_in(value)


class Case(NamedTuple):
    """A request; the rights that it needs, each in turn left out; the errors without the first of them."""

    message: ApiMessage
    rights: Sequence[AclBinding]
    error: ErrorCode
    version: int | None = None


def partitions(kind: Callable[..., Any], *values: Any) -> list[Any]:
    return [kind("orders", list(values))]


COMMIT = offsets.OffsetCommitRequestTopic(
    "orders", partitions=[offsets.OffsetCommitRequestPartition(0, 1)]
)
FETCHED = offsets.OffsetFetchRequestTopic("orders", partition_indexes=[0])
PRODUCED = data.TopicProduceData("orders", partition_data=[data.PartitionProduceData(0, batch())])

CASES = [
    Case(
        data.ProduceRequest(None, -1, 1000, [PRODUCED]), [right(Op.WRITE, TOPIC)], TOPIC_DENIED, 12
    ),
    Case(
        data.ProduceRequest("t", -1, 1000, [PRODUCED]),
        [right(Op.WRITE, TXN), right(Op.WRITE, TOPIC)],
        TXN_DENIED,
        12,
    ),
    Case(
        data.FetchRequest(
            max_wait_ms=0, topics=[data.FetchTopic("orders", partitions=[data.FetchPartition()])]
        ),
        [right(Op.READ, TOPIC)],
        TOPIC_DENIED,
        12,
    ),
    Case(
        logs.ListOffsetsRequest(
            -1, 0, partitions(logs.ListOffsetsTopic, logs.ListOffsetsPartition(0, -1, -1))
        ),
        [right(Op.DESCRIBE, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(
        cluster.MetadataRequest([cluster.MetadataRequestTopic(name="orders")]),
        [right(Op.DESCRIBE, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(
        offsets.OffsetCommitRequest("g", topics=[COMMIT]),
        [right(Op.READ, GROUP), right(Op.READ, TOPIC)],
        GROUP_DENIED,
        9,
    ),
    *(
        Case(
            offsets.OffsetFetchRequest("g", [FETCHED])
            if version < 8
            else offsets.OffsetFetchRequest(
                groups=[offsets.OffsetFetchRequestGroup("g", topics=[FETCHED])]
            ),
            [right(Op.DESCRIBE, GROUP), right(Op.DESCRIBE, TOPIC)],
            GROUP_DENIED,
            version,
        )
        for version in (1, 7, 9)
    ),
    Case(
        cluster.FindCoordinatorRequest(coordinator_keys=["g"]),
        [right(Op.DESCRIBE, GROUP)],
        GROUP_DENIED,
    ),
    Case(cluster.FindCoordinatorRequest("g"), [right(Op.DESCRIBE, GROUP)], GROUP_DENIED, 3),
    Case(cluster.FindCoordinatorRequest("", 1, ["t"]), [right(Op.DESCRIBE, TXN)], TXN_DENIED),
    Case(
        groups.JoinGroupRequest(
            "g",
            30_000,
            30_000,
            protocol_type="consumer",
            protocols=[groups.JoinGroupRequestProtocol("range", b"")],
        ),
        [right(Op.READ, GROUP)],
        GROUP_DENIED,
    ),
    Case(groups.HeartbeatRequest("g"), [right(Op.READ, GROUP)], GROUP_DENIED),
    Case(groups.LeaveGroupRequest("g"), [right(Op.READ, GROUP)], GROUP_DENIED),
    Case(groups.SyncGroupRequest("g"), [right(Op.READ, GROUP)], GROUP_DENIED),
    Case(groups.DescribeGroupsRequest(["g"]), [right(Op.DESCRIBE, GROUP)], GROUP_DENIED),
    Case(
        topics.CreateTopicsRequest([topics.CreatableTopic("fresh", 1, 1)]),
        [right(Op.CREATE, TOPIC, "fresh")],
        TOPIC_DENIED,
    ),
    Case(
        topics.CreateTopicsRequest([topics.CreatableTopic("fresh", 1, 1)]),
        [right(Op.CREATE, CLUSTER)],
        TOPIC_DENIED,
        4,
    ),
    Case(
        topics.DeleteTopicsRequest([topics.DeleteTopicState("orders")]),
        [right(Op.DELETE, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(
        topics.DeleteTopicsRequest(topic_names=["orders"]),
        [right(Op.DELETE, TOPIC)],
        TOPIC_DENIED,
        5,
    ),
    Case(
        logs.DeleteRecordsRequest(
            partitions(logs.DeleteRecordsTopic, logs.DeleteRecordsPartition(0, 0))
        ),
        [right(Op.DELETE, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(transactions.InitProducerIdRequest("t", 60_000), [right(Op.WRITE, TXN)], TXN_DENIED),
    Case(
        transactions.InitProducerIdRequest(None, 60_000), [right(Op.WRITE, TOPIC)], CLUSTER_DENIED
    ),
    Case(
        transactions.InitProducerIdRequest(None, 60_000),
        [right(Op.IDEMPOTENT_WRITE, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        logs.OffsetForLeaderEpochRequest(
            -1, partitions(logs.OffsetForLeaderTopic, logs.OffsetForLeaderPartition(0))
        ),
        [right(Op.DESCRIBE, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(
        transactions.AddPartitionsToTxnRequest(
            "t", 1, 0, partitions(transactions.AddPartitionsToTxnTopic, 0)
        ),
        [right(Op.WRITE, TXN), right(Op.WRITE, TOPIC)],
        TXN_DENIED,
        3,
    ),
    Case(
        transactions.AddPartitionsToTxnRequest(
            transactions=[
                transactions.AddPartitionsToTxnTransaction(
                    "t", 1, 0, False, partitions(transactions.AddPartitionsToTxnTopic, 0)
                )
            ]
        ),
        [right(Op.CLUSTER_ACTION, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        transactions.AddOffsetsToTxnRequest("t", 1, 0, "g"),
        [right(Op.WRITE, TXN), right(Op.READ, GROUP)],
        TXN_DENIED,
    ),
    Case(transactions.EndTxnRequest("t", 1, 0), [right(Op.WRITE, TXN)], TXN_DENIED),
    Case(
        transactions.WriteTxnMarkersRequest(
            [
                transactions.WritableTxnMarker(
                    1, 0, False, partitions(transactions.WritableTxnMarkerTopic, 0)
                )
            ]
        ),
        [right(Op.CLUSTER_ACTION, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        offsets.TxnOffsetCommitRequest(
            "t",
            "g",
            1,
            0,
            topics=partitions(
                offsets.TxnOffsetCommitRequestTopic, offsets.TxnOffsetCommitRequestPartition(0, 1)
            ),
        ),
        [right(Op.WRITE, TXN), right(Op.READ, GROUP), right(Op.READ, TOPIC)],
        TXN_DENIED,
    ),
    Case(
        acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        [right(Op.DESCRIBE, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        acls.CreateAclsRequest([acls.AclCreation(2, "x", 3, "User:x", "*", 3, 3)]),
        [right(Op.ALTER, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        acls.DeleteAclsRequest([acls.DeleteAclsFilter(2, "x", 3, None, None, 1, 1)]),
        [right(Op.ALTER, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(2, "orders", None)]),
        [right(Op.DESCRIBE_CONFIGS, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(4, "1", None)]),
        [right(Op.DESCRIBE_CONFIGS, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        configs.AlterConfigsRequest([configs.AlterConfigsResource(2, "orders")]),
        [right(Op.ALTER_CONFIGS, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(
        configs.IncrementalAlterConfigsRequest(
            [configs.IncrementalAlterConfigsResource(2, "orders")]
        ),
        [right(Op.ALTER_CONFIGS, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(logs.DescribeLogDirsRequest(None), [right(Op.DESCRIBE, CLUSTER)], CLUSTER_DENIED),
    Case(
        topics.CreatePartitionsRequest([topics.CreatePartitionsTopic("orders", 2, None)], 1000),
        [right(Op.ALTER, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(groups.DeleteGroupsRequest(["g"]), [right(Op.DELETE, GROUP)], GROUP_DENIED),
    Case(
        placement.ListPartitionReassignmentsRequest(),
        [right(Op.DESCRIBE, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        offsets.OffsetDeleteRequest(
            "g",
            partitions(offsets.OffsetDeleteRequestTopic, offsets.OffsetDeleteRequestPartition(0)),
        ),
        [right(Op.DELETE, GROUP), right(Op.READ, TOPIC)],
        GROUP_DENIED,
    ),
    Case(
        quotas.DescribeClientQuotasRequest(),
        [right(Op.DESCRIBE_CONFIGS, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        logins.DescribeUserScramCredentialsRequest(None),
        [right(Op.DESCRIBE, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        logins.AlterUserScramCredentialsRequest([logins.ScramCredentialDeletion("bob", 1)]),
        [right(Op.ALTER, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        logs.DescribeProducersRequest(partitions(logs.TopicRequest, 0)),
        [right(Op.READ, TOPIC)],
        TOPIC_DENIED,
    ),
    Case(transactions.DescribeTransactionsRequest(["t"]), [right(Op.DESCRIBE, TXN)], TXN_DENIED),
    Case(
        consumer_groups.ConsumerGroupHeartbeatRequest(
            "g",
            "m",
            0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["orders"],
            topic_partitions=(),
        ),
        [right(Op.READ, GROUP), right(Op.DESCRIBE, TOPIC)],
        GROUP_DENIED,
    ),
    Case(
        consumer_groups.ConsumerGroupDescribeRequest(["g"]),
        [right(Op.DESCRIBE, GROUP)],
        GROUP_DENIED,
    ),
    Case(
        streams_groups.StreamsGroupHeartbeatRequest(
            "g",
            "m",
            0,
            rebalance_timeout_ms=1000,
            topology=streams_groups.Topology(0, [streams_groups.Subtopology("0", ["orders"])]),
            active_tasks=(),
            standby_tasks=(),
            warmup_tasks=(),
            process_id="p",
        ),
        [right(Op.READ, GROUP), right(Op.DESCRIBE, TOPIC)],
        GROUP_DENIED,
    ),
    Case(
        streams_groups.StreamsGroupDescribeRequest(["g"]),
        [right(Op.DESCRIBE, GROUP)],
        GROUP_DENIED,
    ),
    Case(
        share_groups.ShareGroupHeartbeatRequest("g", "m", 0, None, ["orders"]),
        [right(Op.READ, GROUP), right(Op.DESCRIBE, TOPIC)],
        GROUP_DENIED,
    ),
    Case(share_groups.ShareGroupDescribeRequest(["g"]), [right(Op.DESCRIBE, GROUP)], GROUP_DENIED),
    Case(share_data.ShareFetchRequest("g", "m"), [right(Op.READ, GROUP)], GROUP_DENIED),
    Case(share_data.ShareAcknowledgeRequest("g", "m"), [right(Op.READ, GROUP)], GROUP_DENIED),
    Case(
        share_groups.DescribeShareGroupOffsetsRequest(
            [
                share_groups.DescribeShareGroupOffsetsRequestGroup(
                    "g", partitions(share_groups.DescribeShareGroupOffsetsRequestTopic, 0)
                )
            ]
        ),
        [right(Op.DESCRIBE, GROUP), right(Op.DESCRIBE, TOPIC)],
        GROUP_DENIED,
    ),
    Case(
        share_groups.AlterShareGroupOffsetsRequest(
            "g",
            partitions(
                share_groups.AlterShareGroupOffsetsRequestTopic,
                share_groups.AlterShareGroupOffsetsRequestPartition(0, 0),
            ),
        ),
        [right(Op.READ, GROUP), right(Op.READ, TOPIC)],
        GROUP_DENIED,
    ),
    Case(
        share_groups.DeleteShareGroupOffsetsRequest(
            "g", [share_groups.DeleteShareGroupOffsetsRequestTopic("orders")]
        ),
        [right(Op.DELETE, GROUP), right(Op.READ, TOPIC)],
        GROUP_DENIED,
    ),
    Case(
        placement.AlterReplicaLogDirsRequest(
            [placement.AlterReplicaLogDir("logs", partitions(placement.AlterReplicaLogDirTopic, 0))]
        ),
        [right(Op.ALTER, CLUSTER)],
        CLUSTER_DENIED,
    ),
    *(
        Case(
            placement.ElectLeadersRequest(0, partitions(placement.TopicPartitions, 0)),
            [right(Op.ALTER, CLUSTER)],
            CLUSTER_DENIED,
            version,
        )
        for version in (0, 2)
    ),
    Case(placement.ElectLeadersRequest(0, None), [right(Op.ALTER, CLUSTER)], CLUSTER_DENIED),
    Case(
        placement.AlterPartitionReassignmentsRequest(
            topics=partitions(placement.ReassignableTopic, placement.ReassignablePartition(0, [1]))
        ),
        [right(Op.ALTER, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(controllers.DescribeQuorumRequest(), [right(Op.DESCRIBE, CLUSTER)], CLUSTER_DENIED),
    Case(controllers.UpdateFeaturesRequest(), [right(Op.ALTER, CLUSTER)], CLUSTER_DENIED),
    Case(controllers.UnregisterBrokerRequest(9), [right(Op.ALTER, CLUSTER)], CLUSTER_DENIED),
    Case(
        quotas.AlterClientQuotasRequest(
            [
                quotas.AlteredQuota(
                    [quotas.QuotaEntity("user", "bob")],
                    [quotas.QuotaOperation("producer_byte_rate", 5.0)],
                )
            ]
        ),
        [right(Op.ALTER_CONFIGS, CLUSTER)],
        CLUSTER_DENIED,
    ),
    Case(
        configs.ListConfigResourcesRequest(), [right(Op.DESCRIBE_CONFIGS, CLUSTER)], CLUSTER_DENIED
    ),
    Case(
        cluster.DescribeTopicPartitionsRequest([cluster.DescribedTopicName("orders")]),
        [right(Op.DESCRIBE, TOPIC)],
        TOPIC_DENIED,
    ),
]

LISTS = {16, 60, 66}
"""Requests that are never refused; their tests are below."""
FREE = {17, 18, 36, 38, 39, 40, 41, 71, 72}
"""Requests that nobody needs a right for."""


def named(case: Case) -> str:
    return f"{type(case.message).__name__}-{case.version}-{case.error.name}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_what_a_request_needs(access: Rig, case: Case) -> None:
    """It is refused without each of its rights, and not refused with all of them."""
    assert case.error in set(codes_in(access.alice_asks(case.message, case.version)))
    for left_out in case.rights:
        others = [each for each in case.rights if each != left_out]
        access.grant(*others)
        found = set(codes_in(access.alice_asks(case.message, case.version)))
        assert found & DENIED, f"without {left_out}"
        access.take(*others)
    access.grant(*case.rights)
    if isinstance(case.message, groups.JoinGroupRequest):
        access.post(case.message, 9, link=access.alice)  # may wait for other members
        return
    assert not set(codes_in(access.alice_asks(case.message, case.version))) & DENIED


def test_every_api_has_its_rule_and_its_test(access: Rig) -> None:
    assert access.node._kafka is not None
    served = set(access.node._kafka.channel._handlers) | {18}
    assert served == set(NEEDS)
    tested = {
        next(key for key, api in APIS.items() if api.request is type(case.message))
        for case in CASES
    }
    assert tested | LISTS | FREE == served
    assert {key for key, need in NEEDS.items() if need is None} == FREE | {1}


@pytest.mark.parametrize("case", CASES, ids=named)
def test_super_users_are_never_refused(access: Rig, case: Case) -> None:
    api = next(api for api in APIS.values() if api.request is type(case.message))
    version = api.versions[1] if case.version is None else case.version
    if isinstance(case.message, groups.JoinGroupRequest):
        return
    assert not set(codes_in(access.ask(case.message, version, api.response))) & DENIED


# -- what is partly allowed ----------------------------------------------------------------------


def test_a_partly_allowed_produce_stores_what_is_allowed(access: Rig) -> None:
    access.grant(right(Op.WRITE, TOPIC))
    secret = data.TopicProduceData("secret", partition_data=[data.PartitionProduceData(0, batch())])
    answer = access.alice_asks(data.ProduceRequest(None, -1, 1000, [secret, PRODUCED]), 12)
    assert {each.name: each.partition_responses[0].error_code for each in answer.responses} == {
        "orders": 0,
        "secret": TOPIC_DENIED,
    }
    assert access.log("orders").max_offset == 1
    assert access.store.log("secret", 0) is None


def test_without_acks_the_link_is_closed(access: Rig) -> None:
    access.grant(right(Op.WRITE, TOPIC))
    secret = data.TopicProduceData("secret", partition_data=[data.PartitionProduceData(0, batch())])
    access.post(data.ProduceRequest(None, 0, 1000, [secret, PRODUCED]), 12, link=access.alice)
    assert access.alice in access.hung
    assert access.log("orders").max_offset == 1
    assert access.store.log("secret", 0) is None


def test_topics_are_refused_by_their_ids(access: Rig) -> None:
    orders, secret = access.ids
    access.grant(right(Op.READ, TOPIC), right(Op.WRITE, TOPIC))
    asked = [
        data.FetchTopic(topic_id=each, partitions=[data.FetchPartition()])
        for each in (orders, secret)
    ]
    answer = access.alice_asks(data.FetchRequest(max_wait_ms=0, topics=asked))
    found = {each.topic_id: each.partitions[0].error_code for each in answer.responses}
    assert found == {orders: 0, secret: TOPIC_DENIED}
    produced = [
        data.TopicProduceData(topic_id=each, partition_data=[data.PartitionProduceData(0, batch())])
        for each in (orders, secret)
    ]
    answer = access.alice_asks(data.ProduceRequest(None, -1, 1000, produced), 13)
    parts = {each.topic_id: each.partition_responses[0].error_code for each in answer.responses}
    assert parts == {orders: 0, secret: TOPIC_DENIED}


def test_a_fetch_session_ends_with_the_right(access: Rig) -> None:
    """1. A session begins. 2. The right is taken: the partition is refused. 3. It comes back."""
    access.grant(right(Op.READ, TOPIC))
    topic = data.FetchTopic("orders", partitions=[data.FetchPartition(partition_max_bytes=1000)])
    first = access.alice_asks(data.FetchRequest(session_epoch=0, topics=[topic]), 12)
    assert first.session_id
    access.take(right(Op.READ, TOPIC))

    def fetch(epoch: int) -> Any:
        again = data.FetchRequest(session_id=first.session_id, session_epoch=epoch)
        return access.alice_asks(again, 12)

    assert set(codes_in(fetch(1))) == {0, TOPIC_DENIED}
    access.grant(right(Op.READ, TOPIC))
    assert set(codes_in(fetch(2))) == {0}


def test_a_share_session_ends_with_the_right(access: Rig) -> None:
    """1. A member reads. 2. The right is taken: it gets nothing, and cannot acknowledge. 3. It comes back."""
    access.grant(right(Op.READ, GROUP), right(Op.READ, TOPIC))

    def fetch(epoch: int, *acknowledged: share_data.AcknowledgementBatch) -> Any:
        parts = [share_data.AcknowledgePartition(0, acknowledged)]
        named = (
            [share_data.AcknowledgeTopic(access.ids[0], parts)] if acknowledged or not epoch else []
        )
        answer = access.alice_asks(
            share_data.ShareFetchRequest("g", "m", epoch, 0, 0, 1000, 10, 10, topics=named)
        )
        return answer.responses[0].partitions[0] if answer.responses else None

    assert fetch(0) is None
    write = data.ProduceRequest(None, -1, 1000, [PRODUCED])
    access.ask(write, 12, data.ProduceResponse)
    found = fetch(1)
    assert [each.last_offset for each in found.acquired_records] == [0]
    access.take(right(Op.READ, TOPIC))
    accept = share_data.AcknowledgementBatch(0, 0, [1])
    refused = fetch(2, accept)
    assert (refused.error_code, refused.acknowledge_error_code) == (TOPIC_DENIED, TOPIC_DENIED)
    access.grant(right(Op.READ, TOPIC))
    done = fetch(3, accept)
    assert (done.error_code, done.acknowledge_error_code) == (0, 0)


# -- what is hidden ------------------------------------------------------------------------------


def pages(rig: Rig, *names: str, limit: int = 2_000, cursor: Any = None) -> Any:
    wanted = [cluster.DescribedTopicName(name) for name in names]
    return rig.alice_asks(cluster.DescribeTopicPartitionsRequest(wanted, limit, cursor))


def test_pages_of_topics_hide_topics(access: Rig) -> None:
    assert not pages(access).topics
    access.grant(right(Op.READ, TOPIC))
    answer = pages(access, limit=1)
    assert [(each.name, each.error_code) for each in answer.topics] == [("orders", 0)]
    assert answer.topics[0].topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
    assert answer.next_cursor is None  # there is another topic, but not for alice
    answer = pages(access, "orders", "secret")
    assert {each.name: each.error_code for each in answer.topics} == {
        "orders": 0,
        "secret": TOPIC_DENIED,
    }
    hidden = cluster.PartitionCursor("aaa", 5)
    assert [each.name for each in pages(access, cursor=hidden).topics] == ["orders"]


def metadata(rig: Rig, *names: str | bytes, **more: Any) -> dict[str | None, int]:
    wanted = [
        cluster.MetadataRequestTopic(each, None)
        if isinstance(each, bytes)
        else cluster.MetadataRequestTopic(name=each)
        for each in names
    ]
    answer = rig.alice_asks(cluster.MetadataRequest(wanted or None, **more))
    assert answer.brokers
    return {topic.name: topic.error_code for topic in answer.topics}


def test_metadata_hides_topics(access: Rig) -> None:
    assert metadata(access) == {}
    access.grant(right(Op.READ, TOPIC))
    assert metadata(access) == {"orders": 0}
    assert metadata(access, "orders", "secret") == {"orders": 0, "secret": TOPIC_DENIED}
    assert metadata(access, "secret") == {"secret": TOPIC_DENIED}
    secret = access.ids[1]
    assert metadata(access, secret) == {None: ErrorCode.UNKNOWN_TOPIC_ID}
    old = access.alice_asks(
        cluster.MetadataRequest([cluster.MetadataRequestTopic(name="secret")]), 0
    )
    assert [(each.name, each.error_code) for each in old.topics] == [("secret", TOPIC_DENIED)]


def test_metadata_creates_only_with_the_right(access: Rig) -> None:
    access.grant(rule("new-", Op.DESCRIBE, principal=ALICE, pattern=P.PREFIXED))
    assert metadata(access, "new-1") == {"new-1": TOPIC_DENIED}
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(access, "new-1", allow_auto_topic_creation=False) == {"new-1": missing}
    access.grant(right(Op.CREATE, TOPIC, "new-2"))
    assert metadata(access, "new-1", "new-2") == {"new-1": TOPIC_DENIED, "new-2": 0}
    access.grant(right(Op.CREATE, CLUSTER))
    assert metadata(access, "new-1") == {"new-1": 0}


def test_lists_of_groups_and_transactions(access: Rig) -> None:
    for group in ("g", "other"):
        commit = offsets.OffsetCommitRequest(group, topics=[COMMIT])
        access.ask(commit, 9, offsets.OffsetCommitResponse)
        started = transactions.InitProducerIdRequest(group[0], 60_000)
        access.ask(started, 5, transactions.InitProducerIdResponse)

    def listed() -> tuple[set[str], set[str]]:
        found = access.alice_asks(groups.ListGroupsRequest())
        some = access.alice_asks(transactions.ListTransactionsRequest())
        return (
            {each.group_id for each in found.groups},
            {each.transactional_id for each in some.transaction_states},
        )

    assert listed() == (set(), set())
    access.grant(right(Op.READ, GROUP), right(Op.WRITE, TXN, "o"))
    assert listed() == ({"g"}, {"o"})
    access.grant(right(Op.DESCRIBE, CLUSTER))
    assert listed() == ({"g", "other"}, {"o"})


def test_all_offsets_of_a_group_are_those_of_visible_topics(access: Rig) -> None:
    hidden = offsets.OffsetCommitRequestTopic(
        "secret", partitions=[offsets.OffsetCommitRequestPartition(0, 1)]
    )
    commit = offsets.OffsetCommitRequest("g", topics=[COMMIT, hidden])
    access.ask(commit, 9, offsets.OffsetCommitResponse)
    access.grant(right(Op.DESCRIBE, GROUP), right(Op.DESCRIBE, TOPIC))
    whole = offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup("g", topics=None)])
    answer = access.alice_asks(whole, 9)
    assert [each.name for each in answer.groups[0].topics] == ["orders"]
    older = access.alice_asks(offsets.OffsetFetchRequest("g", None), 7)
    assert [each.name for each in older.topics] == ["orders"]


def test_a_partly_refused_commit_keeps_the_rest(access: Rig) -> None:
    access.grant(right(Op.READ, GROUP), right(Op.READ, TOPIC))
    hidden = offsets.OffsetCommitRequestTopic(
        "secret", partitions=[offsets.OffsetCommitRequestPartition(0, 1)]
    )
    answer = access.alice_asks(offsets.OffsetCommitRequest("g", topics=[hidden, COMMIT]), 9)
    assert {each.name: each.partitions[0].error_code for each in answer.topics} == {
        "orders": 0,
        "secret": TOPIC_DENIED,
    }


def bits(*operations: AclOperation) -> int:
    return sum(1 << each for each in operations)


def test_operations_are_those_that_are_allowed(access: Rig) -> None:
    access.grant(right(Op.READ, TOPIC), right(Op.READ, GROUP))
    asked = cluster.DescribeClusterRequest(True)
    assert access.alice_asks(asked).cluster_authorized_operations == 0
    access.grant(right(Op.DESCRIBE, CLUSTER), right(Op.ALTER, CLUSTER))
    expected = bits(Op.DESCRIBE, Op.ALTER)
    assert access.alice_asks(asked).cluster_authorized_operations == expected
    old = access.alice_asks(cluster.MetadataRequest(None, True, True, True), 10)
    assert old.cluster_authorized_operations == expected
    found = {each.name: each.topic_authorized_operations for each in old.topics}
    assert found == {"orders": bits(Op.READ, Op.DESCRIBE)}
    group = access.alice_asks(groups.DescribeGroupsRequest(["g"], True), 5).groups[0]
    assert group.authorized_operations == bits(Op.READ, Op.DESCRIBE)


# -- who it is -----------------------------------------------------------------------------------


def test_hosts_denials_and_everybody(access: Rig) -> None:
    everybody = rule("orders", Op.READ, principal="User:*")
    access.grant(everybody)
    assert metadata(access, "orders") == {"orders": 0}
    access.grant(rule("*", Op.ALL, Permission.DENY, principal=ALICE, host=f"10.0.0.{access.alice}"))
    assert metadata(access, "orders") == {"orders": TOPIC_DENIED}
    access.alice = access.connect("CN=alice")  # from another host
    assert metadata(access, "orders") == {"orders": 0}
    access.alice = access.connect("")
    assert metadata(access, "orders") == {"orders": 0}
    assert metadata(access, "secret") == {"secret": TOPIC_DENIED}


def test_what_no_rule_concerns_may_be_open() -> None:
    rig = Rig(allow_everyone_if_no_acl_found=True)
    rig.create_topic("orders")
    assert metadata(rig, "orders") == {"orders": 0}
    rig.grant(rule("orders", Op.READ, principal="User:bob"))
    assert metadata(rig, "orders") == {"orders": TOPIC_DENIED}


def test_denials_are_logged_once_a_minute(access: Rig) -> None:
    def told() -> int:
        return sum("is denied DESCRIBE of topic 'secret'" in line.text for line in access.told)

    for _ in range(3):
        metadata(access, "secret")
    assert told() == 1
    access.advance(60_000)
    metadata(access, "secret")
    assert told() == 2


# -- the rules themselves ------------------------------------------------------------------------


def creation(binding: AclBinding) -> acls.AclCreation:
    return acls.AclCreation(
        binding.resource_type,
        binding.resource_name,
        binding.pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission,
    )


def create(rig: KafkaRig, *bindings: AclBinding) -> list[tuple[int, str | None]]:
    request = acls.CreateAclsRequest([creation(each) for each in bindings])
    answer = rig.ask(request, 3, acls.CreateAclsResponse)
    return [(each.error_code, each.error_message) for each in answer.results]


EVERYTHING = (1, None, 1, None, None, 1, 1)


def test_rules_come_and_go(access: Rig) -> None:
    one, other = rule("a", principal=ALICE), rule("a", Op.WRITE, principal=ALICE)
    prefix = rule("a", pattern=P.PREFIXED, principal=ALICE)
    assert create(access, one, other, prefix, one) == [(0, None)] * 4
    assert create(access, one) == [(0, None)]
    listed = access.ask(acls.DescribeAclsRequest(*EVERYTHING), 3, acls.DescribeAclsResponse)
    assert [
        (each.resource_name, each.pattern_type, len(each.acls)) for each in listed.resources
    ] == [
        ("a", P.LITERAL, 2),
        ("a", P.PREFIXED, 1),
    ]
    match = acls.DescribeAclsRequest(TOPIC, "abc", P.MATCH, None, None, 1, 1)
    found = access.ask(match, 3, acls.DescribeAclsResponse)
    assert [each.pattern_type for each in found.resources] == [P.PREFIXED]
    wanted = [
        acls.DeleteAclsFilter(TOPIC, "a", P.LITERAL, None, None, Op.READ, 1),
        acls.DeleteAclsFilter(TOPIC, "a", P.MATCH, None, None, Op.READ, 1),
        acls.DeleteAclsFilter(99, None, 1, None, None, 1, 1),
    ]
    deleted = access.ask(acls.DeleteAclsRequest(wanted), 3, acls.DeleteAclsResponse)
    assert [len(each.matching_acls) for each in deleted.filter_results] == [1, 2, 0]
    assert deleted.filter_results[2].error_code == ErrorCode.INVALID_REQUEST
    access.restart()
    assert access.node._parts.acls.bindings() == [other]


def test_rules_that_cannot_be(access: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    (code, text), fine = create(access, rule("", principal=ALICE), rule("b", principal=ALICE))
    assert (code, text) == (ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    assert fine == (0, None)
    unknown = acls.AclCreation(99, "x", 3, ALICE, "*", 3, 3)
    answer = access.ask(acls.CreateAclsRequest([unknown]), 3, acls.CreateAclsResponse)
    assert answer.results[0].error_message == "Invalid resourceType UNKNOWN"
    filter_ = acls.DescribeAclsRequest(1, None, 1, None, None, 99, 1)
    described = access.ask(filter_, 3, acls.DescribeAclsResponse)
    assert described.error_code == ErrorCode.INVALID_REQUEST
    monkeypatch.setattr(changes_module, "ACLS_MAX", 2)
    found = create(access, rule("c", principal=ALICE), rule("d", principal=ALICE))
    assert [code for code, _ in found] == [0, ErrorCode.POLICY_VIOLATION]
    monkeypatch.setattr(changes_module, "CHANGES_MAX", 1)
    found = create(access, rule("b", principal=ALICE), rule("b", principal=ALICE))
    assert [code for code, _ in found] == [0, ErrorCode.POLICY_VIOLATION]


def test_without_an_authorizer(rig: KafkaRig) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    assert create(rig, rule())[0][0] == disabled
    answer = rig.ask(acls.DescribeAclsRequest(*EVERYTHING), 3, acls.DescribeAclsResponse)
    assert answer.error_code == disabled
    wanted = acls.DeleteAclsRequest([acls.DeleteAclsFilter(*EVERYTHING)])
    deleted = rig.ask(wanted, 3, acls.DeleteAclsResponse)
    assert [each.error_code for each in deleted.filter_results] == [disabled]


@pytest.mark.parametrize(
    "kafka",
    [
        KafkaConfig(super_users=("User:a",)),
        KafkaConfig(allow_everyone_if_no_acl_found=True),
        KafkaConfig(authorizer="acl", super_users=("a",)),
    ],
)
def test_settings_that_contradict(kafka: KafkaConfig) -> None:
    with pytest.raises(ConfigError, match=r"super_users|allow_everyone"):
        check(BrokerConfig(kafka=kafka))


# -- several brokers -----------------------------------------------------------------------------


def bindings_of(brokers: Brokers, name: str) -> list[AclBinding]:
    node = brokers.processes[name].node
    assert isinstance(node, BrokerNode)
    return node._parts.acls.bindings()


def test_all_live_brokers_know_when_it_is_answered() -> None:
    brokers = Brokers("broker-a", "broker-b", authorizer="acl", allow_everyone_if_no_acl_found=True)
    request = acls.CreateAclsRequest([creation(rule())])
    assert brokers.ask("broker-a", request, 3, acls.CreateAclsResponse).results[0].error_code == 0
    assert bindings_of(brokers, "broker-b") == [rule()]
    brokers.kill("broker-b")
    wanted = acls.DeleteAclsRequest([acls.DeleteAclsFilter(*EVERYTHING)])
    brokers.ask("broker-a", wanted, 3, acls.DeleteAclsResponse)
    brokers.start("broker-b")
    brokers.advance(1_000)
    assert bindings_of(brokers, "broker-b") == bindings_of(brokers, "broker-a") == []


def test_nonsense_of_other_brokers() -> None:
    brokers = Brokers("broker-a", authorizer="acl")
    for body in (b"", b'{"records":[{"binding":[],"version":1}]}'):
        assert brokers.command("broker-a", ACLS, {}, body).code != ResponseCode.SUCCESS
    assert bindings_of(brokers, "broker-a") == []
    assert AclEntry(rule()).name != AclEntry(rule("other")).name
