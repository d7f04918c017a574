"""Offsets of share groups: described, altered and deleted; and what other APIs do with these groups."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.requests import committing, joining
from tests.nodes.broker.kafka.shares.members import (
    ACCEPT,
    TOPIC,
    ShareMember,
    ShareRig,
    acquired,
    configure,
    produce,
)

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from steelyard.wire.kafka.messages.share_data import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from steelyard.wire.kafka.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribedShareGroup,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

E = ErrorCode


@pytest.fixture
def shared() -> ShareRig:
    """A broker with a topic of two partitions, and a group `g` with a member that has left."""
    rig = ShareRig()
    rig.topic_id = rig.create_topic(TOPIC, 2)
    configure(rig, "g", share_auto_offset_reset="earliest")
    beat(rig, 0)
    beat(rig, -1)
    return rig


def beat(rig: ShareRig, epoch: int, group: str = "g") -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(group, "m", epoch, None, None if epoch else [TOPIC])
    return rig.ask(request, 1, ShareGroupHeartbeatResponse)


def starts(rig: ShareRig, topics: dict[str, list[int]] | None = None) -> dict[int, tuple[int, int]]:
    """Start and lag of each partition of the topic."""
    wanted = None
    if topics is not None:
        wanted = [DescribeShareGroupOffsetsRequestTopic(*each) for each in topics.items()]
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", wanted)])
    answer = rig.ask(request, 1, DescribeShareGroupOffsetsResponse)
    assert answer.groups[0].error_code == 0
    return {
        part.partition_index: (part.start_offset, part.lag)
        for topic in answer.groups[0].topics
        for part in topic.partitions
    }


def alter(rig: ShareRig, group: str = "g", topic: str = TOPIC, **offsets: int) -> list[int]:
    """Set starts, by `p` and partition; the error at the top and those of partitions."""
    parts = [
        AlterShareGroupOffsetsRequestPartition(int(name[1:]), offset)
        for name, offset in offsets.items()
    ]
    request = AlterShareGroupOffsetsRequest(
        group, [AlterShareGroupOffsetsRequestTopic(topic, parts)]
    )
    answer = rig.ask(request, 0, AlterShareGroupOffsetsResponse)
    found = [part.error_code for each in answer.responses for part in each.partitions]
    return [answer.error_code, *found]


def delete(rig: ShareRig, *topics: str, group: str = "g") -> list[int]:
    named = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
    request = DeleteShareGroupOffsetsRequest(group, named)
    answer = rig.ask(request, 0, DeleteShareGroupOffsetsResponse)
    return [answer.error_code, *[each.error_code for each in answer.responses]]


def test_starts_and_lags(shared: ShareRig) -> None:
    produce(shared, *[b"x"] * 10)
    assert starts(shared) == {}
    assert starts(shared, {TOPIC: [0, 1], "nope": [5]}) == {0: (-1, -1), 1: (-1, -1), 5: (-1, -1)}
    one = ShareMember(shared, shared.topic_id)
    one.fetch()
    one.acknowledge({0: [(0, 1, ACCEPT), (5, 6, ACCEPT)]})
    assert starts(shared) == {0: (2, 6)}
    assert starts(shared, {TOPIC: [0, 1]}) == {0: (2, 6), 1: (-1, -1)}


def test_a_groups_offsets_are_altered_while_it_is_empty(shared: ShareRig) -> None:
    produce(shared, *[b"x"] * 10)
    assert alter(shared, p0=4, p1=0, p7=1) == [0, 0, 0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert starts(shared) == {0: (4, 6), 1: (0, 0)}
    one = ShareMember(shared, shared.topic_id)
    assert acquired(one.fetch()[0]) == [(4, 9, 1)]
    assert alter(shared, p0=-2) == [0, E.INVALID_REQUEST]
    assert alter(shared, topic="nope", p0=0) == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter(shared, p0=-1) == [0, 0]
    assert starts(shared) == {1: (0, 0)}, "it begins anew"
    beat(shared, 0)
    assert alter(shared, p0=0) == [E.NON_EMPTY_GROUP]
    assert alter(shared, "", p0=0) == [E.INVALID_GROUP_ID]


def test_altering_makes_a_group(shared: ShareRig) -> None:
    assert alter(shared, "new", p0=0) == [0, 0]
    listed = shared.ask(ListGroupsRequest(types_filter=["Share"]), 5, ListGroupsResponse)
    assert [(each.group_id, each.group_state, each.group_type) for each in listed.groups] == [
        ("g", "Empty", "share"),
        ("new", "Empty", "share"),
    ]


def test_who_waits_while_its_offsets_are_altered_reads_from_there(shared: ShareRig) -> None:
    one = ShareMember(shared, shared.topic_id)
    one.fetch()
    waiting = one.waits()
    produce(shared, b"x", partition=1)
    assert alter(shared, p0=3) == [0, 0]
    produce(shared, b"a")
    assert one.got(waiting) == [(0, 0, 1)], "an offset behind the log's end is the end"


def test_offsets_are_deleted_by_topic(shared: ShareRig) -> None:
    produce(shared, b"x")
    ShareMember(shared, shared.topic_id).fetch()
    assert delete(shared, TOPIC, "nope") == [0, 0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert starts(shared) == {}
    assert delete(shared, TOPIC) == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete(shared, TOPIC, group="nobody") == [E.GROUP_ID_NOT_FOUND]
    beat(shared, 0)
    assert delete(shared, TOPIC) == [E.NON_EMPTY_GROUP]


def test_a_group_is_deleted_with_its_offsets(shared: ShareRig) -> None:
    produce(shared, b"x")
    ShareMember(shared, shared.topic_id).fetch()
    beat(shared, 0)
    request = DeleteGroupsRequest(["g", "nobody"])
    found = shared.ask(request, 2, DeleteGroupsResponse).results
    assert [each.error_code for each in found] == [E.NON_EMPTY_GROUP, E.GROUP_ID_NOT_FOUND]
    beat(shared, -1)
    assert shared.ask(request, 2, DeleteGroupsResponse).results[0].error_code == 0
    assert starts(shared) == {}
    shared.restart()
    described = shared.ask(ShareGroupDescribeRequest(["g"]), 1, ShareGroupDescribeResponse)
    assert described.groups[0].error_code == E.GROUP_ID_NOT_FOUND


def test_other_groups_requests_do_not_work_on_share_groups(shared: ShareRig) -> None:
    joined = shared.ask(joining("g", TOPIC), 9, JoinGroupResponse)
    assert joined.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    heartbeat = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=[TOPIC], topic_partitions=()
    )
    answer = shared.ask(heartbeat, 1, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == E.GROUP_ID_NOT_FOUND
    committed = shared.ask(committing("g", TOPIC, {0: 1}), 9, OffsetCommitResponse)
    assert committed.topics[0].partitions[0].error_code == E.GROUP_ID_NOT_FOUND
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    assert shared.ask(asked, 9, OffsetFetchResponse).groups[0].error_code == E.GROUP_ID_NOT_FOUND
    deleted = shared.ask(OffsetDeleteRequest("g"), 0, OffsetDeleteResponse)
    assert deleted.error_code == E.GROUP_ID_NOT_FOUND
    shared.ask(committing("plain", TOPIC, {0: 1}), 9, OffsetCommitResponse)
    assert beat(shared, 0, "plain").error_code == E.GROUP_ID_NOT_FOUND


def test_an_empty_share_group_does_not_expire() -> None:
    kafka = KafkaConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    rig = ShareRig(BrokerConfig(kafka=kafka))
    rig.create_topic(TOPIC)
    beat(rig, 0)
    beat(rig, -1)
    rig.advance(120_000)
    described = rig.ask(ShareGroupDescribeRequest(["g"]), 1, ShareGroupDescribeResponse)
    assert described.groups[0].group_state == "Empty"


def test_a_full_disk_admits_nobody_until_there_is_room(shared: ShareRig) -> None:
    shared.disk.room_bytes = 0
    assert beat(shared, 0).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert beat(shared, 0, "new").error_code == E.COORDINATOR_NOT_AVAILABLE
    assert described(shared, "new").error_code == E.GROUP_ID_NOT_FOUND
    shared.disk.room_bytes = None
    for group in ("g", "new"):
        answer = beat(shared, 0, group)
        assert answer.error_code == 0
        assert answer.assignment is not None
        shared.restart()
        assert beat(shared, answer.member_epoch, group).error_code == 0
        assert [one.member_id for one in described(shared, group).members] == ["m"]


def described(rig: ShareRig, group: str) -> DescribedShareGroup:
    answer = rig.ask(ShareGroupDescribeRequest([group]), 1, ShareGroupDescribeResponse)
    return answer.groups[0]


# -- several brokers -------------------------------------------------------------------------------


class Pair(Brokers):
    """Two brokers, a topic with a partition on each, and a group; `coordinator` is one of their names."""

    def __init__(self) -> None:
        super().__init__("broker-a", "broker-b")
        assert self.create("broker-a", TOPIC, 2).error_code == 0
        self.advance(1_000)
        found = self.ask(
            "broker-a", FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse
        )
        if found.coordinators[0].error_code:
            self.advance(3_000)
            found = self.ask(
                "broker-a",
                FindCoordinatorRequest(coordinator_keys=["g"]),
                4,
                FindCoordinatorResponse,
            )
        self.coordinator = f"broker-{'ab'[found.coordinators[0].node_id - 1]}"
        self.other = "broker-b" if self.coordinator == "broker-a" else "broker-a"
        topic = self.metadata("broker-a", TOPIC).topics[0]
        self.topic_id = topic.topic_id
        self.leader_of = {part.partition_index: part.leader_id for part in topic.partitions}

    def fetch(self, name: str) -> ShareFetchResponse:
        parts = [AcknowledgePartition(index) for index in (0, 1)]
        topics = [AcknowledgeTopic(self.topic_id, parts)]
        request = ShareFetchRequest("g", name, 0, 0, 1, 1000, 10, 10, topics=topics)
        return self.ask(name, request, 2, ShareFetchResponse)

    def describe(self) -> DescribeShareGroupOffsetsResponse:
        groups = [DescribeShareGroupOffsetsRequestGroup("g", None)]
        return self.ask(
            self.coordinator,
            DescribeShareGroupOffsetsRequest(groups),
            1,
            DescribeShareGroupOffsetsResponse,
        )

    def starts(self) -> dict[int, int]:
        found = self.describe().groups[0]
        assert found.error_code == 0
        return {
            p.partition_index: p.start_offset for topic in found.topics for p in topic.partitions
        }


def test_each_broker_serves_what_it_leads_and_names_the_other() -> None:
    pair = Pair()
    for number, name in enumerate(("broker-a", "broker-b"), 1):
        answer = pair.fetch(name)
        (topic,) = answer.responses
        (part,) = topic.partitions
        assert part.error_code == E.NOT_LEADER_OR_FOLLOWER
        assert part.current_leader.leader_id == pair.leader_of[part.partition_index] != number
        assert [each.node_id for each in answer.node_endpoints] == [3 - number]


def test_the_coordinator_asks_the_leaders() -> None:
    pair = Pair()
    assert pair.starts() == {}
    for name in ("broker-a", "broker-b"):
        pair.fetch(name)
    assert pair.starts() == {0: 0, 1: 0}
    parts = [AlterShareGroupOffsetsRequestPartition(index, 0) for index in (0, 1)]
    request = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic(TOPIC, parts)])
    altered = pair.ask(pair.coordinator, request, 0, AlterShareGroupOffsetsResponse)
    assert [part.error_code for part in altered.responses[0].partitions] == [0, 0]
    refused = pair.ask(pair.other, request, 0, AlterShareGroupOffsetsResponse)
    assert refused.error_code == E.NOT_COORDINATOR
    deletion = DeleteGroupsRequest(["g"])
    deleted = pair.ask(pair.coordinator, deletion, 2, DeleteGroupsResponse)
    assert deleted.results[0].error_code == 0
    assert pair.starts() == {}


def test_a_group_is_not_deleted_while_a_broker_is_down() -> None:
    pair = Pair()
    for name in ("broker-a", "broker-b"):
        pair.fetch(name)
    parts = [AlterShareGroupOffsetsRequestPartition(index, 0) for index in (0, 1)]
    request = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic(TOPIC, parts)])
    pair.ask(pair.coordinator, request, 0, AlterShareGroupOffsetsResponse)
    pair.kill(pair.other)
    pair.advance(200_000)
    deletion = DeleteGroupsRequest(["g"])
    deleted = pair.ask(pair.coordinator, deletion, 2, DeleteGroupsResponse)
    assert deleted.results[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    topics = [DeleteShareGroupOffsetsRequestTopic(TOPIC)]
    refused = pair.ask(
        pair.coordinator,
        DeleteShareGroupOffsetsRequest("g", topics),
        0,
        DeleteShareGroupOffsetsResponse,
    )
    assert refused.error_code == E.COORDINATOR_NOT_AVAILABLE
    altered = pair.ask(pair.coordinator, request, 0, AlterShareGroupOffsetsResponse)
    assert sorted(part.error_code for part in altered.responses[0].partitions) == [
        0,
        E.COORDINATOR_NOT_AVAILABLE,
    ]
    pair.start(pair.other)
    pair.advance(5_000)
    deleted = pair.ask(pair.coordinator, deletion, 2, DeleteGroupsResponse)
    assert deleted.results[0].error_code == 0
    assert pair.starts() == {}


def test_a_broker_that_left_the_list_does_not_keep_a_group_from_being_deleted() -> None:
    pair = Pair()
    pair.fetch(pair.coordinator)
    parts = [AlterShareGroupOffsetsRequestPartition(index, 0) for index in (0, 1)]
    request = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic(TOPIC, parts)])
    pair.ask(pair.coordinator, request, 0, AlterShareGroupOffsetsResponse)
    for name in (pair.coordinator, pair.other):
        pair.kill(name)
    pair.listed = (pair.coordinator,)
    pair.start(pair.coordinator)
    pair.advance(200_000)
    assert len(pair.starts()) == 1
    topics = [DeleteShareGroupOffsetsRequestTopic(TOPIC)]
    offsets = DeleteShareGroupOffsetsRequest("g", topics)
    deleted = pair.ask(pair.coordinator, offsets, 0, DeleteShareGroupOffsetsResponse)
    assert [deleted.error_code, *[each.error_code for each in deleted.responses]] == [0, 0]
    answer = pair.ask(pair.coordinator, DeleteGroupsRequest(["g"]), 2, DeleteGroupsResponse)
    assert answer.results[0].error_code == 0
