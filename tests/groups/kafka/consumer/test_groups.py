"""Heartbeats one by one: epochs, revocation, static members, silence, topics, and each refusal by name."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

import msgspec
import pytest
from tests.groups.kafka.consumer.classic_client import ClassicClient
from tests.groups.kafka.consumer.conftest import (
    BEAT_MS,
    GROUP,
    Client,
    Rig,
    World,
    assigned,
    join_request,
    of,
)

from steelyard.errors import StorageError
from steelyard.groups.kafka import group_rows, groups
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import ConsumerGroupMemberState
from steelyard.groups.kafka.consumer.requests import CHARACTERS_MAX
from steelyard.groups.kafka.consumer.waiting import SHORT_TIMEOUT_MS, UNHEARD_MS
from steelyard.groups.kafka.effects import Began, Ended, Joined, Left
from steelyard.groups.kafka.groups import Group
from steelyard.groups.kafka.report import report_consumer
from steelyard.groups.kafka.window import QUIET_MS_MIN
from steelyard.store.memory import Killed
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

SESSION_MS = 45_000


def refused(response: ConsumerGroupHeartbeatResponse) -> tuple[ErrorCode, str]:
    assert response.assignment is None
    assert response.error_message is not None
    return ErrorCode(response.error_code), response.error_message


# -- the way of a rebalance ------------------------------------------------------------------------


def test_first_member_gets_everything_at_once() -> None:
    rig = Rig()
    response = rig.join("m1")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == (
        "m1",
        1,
        SHORT_TIMEOUT_MS,
    )
    assert assigned(response) == of("t", 0, 1, 2, 3)
    assert rig.group.state == "Stable"
    assert rig.causes == ["m1 (app/10.0.0.1) joined"]


def test_second_member_waits_until_the_first_gave_up() -> None:
    rig = Rig()
    rig.join("m1")
    assert assigned(rig.join("m2")) == set()
    assert rig.group.state == "Reconciling"
    told = rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    assert (told.member_epoch, assigned(told)) == (1, of("t", 0, 1))
    assert assigned(rig.beat("m2", 2)) is None, "m1 has not said yet that it gave up"
    (awaited,) = report_consumer(rig.group, "").awaited
    assert (awaited.member_id, awaited.what) == ("m1", "to give up t-2, t-3")
    assert awaited.until == rig.now + 60_000
    done = rig.beat("m1", 1, of("t", 0, 1))
    assert (done.member_epoch, assigned(done)) == (2, None)
    assert assigned(rig.beat("m2", 2)) == of("t", 2, 3)
    assert rig.group.state == "Stable"
    ended = [e for e in rig.effects if isinstance(e, Ended)]
    assert [(e.generation, e.protocol) for e in ended] == [(1, "uniform"), (2, "uniform")]


def test_a_full_request_is_answered_with_the_assignment() -> None:
    rig = Rig()
    rig.join("m1")
    quiet = rig.beat("m1", 1, of("t", 0))
    full = rig.beat("m1", 1, of("t", 0), rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    assert (assigned(quiet), assigned(full)) == (None, of("t", 0, 1, 2, 3))
    assert rig.group.epoch == 1


def test_a_member_that_leaves_frees_its_partitions() -> None:
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    response = rig.beat("m1", -1)
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == (
        "m1",
        -1,
        0,
    )
    assert assigned(rig.beat("m2", 2)) == of("t", 0, 1, 2, 3)
    assert rig.last_cause.trigger == "left"
    assert [e for e in rig.effects if isinstance(e, Left)] == [Left(GROUP, "m1", "left", ("m2",))]


def test_the_last_one_out_leaves_an_empty_group_whose_epochs_go_on() -> None:
    rig = Rig()
    rig.join("m1")
    rig.beat("m1", -1)
    assert (rig.group.state, rig.group.epoch, rig.group.assignment_epoch) == ("Empty", 2, 2)
    assert rig.join("m2").member_epoch == 3


def test_less_topics_are_taken_away_and_the_others_stay() -> None:
    rig = Rig(World(a=1, t=1))
    rig.join("m1", ["a", "t"])
    response = rig.beat("m1", 1, of("a", 0) | of("t", 0), subscribed_topic_names=["t"])
    assert (response.member_epoch, assigned(response)) == (1, of("t", 0))
    assert rig.beat("m1", 1, of("t", 0)).member_epoch == 2
    assert rig.last_cause.trigger == "subscription"


def test_a_member_that_does_not_say_what_it_owns_has_not_given_up() -> None:
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    assert rig.beat("m1", 1, None).member_epoch == 1
    assert rig.beat("m1", 1, of("t", 0, 1, 3)).member_epoch == 1
    assert rig.beat("m1", 1, of("t", 0, 1)).member_epoch == 2


def test_the_broker_names_members_of_version_0() -> None:
    rig = Rig()
    named = rig.join("", version=0).member_id
    assert named
    assert rig.group.member_ids() == (named,)


# -- time ------------------------------------------------------------------------------------------


def test_a_silent_member_is_out_after_its_session() -> None:
    rig = Rig()
    rig.join("m1")
    heard_at = rig.now
    rig.pass_time(SESSION_MS - 1)
    assert rig.group.state == "Stable"
    rig.pass_time(1)
    assert (rig.group.state, rig.last_cause.trigger) == ("Empty", "expired")
    assert "45000 ms" in rig.last_cause.text
    assert Left(GROUP, "m1", "expired", (), heard_at) in rig.effects
    code, _ = refused(rig.beat("m1", 1, of("t", 0)))
    assert code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_is_out_after_its_rebalance_timeout() -> None:
    rig = Rig()
    rig.join("m1", rebalance_timeout_ms=20_000)
    rig.join("m2")
    for _ in range(4):
        rig.beat("m1", 1, of("t", 0, 1, 2, 3))
        rig.beat("m2", 2)
        rig.pass_time(BEAT_MS)
    assert rig.group.member_ids() == ("m2",)
    assert "rebalance timeout" in rig.last_cause.text
    assert assigned(rig.beat("m2", 2)) == of("t", 0, 1, 2, 3)


def test_giving_up_in_time_stops_the_rebalance_timeout() -> None:
    rig = Rig()
    rig.join("m1", rebalance_timeout_ms=20_000)
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    rig.beat("m1", 1, of("t", 0, 1))
    rig.pass_time(30_000)
    assert rig.group.member_ids() == ("m1", "m2")


def test_the_assignment_interval_puts_the_next_target_off() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=1_000)
    rig.join("m1")
    late = rig.join("m2")
    assert (late.member_epoch, assigned(late), rig.group.state) == (1, set(), "Assigning")
    rig.pass_time(1_000)
    rig.beat("m2", 1)
    assert (rig.group.epoch, rig.group.assignment_epoch) == (2, 2)


# -- topics ----------------------------------------------------------------------------------------


def test_more_partitions_and_new_topics_are_noticed() -> None:
    rig = Rig(World(t=1))
    rig.join("m1", ["a", "t"])
    rig.world.set("t", 2)
    assert assigned(rig.beat("m1", 1)) == of("t", 0, 1)
    rig.world.set("a", 1)
    assert assigned(rig.beat("m1", 2)) == of("t", 0, 1) | of("a", 0)
    rig.world.set("else", 1)
    assert assigned(rig.beat("m1", 3)) is None
    assert rig.causes[1:] == [
        "topic t has 2 partitions now, 1 before",
        "topic a exists now, with 1 partition",
    ]


def test_a_topic_that_is_gone_has_to_be_given_up() -> None:
    rig = Rig(World(a=1, t=1))
    rig.join("m1", ["a", "t"])
    rig.world.set("a", 0)
    response = rig.beat("m1", 1, of("a", 0) | of("t", 0))
    assert (response.member_epoch, assigned(response)) == (1, of("t", 0))
    assert rig.beat("m1", 1, of("t", 0)).member_epoch == 2
    assert rig.last_cause.text == "topic a no longer exists"


def test_topics_and_a_subscription_change_at_once() -> None:
    rig = Rig(World(a=1, t=1))
    rig.join("m1")
    rig.world.set("t", 2)
    rig.beat("m1", 1, subscribed_topic_names=["a", "t"])
    triggers = [bump.cause.trigger for bump in rig.group.bumps]
    assert triggers == ["joined", "topics", "subscription"]
    assert (rig.group.epoch, rig.group.assignment_epoch) == (3, 3)


def test_a_topic_made_again_is_another_one() -> None:
    rig = Rig(World(t=2))
    rig.join("m1")
    rig.world.set("t", 0)
    rig.world.set("t", 2)
    told = rig.beat("m1", 1, of("t", 0, 1))
    assert (told.member_epoch, assigned(told)) == (1, set()), "first it gives up the old one"
    rig.restart()
    done = rig.beat("m1", 1, set())
    assert (done.member_epoch, assigned(done)) == (2, of("t#1", 0, 1))
    assert rig.group.member_at("app", "/10.0.0.1", TopicPartition("t", 0)) == "m1"
    rig.world.set("t", 0)
    rig.beat("m1", 2)
    shown = rig.consumers.describe(GROUP).members[0]
    assert list(shown.assignment.topic_partitions) == [], "a topic that is gone is not shown"


def test_many_changed_topics_make_one_short_cause() -> None:
    rig = Rig(World())
    names = [f"t{number}" for number in range(9)]
    rig.join("m1", names)
    for name in names:
        rig.world.set(name, 1)
    rig.beat("m1", 1)
    assert rig.last_cause.text.endswith(", 4 more topics changed")


def test_an_expression_takes_in_topics_as_they_come() -> None:
    rig = Rig(World(t=1, other=1))
    assert assigned(rig.join("m1", None, subscribed_topic_regex="^(t|a).*")) == of("t", 0)
    rig.world.set("ab", 1)
    rig.world.set("ba", 1)
    assert assigned(rig.beat("m1", 1)) == of("t", 0) | of("ab", 0)
    rig.world.set("ab", 0)
    assert assigned(rig.beat("m1", 2, of("t", 0) | of("ab", 0))) == of("t", 0)
    assert not rig.group.subscribes_to("ab")
    assert rig.group.subscribes_to("t")
    assert not rig.group.subscribes_to("other")


def test_an_empty_expression_ends_the_subscription() -> None:
    rig = Rig()
    rig.join("m1", None, subscribed_topic_regex="t")
    assert assigned(rig.beat("m1", 1, of("t", 0, 1, 2, 3), subscribed_topic_regex="")) == set()


# -- assignors -------------------------------------------------------------------------------------


def test_most_members_choose_the_assignor() -> None:
    rig = Rig(World(t=4, u=4))
    rig.join("m1", ["t"], server_assignor="range")
    assert rig.consumers.describe(GROUP).assignor_name == "range"
    rig.join("m2", ["t"], server_assignor="range")
    rig.join("m3", ["t"], server_assignor="uniform")
    assert rig.consumers.describe(GROUP).assignor_name == "range"
    rig.join("m4", ["t"], server_assignor="uniform")
    assert rig.consumers.describe(GROUP).assignor_name == "uniform", "the default, of two alike"
    assert rig.last_cause.text.endswith("the assignor is uniform now, which most prefer")


def test_an_assignor_that_comes_to_be_preferred_bumps_the_epoch() -> None:
    rig = Rig()
    rig.join("m1")
    rig.beat("m1", 1, server_assignor="range")
    assert (rig.group.epoch, rig.last_cause.trigger) == (2, "assignor")
    rig.beat("m1", 2, server_assignor="range")
    assert rig.group.epoch == 2


# -- static members --------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    away = rig.beat("m1", -2, instance_id="i")
    assert (away.member_id, away.member_epoch) == ("m1", -2)
    back = rig.join("m2", instance_id="i")
    assert (back.member_epoch, assigned(back)) == (1, of("t", 0, 1, 2, 3))
    assert rig.group.epoch == 1
    assert rig.group.member_ids() == ("m2",)
    assert Left(GROUP, "m1", "replaced", ("m2",)) in rig.effects


def test_a_static_member_that_stays_away_is_out() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    rig.beat("m1", -2, instance_id="i")
    rig.pass_time(SESSION_MS)
    assert rig.group.is_empty


def test_a_static_member_leaves_for_good() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    rig.beat("m1", -1, instance_id="i")
    assert rig.group.is_empty
    assert rig.join("m2", instance_id="i").error_code == ErrorCode.NONE


def test_instance_in_use_is_unreleased() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    assert refused(rig.join("m2", instance_id="i")) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member m2 with instance id i cannot join the group because the instance id is owned by m1 member.",
    )
    assert rig.group.member_ids() == ("m1",)


def test_a_static_member_whose_answer_was_lost_joins_again() -> None:
    """It keeps its id: a refusal would be final for Java's consumer."""
    rig = Rig()
    rig.join("m1", instance_id="i")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3), instance_id="i")  # it has to revoke two partitions
    again = rig.join("m1", instance_id="i")
    assert (again.member_epoch, assigned(again)) == (2, of("t", 0, 1))
    assert assigned(rig.beat("m2", 2, [])) == of("t", 2, 3), "who joins owns nothing any more"
    assert rig.group.member_ids() == ("m1", "m2")
    assert rig.group.epoch == 2


def test_a_released_instance_does_not_swallow_another_member() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    rig.join("m2")
    rig.beat("m1", -2, instance_id="i")
    code, _ = refused(rig.join("m2", instance_id="i"))
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_member_before_is_a_fenced_instance() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    rig.beat("m1", -2, instance_id="i")
    rig.join("m2", instance_id="i")
    for epoch in (1, -1):
        assert refused(rig.beat("m1", epoch, instance_id="i")) == (
            ErrorCode.FENCED_INSTANCE_ID,
            "Static member m1 with instance id i was fenced by member m2.",
        )


def test_an_unknown_instance() -> None:
    rig = Rig()
    rig.join("m1")
    assert refused(rig.beat("m1", 1, instance_id="i")) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Instance id i is unknown.",
    )


# -- epochs ----------------------------------------------------------------------------------------


def test_a_greater_epoch_is_fenced() -> None:
    rig = Rig()
    rig.join("m1")
    code, text = refused(rig.beat("m1", 2, of("t", 0)))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (2)" in text


def test_the_epoch_before_will_do_with_nothing_but_the_assigned() -> None:
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    rig.beat("m1", 1, of("t", 0, 1))  # answered with epoch 2; suppose that this is lost
    assert rig.beat("m1", 1, of("t", 0, 1)).member_epoch == 2
    for owned in (None, of("t", 0, 1, 2), of("unknown", 0)):
        code, text = refused(rig.beat("m1", 1, owned))
        assert code is ErrorCode.FENCED_MEMBER_EPOCH
        assert "smaller member epoch (1)" in text


def test_an_epoch_long_ago_is_fenced() -> None:
    rig = Rig()
    rig.join("m1")
    for partitions in (5, 6):
        rig.world.set("t", partitions)
        rig.beat("m1", partitions - 4)
    code, _ = refused(rig.beat("m1", 1, of("t", 0)))
    assert code is ErrorCode.FENCED_MEMBER_EPOCH


def test_joining_again_answers_with_what_the_member_has() -> None:
    rig = Rig()
    rig.join("m1")
    again = rig.join("m1")
    assert (again.member_epoch, assigned(again)) == (1, of("t", 0, 1, 2, 3))


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "version", "text"),
    [
        ({"member_id": ""}, 1, "MemberId can't be empty."),
        ({"member_id": " ", "member_epoch": 3}, 0, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1}, 0, "MemberId can't be empty."),
        ({"group_id": ""}, 1, "GroupId can't be empty."),
        ({"instance_id": ""}, 1, "InstanceId can't be empty."),
        ({"rack_id": ""}, 1, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 1, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            1,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": ["x" * (CHARACTERS_MAX // 2)] * 2},
            1,
            "The request is longer than 4194304 characters.",
        ),
        ({"member_epoch": -2}, 1, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_request(fields: dict[str, object], version: int, text: str) -> None:
    rig = Rig()
    request = msgspec.structs.replace(join_request("m1"), **fields)
    assert refused(rig.ask(request, version)) == (ErrorCode.INVALID_REQUEST, text)
    assert len(rig.groups) == 0


def test_an_unknown_assignor() -> None:
    assert refused(Rig().join("m1", server_assignor="best")) == (
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor best is not supported. Supported assignors: uniform, range.",
    )


def test_a_full_group() -> None:
    rig = Rig(group_consumer_max_size=1)
    rig.join("m1", instance_id="i")
    assert refused(rig.join("m2")) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    assert rig.beat("m1", 1).error_code == ErrorCode.NONE
    rig.beat("m1", -2, instance_id="i")
    assert rig.join("m2", instance_id="i").error_code == ErrorCode.NONE


def test_groups_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 1)
    rig = Rig()
    rig.join("m1")
    other = rig.ask(join_request("m2", group_id="other"))
    assert refused(other) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are too many groups.")
    assert rig.join("m2").error_code == ErrorCode.NONE


@pytest.mark.parametrize("regex", ["[", "(?=a)", r"(a)\1", "a{1001}", "x" * 1001, r"\p{Nope}"])
def test_an_invalid_expression(regex: str) -> None:
    rig = Rig()
    code, text = refused(rig.join("m1", None, subscribed_topic_regex=regex))
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert text.startswith(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ")
    assert len(rig.groups) == 0


def test_an_unknown_group() -> None:
    """Its member joins again: GROUP_ID_NOT_FOUND would end it (Java)."""
    assert refused(Rig().beat("m1", 1)) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member m1 is not a member of group g.",
    )
    assert refused(Rig().beat("m1", -1)) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g not found.",
    )


@pytest.mark.parametrize("epoch", [1, -1])
def test_an_unknown_member(epoch: int) -> None:
    rig = Rig()
    rig.join("m1")
    assert refused(rig.beat("m2", epoch)) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member m2 is not a member of group g.",
    )


class Foreign:
    """A group that is not of this protocol: all that the conversion looks at."""

    kind = "classic"

    def __init__(self, *, is_empty: bool) -> None:
        self.group_id = GROUP
        self.is_empty = is_empty
        self.forgotten = False

    def forget(self) -> None:
        self.forgotten = True

    def check(self) -> None:
        pass


def test_an_empty_classic_group_makes_room() -> None:
    rig = Rig()
    old = Foreign(is_empty=True)
    rig.groups.add(cast(Group, old))
    assert refused(rig.beat("m1", 1))[0] is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.join("m1").member_epoch == 1
    assert old.forgotten
    assert isinstance(rig.groups.get(GROUP), ConsumerGroup)


def test_only_who_joins_upgrades_a_classic_group() -> None:
    rig = Rig()
    rig.groups.add(cast(Group, Foreign(is_empty=False)))
    for epoch in (1, -1):
        assert refused(rig.beat("m1", epoch))[1] == "Group g is not a consumer group."
    assert isinstance(rig.groups.get(GROUP), Foreign)


# -- commits and fetches of offsets ----------------------------------------------------------------


def commit(rig: Rig, member: str, epoch: int, number: int = 0, version: int = 9) -> ErrorCode:
    code = rig.group.check_commit(
        member, None, epoch, version=version, transactional=False, now=rig.now
    )
    if code is not ErrorCode.NONE:
        return code
    return rig.group.check_commit_partition(member, epoch, TopicPartition("t", number))


def test_commits() -> None:
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    rig.beat("m1", 1, of("t", 0, 1))
    rig.beat("m2", 2)
    assert commit(rig, "m1", 2) is ErrorCode.NONE
    assert commit(rig, "m1", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(rig, "m1", 1) is ErrorCode.NONE, "it has had 0 since epoch 1"
    assert commit(rig, "m1", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH, "2 is not its own any more"
    assert commit(rig, "m2", 1, 2) is ErrorCode.STALE_MEMBER_EPOCH, "it got 2 in epoch 2"
    assert commit(rig, "m1", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(rig, "m3", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(rig, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    check = rig.group.check_commit
    assert check("", None, -1, version=3, transactional=True, now=0) is ErrorCode.NONE
    assert check("m1", None, 2, version=3, transactional=True, now=0) is ErrorCode.NONE


def test_a_partition_that_is_to_be_given_up_may_be_committed() -> None:
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    assert commit(rig, "m1", 1, 3) is ErrorCode.NONE


def test_anyone_commits_to_an_empty_group() -> None:
    rig = Rig()
    rig.join("m1")
    rig.beat("m1", -1)
    assert commit(rig, "", -1) is ErrorCode.NONE


def test_fetches_of_offsets() -> None:
    rig = Rig()
    rig.join("m1")
    check = rig.group.check_fetch
    assert check(None, -1) is ErrorCode.NONE
    assert check("m1", 1) is ErrorCode.NONE
    assert check("m1", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("m2", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check(None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# -- what is shown ---------------------------------------------------------------------------------


def test_description() -> None:
    rig = Rig()
    rig.join("m1", rack_id="r")
    rig.join("m2", None, subscribed_topic_regex="t+")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    group = rig.consumers.describe(GROUP)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    first, second = group.members
    assert (first.member_id, first.rack_id, first.member_epoch) == ("m1", "r", 1)
    assert (first.client_id, first.client_host, first.member_type) == ("app", "/10.0.0.1", 1)
    assert list(first.assignment.topic_partitions[0].partitions) == [0, 1, 2, 3]
    assert list(first.target_assignment.topic_partitions[0].partitions) == [0, 1]
    assert first.target_assignment.topic_partitions[0].topic_name == "t"
    assert (second.subscribed_topic_regex, list(second.assignment.topic_partitions)) == ("t+", [])
    missing = rig.consumers.describe("other")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group other not found.",
    )


def test_who_has_a_partition() -> None:
    rig = Rig()
    rig.join("m1")
    partition = TopicPartition("t", 0)
    assert rig.group.owner_of(partition) == "m1"
    assert rig.group.member_at("app", "/10.0.0.1", partition) == "m1"
    assert rig.group.member_at("app", "/10.0.0.2", partition) is None
    assert rig.group.member_at("app", "/10.0.0.1", TopicPartition("t", 9)) is None


def test_a_change_of_readers_is_told_to_those_who_remember_them() -> None:
    rig = Rig()
    before = rig.groups.version
    rig.join("m1")
    joined = rig.groups.version
    rig.beat("m1", 1)
    quiet = rig.groups.version
    rig.beat("m1", -1)
    assert before < joined == quiet < rig.groups.version


def test_effects_of_a_join() -> None:
    rig = Rig()
    rig.join("m1")
    joined, began, ended = rig.effects
    assert isinstance(joined, Joined)
    member = joined.member
    assert (member.member_id, member.instance_id) == ("m1", None)
    assert (member.client_id, member.host) == ("app", "/10.0.0.1")
    assert joined == Joined(GROUP, member, "joined", ("m1",), ("t",))
    assert isinstance(began, Began)
    assert (began.generation, began.cause.trigger, began.members) == (0, "joined", ("m1",))
    assert ended == Ended(GROUP, 1, "uniform", rig.now, ("m1",))


# -- storage ---------------------------------------------------------------------------------------


def test_members_go_on_after_a_restart() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i", rack_id="r", server_assignor="range")
    rig.join("m2", None, subscribed_topic_regex="t.*")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    before = rig.consumers.describe(GROUP)
    members = rig.group.each()
    rig.restart()
    rig.consumers.check()
    assert rig.consumers.describe(GROUP) == before
    assert rig.group.each() == members
    assert rig.beat("m1", 1, of("t", 0, 1)).member_epoch == 2
    assert assigned(rig.beat("m2", 2)) == of("t", 2, 3)


def test_members_go_on_where_the_groups_own_row_is_lost() -> None:
    """A damaged table was repaired: the members' rows are newer than the group's, or it has none."""
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    assert rig.beat("m1", 1, of("t", 0, 1)).member_epoch == 2
    rig.beat("m2", 2)
    rig.store.table("kafka_consumer_groups").delete(group_rows.key_of(GROUP))
    rig.restart()
    rig.consumers.check()
    assert (rig.group.assignment_epoch, rig.group.epoch) == (2, 3)
    for member, held in (("m1", of("t", 0, 1)), ("m2", of("t", 2, 3))):
        answer = rig.beat(member, 2, held)
        assert answer.error_code == 0
        assert (answer.member_epoch, answer.assignment) == (rig.group.epoch, None)
    rig.consumers.check()


def test_silence_counts_from_the_restart_on() -> None:
    rig = Rig()
    rig.join("m1")
    rig.join("m2")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3), rebalance_timeout_ms=30_000)
    rig.now += 40_000
    rig.restart()
    rig.pass_time(29_999)
    assert rig.group.member_ids() == ("m1", "m2")
    rig.pass_time(1)
    assert rig.group.member_ids() == ("m2",)
    rig.pass_time(15_000)
    assert rig.group.is_empty


def test_topics_that_changed_while_the_broker_was_down() -> None:
    rig = Rig()
    rig.join("m1")
    rig.world.set("t", 5)
    rig.restart()
    assert assigned(rig.beat("m1", 1)) == of("t", 0, 1, 2, 3, 4)
    assert rig.last_cause.trigger == "topics"


def test_a_change_that_a_stranger_brought_to_light_is_stored() -> None:
    rig = Rig()
    rig.join("m1")
    rig.world.set("t", 5)
    refused(rig.beat("m2", 1))
    assert rig.group.epoch == 2
    rig.restart()
    assert rig.group.epoch == 2


@pytest.mark.parametrize("size", range(0, 1_500, 50))
def test_a_topic_made_again_is_another_one_wherever_the_broker_is_killed(size: int) -> None:
    """The group's row may know of the new topic, while the row of a member is about the old one."""
    rig = Rig(World(t=3))
    clients = [Client(rig, name, ["t"]) for name in ("m1", "m2")]
    for client in 3 * clients:
        client.beat()
    rig.world.set("t", 0)
    rig.world.set("t", 3)
    for _ in range(2):
        rig.disk.kill_after_bytes = size
        with suppress(Killed):
            clients[0].beat(lost=True)
        rig.restart()
    for client in 4 * clients:
        client.beat()
    assert clients[0].owned | clients[1].owned == of("t#1", 0, 1, 2)
    assert rig.group.state == "Stable"


def test_a_clock_that_was_set_back_before_a_restart_delays_no_target() -> None:
    """Until the restart the coordinator's time went on from where it was, ahead of the clock."""
    rig = Rig()
    rig.join("m1")
    rig.now -= 3_600_000
    rig.restart()
    rig.join("m2")
    assert rig.group.assignment_epoch == rig.group.epoch


@pytest.mark.parametrize("size", range(0, 1_500, 50))
def test_every_partition_is_read_wherever_the_broker_is_killed(size: int) -> None:
    """The group's row may know of a member without a row, and that member may never come again."""
    rig = Rig(World(t=3))
    client = Client(rig, "m1", ["t"])
    for _ in range(3):
        client.beat()
    rig.disk.kill_after_bytes = size
    with suppress(Killed):
        Client(rig, "m2", ["t"]).beat(lost=True)
    rig.restart()
    for _ in range(10):
        client.beat()
        rig.pass_time(10_000)
    assert client.owned == of("t", 0, 1, 2)


def test_a_topic_that_is_gone_is_given_up_after_a_restart() -> None:
    rig = Rig(World(a=1, t=1))
    rig.join("m1", ["a", "t"])
    rig.world.set("a", 0)
    rig.restart()
    assert rig.beat("m1", 1, of("a", 0) | of("t", 0)).member_epoch == 1
    assert rig.beat("m1", 1, of("t", 0)).member_epoch == 2


def test_a_group_that_was_deleted_stays_so() -> None:
    rig = Rig()
    rig.join("m1")
    rig.group.forget()
    rig.groups.remove(GROUP)
    assert rig.consumers.next_at is None or not rig.consumers.due(rig.now + 10**6, [])  # type: ignore[func-returns-value]
    rig.restart()
    assert len(rig.groups) == 0


def test_a_full_disk_is_told_and_the_change_is_stored_later() -> None:
    rig = Rig()
    rig.join("m1")
    rig.disk.room_bytes = 0
    with pytest.raises(StorageError):
        rig.join("m2")
    rig.disk.room_bytes = None
    rig.beat("m1", 1, of("t", 0, 1))
    rig.restart()
    assert rig.group.member_ids() == ("m1", "m2")


def test_a_group_too_large_for_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_rows, "VALUE_BYTES_MAX", 300)
    rig = Rig()
    with pytest.raises(StorageError):
        rig.join("m" * 300)
    assert len(rig.store.table("kafka_consumer_groups")) == 0


def test_a_session_that_ends_on_a_full_disk_still_ends() -> None:
    rig = Rig()
    rig.join("m1")
    rig.disk.room_bytes = 0
    rig.pass_time(SESSION_MS)
    assert rig.group.is_empty


def test_rows_that_claim_one_partition_leave_one_member() -> None:
    """1. m1 gives up t-2. 2. The disk is full, m1's row stays old. 3. m2's row is written. 4. A kill."""
    rig = Rig(World(t=1))
    rig.join("m1")
    table = rig.store.table("kafka_consumer_groups")
    row = table.get('["g","m1"]')
    assert row is not None
    table.put('["g","m2"]', row)
    table.put('["g","m3"]', b"no row")
    rig.restart()
    rig.consumers.check()
    assert rig.group.member_ids() == ("m1",)


def test_a_slow_member_holds_up_only_what_it_has() -> None:
    rig = Rig(World(t=6))
    slow = Client(rig, "slow", ["t"], lazy=True)
    quick, third = (Client(rig, name, ["t"]) for name in ("quick", "third"))
    for client in (slow, quick, slow, quick):
        client.beat()
        slow.finish()
    for client in (slow, quick, slow, quick):
        client.beat()
    assert len(quick.owned) == 3
    third.beat()
    for client in (slow, quick, third, quick, third):
        client.beat()
    assert rig.group.member("slow").state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS  # type: ignore[union-attr]
    assert (len(slow.owned), len(quick.owned), len(third.owned)) == (3, 2, 1)


def test_a_heartbeat_with_nothing_in_it_changes_nothing() -> None:
    rig = Rig()
    rig.join("m1")
    before = rig.group.each()
    answer = rig.ask(ConsumerGroupHeartbeatRequest(GROUP, "m1", 1))
    assert answer == ConsumerGroupHeartbeatResponse(
        member_id="m1", member_epoch=1, heartbeat_interval_ms=UNHEARD_MS
    )
    assert rig.group.each() == before


# -- the window of joins ---------------------------------------------------------------------------


def test_members_that_join_one_after_the_other_get_one_target() -> None:
    rig = Rig(World(t=8), group_join_window_max_ms=1_000)
    rig.join("m0")
    for number in range(1, 8):
        rig.pass_time(10)
        answer = rig.join(f"m{number}")
        assert (answer.member_epoch, assigned(answer)) == (1, set())
        assert answer.heartbeat_interval_ms == SHORT_TIMEOUT_MS
    assert (rig.group.epoch, rig.group.assignment_epoch) == (8, 1)
    rig.pass_time(QUIET_MS_MIN)
    assert rig.group.assignment_epoch == 8
    assert [len(rig.group.target(f"m{number}")) for number in range(8)] == [1] * 8


def test_members_that_keep_joining_are_kept_waiting_for_the_limit_only() -> None:
    rig = Rig(World(t=8), group_join_window_max_ms=1_000)
    rig.join("m0")
    for number in range(1, 10):
        rig.pass_time(100)
        rig.join(f"m{number}")
    assert rig.group.assignment_epoch == 1
    rig.pass_time(200)  # a second since m1 came
    assert rig.group.assignment_epoch == rig.group.epoch == 10


def test_member_that_leaves_ends_the_window() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    rig.join("m1")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    rig.pass_time(QUIET_MS_MIN)
    rig.join("m2")
    assert rig.group.assignment_epoch == 1
    rig.beat("m1", -1)
    answer = rig.beat("m2", 1)
    assert answer.member_epoch == rig.group.epoch == 3
    assert assigned(answer) == of("t", 0, 1, 2, 3)


def test_topics_that_change_end_the_window() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    rig.join("m1")
    rig.pass_time(QUIET_MS_MIN)
    rig.join("m2")
    rig.world.set("t", 6)
    rig.beat("m1", 1)
    assert rig.group.assignment_epoch == rig.group.epoch == 3


def test_member_of_the_classic_protocol_never_waits_for_a_window() -> None:
    """It joins again and again while the group is ahead of its target."""
    rig = Rig(group_join_window_max_ms=1_000)
    rig.join("m1")
    ClassicClient(rig, "c1", ["t"]).beat()
    assert rig.group.assignment_epoch == rig.group.epoch
    rig.join("m2")
    assert rig.group.assignment_epoch == rig.group.epoch


def test_window_that_is_open_at_a_restart_ends_with_it() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    rig.join("m1")
    rig.join("m2")
    assert rig.group.assignment_epoch == 1
    rig.restart()
    rig.beat("m1", 1)
    assert rig.group.assignment_epoch == rig.group.epoch == 2
