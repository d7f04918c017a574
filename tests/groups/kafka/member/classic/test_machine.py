"""The member's machine, step by step."""

from __future__ import annotations

import pytest
from tests.groups.kafka.member.classic.rig import (
    BACKOFF_MS,
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_MS,
    Rig,
    parts,
)

from steelyard.allocate.assignors.user_data import write_sticky
from steelyard.groups.kafka.member import events
from steelyard.groups.kafka.member.classic.states import JOIN_GRACE_MS, ClassicMemberState
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import read_assignment, read_subscription
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)

COOPERATIVE = "cooperative-sticky"


def test_a_new_member_joins_with_the_id_that_it_is_given() -> None:
    """1. Nothing to give up. 2. JoinGroup without an id. 3. MEMBER_ID_REQUIRED. 4. JoinGroup with the id, at once."""
    rig = Rig("range", "roundrobin")
    rig.tell(events.Subscribed(("t",)))
    assert rig.prepare() == events.Prepare((), (), commit=False)
    rig.nothing()  # until there is a coordinator
    rig.tell(events.CoordinatorFound())
    request = rig.request()
    assert (request.group_id, request.member_id, request.protocol_type) == ("g", "", "consumer")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (SESSION_MS, POLL_MS)
    assert rig.asked.timeout_ms == POLL_MS + JOIN_GRACE_MS
    assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
    said = read_subscription(request.protocols[0].metadata)
    assert (said.topics, said.generation_id, list(said.owned_partitions)) == (["t"], -1, [])
    rig.answer(JoinGroupResponse(0, ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    again = rig.request()
    assert (again.member_id, again.reason) == (
        "me",
        "need to re-join with the given member-id: me",
    )


def test_a_follower_takes_its_share() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.joined(7)
    sync = rig.sync()
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (7, "me", "range")
    assert sync.assignments == ()
    order = rig.synced(*parts(0, 1))
    assert order == events.Adopt((), parts(0, 1))
    assert rig.member.owned == ()  # until the application knows
    rig.adopt(order)
    assert (rig.member.state, rig.member.owned, rig.member.generation) == (
        ClassicMemberState.STABLE,
        parts(0, 1),
        7,
    )


def test_the_leader_shares_out_the_topics_of_all_members() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.joined(leads=True)
    assert rig.take(events.NeedTopics) == events.NeedTopics(("t", "u"))
    rig.tell(events.TopicsKnown({"t": 3, "u": 1}))
    shares = {
        share.member_id: [
            (part.topic, list(part.partitions))
            for part in read_assignment(share.assignment).assigned_partitions
        ]
        for share in rig.sync().assignments
    }
    assert shares == {"me": [("t", [0, 1])], "other": [("t", [2]), ("u", [0])]}
    assert rig.member.watched == ("t", "u")


def test_an_eager_member_commits_and_gives_everything_up_before_it_joins_again() -> None:
    """The six steps of seed 004: notice, commit, join, lead or follow, sync, go on."""
    rig = Rig()
    rig.stable(*parts(0, 1))
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    order = rig.take(events.Prepare)
    assert order == events.Prepare(parts(0, 1), (), commit=True)
    rig.nothing()  # no JoinGroup before the commit is done
    rig.tell(events.Prepared(parts(0, 1)))
    request = rig.request()
    assert request.member_id == "me"
    assert request.reason == "group is already rebalancing"
    assert list(read_subscription(request.protocols[0].metadata).owned_partitions) == []
    rig.joined(2)
    rig.sync()
    assert rig.synced(*parts(1)) == events.Adopt((), parts(1))


def test_a_cooperative_member_keeps_what_it_has_and_joins_twice() -> None:
    """1. It joins with what it holds. 2. Its new share lacks one. 3. It gives that up and joins again. 4. The second round takes nothing."""
    rig = Rig(COOPERATIVE)
    rig.stable(*parts(0, 1))
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert rig.prepare() == events.Prepare((), (), commit=True)
    request = rig.request()
    said = read_subscription(request.protocols[0].metadata)
    assert [(part.topic, list(part.partitions)) for part in said.owned_partitions] == [
        ("t", [0, 1])
    ]
    assert said.generation_id == 1
    rig.joined(2, protocol=COOPERATIVE)
    rig.sync()
    order = rig.synced(*parts(0, 2))
    assert order == events.Adopt(parts(1), parts(2))
    rig.adopt(order)
    assert rig.prepare() == events.Prepare((), (), commit=True)
    assert rig.request().reason == "need to revoke partitions and re-join"
    rig.joined(3, protocol=COOPERATIVE)
    rig.sync()
    order = rig.synced(*parts(0, 2))
    assert order == events.Adopt((), ())
    rig.adopt(order)
    rig.nothing()
    assert rig.member.owned == parts(0, 2)


def test_what_was_given_last_stays_of_its_generation_when_a_sync_fails() -> None:
    """1. Generation 1 gives it a share. 2. It joins 2, whose SyncGroup fails. 3. Sticky's user data still says 1."""
    rig = Rig("sticky")
    rig.stable(*parts(0, 1))
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    rig.prepare()
    rig.request()
    rig.joined(2, protocol="sticky")
    rig.sync()
    rig.answer(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    rig.pass_time(BACKOFF_MS)
    said = read_subscription(rig.request().protocols[0].metadata)
    assert said.user_data == write_sticky(parts(0, 1), 1)
    assert said.generation_id == 2


def test_a_reason_that_comes_while_it_joins_is_told_with_the_next_join() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.tell(events.RejoinWanted("enforced"))
    rig.joined()
    rig.sync()
    rig.adopt(rig.synced())
    rig.prepare()
    assert rig.request().reason == "enforced"


def test_one_eager_assignor_makes_the_member_eager() -> None:
    rig = Rig("range", COOPERATIVE)
    rig.stable(*parts(0))
    rig.tell(events.RejoinWanted("enforced"))
    assert rig.take(events.Prepare).revoked == parts(0)


def test_topics_that_are_not_wanted_any_more_go_before_the_join() -> None:
    rig = Rig(COOPERATIVE)
    rig.stable(*parts(0))
    rig.tell(events.Subscribed(("u",)))
    assert rig.prepare() == events.Prepare(parts(0), (), commit=True)
    assert read_subscription(rig.request().protocols[0].metadata).topics == ["u"]


@pytest.mark.parametrize("names", [("range",), (COOPERATIVE,)])
@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")],
)
def test_who_lost_the_membership_has_lost_its_partitions(
    names: tuple[str, ...], code: int, member_id: str
) -> None:
    rig = Rig(*names)
    rig.stable(*parts(0))
    rig.beat(code)
    rig.take(LogLine)
    assert rig.prepare() == events.Prepare((), parts(0), commit=False)
    rig.pass_time(BACKOFF_MS)
    assert rig.request().member_id == member_id
    assert rig.member.owned == ()


@pytest.mark.parametrize("names", [("range",), (COOPERATIVE,)])
def test_a_membership_lost_while_it_joins(names: tuple[str, ...]) -> None:
    rig = Rig(*names)
    rig.stable(*parts(0))
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    rig.prepare()
    rig.request()
    rig.answer(JoinGroupResponse(0, ErrorCode.UNKNOWN_MEMBER_ID))
    rig.take(LogLine)
    held = () if names == ("range",) else parts(0)
    assert rig.prepare() == events.Prepare((), held, commit=False)
    rig.pass_time(BACKOFF_MS)
    assert rig.request().member_id == ""


def test_a_membership_lost_while_the_application_prepares() -> None:
    """A cooperative member kept its partitions when it prepared: they are lost before it joins."""
    rig = Rig(COOPERATIVE)
    rig.stable(*parts(0))
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert rig.take(events.Prepare).lost == ()
    rig.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    rig.take(LogLine)
    rig.tell(events.Prepared(()))
    assert rig.prepare() == events.Prepare((), parts(0), commit=False)
    rig.pass_time(BACKOFF_MS)
    assert rig.request().member_id == ""


@pytest.mark.parametrize(
    ("code", "finds"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
    ],
)
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_errors_after_which_it_joins_again(api: str, code: int, finds: bool) -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    if api == "JoinGroup":
        rig.answer(JoinGroupResponse(0, code))
    else:
        rig.joined()
        rig.sync()
        rig.answer(SyncGroupResponse(0, code))
    if finds:
        rig.take(events.FindCoordinator)
        rig.tell(events.CoordinatorFound())
    rig.nothing()  # not before the backoff is over
    rig.pass_time(BACKOFF_MS)
    assert rig.request().member_id == ("" if api == "JoinGroup" else "me")


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_an_unanswered_request_is_made_again_to_whoever_coordinates_then(api: str) -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    if api == "SyncGroup":
        rig.joined()
        rig.sync()
    rig.tell(events.Unanswered(rig.asked.turn, "closed"))
    rig.take(events.FindCoordinator)
    rig.pass_time(BACKOFF_MS)
    rig.nothing()
    rig.tell(events.CoordinatorFound())
    rig.request()


REFUSALS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    999,
)


@pytest.mark.parametrize("code", REFUSALS)
def test_a_member_that_is_refused_joins_again_when_the_application_polls_again(code: int) -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.answer(JoinGroupResponse(0, code))
    assert rig.take(events.Fail).code == code
    rig.tell(events.Subscribed(("u",)), events.PollBegan(), events.TimePassed())
    rig.nothing()
    assert rig.member.due is None
    rig.tell(events.Retried(), events.PollBegan())
    rig.prepare()
    rig.nothing()
    rig.pass_time(BACKOFF_MS)
    rig.request()


@pytest.mark.parametrize("name", ["range", COOPERATIVE])
def test_what_a_refused_member_held_is_lost(name: str) -> None:
    """1. A heartbeat is refused. 2. The application hears so and polls again. 3. It is told what it lost, and joins."""
    rig = Rig(name)
    rig.stable(*parts(0))
    rig.pass_time(HEARTBEAT_MS)
    beat = rig.ask()
    rig.tell(events.Answered(beat.turn, HeartbeatResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    rig.take(events.Fail)
    rig.pass_time(POLL_MS)
    rig.nothing()
    rig.tell(events.Retried())
    assert rig.prepare() == events.Prepare((), parts(0), commit=False)
    assert rig.request().member_id == "me"


@pytest.mark.parametrize("name", ["range", COOPERATIVE])
def test_a_member_that_is_refused_while_it_prepares_waits_as_well(name: str) -> None:
    rig = Rig(name)
    rig.stable(*parts(0))
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    prepare = rig.take(events.Prepare)
    rig.pass_time(HEARTBEAT_MS)
    beat = rig.ask()
    rig.tell(events.Answered(beat.turn, HeartbeatResponse(0, 999)))
    rig.take(events.Fail)
    rig.tell(events.Prepared(prepare.revoked))
    rig.pass_time(POLL_MS)
    rig.nothing()
    rig.tell(events.Retried())
    if name == COOPERATIVE:
        assert rig.prepare().lost == parts(0)
    rig.request()


def test_a_fenced_member_is_gone() -> None:
    rig = Rig(instance="i")
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.answer(JoinGroupResponse(0, ErrorCode.FENCED_INSTANCE_ID))
    rig.take(events.Fail)
    rig.tell(events.Retried(), events.PollBegan(), events.TimePassed())
    rig.nothing()
    assert rig.member.state is ClassicMemberState.GONE


def test_a_group_of_another_kind_is_no_group_for_it() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.answer(JoinGroupResponse(0, 0, 1, "connect", "compatible", "x", False, "me"))
    assert rig.take(events.Fail).code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_bytes_that_are_no_assignment_end_the_member() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.joined()
    rig.sync()
    rig.answer(SyncGroupResponse(assignment=b"\0\1\xff"))
    rig.take(events.Fail)


# -- heartbeats ------------------------------------------------------------------------------------


def test_heartbeats_go_whatever_the_application_does() -> None:
    """1. In every interval while it is stable. 2. While it waits for the application to prepare. 3. Not while a JoinGroup is under way."""
    rig = Rig()
    rig.stable(*parts(0))
    for _ in range(3):
        rig.beat(0)
    rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    rig.take(events.Prepare)
    for _ in range(3):
        rig.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    rig.tell(events.Prepared(parts(0)))
    rig.request()
    rig.pass_time(SESSION_MS)
    rig.nothing()


@pytest.mark.parametrize("waited_ms", [0, 2_000, HEARTBEAT_MS, HEARTBEAT_MS + 500])
def test_a_heartbeat_is_due_an_interval_after_the_last_one_was_sent(waited_ms: int) -> None:
    """The answer may come late, as brokers may delay it: a member that then paused would hear of nothing for an interval."""
    rig = Rig()
    rig.stable(*parts(0))
    rig.pass_time(HEARTBEAT_MS)
    sent = rig.ask()
    rig.pass_time(waited_ms)
    rig.nothing()
    rig.tell(events.Answered(sent.turn, HeartbeatResponse()))
    rig.pass_time(max(HEARTBEAT_MS - waited_ms, 0))
    assert isinstance(rig.ask().message, HeartbeatRequest)


def test_a_coordinator_that_answers_no_heartbeat_for_a_session_is_looked_for() -> None:
    rig = Rig()
    rig.stable(*parts(0))
    rig.pass_time(SESSION_MS - 1)
    rig.ask()
    rig.nothing()  # one heartbeat at a time
    rig.pass_time(1)
    rig.take(events.FindCoordinator)
    assert rig.member.state is ClassicMemberState.STABLE  # perhaps the next one still knows it


def test_a_coordinator_that_is_found_gets_a_heartbeat_before_it_is_given_up() -> None:
    """After a stall, the broker that was looked for may be the same; it has not been silent."""
    rig = Rig()
    rig.stable(*parts(0))
    rig.pass_time(SESSION_MS - 1)
    rig.ask()
    rig.pass_time(1)
    rig.take(events.FindCoordinator)
    rig.pass_time(200)
    rig.tell(events.CoordinatorFound())
    rig.pass_time(0)
    assert isinstance(rig.ask().message, HeartbeatRequest)
    rig.pass_time(SESSION_MS - 1)
    rig.nothing()
    rig.pass_time(1)
    rig.take(events.FindCoordinator)


def test_an_answer_from_before_counts_for_nothing() -> None:
    rig = Rig()
    rig.stable(*parts(0))
    rig.pass_time(HEARTBEAT_MS)
    old = rig.ask()
    rig.tell(events.RejoinWanted("now"))
    rig.prepare()
    rig.request()
    rig.tell(events.Answered(old.turn, HeartbeatResponse(0, ErrorCode.UNKNOWN_MEMBER_ID)))
    rig.nothing()
    assert rig.member.state is ClassicMemberState.JOINING


# -- the application -------------------------------------------------------------------------------


def test_an_application_that_does_not_poll_leaves_the_group() -> None:
    """1. Polls go on, nothing happens. 2. The last one is over for max.poll.interval: it leaves. 3. It comes back with the next poll only."""
    rig = Rig()
    rig.stable(*parts(0))
    rig.tell(events.PollBegan())
    for _ in range(POLL_MS // HEARTBEAT_MS + 1):
        rig.beat(0)  # a poll that waits is not silence
    rig.tell(events.PollEnded())
    for _ in range(POLL_MS // HEARTBEAT_MS - 1):
        rig.beat(0)
    rig.pass_time(HEARTBEAT_MS)
    (asked,) = [order for order in rig.orders if isinstance(order, events.Ask)][-1:]
    assert [member.reason for member in asked.message.members] == [  # type: ignore[attr-defined]
        "consumer poll timeout has expired."
    ]
    rig.orders.clear()
    rig.pass_time(POLL_MS)
    rig.nothing()
    assert (rig.member.member_id, rig.member.owned) == ("", parts(0))
    rig.tell(events.PollBegan())
    assert rig.prepare() == events.Prepare((), parts(0), commit=False)
    rig.request()


def test_a_static_member_never_says_goodbye() -> None:
    rig = Rig(instance="i")
    rig.stable(*parts(0))
    rig.tell(events.Closing("the end"))
    rig.nothing()
    assert rig.member.state is ClassicMemberState.GONE


def test_a_silent_static_member_keeps_its_id_for_its_session() -> None:
    rig = Rig(instance="i")
    rig.stable(*parts(0))
    rig.pass_time(HEARTBEAT_MS)
    rig.ask()
    rig.tell(events.CoordinatorLost("gone"))
    rig.take(events.FindCoordinator)
    rig.pass_time(POLL_MS)
    rig.take(LogLine)
    rig.nothing()
    assert rig.member.member_id == "me"


def test_it_leaves_when_it_closes() -> None:
    rig = Rig()
    rig.stable(*parts(0))
    rig.tell(events.Closing("the end"))
    leave = rig.left()
    assert leave.member_id == "me"  # versions up to 2
    assert [(one.member_id, one.reason) for one in leave.members] == [("me", "the end")]


def test_a_commit_that_is_refused_says_something_of_the_membership() -> None:
    rig = Rig()
    rig.stable(*parts(0))
    rig.tell(events.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS))
    assert rig.prepare().revoked == parts(0)
    rig = Rig()
    rig.stable(*parts(0))
    rig.tell(events.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID))
    assert rig.prepare().lost == parts(0)
    rig = Rig()
    rig.stable(*parts(0))
    rig.tell(events.CommitRefused(ErrorCode.FENCED_INSTANCE_ID))
    rig.take(events.Fail)


# -- topics ----------------------------------------------------------------------------------------


def test_the_leader_rebalances_when_partitions_come_or_a_topic_goes() -> None:
    rig = Rig()
    rig.stable(*parts(0), leads=True)
    rig.tell(events.TopicsChanged({"t": 2, "u": 1}))
    rig.nothing()
    rig.tell(events.TopicsChanged({"t": 3, "u": 1}))
    rig.prepare()
    assert rig.request().reason == "cached metadata has changed"


def test_a_follower_leaves_that_to_the_leader() -> None:
    rig = Rig()
    rig.stable(*parts(0))
    rig.tell(events.TopicsChanged({"t": 9}))
    rig.nothing()


def test_a_share_of_topics_that_nobody_asked_for_is_not_read() -> None:
    rig = Rig()
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.joined()
    rig.sync()
    order = rig.synced(*parts(0), *parts(0, topic="x"))
    assert order.assigned == parts(0)
    rig.adopt(order)
    rig.prepare()  # and again, for a share of what it wants
    rig.request()


def test_a_returning_static_leader_keeps_the_group_as_it_is() -> None:
    """JoinGroup v9 skip_assignment (KIP-814): it watches the topics and sends no shares."""
    rig = Rig(instance="i")
    rig.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    rig.prepare()
    rig.request()
    rig.joined(leads=True)
    rig.orders.clear()
    fresh = Rig(instance="i")
    fresh.tell(events.CoordinatorFound(), events.Subscribed(("t",)))
    fresh.prepare()
    fresh.request()
    fresh.answer(JoinGroupResponse(0, 0, 5, "consumer", "range", "me", True, "me", ()))
    fresh.take(events.NeedTopics)
    fresh.tell(events.TopicsKnown({}))
    assert fresh.sync().assignments == ()
