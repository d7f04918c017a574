"""The member's machine, step by step."""

from __future__ import annotations

import pytest
from tests.groups.kafka.member.consumer.rig import (
    BACKOFF_MS,
    INTERVAL_MS,
    NAMES,
    POLL_MS,
    TIMEOUT_MS,
    Rig,
    T,
    U,
    assignment,
    parts,
    told,
)

from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.consumer.machine import NO_EPOCH
from steelyard.groups.kafka.member.consumer.states import ConsumerMemberState
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

NOTHING_NEW = ConsumerGroupHeartbeatRequest("g", "me", 1)


def test_a_new_member_tells_everything_and_takes_what_it_is_given() -> None:
    """1. Epoch 0, with everything. 2. The answer has an epoch and a share. 3. It tells what it owns, when the application does."""
    rig = Rig(assignor="uniform")
    rig.tell(events.TopicsNamed(NAMES), events.Subscribed(("t",)))
    rig.nothing()  # until there is a coordinator
    rig.tell(events.CoordinatorFound())
    assert rig.heartbeat() == ConsumerGroupHeartbeatRequest(
        "g", "me", 0, None, "rack", POLL_MS, ("t",), None, "uniform", ()
    )
    assert rig.asked.timeout_ms == TIMEOUT_MS
    assert rig.member.generation == NO_EPOCH
    rig.answer(assignment(1, 0), epoch=7)
    order = rig.take(events.Adopt)
    assert order == events.Adopt((), parts(0, 1))
    assert (rig.member.generation, rig.member.owned) == (7, ())
    rig.nothing()  # nothing is told before the application knows
    rig.tell(events.Adopted(parts(0, 1)))
    request = rig.heartbeat()
    assert (request.member_epoch, told(request)) == (7, {T: [0, 1]})
    assert (request.rebalance_timeout_ms, request.subscribed_topic_names) == (-1, None)
    assert (rig.member.state, rig.member.owned) == (ConsumerMemberState.STABLE, parts(0, 1))
    rig.answer()
    rig.pass_time(INTERVAL_MS)
    assert rig.heartbeat() == ConsumerGroupHeartbeatRequest("g", "me", 7)


def test_an_empty_share_is_acknowledged_too() -> None:
    rig = Rig()
    rig.joining()
    rig.answer(Assignment(), epoch=1)
    assert rig.adopt() == events.Adopt((), ())
    assert told(rig.heartbeat()) == {}


def test_what_is_revoked_is_told_only_when_it_is_given_up() -> None:
    """1. The share shrinks. 2. Heartbeats go on, and say nothing of it. 3. The application is done: the coordinator hears of it at once."""
    rig = Rig()
    rig.stable(0, 1)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0))
    assert rig.take(events.Adopt) == events.Adopt(parts(1), ())
    rig.pass_time(INTERVAL_MS)
    assert rig.heartbeat() == NOTHING_NEW
    rig.answer()
    rig.tell(events.Adopted(parts(0)))
    assert told(rig.heartbeat()) == {T: [0]}


def test_one_assignment_is_adopted_after_the_other() -> None:
    """1. While one is adopted, another comes. 2. The first is told, then the other is adopted. 3. One that comes back is adopted again."""
    rig = Rig()
    rig.stable(0)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0, 1))
    rig.take(events.Adopt)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0))
    rig.nothing()
    rig.tell(events.Adopted(parts(0, 1)))
    assert told(rig.heartbeat()) == {T: [0, 1]}
    assert rig.take(events.Adopt) == events.Adopt(parts(1), ())
    rig.answer(assignment(0, 1))
    rig.tell(events.Adopted(parts(0)))
    assert told(rig.heartbeat()) == {T: [0, 1]}
    assert rig.adopt() == events.Adopt((), parts(1))


def test_new_partitions_are_named_before_they_are_taken() -> None:
    """The coordinator gives to others what a member does not name.

    1. While one assignment is adopted, another adds a partition. 2. The acknowledgement of the first names it
    already. 3. So does a complete heartbeat, after an error, while it is adopted.
    """
    rig = Rig()
    rig.stable(0)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0, 1), epoch=2)
    rig.take(events.Adopt)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.tell(events.Adopted(parts(0, 1)))
    rig.answer(assignment(0, 1, 2), epoch=3)
    assert told(rig.heartbeat()) == {T: [0, 1, 2]}
    assert rig.take(events.Adopt) == events.Adopt((), parts(2))
    rig.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    rig.pass_time(BACKOFF_MS)
    assert told(rig.heartbeat()) == {T: [0, 1, 2]}


def test_an_assignment_that_is_told_again_changes_nothing() -> None:
    rig = Rig()
    rig.stable(0)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0), epoch=2)
    rig.nothing()
    assert rig.member.generation == 2


def test_there_is_one_heartbeat_at_a_time_and_a_changed_interval_counts_from_the_answer() -> None:
    rig = Rig()
    rig.stable()
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.pass_time(20_000)  # the coordinator may answer late
    rig.nothing()
    rig.answer(interval_ms=300)
    rig.pass_time(299)
    rig.nothing()
    rig.pass_time(1)
    rig.heartbeat()
    rig.pass_time(1_000)
    rig.answer(interval_ms=300)  # the same: it counts from the sending
    assert rig.heartbeat() == NOTHING_NEW


def test_a_subscription_is_told_at_once_and_what_it_lacks_is_given_up() -> None:
    rig = Rig()
    rig.stable(0)
    rig.tell(events.Subscribed(("u",)))
    assert rig.heartbeat().subscribed_topic_names == ("u",)
    assert rig.adopt() == events.Adopt(parts(0), ())
    rig.answer(assignment(2, topic=U), epoch=2)
    assert told(rig.heartbeat()) == {U: [2]}
    assert rig.adopt() == events.Adopt((), parts(2, topic="u"))


def test_topics_are_taken_as_their_names_become_known() -> None:
    """1. One of two topics has no name yet. 2. The other is adopted. 3. The name comes: so is this one; both are told each time."""
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.TopicsNamed({T: "t"}), events.Subscribed(("t", "u")))
    rig.heartbeat()
    both = Assignment((TopicPartitions(U, (0,)), TopicPartitions(T, (0,))))
    rig.answer(both, epoch=1)
    rig.take(events.RefreshTopics)
    assert rig.adopt() == events.Adopt((), parts(0))
    assert told(rig.heartbeat()) == {T: [0], U: [0]}
    rig.answer()
    rig.tell(events.TopicsNamed({T: "t"}))
    rig.take(events.RefreshTopics)
    rig.nothing()
    rig.tell(events.TopicsNamed({U: "u"}))  # its own are not forgotten
    assert rig.adopt() == events.Adopt((), parts(0, topic="u"))
    assert told(rig.heartbeat()) == {T: [0], U: [0]}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_lost_membership_costs_the_partitions_before_it_joins_again(code: ErrorCode) -> None:
    rig = Rig()
    rig.stable(0, 1)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.refuse(code)
    assert code.name in rig.take(LogLine).text
    assert rig.member.generation == NO_EPOCH
    assert rig.lose().lost == parts(0, 1)
    rig.nothing()
    rig.pass_time(BACKOFF_MS)
    request = rig.heartbeat()
    assert (request.member_id, request.member_epoch, told(request)) == ("me", 0, {})


def test_a_membership_lost_while_a_share_is_adopted() -> None:
    """1. The application adopts. 2. The membership is lost. 3. What it has then is lost."""
    rig = Rig()
    rig.joining()
    rig.answer(assignment(0), epoch=1)
    rig.take(events.Adopt)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    rig.take(LogLine)
    rig.nothing()
    rig.tell(events.Adopted(parts(0)))
    assert rig.lose().lost == parts(0)
    rig.pass_time(BACKOFF_MS)
    assert rig.heartbeat().member_epoch == 0


def test_a_membership_lost_before_the_share_is_told() -> None:
    rig = Rig()
    rig.stable(0)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0, 1))
    rig.take(events.Adopt)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()  # the coordinator lets it wait
    rig.tell(events.Adopted(parts(0, 1)))
    assert rig.member.state is ConsumerMemberState.ACKNOWLEDGING
    rig.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    rig.take(LogLine)
    assert rig.lose().lost == parts(0, 1)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_another_coordinator_is_told_everything(code: ErrorCode) -> None:
    rig = Rig()
    rig.stable(0)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.refuse(code)
    rig.take(events.FindCoordinator)
    rig.pass_time(30_000)
    rig.nothing()  # it reads on
    rig.tell(events.CoordinatorFound())
    assert rig.heartbeat() == ConsumerGroupHeartbeatRequest(
        "g",
        "me",
        1,
        None,
        "rack",
        POLL_MS,
        ("t", "u"),
        topic_partitions=(TopicPartitions(T, (0,)),),
    )


def test_a_heartbeat_without_an_answer_is_a_lost_coordinator() -> None:
    """What was told with it is told again, and an answer that comes late is ignored."""
    rig = Rig()
    rig.stable(0, 1)
    rig.pass_time(INTERVAL_MS)
    rig.heartbeat()
    rig.answer(assignment(0))
    rig.adopt()
    assert told(rig.heartbeat()) == {T: [0]}
    lost = rig.asked
    rig.tell(events.Unanswered(lost.turn, "closed"))
    assert rig.take(events.FindCoordinator) == events.FindCoordinator("closed")
    rig.tell(events.CoordinatorFound())
    assert told(rig.heartbeat()) == {T: [0]}
    again, rig.asked = rig.asked, lost
    rig.answer(assignment(5), epoch=9)
    rig.nothing()
    assert rig.member.generation == 1
    rig.asked = again
    rig.answer(epoch=2)
    assert rig.member.generation == 2


def test_a_coordinator_that_loads_is_asked_again_after_a_moment() -> None:
    rig = Rig()
    rig.joining()
    rig.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    rig.pass_time(BACKOFF_MS - 1)
    rig.nothing()
    rig.pass_time(1)
    assert rig.heartbeat().member_epoch == 0


def test_an_application_that_does_not_poll_costs_the_membership() -> None:
    rig = Rig()
    rig.stable(0)
    rig.tell(events.PollBegan())
    for _ in range(30):
        rig.pass_time(INTERVAL_MS)  # a poll that waits is not silence
        rig.heartbeat()
        rig.answer()
    rig.tell(events.PollEnded())
    for _ in range(POLL_MS // INTERVAL_MS - 1):
        rig.pass_time(INTERVAL_MS)
        rig.heartbeat()
        rig.answer()
    rig.pass_time(INTERVAL_MS)
    assert "max_poll_interval_ms" in rig.take(LogLine).text
    assert rig.heartbeat() == ConsumerGroupHeartbeatRequest("g", "me", -1)
    rig.nothing()  # until it polls
    rig.tell(events.PollBegan())
    assert rig.lose().lost == parts(0)
    assert rig.heartbeat().member_epoch == 0


def test_who_asked_to_join_leaves_although_it_heard_no_answer() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Closing("closed"))
    rig.nothing()
    rig = Rig()
    rig.joining()
    rig.tell(events.Closing("closed"))
    assert rig.heartbeat().member_epoch == -1
    rig.answer(assignment(0), epoch=1)
    rig.nothing()
    assert rig.member.is_gone


def test_a_static_member_leaves_for_now() -> None:
    rig = Rig(instance="i")
    rig.stable(0)
    rig.tell(events.Closing("closed"))
    assert rig.heartbeat() == ConsumerGroupHeartbeatRequest("g", "me", -2, "i")


def test_a_static_member_gives_up_its_own_instance_id_in_order_to_join() -> None:
    """1. The answer to its first heartbeat is lost. 2. The instance id is taken: by itself. 3. It leaves for now, and joins."""
    rig = Rig(instance="i")
    rig.joining()
    rig.tell(events.Unanswered(rig.asked.turn, "closed"), events.CoordinatorFound())
    rig.take(events.FindCoordinator)
    rig.heartbeat()
    rig.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert rig.heartbeat().member_epoch == -2
    rig.nothing()
    rig.pass_time(BACKOFF_MS)
    assert rig.heartbeat().member_epoch == 0
    rig.answer(assignment(0), epoch=1)
    rig.adopt()


def test_an_instance_id_of_another_member_is_told_to_the_application() -> None:
    """A later poll tries again: the session of a process that crashed ends some time."""
    rig = Rig(instance="i")
    rig.joining()
    rig.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert rig.heartbeat().member_epoch == -2
    for _ in range(2):
        rig.pass_time(BACKOFF_MS)
        assert rig.heartbeat().member_epoch == 0
        rig.refuse(ErrorCode.UNRELEASED_INSTANCE_ID, "owned by another")
        text = "UNRELEASED_INSTANCE_ID from the coordinator (owned by another)"
        assert rig.take(events.Fail) == events.Fail(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        rig.pass_time(60_000)
        rig.nothing()
        rig.tell(events.Retried())
    rig.heartbeat()
    rig.answer(assignment(0), epoch=1)
    assert rig.adopt().assigned == parts(0)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, "does not support group_protocol='consumer'"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "members of the classic protocol"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "GROUP_MAX_SIZE_REACHED from the coordinator (why)"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "UNSUPPORTED_ASSIGNOR from the coordinator (why)"),
        (ErrorCode.INVALID_REQUEST, "INVALID_REQUEST from the coordinator (why)"),
        (4711, "error code 4711 from the coordinator (why)"),
    ],
)
def test_what_time_does_not_mend_is_told_to_the_application(code: int, text: str) -> None:
    rig = Rig()
    rig.joining()
    rig.refuse(code, "why")
    fail = rig.take(events.Fail)
    assert fail.code == code
    assert text in fail.text
    rig.pass_time(POLL_MS)
    rig.nothing()
    rig.tell(events.Retried())
    assert rig.heartbeat().member_epoch == 0


def test_a_broker_without_the_request_is_told_of_as_such() -> None:
    rig = Rig()
    rig.joining()
    code = ErrorCode.UNSUPPORTED_VERSION
    rig.tell(events.Unanswered(rig.asked.turn, "no version", code))
    assert "group_protocol='classic'" in rig.take(events.Fail).text


def test_an_epoch_that_is_none_fails_the_member() -> None:
    rig = Rig()
    rig.joining()
    rig.answer(assignment(0), epoch=-1)
    assert "member epoch -1" in rig.take(events.Fail).text


def test_a_refused_commit_says_something_of_the_membership() -> None:
    """UNKNOWN_MEMBER_ID: it is lost. FENCED_INSTANCE_ID: for ever. Anything else, heartbeats will tell."""
    rig = Rig(instance="i")
    rig.stable(0)
    rig.tell(events.CommitRefused(ErrorCode.ILLEGAL_GENERATION))
    rig.nothing()
    rig.tell(events.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID))
    rig.take(LogLine)
    assert rig.lose().lost == parts(0)
    rig.pass_time(BACKOFF_MS)
    rig.heartbeat()
    rig.tell(events.CommitRefused(ErrorCode.FENCED_INSTANCE_ID))
    assert rig.take(events.Fail).code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.member.is_gone
    rig.tell(events.Retried(), events.Subscribed(("u",)))
    rig.nothing()
