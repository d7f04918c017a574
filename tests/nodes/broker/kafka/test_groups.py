"""Groups over the wire: every version of every API, restarts, disks that fail or are slow, other coordinators, the ledger."""

from __future__ import annotations

import pytest
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import fetching, joining, producing, share, syncing

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.groups.kafka.groups import Asker
from steelyard.ledger import cost
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    Backlog,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
    decode,
)
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.descriptions import ALLOWED_OPERATIONS
from steelyard.nodes.broker.kafka.groups.notes import Notes
from steelyard.nodes.seam import Closed
from steelyard.types import TopicPartition
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FetchResponse,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from steelyard.wire.kafka.messages.offsets import (
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
)
from steelyard.wire.remoting.message import decode_records

GROUP = "g"
SESSION_MS = 10_000


def versions(key: int) -> range:
    first, last = APIS[key].versions
    return range(first, last + 1)


class Members:
    """Clients of a group on a rig."""

    def __init__(self, rig: KafkaRig, group: str = GROUP) -> None:
        self.rig = rig
        self.group = group

    def join(self, member_id: str = "", version: int = 9, link: int | None = None) -> int:
        request = joining(self.group, TOPIC, member_id, SESSION_MS)
        return self.rig.post(request, version, link=link)

    def joined(self, correlation: int) -> JoinGroupResponse:
        answer = self.rig.answer_to(correlation, JoinGroupResponse)
        assert answer is not None
        return answer

    def lead(self, version: int = 9, partitions: tuple[int, ...] = (0,)) -> tuple[str, int]:
        """A member alone in the group, with these partitions; its id and its generation."""
        first = self.join(version=version)
        if version >= 4:
            member_id = self.joined(first).member_id
            first = self.join(member_id, version)
        self.rig.advance(0)
        answer = self.joined(first)
        assert answer.error_code == 0
        self.sync(answer, {answer.member_id: share(TOPIC, partitions)})
        return answer.member_id, answer.generation_id

    def sync(self, answer: JoinGroupResponse, shares: dict[str, bytes], version: int = 5) -> bytes:
        request = syncing(self.group, answer.generation_id, answer.member_id, shares)
        synced = self.rig.ask(request, version, SyncGroupResponse)
        assert synced.error_code == 0
        return synced.assignment

    def beat(self, member_id: str, generation: int, version: int = 4) -> int:
        """Send a Heartbeat, and wait for its answer; the error."""
        request = HeartbeatRequest(self.group, generation, member_id)
        correlation = self.rig.post(request, version)
        if self.rig.answer_to(correlation, HeartbeatResponse) is None:
            self.rig.advance(5_000)
        answer = self.rig.answer_to(correlation, HeartbeatResponse)
        assert answer is not None
        return answer.error_code

    def request(self, member_id: str, generation: int, offset: int = 7) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(0, offset, 0, "note")
        return OffsetCommitRequest(
            self.group,
            generation,
            member_id,
            None,
            -1,
            (OffsetCommitRequestTopic(TOPIC, self.topic_id, (partition,)),),
        )

    @property
    def topic_id(self) -> bytes:
        assert self.rig.node._kafka is not None
        return self.rig.node._kafka.cluster.id_of(TOPIC)

    def commit(self, member_id: str, generation: int, offset: int = 7, version: int = 9) -> int:
        request = self.request(member_id, generation, offset)
        answer = self.rig.ask(request, version, OffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    def committed(self, version: int = 9) -> int:
        if version >= 8:
            topics = (OffsetFetchRequestTopic(TOPIC, self.topic_id, (0,)),)
            request = OffsetFetchRequest(
                groups=(OffsetFetchRequestGroup(self.group, topics=topics),)
            )
            answer = self.rig.ask(request, version, OffsetFetchResponse)
            return answer.groups[0].topics[0].partitions[0].committed_offset
        request = OffsetFetchRequest(
            self.group, (OffsetFetchRequestTopic(TOPIC, partition_indexes=(0,)),)
        )
        answer = self.rig.ask(request, version, OffsetFetchResponse)
        return answer.topics[0].partitions[0].committed_offset


@pytest.fixture
def members(rig: KafkaRig) -> Members:
    rig.create_topic(partitions=2)
    return Members(rig)


# -- every version ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(11))
def test_join_group(members: Members, version: int) -> None:
    member_id, generation = members.lead(version)
    assert generation == 1
    again = members.joined(members.join(member_id, version=version))
    assert again.error_code == 0
    assert again.leader == member_id


@pytest.mark.parametrize("version", versions(14))
def test_sync_group(members: Members, version: int) -> None:
    handle = members.join(version=3)
    members.rig.advance(0)
    answer = members.joined(handle)
    assert members.sync(answer, {answer.member_id: share(TOPIC, [1])}, version) == share(TOPIC, [1])


@pytest.mark.parametrize("version", versions(12))
def test_heartbeat(members: Members, version: int) -> None:
    member_id, generation = members.lead()
    assert members.beat(member_id, generation, version) == 0
    assert members.beat(member_id, generation + 1, version) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(13))
def test_leave_group(members: Members, version: int) -> None:
    member_id, _ = members.lead()
    request = LeaveGroupRequest(GROUP, member_id, (MemberIdentity(member_id, None, "done"),))
    answer = members.rig.ask(request, version, LeaveGroupResponse)
    assert answer.error_code == 0
    assert [one.error_code for one in answer.members] == ([0] if version >= 3 else [])
    answer = members.rig.ask(request, version, LeaveGroupResponse)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    errors = [one.error_code for one in answer.members] or [answer.error_code]
    assert errors == [unknown]


@pytest.mark.parametrize("version", versions(8))
def test_offset_commit(members: Members, version: int) -> None:
    member_id, generation = members.lead()
    assert members.commit(member_id, generation, 9, version) == 0
    assert members.committed() == 9


@pytest.mark.parametrize("version", versions(9))
def test_offset_fetch(members: Members, version: int) -> None:
    assert members.committed(version) == -1
    member_id, generation = members.lead()
    members.commit(member_id, generation, 9)
    assert members.committed(version) == 9


@pytest.mark.parametrize("version", versions(15))
def test_describe_groups(members: Members, version: int) -> None:
    member_id, _ = members.lead()
    request = DescribeGroupsRequest((GROUP, "nobody"))
    group, nobody = members.rig.ask(request, version, DescribeGroupsResponse).groups
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (member_id, "client")
    assert member.client_host == "/10.0.0.1"
    assert nobody.group_state == "Dead"
    assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


def test_describe_groups_with_what_may_be_done_with_them(members: Members) -> None:
    members.lead()
    unknown = -(2**31)
    for asked, operations in ((True, ALLOWED_OPERATIONS), (False, unknown)):
        request = DescribeGroupsRequest((GROUP, "nobody"), asked)
        group, nobody = members.rig.ask(request, 6, DescribeGroupsResponse).groups
        assert group.authorized_operations == operations
        assert nobody.authorized_operations == unknown


@pytest.mark.parametrize("version", versions(16))
def test_list_groups(members: Members, version: int) -> None:
    members.lead()
    (group,) = members.rig.ask(ListGroupsRequest(), version, ListGroupsResponse).groups
    assert (group.group_id, group.protocol_type) == (GROUP, "consumer")
    assert (group.group_state, group.group_type) == ("Stable", "classic")


@pytest.mark.parametrize("version", versions(42))
def test_delete_groups(members: Members, version: int) -> None:
    members.lead()
    request = DeleteGroupsRequest((GROUP, "nobody", GROUP))
    answer = members.rig.ask(request, version, DeleteGroupsResponse)
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_offset_delete(members: Members) -> None:
    member_id, generation = members.lead()
    members.commit(member_id, generation)
    topics = (OffsetDeleteRequestTopic(TOPIC, (OffsetDeleteRequestPartition(0),)),)
    request = OffsetDeleteRequest(GROUP, topics)
    answer = members.rig.ask(request, 0, OffsetDeleteResponse)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert answer.topics[0].partitions[0].error_code == subscribed


# -- restarts -----------------------------------------------------------------------------------


def test_members_go_on_after_a_kill_without_a_rebalance(members: Members) -> None:
    rig = members.rig
    member_id, generation = members.lead()
    members.commit(member_id, generation, 9)
    rig.restart()
    assert members.beat(member_id, generation) == 0
    assert members.committed() == 9
    assert members.commit(member_id, generation, 11) == 0
    rig.advance(SESSION_MS - 1)
    assert members.beat(member_id, generation) == 0
    (group,) = rig.ask(DescribeGroupsRequest((GROUP,)), 5, DescribeGroupsResponse).groups
    assert (group.group_state, group.members[0].member_assignment) == ("Stable", share(TOPIC, [0]))
    # Sessions run from the restart on.
    rig.restart()
    rig.advance(SESSION_MS)
    assert members.beat(member_id, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_connection_that_closes_breaks_nothing(members: Members) -> None:
    """Its member stays until its session ends; its answer goes nowhere."""
    rig = members.rig
    leader, generation = members.lead()
    gone = rig.connect()
    members.join(version=3, link=gone)
    rig.event(Closed(gone, "reset"))
    assert members.beat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = members.joined(members.join(leader))
    assert joined.generation_id == 2
    assert len(joined.members) == 2
    members.sync(joined, {leader: share(TOPIC, [0, 1])})
    for _ in range(5):
        rig.advance(SESSION_MS // 5)
        error = members.beat(leader, 2)
    assert error == ErrorCode.REBALANCE_IN_PROGRESS
    assert members.joined(members.join(leader)).generation_id == 3


# -- disks --------------------------------------------------------------------------------------


def test_with_a_slow_disk_a_commit_is_answered_when_it_is_there() -> None:
    config = BrokerConfig(kafka=KafkaConfig(), flush="sync")
    rig = KafkaRig(config)
    rig.create_topic(partitions=2)
    members = Members(rig)
    member_id, generation = members.lead()
    rig.disk_answers = False
    asked = rig.post(members.request(member_id, generation, 9), 9)
    assert rig.answer_to(asked, OffsetCommitResponse) is None
    rig.answer_flushes()
    rig.answer_flushes()
    assert rig.answer_to(asked, OffsetCommitResponse) is not None


def test_with_sync_flush_nobody_learns_of_a_share_that_a_power_cut_could_take_back() -> None:
    """Else the coordinator would give the generation out again, with other shares, beside members that believe in it."""
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic(partitions=2)
    members = Members(rig)
    asked = members.join(members.joined(members.join()).member_id)
    rig.advance(0)
    joined = members.joined(asked)
    rig.disk_answers = False
    shares = {joined.member_id: share(TOPIC, [0, 1])}
    asked = rig.post(syncing(GROUP, joined.generation_id, joined.member_id, shares), 5)
    assert rig.answer_to(asked, SyncGroupResponse) is None
    rig.answer_flushes()
    rig.answer_flushes()
    synced = rig.answer_to(asked, SyncGroupResponse)
    assert synced is not None
    assert synced.assignment == shares[joined.member_id]


def test_with_sync_flush_a_deleted_group_is_gone_when_that_is_answered() -> None:
    rig = KafkaRig(BrokerConfig(kafka=KafkaConfig(), flush="sync"))
    rig.create_topic(partitions=2)
    members = Members(rig)
    member_id, generation = members.lead()
    members.commit(member_id, generation)
    rig.ask(LeaveGroupRequest(GROUP, "", (MemberIdentity(member_id),)), 5, LeaveGroupResponse)
    rig.disk_answers = False
    topics = (OffsetDeleteRequestTopic(TOPIC, (OffsetDeleteRequestPartition(0),)),)
    offsets = rig.post(OffsetDeleteRequest(GROUP, topics), 0)
    group = rig.post(DeleteGroupsRequest((GROUP,)), 2)
    assert rig.answer_to(offsets, OffsetDeleteResponse) is None
    assert rig.answer_to(group, DeleteGroupsResponse) is None
    rig.answer_flushes()
    rig.answer_flushes()
    assert rig.answer_to(offsets, OffsetDeleteResponse) is not None
    assert rig.answer_to(group, DeleteGroupsResponse) is not None


def test_what_a_full_disk_refuses_is_not_acknowledged(members: Members) -> None:
    rig = members.rig
    member_id, generation = members.lead()
    members.commit(member_id, generation, 9)
    rig.disk.room_bytes = 0
    assert members.commit(member_id, generation, 10) == ErrorCode.NOT_COORDINATOR
    assert members.committed() == 9
    rig.ask(LeaveGroupRequest(GROUP, "", (MemberIdentity(member_id),)), 5, LeaveGroupResponse)
    answer = rig.ask(DeleteGroupsRequest((GROUP,)), 2, DeleteGroupsResponse)
    assert answer.results[0].error_code == ErrorCode.NOT_COORDINATOR
    topics = (OffsetDeleteRequestTopic(TOPIC, (OffsetDeleteRequestPartition(1),)),)
    rig.ask(OffsetDeleteRequest(GROUP, topics), 0, OffsetDeleteResponse)
    rig.disk.room_bytes = None
    answer = rig.ask(DeleteGroupsRequest((GROUP,)), 2, DeleteGroupsResponse)
    assert answer.results[0].error_code == 0


# -- other coordinators -------------------------------------------------------------------------


def test_groups_of_other_brokers(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = members.rig
    member_id, generation = members.lead()
    monkeypatch.setattr(Cluster, "coordinator_of", lambda *_: 99)
    wrong = ErrorCode.NOT_COORDINATOR
    assert members.joined(members.join(member_id)).error_code == wrong
    request = SyncGroupRequest(GROUP, generation, member_id, None, "consumer", "range")
    assert rig.ask(request, 5, SyncGroupResponse).error_code == wrong
    assert members.beat(member_id, generation) == wrong
    leave = LeaveGroupRequest(GROUP, member_id, (MemberIdentity(member_id),))
    assert rig.ask(leave, 5, LeaveGroupResponse).error_code == wrong
    assert members.commit(member_id, generation) == wrong
    fetch = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(GROUP, topics=None),))
    assert rig.ask(fetch, 9, OffsetFetchResponse).groups[0].error_code == wrong
    (described,) = rig.ask(DescribeGroupsRequest((GROUP,)), 5, DescribeGroupsResponse).groups
    assert described.error_code == wrong
    (deleted,) = rig.ask(DeleteGroupsRequest((GROUP,)), 2, DeleteGroupsResponse).results
    assert deleted.error_code == wrong
    assert rig.ask(OffsetDeleteRequest(GROUP), 0, OffsetDeleteResponse).error_code == wrong


# -- the ledger ---------------------------------------------------------------------------------


def ledger(rig: KafkaRig) -> list[Record]:
    log = rig.log(LEDGER_TOPIC)
    data = log.read(0, 10_000, 1 << 24).data
    return [record for view in decode_records(data) for record in decode(view.body)]


def notes_of(rig: KafkaRig) -> Notes:
    assert rig.node._kafka is not None
    return rig.node._kafka.groups.notes


def test_what_a_group_does_is_written_down(members: Members) -> None:
    rig = members.rig
    member_id, generation = members.lead()
    members.commit(member_id, generation, 9)
    rig.advance(1_500)
    leave = LeaveGroupRequest(GROUP, "", (MemberIdentity(member_id, None, "done"),))
    rig.ask(leave, 5, LeaveGroupResponse)
    rig.advance(2_000)
    text = f"{member_id} (/10.0.0.1)"
    common = {"broker": rig.config.name, "group": GROUP}
    expected: list[Record] = [
        MemberJoined(START, rig.config.name, GROUP, member_id, "joined", (member_id,), (TOPIC,)),
        RebalanceBegan(
            at=START,
            generation=0,
            trigger="joined",
            cause=f"{text} joined",
            members=(member_id,),
            **common,
        ),
        RebalanceEnded(
            at=START, generation=1, protocol="range", duration_ms=0, members=(member_id,), **common
        ),
        MemberLeft(
            at=START + 1_500,
            broker=rig.config.name,
            group=GROUP,
            client=member_id,
            cause="unregistered",
            members=(),
        ),
        RebalanceBegan(
            at=START + 1_500,
            generation=1,
            trigger="left",
            cause=f"{text} (reason given: done) left",
            members=(),
            **common,
        ),
        RebalanceEnded(
            at=START + 1_500, generation=2, protocol="", duration_ms=0, members=(), **common
        ),
        Committed(
            at=START,
            broker=rig.config.name,
            group=GROUP,
            topic=TOPIC,
            queue=0,
            offset=9,
            client=member_id,
        ),
    ]
    noted = [
        record
        for record in ledger(rig)
        if getattr(record, "group", "") == GROUP and not isinstance(record, Backlog)
    ]
    assert sorted(map(str, noted)) == sorted(map(str, expected))
    first, second = cost.rebalances(noted)
    assert (first.trigger, second.trigger) == ("joined", "left (unregistered)")


def test_a_fetch_is_that_of_the_member_that_has_the_partition(members: Members) -> None:
    rig = members.rig
    member_id, _ = members.lead(partitions=(0,))
    notes = notes_of(rig)
    askers = (
        (Asker("client", "/10.0.0.1", 50), 0),
        (Asker("client", "/10.0.0.1", 50), 1),  # has no owner
        (Asker("other", "/10.0.0.1", 51), 0),
        (Asker("client", "/10.0.0.2", 52), 0),
    )
    found = [notes.reader(asker, TopicPartition(TOPIC, number), 0) for asker, number in askers]
    assert found == [(GROUP, member_id), None, None, None]


def test_what_a_member_fetches_is_written_down(members: Members) -> None:
    rig = members.rig
    member_id, _ = members.lead(partitions=(0,))
    records = batch(b"1", b"2", b"3")
    rig.ask(producing(TOPIC, 0, records), 9, ProduceResponse)
    rig.advance(250)
    rig.ask(fetching(TOPIC, 0, 1, 1000), 11, FetchResponse)
    rig.advance(2_000)
    (noted,) = [record for record in ledger(rig) if isinstance(record, Delivered)]
    assert noted == Delivered(
        at=START + 250,
        broker=rig.config.name,
        group=GROUP,
        client=member_id,
        topic=TOPIC,
        queue=0,
        until=START + 250,
        first=1,
        next=3,
        count=2,
        stored=START,
    )


def test_of_two_groups_with_like_members_each_connection_is_one(rig: KafkaRig) -> None:
    rig.create_topic(partitions=2)
    one, other = Members(rig, "one"), Members(rig, "other")
    first, second = one.lead(), other.lead()
    one.commit(*first, 100)
    other.commit(*second, 7)
    notes = notes_of(rig)
    partition = TopicPartition(TOPIC, 0)
    far, near, third = (Asker("client", "/10.0.0.1", link) for link in (50, 51, 52))
    assert notes.reader(far, partition, 90) == ("one", first[0])
    assert notes.reader(near, partition, 90) == ("other", second[0])
    assert notes.reader(third, partition, 90) is None
    notes.closed(50)
    assert notes.reader(Asker("client", "/10.0.0.1", 53), partition, 5) == ("one", first[0])
    # An assignment changes: what was found out no longer holds.
    rig.ask(LeaveGroupRequest("one", "", (MemberIdentity(first[0]),)), 5, LeaveGroupResponse)
    assert notes.reader(near, partition, 90) == ("other", second[0])
    assert notes.reader(third, partition, 90) is None


def test_what_is_remembered_of_readers_has_a_bound(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.kafka.groups.notes.READERS_MAX", 10)
    notes = notes_of(members.rig)
    for link in range(100):
        notes.reader(Asker("client", "/10.0.0.1", link), TopicPartition(TOPIC, 0), 0)
        assert notes._count <= 10
        assert sum(map(len, notes._readers.values())) == notes._count


# -- heartbeats that wait ----------------------------------------------------------------------------


def test_commit_on_the_link_releases_the_heartbeat_and_keeps_the_order(members: Members) -> None:
    member_id, generation = members.lead()
    rig = members.rig
    waiting = rig.post(HeartbeatRequest(GROUP, generation, member_id), 4)
    assert rig.answer_to(waiting, HeartbeatResponse) is None
    rig.ask(members.request(member_id, generation), 9, OffsetCommitResponse)
    assert rig.answer_to(waiting, HeartbeatResponse) == HeartbeatResponse()
    assert list(rig.answers)[-2:] == [waiting, waiting + 1]


def test_leaving_while_a_heartbeat_waits_is_answered_at_once(members: Members) -> None:
    member_id, generation = members.lead()
    rig = members.rig
    waiting = rig.post(HeartbeatRequest(GROUP, generation, member_id), 4)
    leave = LeaveGroupRequest(GROUP, member_id, (MemberIdentity(member_id, None, "done"),))
    assert rig.ask(leave, 5, LeaveGroupResponse).error_code == 0
    assert rig.answer_to(waiting, HeartbeatResponse) == HeartbeatResponse()


def test_newcomer_on_another_link_answers_the_heartbeat(members: Members) -> None:
    member_id, generation = members.lead()
    rig = members.rig
    waiting = rig.post(HeartbeatRequest(GROUP, generation, member_id), 4)
    newcomer = joining(GROUP, TOPIC)
    rig.post(newcomer, 3, link=rig.connect())
    answer = rig.answer_to(waiting, HeartbeatResponse)
    assert answer == HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def test_link_that_closes_takes_its_heartbeat_with_it(members: Members) -> None:
    member_id, generation = members.lead()
    rig = members.rig
    link = rig.connect()
    waiting = rig.post(HeartbeatRequest(GROUP, generation, member_id), 4, link=link)
    rig.event(Closed(link, "gone"))
    rig.node.check()
    rig.advance(5_000)
    assert rig.answer_to(waiting, HeartbeatResponse) is None


def test_client_whose_time_out_is_shorter_than_a_wait_loses_one_link_only(members: Members) -> None:
    """1. A heartbeat waits. 2. The client's request.timeout.ms is over. 3. On a new link the broker answers in good time."""
    member_id, generation = members.lead()
    rig = members.rig
    link = rig.connect()
    rig.post(HeartbeatRequest(GROUP, generation, member_id), 4, link=link)
    rig.advance(2_500)
    rig.event(Closed(link, "request timed out"))
    waiting = rig.post(HeartbeatRequest(GROUP, generation, member_id), 4, link=rig.connect())
    rig.advance(1_250)
    assert rig.answer_to(waiting, HeartbeatResponse) == HeartbeatResponse()


def test_member_that_crashes_in_a_loop_is_recorded_and_told_of(members: Members) -> None:
    rig = members.rig
    for _ in range(4):
        member_id, _ = members.lead()
        rig.advance(1_000)
        leave = LeaveGroupRequest(GROUP, "", (MemberIdentity(member_id, None, "done"),))
        rig.ask(leave, 5, LeaveGroupResponse)
    (told,) = [line.text for line in rig.told if line.level == "WARNING"]
    assert "/10.0.0.1 has joined and gone 3 times in the last half an hour" in told
    joins = [one for one in ledger(rig) if isinstance(one, MemberJoined)]
    assert [one.flaps for one in joins] == [0, 1, 2, 3]
