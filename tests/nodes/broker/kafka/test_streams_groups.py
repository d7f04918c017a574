"""Streams groups through the listener: internal topics, rights, and everything else that asks about groups."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.groups.kafka.streams.conftest import COUNTS, INTERNAL, WORD_COUNT, named, tasks
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import committing, fetching, producing
from tests.nodes.broker.kafka.test_access import CLUSTER, GROUP, TOPIC, Op, Rig, right
from tests.nodes.broker.kafka.test_dynamic_configs import GROUP_KIND, alter, told

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.groups.kafka.streams.configuration import StreamsStatus
from steelyard.groups.kafka.streams.description import task_ids
from steelyard.groups.kafka.streams.groups import SHORT_MS
from steelyard.groups.kafka.waiting import JAVA
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    decode,
)
from steelyard.nodes.broker.kafka.groups import internal_topics
from steelyard.nodes.broker.kafka.groups.internal_topics import CREATING_MS
from steelyard.nodes.seam import Closed
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages import consumer_groups
from steelyard.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.data import FetchResponse, ProduceResponse
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from steelyard.wire.kafka.messages.offsets import OffsetCommitResponse
from steelyard.wire.kafka.messages.streams_groups import (
    DescribedGroup,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from steelyard.wire.kafka.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from steelyard.wire.remoting.message import decode_records

APP = "app"
BEAT_MS = 5_000
JOIN = StreamsGroupHeartbeatRequest(
    APP,
    "m1",
    rebalance_timeout_ms=60_000,
    topology=WORD_COUNT,
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
    process_id="p",
)
ALL = tasks("0_0 0_1 1_0 1_1")


def kafka(**settings: Any) -> KafkaConfig:
    return KafkaConfig(
        group_streams_initial_rebalance_delay_ms=0,
        group_streams_assignment_interval_ms=0,
        **settings,
    )


@pytest.fixture
def rig() -> KafkaRig:
    rig = KafkaRig(BrokerConfig(kafka=kafka()))
    rig.create_topic("in", 2)
    return rig


def ask(rig: KafkaRig, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    return rig.ask(request, 0, StreamsGroupHeartbeatResponse)


def beat(rig: KafkaRig, epoch: int) -> StreamsGroupHeartbeatResponse:
    return ask(rig, StreamsGroupHeartbeatRequest(APP, "m1", epoch))


def describe(rig: KafkaRig, group: str = APP, *, operations: bool = False) -> DescribedGroup:
    request = StreamsGroupDescribeRequest([group], operations)
    (found,) = rig.ask(request, 0, StreamsGroupDescribeResponse).groups
    return found


def details(response: StreamsGroupHeartbeatResponse) -> list[tuple[int, str]]:
    return [(each.status_code, each.status_detail) for each in response.status or ()]


# -- internal topics -------------------------------------------------------------------------------


def test_internal_topics_are_created(rig: KafkaRig) -> None:
    joined = ask(rig, JOIN)
    missing = "Internal topics are missing: app-counts-changelog, app-words-repartition"
    assert details(joined) == [(StreamsStatus.MISSING_INTERNAL_TOPICS, missing)]
    assert joined.heartbeat_interval_ms == CREATING_MS
    answer = beat(rig, joined.member_epoch)
    assert (details(answer), named(answer.active_tasks or ())) == ([], ALL)
    assert answer.heartbeat_interval_ms == BEAT_MS
    cluster = rig.node._kafka.cluster  # type: ignore[union-attr]
    assert [cluster.partitions(topic) for topic in INTERNAL] == [2, 2]
    changelog = cluster.topic("app-counts-changelog")
    assert changelog is not None
    assert changelog.settings == {"cleanup.policy": "compact"}


def test_a_topic_that_cannot_be_created_is_tried_again_later(rig: KafkaRig) -> None:
    changelog = TopicInfo("c", topic_configs=[KeyValue("no.such.setting", "1")])
    topology = Topology(0, [Subtopology("0", ["in"], state_changelog_topics=[changelog])])
    joined = ask(rig, replace(JOIN, topology=topology))
    failed = "Internal topics are missing: c; Creation failed: c (Unknown topic config name: no.such.setting)."
    assert details(joined) == [(StreamsStatus.MISSING_INTERNAL_TOPICS, failed)]
    assert joined.heartbeat_interval_ms == BEAT_MS
    lines = len(rig.told)
    beat(rig, joined.member_epoch)
    assert len(rig.told) == lines
    rig.advance(2 * BEAT_MS)
    beat(rig, joined.member_epoch)
    assert len(rig.told) == lines + 1


def test_only_so_many_failures_are_told(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topics, "CREATED_MAX", 5)
    monkeypatch.setattr(internal_topics, "FAILURES_MAX", 4)
    topics = [TopicInfo(f"c{number}", replication_factor=9) for number in range(6)]
    topology = Topology(0, [Subtopology("0", ["in"], state_changelog_topics=topics)])
    ((_, text),) = details(ask(rig, replace(JOIN, topology=topology)))
    assert text.endswith(" and 1 more.")
    assert text.count("replication factor of 9") == 3


def test_the_controller_creates_them_for_other_brokers() -> None:
    brokers = Brokers(
        "broker-a",
        "broker-b",
        group_streams_initial_rebalance_delay_ms=0,
        group_streams_assignment_interval_ms=0,
    )
    brokers.create("broker-a", "in", 2)
    brokers.ask("broker-a", FindCoordinatorRequest(APP), 3, FindCoordinatorResponse)
    groups = [f"{letter}-app" for letter in "abcdefgh"]
    served = set()
    for group in groups:
        topology = Topology(
            0, [Subtopology("0", ["in"], state_changelog_topics=[TopicInfo(f"{group}-changelog")])]
        )
        request = replace(JOIN, group_id=group, topology=topology)
        for name in ("broker-a", "broker-b"):
            answer = brokers.ask(name, request, 0, StreamsGroupHeartbeatResponse)
            if answer.error_code == ErrorCode.NOT_COORDINATOR:
                continue
            assert not answer.error_code
            brokers.advance(1_000)
            again = StreamsGroupHeartbeatRequest(group, "m1", answer.member_epoch)
            answer = brokers.ask(name, again, 0, StreamsGroupHeartbeatResponse)
            assert named(answer.active_tasks or ()) == tasks("0_0 0_1")
            served.add(name)
    assert served == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        ("no topic", "Topic names no topic are not valid topic names."),
    ],
)
def test_topics_that_no_application_may_have(rig: KafkaRig, topic: str, text: str) -> None:
    for topology in (
        Topology(0, [Subtopology("0", [topic])]),
        Topology(0, [Subtopology("0", ["in"], state_changelog_topics=[TopicInfo(topic)])]),
    ):
        answer = ask(rig, replace(JOIN, topology=topology))
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            text,
        )
    assert describe(rig).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- rights ----------------------------------------------------------------------------------------


def test_who_may_not_create_topics_is_told() -> None:
    rig = Rig(group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0)
    rig.create_topic("in", 2)
    topics = [right(Op.DESCRIBE, TOPIC, name) for name in ("in", *INTERNAL)]
    rig.grant(right(Op.READ, GROUP, APP), *topics)
    joined = rig.alice_asks(JOIN)
    ((code, text),) = details(joined)
    assert code == StreamsStatus.MISSING_INTERNAL_TOPICS
    assert text.endswith(
        "; Unauthorized to CREATE on topics app-counts-changelog, app-words-repartition."
    )
    again = StreamsGroupHeartbeatRequest(APP, "m1", joined.member_epoch)
    rig.grant(right(Op.CREATE, TOPIC, INTERNAL[0]))
    assert details(rig.alice_asks(again))[0][1].endswith("on topics app-counts-changelog.")
    rig.grant(right(Op.CREATE, CLUSTER))
    assert rig.alice_asks(again).heartbeat_interval_ms == CREATING_MS
    assert named(rig.alice_asks(again).active_tasks) == ALL


def test_topics_that_may_not_be_described() -> None:
    rig = Rig()
    rig.create_topic("in", 2)
    rig.grant(right(Op.READ, GROUP, APP), right(Op.DESCRIBE, GROUP, APP))
    rig.grant(right(Op.DESCRIBE, TOPIC, "in"))
    assert rig.alice_asks(JOIN).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not ask(rig, JOIN).error_code
    (found,) = rig.alice_asks(StreamsGroupDescribeRequest([APP])).groups
    assert (found.error_code, found.topology, found.members) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        None,
        (),
    )
    rig.grant(*(right(Op.DESCRIBE, TOPIC, name) for name in INTERNAL))
    (found,) = rig.alice_asks(StreamsGroupDescribeRequest([APP], True)).groups
    assert (found.error_code, len(found.members)) == (ErrorCode.NONE, 1)
    assert found.authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE


# -- beside other requests -------------------------------------------------------------------------


def test_groups_are_listed_described_and_deleted(rig: KafkaRig) -> None:
    joined = ask(rig, JOIN)
    beat(rig, joined.member_epoch)
    found = describe(rig, operations=True)
    assert (found.group_state, found.authorized_operations) == ("Stable", 0b110101001000)
    assert describe(rig, "").error_code == ErrorCode.INVALID_GROUP_ID
    for states, kinds, listed in (
        ([], [], True),
        (["stable"], ["Streams"], True),
        (["NotReady"], [], False),
        ([], ["consumer", "classic"], False),
    ):
        answer = rig.ask(ListGroupsRequest(states, kinds), 5, ListGroupsResponse)
        lines = (ListedGroup(APP, "streams", "Stable", "streams"),)
        assert answer.groups == (lines if listed else ())
    (classic,) = rig.ask(DescribeGroupsRequest([APP]), 6, DescribeGroupsResponse).groups
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group app is not a classic group.",
    )
    asked = consumer_groups.ConsumerGroupDescribeRequest([APP])
    (other,) = rig.ask(asked, 1, consumer_groups.ConsumerGroupDescribeResponse).groups
    assert (other.error_code, other.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group app is not a consumer group.",
    )
    assert delete(rig) == ErrorCode.NON_EMPTY_GROUP
    ask(rig, StreamsGroupHeartbeatRequest(APP, "m1", -1))
    consumer = consumer_groups.ConsumerGroupHeartbeatRequest(
        APP, "m2", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["in"], topic_partitions=()
    )
    refused = rig.ask(consumer, 1, consumer_groups.ConsumerGroupHeartbeatResponse)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(rig) == ErrorCode.NONE
    assert describe(rig).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def delete(rig: KafkaRig) -> int:
    (result,) = rig.ask(DeleteGroupsRequest([APP]), 2, DeleteGroupsResponse).results
    return result.error_code


def test_offsets_are_committed_by_members_only(rig: KafkaRig) -> None:
    joined = ask(rig, JOIN)
    epoch = beat(rig, joined.member_epoch).member_epoch

    def commit(member: str, epoch: int) -> int:
        request = committing(APP, "in", {0: 7}, member, epoch)
        answer = rig.ask(request, 9, OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    assert commit("m1", epoch) == ErrorCode.NONE
    assert commit("m1", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m2", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    rig.restart()
    rig.advance(1_000)
    assert not beat(rig, epoch).error_code
    assert commit("m1", epoch) == ErrorCode.NONE


def test_the_ledger_and_operators_are_told(rig: KafkaRig) -> None:
    joined = ask(rig, JOIN)
    epoch = beat(rig, joined.member_epoch).member_epoch
    rig.ask(producing("in", 1, batch(b"1", b"2")), 9, ProduceResponse)
    rig.ask(fetching("in", 1, 0, 1_000), 11, FetchResponse)
    rig.ask(committing(APP, "in", {1: 2}, "m1", epoch), 9, OffsetCommitResponse)
    ask(rig, StreamsGroupHeartbeatRequest(APP, "m1", -1))
    rig.advance(2_000)
    log = rig.store.log(LEDGER_TOPIC, 0)
    assert log is not None
    views = decode_records(log.read(0, 10_000, 1 << 24).data)
    records = [
        record
        for view in views
        for record in decode(view.body)
        if getattr(record, "group", "") == APP
    ]
    kinds = {type(record) for record in records}
    assert kinds >= {MemberJoined, RebalanceBegan, RebalanceEnded, Delivered, Committed, MemberLeft}
    assert {(one.client, one.topic) for one in records if isinstance(one, Delivered)} == {
        ("m1", "in")
    }
    triggers = [record.trigger for record in records if isinstance(record, RebalanceBegan)]
    assert triggers == ["joined", "topics", "left"]


def test_settings_of_a_group_apply_at_once(rig: KafkaRig) -> None:
    ask(rig, JOIN)
    heartbeat, standbys = "streams.heartbeat.interval.ms", "streams.num.standby.replicas"

    def change(name: str, value: str) -> int:
        return alter(rig, GROUP_KIND, APP, (name, 0, value))[0]

    assert change(heartbeat, "1234") == change(standbys, "1") == ErrorCode.NONE
    assert change(standbys, "11") == ErrorCode.INVALID_CONFIG
    assert change("streams.session.timeout.ms", "1200") == ErrorCode.INVALID_CONFIG
    answer = beat(rig, 2)
    assert answer.heartbeat_interval_ms == 1234
    assert describe(rig).group_epoch == 3
    assert told(rig, GROUP_KIND, APP, heartbeat) == ("1234", 8, False)
    assert told(rig, GROUP_KIND, APP, "streams.initial.rebalance.delay.ms")[0] == "0"


def test_a_group_that_is_not_ready_is_described_as_it_was_sent(rig: KafkaRig) -> None:
    rig.create_topic("app-words-repartition", 7)
    ((code, _),) = details(ask(rig, JOIN))
    assert code == StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    found = describe(rig)
    assert found.group_state == "NotReady"
    assert found.topology is not None
    (_, counts) = found.topology.subtopologies or ()
    assert [topic.name for topic in counts.repartition_source_topics] == [
        topic.name for topic in COUNTS.repartition_source_topics
    ]


# -- heartbeats that wait ----------------------------------------------------------------------------


def waiting(rig: KafkaRig, link: int) -> int:
    """A heartbeat of m1, which runs all tasks and whose client is Java; its correlation id."""
    for topic in INTERNAL:
        rig.create_topic(topic, 2)
    java = ApiVersionsRequest(JAVA, "4.3.1")
    rig.ask(java, 3, ApiVersionsResponse, link=link)
    epoch = rig.ask(JOIN, 0, StreamsGroupHeartbeatResponse, link=link).member_epoch
    report = StreamsGroupHeartbeatRequest(
        APP, "m1", epoch, active_tasks=task_ids(ALL), standby_tasks=(), warmup_tasks=()
    )
    rig.ask(report, 0, StreamsGroupHeartbeatResponse, link=link)
    correlation = rig.post(StreamsGroupHeartbeatRequest(APP, "m1", epoch), 0, link=link)
    assert rig.answer_to(correlation, StreamsGroupHeartbeatResponse) is None
    return correlation


def test_newcomer_answers_a_heartbeat_that_waits(rig: KafkaRig) -> None:
    correlation = waiting(rig, rig.connect())
    ask(rig, replace(JOIN, member_id="m2", process_id="q"))
    answer = rig.answer_to(correlation, StreamsGroupHeartbeatResponse)
    assert answer is not None
    assert answer.active_tasks is not None
    assert len(named(answer.active_tasks)) == 2


def test_topic_that_goes_answers_a_heartbeat_that_waits(rig: KafkaRig) -> None:
    correlation = waiting(rig, rig.connect())
    request = DeleteTopicsRequest(topic_names=["in"], timeout_ms=1_000)
    rig.ask(request, 5, DeleteTopicsResponse)
    rig.advance(1)
    answer = rig.answer_to(correlation, StreamsGroupHeartbeatResponse)
    assert answer is not None
    assert answer.heartbeat_interval_ms == SHORT_MS
    missing = [status for status, _ in details(beat(rig, 2))]
    assert missing == [StreamsStatus.MISSING_SOURCE_TOPICS]


def test_another_request_of_the_link_releases_a_heartbeat_that_waits(rig: KafkaRig) -> None:
    correlation = waiting(rig, rig.link)
    describe(rig)
    answer = rig.answer_to(correlation, StreamsGroupHeartbeatResponse)
    assert answer is not None
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, SHORT_MS)


def test_link_that_closes_takes_its_heartbeat_with_it(rig: KafkaRig) -> None:
    link = rig.connect()
    correlation = waiting(rig, link)
    rig.event(Closed(link, "gone"))
    rig.node.check()
    rig.advance(10_000)
    assert rig.answer_to(correlation, StreamsGroupHeartbeatResponse) is None
