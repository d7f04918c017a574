"""A queue changes hands: what the old owner does, in which order, and what may go wrong with it."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Group, offsets_of, pulled, queues, record, reply

from steelyard.groups.remoting.locks import QueueLocks
from steelyard.nodes.consumer.remoting.node import Stop
from steelyard.nodes.seam import Deliver, Handled
from steelyard.types import ConsumeOrderlyStatus, Subscription
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command, is_oneway

A0, B0 = queues("T", "a", 0) + queues("T", "b", 0)
NOTIFICATION = Command(code=40, flag=2, ext={"consumerGroup": "g"})


def ready(**settings: object) -> Group:
    """A member with one queue on each broker, at rest for six seconds and a bit."""
    group = Group(1, **settings)
    rig = group.start()
    rig.advance(6_100)
    return group


def members(group: Group, *names: str) -> None:
    group.a.members, group.b.members = list(names), list(names)
    group.rig.push(group.a, NOTIFICATION)
    group.rig.advance(20)


def give_up(group: Group) -> None:
    """Another member joins; B0 goes to it."""
    members(group, "c1", "c2")


def to_b(group: Group, *codes: int) -> list[tuple[int, int | None]]:
    """Requests of these codes that the broker of B0 got: code, and the offset if it is a commit."""
    sent = group.rig.to(group.b, *codes)
    return [(int(c.code), int(c.ext["commitOffset"]) if c.code == 15 else None) for c in sent]


def with_listener(group: Group, count: int) -> list[Deliver]:
    """So many messages of B0 come to the listener."""
    before = len(group.rig.hands)
    group.rig.publish(group.b, "T", 0, count)
    return group.rig.hands[before:]


def test_the_old_owner_finishes_commits_and_unlocks_in_this_order() -> None:
    group = ready()
    rig = group.rig
    first, second, third = with_listener(group, 3)
    rig.handled(first)
    rig.advance(1_000)
    rig.sent.clear()
    give_up(group)
    assert to_b(group, 11, 15, 42) == []
    rig.handled(third)
    rig.advance(1_000)
    assert to_b(group, 11, 15, 42) == []
    assert group.b.owner("T", 0) == "c1"
    rig.handled(second)
    assert to_b(group, 11, 15, 42) == [(15, 3), (42, None)]
    assert not any(is_oneway(command) for command in rig.to(group.b, 15, 42))
    assert group.b.owner("T", 0) is None
    assert group.state().held == (A0,)


def test_what_no_listener_has_seen_is_left_to_the_next_owner() -> None:
    group = ready(handed_max=2)
    rig = group.rig
    with_listener(group, 5)
    give_up(group)
    assert rig.handle_all() == [0, 1]
    rig.advance(50)
    assert group.b.offsets["T", 0] == 2
    assert group.state().held == (A0,)


def test_the_last_commit_tells_what_the_listener_was_handed() -> None:
    """It was handed three of five messages, the third after 400 ms, and finished the first."""
    group = ready(handed_max=2)
    rig = group.rig
    first, *_ = with_listener(group, 5)
    rig.advance(400)
    rig.handled(first)
    handed_at = rig.now
    give_up(group)
    rig.advance(10_000)
    commits = [command.ext for command in rig.to(group.b, 15)]
    (last,) = [ext for ext in commits if "handedOffset" in ext]
    assert (last["commitOffset"], last["handedOffset"]) == ("1", "3")
    assert 0 < int(last["handedMs"]) <= rig.now - handed_at
    assert len(commits) > 1


def test_the_next_pull_tells_when_the_listener_got_its_first_message() -> None:
    """Once for each time that the member gets the queue."""
    group = ready(handed_max=1)
    rig = group.rig
    with_listener(group, 1)
    rig.advance(100)
    with_listener(group, 1)
    told = [c.ext["handedMs"] for c in rig.to(group.b, 11) if "handedMs" in c.ext]
    assert told == ["100"]


def test_a_message_that_fails_goes_back_before_the_queue_goes() -> None:
    group = ready()
    rig = group.rig
    (hand,) = with_listener(group, 1)
    rig.advance(1_000)
    group.b.script[36] = lambda command: None
    give_up(group)
    rig.handled(hand, ok=False)
    assert to_b(group, 42) == []
    rig.answer(group.b, rig.to(group.b, 36)[0], reply())
    assert group.b.offsets["T", 0] == 1
    assert group.state().held == (A0,)


def test_a_listener_that_takes_too_long_is_not_waited_for() -> None:
    group = ready()
    rig = group.rig
    first, second = with_listener(group, 2)
    give_up(group)
    rig.advance(4_900)
    assert to_b(group, 42) == []
    rig.handled(first)
    rig.advance(200)
    assert group.state().held == (A0,)
    assert group.b.offsets["T", 0] == 1
    rig.handled(second, ok=False)
    rig.advance(10_000)
    assert group.b.offsets["T", 0] == 1
    assert group.b.sent_back == []


def test_the_unlock_waits_for_the_reply_to_the_commit() -> None:
    group = ready()
    rig = group.rig
    group.b.script[15] = lambda command: None
    give_up(group)
    (commit,) = [c for c in rig.to(group.b, 15) if not is_oneway(c)]
    rig.advance(2_000)
    assert group.b.owner("T", 0) == "c1"
    rig.answer(group.b, commit, reply())
    assert group.b.owner("T", 0) is None


@pytest.mark.parametrize("wrong", [None, reply(1, "no")])
def test_a_commit_that_is_not_answered_well_is_sent_again_and_the_lock_let_go(
    wrong: Command | None,
) -> None:
    group = ready()
    rig = group.rig
    group.b.script[15] = lambda command: wrong
    give_up(group)
    rig.advance(3_000)
    last = rig.to(group.b, 15)[-2:]
    assert [is_oneway(command) for command in last] == [False, True]
    assert group.b.owner("T", 0) is None
    assert group.state().held == (A0,)


# -- commits that overtake each other --------------------------------------------------------------


def test_a_commit_on_a_pull_sent_just_now_is_waited_for() -> None:
    """The pull went out with offset 1 and may be taken in after a commit that is sent right behind it."""
    group = ready()
    rig = group.rig
    (hand,) = with_listener(group, 1)
    rig.handled(hand)
    (hand,) = with_listener(group, 1)
    assert group.pulls(group.b)[-1].ext["commitOffset"] == "1"
    rig.sent.clear()
    give_up(group)
    rig.handled(hand)
    assert to_b(group, 15, 42) == []
    rig.advance(29)
    assert to_b(group, 15, 42) == []
    rig.advance(1)
    assert to_b(group, 15) == [(15, 2)]


def test_the_answer_to_the_pull_ends_the_wait() -> None:
    group = ready()
    rig = group.rig
    (hand,) = with_listener(group, 1)
    rig.handled(hand)
    (hand,) = with_listener(group, 1)
    rig.sent.clear()
    give_up(group)
    rig.handled(hand)
    rig.answer(group.b, group.b.held.pop(), pulled([record("T", 0, 2)], 3))
    assert to_b(group, 11, 15, 42) == [(15, 2), (42, None)]
    assert not rig.hands


def test_a_pull_held_by_the_broker_with_an_older_offset_makes_the_commit_be_said_twice() -> None:
    """The network may have kept the pull back, and brought both at once: the first answer proves that it is there."""
    group = ready()
    rig = group.rig
    (hand,) = with_listener(group, 1)
    rig.handled(hand)
    (hand,) = with_listener(group, 1)
    rig.advance(300)
    rig.sent.clear()
    give_up(group)
    rig.handled(hand)
    assert to_b(group, 15, 42) == [(15, 2)]
    group.b.offsets["T", 0] = 1  # so it would be if the pull were taken in now
    rig.advance(50)
    assert to_b(group, 15, 42) == [(15, 2), (15, 2), (42, None)]
    assert group.b.offsets["T", 0] == 2


def test_a_pull_that_is_seconds_old_has_been_taken_in() -> None:
    group = ready()
    rig = group.rig
    (hand,) = with_listener(group, 1)
    rig.handled(hand)
    (hand,) = with_listener(group, 1)
    rig.advance(3_000)
    rig.sent.clear()
    give_up(group)
    rig.handled(hand)
    assert to_b(group, 15, 42) == [(15, 2), (42, None)]


def test_a_one_way_commit_sent_just_now_is_waited_for() -> None:
    group = ready()
    rig = group.rig
    rig.advance(3_850)
    first, second = with_listener(group, 2)
    rig.handled(first)
    rig.advance(50)  # the commits of every five seconds go out
    assert to_b(group, 15)[-1] == (15, 1)
    rig.sent.clear()
    rig.handled(second)
    give_up(group)
    assert to_b(group, 15, 42) == []
    rig.advance(29)
    assert to_b(group, 15, 42) == []
    rig.advance(1)
    assert to_b(group, 15) == [(15, 2)]


# -- queues that come back, or go while they come --------------------------------------------------


def test_a_queue_that_comes_back_while_it_drains_is_let_go_to_the_end_and_taken_anew() -> None:
    group = ready(handed_max=1)
    rig = group.rig
    with_listener(group, 3)
    give_up(group)
    members(group, "c1")
    assert group.b.owner("T", 0) == "c1"
    rig.sent.clear()
    rig.handled(rig.hands[0])
    rig.advance(100)
    assert to_b(group, 15, 42, 41, 14)[-4:] == [(15, 1), (42, None), (41, None), (14, None)]
    assert rig.handle_all() == [1, 2]
    assert group.state().held == (A0, B0)


def test_a_queue_that_comes_back_while_it_is_let_go_is_taken_anew() -> None:
    group = ready()
    rig = group.rig
    group.b.script[42] = lambda command: None
    give_up(group)
    members(group, "c1")
    (unlock,) = rig.to(group.b, 42)
    rig.answer(group.b, unlock, group.b._unlock(unlock))
    assert group.b.owner("T", 0) == "c1"
    rig.publish(group.b, "T", 0, 1)
    assert rig.handle_all() == [0]


def test_a_queue_given_up_while_it_waits_for_the_lock_is_gone() -> None:
    group = Group(1)
    group.a.members = group.b.members = ["b0"]
    group.b.occupy("c2", B0)
    rig = group.start()
    rig.advance(1_000)
    assert group.state().held == ()
    members(group, "c1", "c2")
    rig.advance(1_000)
    assert group.state().held == (A0,)
    assert group.b.owner("T", 0) == "c2"
    assert group.commits(group.b) == []


def test_a_queue_given_up_while_its_offset_is_asked_for_is_unlocked_and_not_committed() -> None:
    group = Group(1)
    group.b.script[14] = lambda command: None
    rig = group.start()
    rig.advance(1_000)
    assert group.b.owner("T", 0) == "c1"
    give_up(group)
    assert group.b.owner("T", 0) is None
    assert group.commits(group.b) == []
    rig.answer(group.b, rig.to(group.b, 14)[0], reply(offset=0))
    assert group.pulls(group.b) == []


def test_a_queue_whose_broker_has_left_the_routes_is_gone_at_once() -> None:
    group = ready()
    rig = group.rig
    first, second = with_listener(group, 2)
    rig.handled(first)
    group.ns.add("T", group.a, queues=1)
    rig.advance(30_000)
    assert group.state().held == (A0,)
    assert group.b.offsets["T", 0] == 1
    assert to_b(group, 42) == []
    rig.handled(second)


def test_a_queue_that_must_be_taken_anew_is_not_drained() -> None:
    """Nobody has looked at it for so long that its listener may never come back."""
    group = ready(pull_idle_max_ms=10_000, pull_hold_ms=60_000, pull_timeout_ms=90_000)
    rig = group.rig
    (hand,) = with_listener(group, 1)
    rig.sent.clear()
    rig.advance(20_000)
    assert to_b(group, 15, 42, 14)[-3:] == [(15, 0), (42, None), (14, None)]
    assert offsets_of(rig.hands[-1]) == [0]
    rig.handled(hand)
    assert group.offset("b", 0) == 0


# -- the end ---------------------------------------------------------------------------------------


def test_a_stop_drains_commits_unlocks_and_says_good_bye() -> None:
    group = ready()
    rig = group.rig
    hands = with_listener(group, 2)
    rig.advance(1_000)
    rig.sent.clear()
    stop = rig.ask(Stop())
    assert to_b(group, 15, 42, 35) == []
    for hand in hands:
        rig.handled(hand)
    rig.advance(50)
    assert rig.answers[stop] is None
    codes = [code for code, _ in to_b(group, 15, 42, 35)]
    assert codes == sorted(codes, key=[15, 42, 35].index)
    assert group.b.offsets["T", 0] == 2
    assert [group.a.owner("T", 0), group.b.owner("T", 0)] == [None, None]


def test_a_stop_gives_everything_up_when_its_time_is_over() -> None:
    group = ready(stop_timeout_ms=2_000)
    rig = group.rig
    first, _ = with_listener(group, 2)
    stop = rig.ask(Stop())
    rig.handled(first)
    rig.advance(1_999)
    assert stop not in rig.answers
    rig.advance(1)
    assert rig.answers[stop] is None
    assert group.b.offsets["T", 0] == 1
    assert group.b.owner("T", 0) is None
    assert group.b.members == []


def test_a_stop_without_waiting_commits_what_is_finished_and_leaves_the_rest_to_the_group() -> None:
    """The last commit is one with a reply all the same, and nothing goes to the retry topic, whatever the listener says."""
    group = ready(stop_timeout_ms=200_000)
    rig = group.rig
    first, second = with_listener(group, 2)
    rig.handled(first)
    rig.sent.clear()
    stop = rig.ask(Stop(wait=False))
    rig.advance(50)
    assert rig.answers[stop] is None
    codes = [code for code, _ in to_b(group, 15, 42, 35)]
    assert codes == sorted(codes, key=[15, 42, 35].index)
    assert group.b.offsets["T", 0] == 1
    assert group.b.owner("T", 0) is None
    rig.handled(second, ok=False)
    assert group.b.count(36) == 0


def test_locks_are_renewed_and_heartbeats_sent_while_a_stop_takes_long() -> None:
    group = ready(stop_timeout_ms=200_000)
    rig = group.rig
    (hand,) = with_listener(group, 1)
    stop = rig.ask(Stop())
    rig.advance(150_000)
    assert group.b.owner("T", 0) == "c1"
    assert group.b.count(34) >= 5
    rig.handled(hand)
    rig.advance(50)
    assert rig.answers[stop] is None
    assert group.b.offsets["T", 0] == 1


# -- quotas, and locks that a broker forgot -------------------------------------------------------


def test_a_queue_whose_lock_is_only_waited_for_does_not_count_towards_the_quota() -> None:
    """1. While a topic's members are unknown its queues stay, whatever the quota is.
    2. Its broker forgets the locks, and another member gets the lock of one queue: c1 waits for it.
    3. The members are known again. c1 is due two queues, and must read two.
    """
    group = Group(2, orderly=True, strategy="EVEN", subscriptions=[Subscription(t) for t in "TU"])
    group.ns.add("T", group.a, queues=2)
    group.ns.add("U", group.b, queues=2)
    rig = group.start()
    assert len(group.state().held) == 4
    known = group.b.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
    group.b.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: reply(1, "not now")
    rig.push(group.b, NOTIFICATION)
    rig.advance(1_000)
    group.b.locks = QueueLocks(60_000)
    group.b.occupy("c2", *queues("U", "b", 0))
    rig.advance(20_000)
    assert queues("U", "b", 0)[0] not in group.state().held
    group.b.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = known
    members(group, "c1", "c2")
    rig.advance(5_000)
    assert len(group.state().held) == 2


def at_work_again(**settings: object) -> tuple[Group, Deliver]:
    """c1 has a batch of A0 at its listener, lost the queue with its broker, and holds it anew."""
    group = Group(1, orderly=True, **settings)
    rig = group.start()
    rig.publish(group.a, "T", 0, 1)
    (hand,) = rig.hands
    rig.crash(group.a)
    group.ns.add("T", group.b, queues=1)
    rig.advance(30_000)
    assert group.state().held == (B0,)
    group.a.up = True
    group.ns.add("T", group.a, group.b, queues=1)
    rig.advance(30_000)
    assert group.a.owner("T", 0) == "c1"
    return group, hand


@pytest.mark.parametrize("strategy", ["AVG", "EVEN"])
def test_a_lock_stays_while_the_listener_has_a_batch_of_an_earlier_holding(strategy: str) -> None:
    group, hand = at_work_again(strategy=strategy, drain_timeout_ms=90_000)
    rig = group.rig
    members(group, "c1", "b1", "b2")  # nothing is left for c1, or only B0
    rig.advance(1_000)
    assert group.a.owner("T", 0) == "c1"
    rig.put(Handled(hand.ticket, ConsumeOrderlyStatus.SUCCESS))
    rig.advance(100)
    assert group.a.owner("T", 0) is None


def test_a_lock_is_not_kept_for_ever_for_a_listener_that_is_stuck() -> None:
    group, _ = at_work_again(drain_timeout_ms=90_000)
    members(group, "c1", "b1", "b2")
    group.rig.advance(20_000)
    assert group.a.owner("T", 0) == "c1"
    group.rig.advance(80_000)
    assert group.a.owner("T", 0) is None
