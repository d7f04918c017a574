"""Groups of the new protocol through the listener, beside everything else that asks about groups."""

from __future__ import annotations

import struct

import pytest
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.requests import committing

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.groups.kafka.consumer.waiting import SHORT_TIMEOUT_MS
from steelyard.nodes.seam import Closed
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
    TopicPartitions,
)
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

GROUP = "g"


def join_request(member: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        GROUP,
        member,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def join(rig: KafkaRig, member: str = "m1") -> ConsumerGroupHeartbeatResponse:
    return rig.ask(join_request(member), 1, ConsumerGroupHeartbeatResponse)


def beat(rig: KafkaRig, epoch: int, member: str = "m1") -> ConsumerGroupHeartbeatResponse:
    """Send a heartbeat, and wait for its answer."""
    correlation = rig.post(ConsumerGroupHeartbeatRequest(GROUP, member, epoch), 1)
    if correlation not in rig.answers:
        rig.advance(5_000)
    answer = rig.answer_to(correlation, ConsumerGroupHeartbeatResponse)
    assert answer is not None
    return answer


def describe(rig: KafkaRig, *groups: str, operations: bool = False) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(groups, operations)
    return list(rig.ask(request, 1, ConsumerGroupDescribeResponse).groups)


def classic_join(rig: KafkaRig) -> JoinGroupResponse | None:
    """None while the join phase goes on."""
    metadata = struct.pack(">hihi", 0, 1, len(TOPIC), -1)
    metadata = metadata[:8] + TOPIC.encode() + metadata[8:]
    request = JoinGroupRequest(
        GROUP, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", metadata)]
    )
    return rig.answer_to(rig.post(request, 3), JoinGroupResponse)


def commit(
    rig: KafkaRig,
    epoch: int,
    member: str = "m1",
    version: int = 9,
    numbers: tuple[int, ...] = (0, 1),
) -> list[int]:
    """The codes of the partitions."""
    request = committing(GROUP, TOPIC, dict.fromkeys(numbers, 7), member, epoch)
    answer = rig.ask(request, version, OffsetCommitResponse)
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def committed(rig: KafkaRig, member: str | None, epoch: int) -> tuple[int, list[int]]:
    """The group's code and the offsets."""
    topic = OffsetFetchRequestTopic(TOPIC, partition_indexes=[0, 1])
    group = OffsetFetchRequestGroup(GROUP, member, epoch, [topic])
    answer = rig.ask(OffsetFetchRequest(groups=[group]), 9, OffsetFetchResponse).groups[0]
    return answer.error_code, [p.committed_offset for t in answer.topics for p in t.partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_gets_partitions_by_the_topics_id(rig: KafkaRig, version: int) -> None:
    topic_id = rig.create_topic(partitions=2)
    answer = rig.ask(join_request("m1"), version, ConsumerGroupHeartbeatResponse)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 1)
    assert answer.assignment is not None
    assert list(answer.assignment.topic_partitions) == [TopicPartitions(topic_id, [0, 1])]


def test_errors_have_a_text(rig: KafkaRig) -> None:
    answer = beat(rig, 1)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member m1 is not a member of group g.",
    )


def test_silence_is_timed(rig: KafkaRig) -> None:
    rig.create_topic()
    join(rig)
    rig.advance(44_999)
    assert describe(rig, GROUP)[0].group_state == "Stable"
    rig.advance(1)
    assert describe(rig, GROUP)[0].group_state == "Empty"
    assert any("sent no heartbeat" in tell.text for tell in rig.told)


def test_partitions_that_are_added_are_read(rig: KafkaRig) -> None:
    topic_id = rig.create_topic(partitions=1)
    join(rig)
    more = CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 3, None)], 1_000)
    assert rig.ask(more, 3, CreatePartitionsResponse).results[0].error_code == 0
    answer = beat(rig, 1)
    assert answer.assignment is not None
    assert list(answer.assignment.topic_partitions) == [TopicPartitions(topic_id, [0, 1, 2])]


def test_members_go_on_after_a_kill(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    join(rig)
    rig.restart()
    answer = beat(rig, 1)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)


def test_an_answer_waits_for_the_disk_where_all_do() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic()
    rig.disk_answers = False
    sent = rig.post(join_request("m1"), 1)
    assert rig.answer_to(sent, ConsumerGroupHeartbeatResponse) is None
    rig.answer_flushes()
    assert rig.answer_to(sent, ConsumerGroupHeartbeatResponse) is not None


def test_a_full_disk_says_come_again(rig: KafkaRig) -> None:
    rig.create_topic()
    rig.disk.room_bytes = 0
    for _ in range(3):
        assert join(rig).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (tell,) = (tell for tell in rig.told if "cannot be stored" in tell.text)
    assert tell.text.startswith(f"group {GROUP} ")
    rig.disk.room_bytes = None
    answer = join(rig)
    assert (answer.error_code, answer.member_epoch) == (0, 1)


def test_another_brokers_group(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    side = rig.node._kafka
    assert side is not None
    for coordinator, code in (
        (99, ErrorCode.NOT_COORDINATOR),
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ):
        monkeypatch.setattr(
            side.cluster, "coordinator_of", lambda key, coordinator=coordinator: coordinator
        )
        assert join(rig).error_code == code
        assert describe(rig, GROUP) == [DescribedGroup(code, group_id=GROUP)]


# -- descriptions ----------------------------------------------------------------------------------


def test_descriptions(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    join(rig)
    found, missing, nameless = describe(rig, GROUP, "other", "", operations=True)
    assert (found.group_state, found.group_epoch, found.assignor_name) == ("Stable", 1, "uniform")
    assert found.authorized_operations == 0b1101_0100_1000
    (member,) = found.members
    assert (member.client_id, member.client_host) == ("client", "/10.0.0.1")
    assert member.assignment.topic_partitions[0].topic_name == TOPIC
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group other not found.",
    )
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert describe(rig, GROUP)[0].authorized_operations == -(2**31)


def test_other_ways_to_ask_for_groups(rig: KafkaRig) -> None:
    rig.create_topic()
    join(rig)
    listed = rig.ask(ListGroupsRequest((), ["consumer"]), 5, ListGroupsResponse).groups
    assert list(listed) == [ListedGroup(GROUP, "consumer", "Stable", "consumer")]
    new = rig.ask(DescribeGroupsRequest([GROUP]), 6, DescribeGroupsResponse).groups[0]
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    old = rig.ask(DescribeGroupsRequest([GROUP]), 5, DescribeGroupsResponse).groups[0]
    assert (old.error_code, old.group_state) == (0, "Dead")


# -- the other protocol ----------------------------------------------------------------------------


def test_a_classic_member_joins_and_the_group_becomes_a_classic_one(rig: KafkaRig) -> None:
    rig.create_topic()
    join(rig)
    taken = classic_join(rig)
    assert taken is not None
    assert (taken.error_code, taken.protocol_type, taken.leader) == (0, "consumer", "")
    described = describe(rig, GROUP)[0]
    assert sorted(member.member_type for member in described.members) == [0, 1]
    beat(rig, -1)
    rig.advance(100)
    assert describe(rig, GROUP)[0].error_message == "Group g is not a consumer group."
    rig.restart()
    assert describe(rig, GROUP)[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_changes_its_kind_and_keeps_its_offsets(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    assert commit(rig, -1, "") == [0, 0], "a group that is known by its offsets only"
    assert join(rig).error_code == 0
    assert committed(rig, "m1", 1) == (0, [7, 7])
    beat(rig, -1)
    classic_join(rig)
    rig.advance(100)
    assert join(rig).error_code == 0, "its member comes along"
    assert sorted(one.member_type for one in describe(rig, GROUP)[0].members) == [0, 1]
    assert committed(rig, None, -1) == (0, [7, 7])


# -- offsets ---------------------------------------------------------------------------------------


def test_commits_and_fetches(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    join(rig)
    stale, unknown = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(rig, 1) == [0, 0]
    assert committed(rig, "m1", 1) == (0, [7, 7])
    assert committed(rig, None, -1) == (0, [7, 7])
    assert committed(rig, "m1", 0)[0] == stale
    assert committed(rig, "m2", 1)[0] == unknown
    assert commit(rig, 2) == [stale, stale]
    assert commit(rig, 1, "m2") == [unknown, unknown]
    assert commit(rig, 1, version=8) == [ErrorCode.UNSUPPORTED_VERSION] * 2


def test_a_late_commit_counts_for_what_the_member_still_has(rig: KafkaRig) -> None:
    """m1 commits with the epoch before; 0 was its own then, 1 is m2's by now."""
    topic_id = rig.create_topic(partitions=2)
    join(rig)
    join(rig, "m2")
    for owned in ([0, 1], [0]):
        request = ConsumerGroupHeartbeatRequest(
            GROUP, "m1", 1, topic_partitions=[TopicPartitions(topic_id, owned)]
        )
        answer = rig.ask(request, 1, ConsumerGroupHeartbeatResponse)
    assert answer.member_epoch == 2
    assert commit(rig, 1, numbers=(0,)) == [0]
    assert commit(rig, 1) == [ErrorCode.STALE_MEMBER_EPOCH] * 2, (
        "one of them spoils all, as in Kafka"
    )


def test_a_group_with_members_is_not_deleted(rig: KafkaRig) -> None:
    rig.create_topic()
    join(rig)

    def delete() -> int:
        return rig.ask(DeleteGroupsRequest([GROUP]), 2, DeleteGroupsResponse).results[0].error_code

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    beat(rig, -1)
    assert delete() == 0
    rig.restart()
    assert describe(rig, GROUP)[0].error_message == "Group g not found."


# -- heartbeats that wait ----------------------------------------------------------------------------


def waiting(rig: KafkaRig, link: int) -> int:
    """A heartbeat of m1, which has all partitions of the topic; its correlation id."""
    rig.create_topic(partitions=2)
    join(rig)
    # After a short interval it is answered at once.
    first = rig.post(ConsumerGroupHeartbeatRequest(GROUP, "m1", 1), 1)
    assert rig.answer_to(first, ConsumerGroupHeartbeatResponse) is not None
    correlation = rig.post(ConsumerGroupHeartbeatRequest(GROUP, "m1", 1), 1, link=link)
    assert rig.answer_to(correlation, ConsumerGroupHeartbeatResponse) is None
    return correlation


def test_newcomer_answers_a_heartbeat_that_waits(rig: KafkaRig) -> None:
    correlation = waiting(rig, rig.connect())
    join(rig, "m2")
    answer = rig.answer_to(correlation, ConsumerGroupHeartbeatResponse)
    assert answer is not None
    assert answer.assignment is not None
    assert [list(one.partitions) for one in answer.assignment.topic_partitions] == [[0]]


def test_partitions_that_are_added_answer_a_heartbeat_that_waits(rig: KafkaRig) -> None:
    correlation = waiting(rig, rig.connect())
    more = CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 3, None)], 1_000)
    rig.ask(more, 3, CreatePartitionsResponse)
    rig.advance(1)
    answer = rig.answer_to(correlation, ConsumerGroupHeartbeatResponse)
    assert answer is not None
    assert answer.assignment is not None
    assert [list(one.partitions) for one in answer.assignment.topic_partitions] == [[0, 1, 2]]


def test_another_request_of_the_link_releases_a_heartbeat_that_waits(rig: KafkaRig) -> None:
    correlation = waiting(rig, rig.link)
    describe(rig, GROUP)
    answer = rig.answer_to(correlation, ConsumerGroupHeartbeatResponse)
    assert answer is not None
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, SHORT_TIMEOUT_MS)


def test_link_that_closes_takes_its_heartbeat_with_it(rig: KafkaRig) -> None:
    link = rig.connect()
    correlation = waiting(rig, link)
    rig.event(Closed(link, "gone"))
    rig.node.check()
    rig.advance(5_000)
    assert rig.answer_to(correlation, ConsumerGroupHeartbeatResponse) is None
