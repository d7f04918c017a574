"""Share groups at their coordinator: epochs, assignments, sessions, and what is stored."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.groups.kafka.consumer.conftest import World, label_of

from steelyard.config import KafkaConfig, StoreConfig
from steelyard.groups.kafka import group_rows
from steelyard.groups.kafka.effects import Effects
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.groups.kafka.share.groups import ShareGroups
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.store.store import Store
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

GROUP = "g"
NOW = 1_700_000_000_000
E = ErrorCode


class Times:
    """What applies to every group."""

    session_ms, heartbeat_ms, assignment_ms = 45_000, 5_000, 0

    def session_timeout_ms(self, group_id: str) -> int:
        return self.session_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self.heartbeat_ms

    def assignment_interval_ms(self, group_id: str) -> int:
        return self.assignment_ms


class Rig:
    """Share groups in virtual time."""

    def __init__(self, **topics: int) -> None:
        self.world = World(**(topics or {"t": 4}))
        self.disk = MemoryDisk()
        self.times = Times()
        self.now = NOW
        self.happened: Effects = []
        self.config = KafkaConfig(group_share_max_size=3)
        self.restart()

    def restart(self) -> None:
        store = Store(self.disk, StoreConfig())
        store.open(self.now)
        self.all = CoordinatedGroups()
        self.table = store.table("kafka_share_groups")
        self.groups = ShareGroups(self.config, self.world, self.all, self.table, self.times)
        self.groups.load(self.now)

    def beat(
        self, member: str, epoch: int, topics: list[str] | None = None, group: str = GROUP
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(group, member, epoch, None, topics)
        asker = Asker(f"client-{member}", "/10.0.0.1", 1)
        answer = self.groups.heartbeat(request, asker, self.now, self.happened)
        self.groups.check()
        return answer

    def join(self, member: str, *topics: str) -> ShareGroupHeartbeatResponse:
        answer = self.beat(member, 0, list(topics or ("t",)))
        assert answer.error_code == 0, answer
        return answer

    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.groups.due(self.now, self.happened)
        self.groups.check()


def given(answer: ShareGroupHeartbeatResponse) -> list[TopicPartition] | None:
    if answer.assignment is None:
        return None
    return [
        TopicPartition(label_of(topic.topic_id), number)
        for topic in answer.assignment.topic_partitions
        for number in topic.partitions
    ]


def parts(*numbers: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def test_members_get_their_parts_with_their_heartbeats() -> None:
    rig = Rig()
    first = rig.join("a")
    assert (first.member_epoch, given(first)) == (2, parts(0, 1, 2, 3))
    second = rig.join("b")
    assert (second.member_epoch, given(second)) == (3, parts(2, 3))
    news = rig.beat("a", 2)
    assert (news.member_epoch, given(news)) == (3, parts(0, 1))
    assert given(rig.beat("a", 3)) is None
    assert rig.beat("a", 2).error_code == 0, "an answer may have been lost"


def test_more_members_than_partitions_share_them() -> None:
    rig = Rig(t=1)
    assert [given(rig.join(name)) for name in "abc"] == [parts(0)] * 3
    refused = rig.beat("d", 0, ["t"])
    assert refused.error_code == E.GROUP_MAX_SIZE_REACHED


def test_a_member_that_leaves_makes_room() -> None:
    rig = Rig()
    rig.join("a")
    rig.join("b")
    left = rig.beat("b", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert given(rig.beat("a", 2)) == parts(0, 1, 2, 3)
    assert rig.beat("b", -1).error_code == E.UNKNOWN_MEMBER_ID
    rig.beat("a", -1)
    assert rig.groups.describe(GROUP).group_state == "Empty"


def test_a_silent_member_is_removed() -> None:
    rig = Rig()
    rig.join("a")
    rig.wait(44_000)
    rig.join("b")
    rig.wait(1_000)
    assert rig.beat("a", 2).error_code == E.UNKNOWN_MEMBER_ID
    assert given(rig.beat("b", 3)) == parts(0, 1, 2, 3)
    assert rig.beat("a", 0, ["t"]).error_code == 0


def test_topics_that_change_change_the_assignment() -> None:
    rig = Rig()
    rig.join("a", "t", "u")
    rig.world.set("u", 1)
    assert given(rig.beat("a", 2)) == [*parts(0, 1, 2, 3), *parts(0, topic="u")]
    rig.world.set("t", 0)
    assert given(rig.beat("a", 3)) == parts(0, topic="u")
    rig.world.set("t", 1)
    assert given(rig.beat("a", 4)) == [*parts(0, topic="t#1"), *parts(0, topic="u")]
    assert given(rig.beat("a", 5, ["u"])) == parts(0, topic="u")


def test_an_interval_between_assignments_is_told() -> None:
    rig = Rig()
    rig.times.assignment_ms = 1_000
    rig.join("a")
    rig.now += 400
    early = rig.join("b")
    assert (given(early), early.heartbeat_interval_ms) == ([], 600)
    rig.now += 600
    assert given(rig.beat("b", early.member_epoch)) == parts(2, 3)


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "error"),
    [
        ("", 0, ["t"], E.INVALID_REQUEST),
        ("x" * 37, 0, ["t"], E.INVALID_REQUEST),
        (" ", 0, ["t"], E.INVALID_REQUEST),
        ("a", 0, None, E.INVALID_REQUEST),
        ("a", 0, [], E.INVALID_REQUEST),
        ("a", -2, None, E.INVALID_REQUEST),
        ("a", 7, None, E.FENCED_MEMBER_EPOCH),
        ("a", 1, None, E.FENCED_MEMBER_EPOCH),
        ("b", 1, None, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_refused(
    member: str, epoch: int, topics: list[str] | None, error: ErrorCode
) -> None:
    """`a` has epoch 3, and had 2 before."""
    rig = Rig()
    rig.join("a")
    rig.join("z")
    rig.beat("a", 2)
    assert rig.beat(member, epoch, topics).error_code == error


def test_a_group_that_does_not_exist_is_joined_only() -> None:
    """Its member joins again: GROUP_ID_NOT_FOUND would end it (Java)."""
    rig = Rig()
    assert rig.beat("a", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert rig.beat("a", -1).error_code == E.GROUP_ID_NOT_FOUND
    found = rig.groups.describe(GROUP)
    assert (found.error_code, found.error_message) == (69, "Share group g not found.")


def test_a_description() -> None:
    rig = Rig()
    rig.join("a")
    found = rig.groups.describe(GROUP)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert found.assignor_name == "simple"
    (member,) = found.members
    assert (member.client_id, member.client_host) == ("client-a", "/10.0.0.1")
    assert list(member.subscribed_topic_names) == ["t"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, list(topic.partitions)) == ("t", [0, 1, 2, 3])


def test_a_restart_keeps_members_with_their_epochs() -> None:
    rig = Rig()
    rig.join("a")
    rig.join("b")
    rig.restart()
    assert given(rig.beat("b", 3)) is None
    assert given(rig.beat("a", 2)) == parts(0, 1)
    rig.wait(45_000)
    assert rig.groups.describe(GROUP).group_state == "Empty"
    rig.restart()
    assert rig.groups.describe(GROUP).group_state == "Empty"
    assert rig.join("c").member_epoch > 3


def test_a_group_is_described_where_its_own_row_is_lost() -> None:
    """A damaged table was repaired, and no member has sent a heartbeat since."""
    rig = Rig()
    rig.join("a")
    before = rig.groups.describe(GROUP)
    rig.table.delete(group_rows.key_of(GROUP))
    rig.restart()
    found = rig.groups.describe(GROUP)
    assert found.error_code == 0
    assert found.members == before.members
    assert given(rig.beat("a", 2, ["t"])) == parts(0, 1, 2, 3)


def test_a_clock_that_was_set_back_before_a_restart_delays_no_target() -> None:
    """Until the restart the coordinator's time went on from where it was, ahead of the clock."""
    rig = Rig()
    rig.join("a")
    rig.now -= 3_600_000
    rig.restart()
    assert given(rig.join("b")) == parts(2, 3)


@pytest.mark.parametrize("size", range(0, 1_000, 25))
def test_every_partition_is_read_wherever_the_broker_is_killed(size: int) -> None:
    """The group's row may know of a member without a row, and that member may never come again."""
    rig = Rig()
    epoch = rig.join("a").member_epoch
    rig.disk.kill_after_bytes = size
    with suppress(Killed):
        rig.join("b")
    rig.disk = rig.disk.copy()
    rig.restart()
    for _ in range(10):
        answer = rig.beat("a", epoch, ["t"])
        assert answer.error_code == 0
        epoch = answer.member_epoch
        rig.wait(10_000)
    assert given(answer) == parts(0, 1, 2, 3)


def test_what_a_share_group_has_no_part_in() -> None:
    rig = Rig()
    rig.join("a")
    group = rig.groups.get(GROUP)
    place = TopicPartition("t", 0)
    commit = group.check_commit("a", None, 2, version=9, transactional=False, now=NOW)
    assert commit is group.check_commit_partition("a", 2, place) is E.GROUP_ID_NOT_FOUND
    assert group.check_fetch("a", 2) is E.GROUP_ID_NOT_FOUND
    assert group.owner_of(place) is group.member_at("client-a", "/10.0.0.1", place) is None
    assert group.readers() == []
    assert group.expires_from(NOW) is None
    assert group.subscribes_to("t")
