"""The brokers' locks from a member's side: waiting, renewing, doing without, the locks of the dead."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from tests.edges import assert_every_edge
from tests.nodes.consumer.remoting.conftest import Broker, Group, Rig, queues, reply

from steelyard.nodes.consumer.remoting.claim import CLAIMS
from steelyard.nodes.consumer.remoting.locks import BARE_POLL_MS, POLL_MS
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import LockBatchBody
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

A0, A1 = queues("T", "a", 0, 1)
B0, B1 = queues("T", "b", 0, 1)
NOTIFICATION = Command(code=40, flag=2, ext={"consumerGroup": "g"})


def asked(group: Group, broker: Broker, code: int = 41) -> list[tuple[str, list[int]]]:
    """The lock or unlock requests that the broker got: in whose name, which queues of T."""
    bodies = [fastjson.read(LockBatchBody, c.body) for c in group.rig.to(broker, code)]
    return [(b.client_id, [queue.queue_id for queue in b.mq_set]) for b in bodies]


def members(group: Group, *names: str) -> None:
    """Both brokers list these, and say that something changed; it is acted on within 20 ms of the last run."""
    group.a.members, group.b.members = list(names), list(names)
    group.rig.push(group.a, NOTIFICATION)
    group.rig.advance(20)


def advance_until(rig: Rig, happened: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if happened():
            return
        rig.advance(10)
    raise AssertionError("it did not happen within ten seconds")


def test_each_broker_is_asked_once_for_all_its_queues() -> None:
    group = Group()
    group.start()
    assert asked(group, group.a) == asked(group, group.b) == [("c1", [0, 1])]
    assert [group.a.owner("T", number) for number in (0, 1)] == ["c1", "c1"]


def test_a_refused_lock_is_asked_for_again_after_a_while_that_doubles() -> None:
    group = Group()
    group.a.members = group.b.members = ["c2"]
    group.a.occupy("c2", A0, A1)
    rig = group.start()
    times = [rig.now]
    while len(times) < 9:
        rig.advance(1)
        if len(asked(group, group.a)) > len(times):
            times.append(rig.now)
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert gaps == [10, 20, 40, 80, 160, 320, 500, 500]


def test_the_offset_is_asked_for_only_when_the_lock_is_there() -> None:
    group = Group()
    group.a.members = group.b.members = ["c2"]
    group.a.occupy("c2", A0)
    rig = group.start()
    rig.advance(100)
    assert [c.ext["queueId"] for c in rig.to(group.a, 14)] == ["1"]
    assert A0 not in group.state().held
    group.a.offsets["T", 0] = 7
    group.a.locks.unlock("g", "c2", [A0])
    rig.advance(200)
    assert [c.ext["queueId"] for c in rig.to(group.a, 14)] == ["1", "0"]
    assert group.pulls(group.a, 0)[0].ext["queueOffset"] == "7"


def test_all_locks_are_renewed_every_twenty_seconds_in_one_request() -> None:
    group = Group()
    rig = group.start()
    rig.advance(19_999)
    assert len(asked(group, group.a)) == 1
    rig.advance(1)
    assert asked(group, group.a)[1:] == [("c1", [0, 1])]
    rig.advance(200_000)
    assert len(asked(group, group.a)) == 12
    assert group.a.owner("T", 0) == "c1"


def test_a_concurrent_consumer_goes_on_when_somebody_else_gets_its_lock() -> None:
    group = Group()
    rig = group.start()
    group.a.locks.unlock("g", "c1", [A0])
    group.a.occupy("c2", A0)
    rig.advance(20_000)
    rig.publish(group.a, "T", 0, 1)
    assert rig.handle_all() == [0]
    group.a.locks.unlock("g", "c2", [A0])
    rig.advance(2_000)
    assert group.a.owner("T", 0) == "c1"


def held_by_a_stranger(**settings: object) -> Group:
    """c2 is in the group and has the lock of a queue that the plan gives to c1."""
    group = Group(1, **settings)
    group.a.members = group.b.members = ["c2"]
    group.a.occupy("c2", A0)
    group.start()
    return group


def test_after_ten_seconds_a_concurrent_consumer_reads_without_the_lock() -> None:
    group = held_by_a_stranger()
    rig = group.rig
    rig.advance(9_000)
    assert group.state().held == ()
    rig.advance(1_600)
    assert group.state().held == (A0,)
    told = [tell.text for tell in rig.tells if "without a lock" in tell.text]
    assert len(told) == 1
    rig.advance(20_000)
    assert len([tell for tell in rig.tells if "without a lock" in tell.text]) == 1


def test_it_waits_on_while_others_may_plan_with_the_route_before() -> None:
    """The topic gets queues on a second broker; c2 hears of that half a minute later, and has a queue of c1's until then."""
    group = Group(2)
    group.a.members = group.b.members = ["c2"]
    group.ns.add("T", group.a, queues=2)
    group.a.occupy("c2", A1)
    rig = group.start()
    rig.advance(20_000)
    assert group.state().held == (A0,)
    group.ns.add("T", group.a, group.b, queues=2)
    advance_until(rig, lambda: len(asked(group, group.a)[-1][1]) == 1)
    rig.advance(28_000)
    assert group.state().held == (A0,)
    group.a.locks.unlock("g", "c2", [A1])
    rig.advance(600)
    assert group.state().held == (A0, A1)
    assert not [tell for tell in rig.tells if "without a lock" in tell.text]


def test_it_waits_on_while_the_broker_knows_members_that_the_plan_was_made_without() -> None:
    """They may have asked another broker, and read the queue by right."""
    group = Group(1)
    group.a.occupy("c9", A0)
    group.a.members = group.b.members = ["c2"]
    rig = group.start()
    group.a.members.append("c9")
    group.ns.add("T", group.a, queues=1)
    group.a.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = only_to_a_plan(group)
    rig.advance(30_000)
    assert A0 not in group.state().held
    group.a.locks.unlock("g", "c9", [A0])
    rig.advance(600)
    assert A0 in group.state().held


def only_to_a_plan(group: Group) -> Callable[[Command], Command]:
    """The broker's list as if another one had been asked, but for the question that follows a refused lock."""

    def answer(command: Command) -> Command:
        refused = group.rig.sent[-2][1].code == RequestCode.LOCK_BATCH_MQ
        names = '"c1","c2","c9"' if refused else '"c1","c2"'
        return reply(body=f'{{"consumerIdList":[{names}]}}'.encode())

    return answer


def test_whoever_is_alone_does_not_wait_for_the_lock_of_the_dead() -> None:
    """A consumer was killed and starts again with another id: nobody else can be reading."""
    group = Group(1)
    group.a.occupy("killed", A0)
    rig = group.start()
    assert group.state().held == (A0, B0)
    assert not [tell for tell in rig.tells if "without" in tell.text]
    rig.advance(59_000)
    assert group.a.owner("T", 0) == "killed"
    rig.advance(5_000)
    assert group.a.owner("T", 0) == "c1"


def test_a_lock_that_is_done_without_is_asked_for_once_more_soon() -> None:
    """1. Whoever is alone reads A0 without its lock. 2. A1 is there, too; its lock is refused, and done without at once.
    3. It may be free in a moment, and until then somebody new may get it.
    """
    group = Group(1)
    group.a.occupy("killed", A0, A1)
    rig = group.start()
    group.ns.add("T", group.a, group.b, queues=2)
    advance_until(rig, lambda: A1 in group.state().held)
    count = len(asked(group, group.a))
    rig.advance(POLL_MS)
    assert asked(group, group.a)[count:] == [("c1", [0, 1])]
    rig.advance(BARE_POLL_MS - 1)
    assert len(asked(group, group.a)) == count + 1
    rig.advance(1)
    assert len(asked(group, group.a)) == count + 2


def test_whoever_is_alone_takes_what_it_sought_from_the_dead() -> None:
    group = Group(1, strategy="EVEN")
    group.a.occupy("killed", A0)
    rig = group.start()
    advance_until(rig, lambda: group.state().held == (A0, B0))
    assert group.a.owner("T", 0) == "killed"
    rig.advance(65_000)
    assert group.a.owner("T", 0) == "c1"


def test_the_lock_of_a_member_that_departed_is_let_go_in_its_name() -> None:
    group = Group(1)
    group.a.members = group.b.members = ["c2", "c3"]
    group.b.occupy("c2", B0)
    group.a.occupy("c3", A0)
    rig = group.start()
    rig.advance(1_000)
    members(group, "c1", "c2")
    assert asked(group, group.a, 42) == [("c3", [0])]
    assert group.state().held == (A0,)
    assert group.a.owner("T", 0) == "c1"


def test_the_last_member_takes_the_locks_of_the_one_that_departed() -> None:
    """It need not wait for them, but whoever joins next would: for a member that nobody has told it of."""
    group = Group(1)
    group.a.members = group.b.members = ["c2"]
    group.b.occupy("c2", B0)
    rig = group.start()
    rig.advance(1_000)
    members(group, "c1")
    rig.advance(1_000)
    assert group.state().held == (A0, B0)
    assert group.b.owner("T", 0) == "c1"


def test_somebody_whom_the_broker_still_knows_is_not_taken_for_dead() -> None:
    """The plan came from a broker that had forgotten c3; the one that holds the lock has not."""
    group = Group(1)
    group.a.members = group.b.members = ["c2", "c3"]
    group.a.occupy("c3", A0)
    rig = group.start()
    rig.advance(1_000)
    group.b.members = ["c1", "c2"]
    original = group.a.script[38]
    group.a.script[38] = lambda c: group.b.script[38](c) if planning(group) else original(c)
    rig.push(group.a, NOTIFICATION)
    rig.advance(100)
    assert asked(group, group.a, 42) == []
    assert group.a.owner("T", 0) == "c3"


def planning(group: Group) -> bool:
    return group.rig.sent[-2][1].code != RequestCode.LOCK_BATCH_MQ


def test_an_ordered_consumer_waits_for_ever_and_unlocks_for_nobody() -> None:
    group = Group(1, orderly=True)
    group.a.members = group.b.members = ["c2", "c3"]
    group.a.occupy("c3", A0)
    rig = group.start()
    members(group, "c1", "c2")
    for _ in range(10):
        rig.advance(50_000)
        group.a.occupy("c3", A0)
    assert A0 not in group.state().held
    assert asked(group, group.a, 42) == []
    rig.advance(62_000)
    assert A0 in group.state().held


def test_an_ordered_consumer_alone_waits_as_well() -> None:
    group = Group(1, orderly=True)
    group.a.occupy("killed", A0)
    rig = group.start()
    rig.advance(59_000)
    assert group.state().held == (B0,)
    rig.advance(2_000)
    assert group.state().held == (A0, B0)


def test_a_broker_without_locks_is_read_at_once() -> None:
    group = Group(1)
    for broker in (group.a, group.b):
        del broker.script[41], broker.script[42]
    rig = group.start()
    assert group.state().held == (A0, B0)
    rig.advance(100_000)
    assert (group.a.count(41), group.a.count(42)) == (1, 0)


def test_a_restarted_broker_is_asked_for_the_locks_again() -> None:
    group = Group(1)
    rig = group.start()
    rig.crash(group.b)
    group.b.up = True
    rig.advance(3_000)
    assert group.b.owner("T", 0) == "c1"


def test_a_broker_that_answers_while_no_route_names_it_is_asked_for_the_locks_again() -> None:
    """It was restarted, and so was the nameserver. The route is back before the consumer has given the queue up."""
    group = Group(1)
    rig = group.start()
    listed, registered = group.b.script[38], group.b.script[34]
    group.a.script[38] = group.b.script[38] = group.b.script[34] = lambda command: None
    rig.crash(group.b)
    group.b.up = True
    advance_until(rig, lambda: group.b.count(34) == 2)
    group.ns.add("T", group.a, queues=1)
    asked_routes = group.ns.count(105)
    advance_until(rig, lambda: group.ns.count(105) > asked_routes)
    rig.answer(group.b, rig.to(group.b, 34)[-1], reply())
    group.ns.add("T", group.a, group.b, queues=1)
    group.a.script[38] = group.b.script[38] = listed
    group.b.script[34] = registered
    group.b.members = ["c1"]
    rig.advance(30_000)
    assert group.state().held == (A0, B0)
    assert group.b.owner("T", 0) == "c1"


def test_a_lock_is_renewed_while_routes_name_an_old_and_a_new_address_of_its_broker() -> None:
    """Two nameservers, of which one has not heard of the move, are asked in turn."""
    group = Group(1)
    moved = Broker("b", "b:2")
    moved.members = ["c1"]  # it was there before: no heartbeat is the first
    moved.locks = group.b.locks
    rig = Rig(group.rig.node, group.ns, group.a, group.b, moved)
    rig.start()
    rig.advance(0)
    rig.crash(group.b)
    here = [moved, group.b]
    for turn in range(20):
        group.ns.add("T", group.a, here[turn % 2], queues=1)
        rig.advance(15_000)
        assert moved.owner("T", 0) == "c1"


@pytest.mark.parametrize("wrong", [None, reply(1, "no"), reply(body=b"{")])
def test_a_lock_that_is_not_answered_well_is_asked_for_again(wrong: Command | None) -> None:
    group = Group(1)
    original = group.a.script[41]
    group.a.script[41] = lambda command: wrong
    rig = group.start()
    rig.advance(4_000)
    assert group.state().held == (B0,)
    group.a.script[41] = original
    rig.advance(2_000)
    assert group.state().held == (A0, B0)


def test_a_lock_granted_after_the_queue_was_given_up_is_let_go() -> None:
    group = Group(1)
    group.b.script[41] = lambda command: None
    rig = group.start()
    (request,) = rig.to(group.b, 41)
    members(group, "c1", "c2")
    assert asked(group, group.b, 42) == []
    rig.answer(group.b, request, group.b._lock(request))
    assert asked(group, group.b, 42) == [("c1", [0])]
    assert group.state().held == (A0,)
    assert group.b.owner("T", 0) is None


def test_one_request_at_a_time_goes_to_a_broker() -> None:
    """A renewal that came in after the unlock would lock for nobody."""
    group = Group(2)
    rig = group.start()
    group.b.script[41] = lambda command: None
    rig.advance(20_000)
    renewal = rig.to(group.b, 41)[-1]
    members(group, "c1", "c2")
    rig.advance(60)
    assert group.commits(group.b)
    assert rig.to(group.b, 42) == []
    rig.answer(group.b, renewal, group.b._lock(renewal))
    assert asked(group, group.b, 42) == [("c1", [0, 1])]
    assert [group.b.owner("T", number) for number in (0, 1)] == [None, None]


def given_up_without_an_answer() -> tuple[Group, Command]:
    """c1 has given B0 up while its broker was stalled, and has it back: the unlock is still to be taken in."""
    group = Group(1, orderly=True)
    rig = group.start()
    unlock = group.b.script[42]
    group.b.script[42] = lambda command: None
    members(group, "c1", "c2")
    rig.advance(2_000)
    (request,) = rig.to(group.b, 42)
    group.b.script[42] = unlock
    members(group, "c1")
    assert asked(group, group.b)[-1] == ("c1", [0])
    return group, request


def test_a_lock_is_asked_for_again_where_an_earlier_unlock_may_be_taken_in_after_it() -> None:
    """1. A broker stalls; c1 gives a queue up, and the unlock is not answered.
    2. The queue is c1's again, and its lock is granted.
    3. Another thread of the broker takes the unlock in.
    """
    group, request = given_up_without_an_answer()
    assert group.state().held == (A0,)
    group.b._unlock(request)
    group.rig.advance(50)
    assert group.state().held == (A0, B0)
    assert group.b.owner("T", 0) == "c1"


def test_whoever_locks_the_queue_after_an_unlock_that_comes_in_late_has_it() -> None:
    group, request = given_up_without_an_answer()
    group.b._unlock(request)
    group.b.occupy("c2", B0)
    group.rig.advance(1_000)
    assert group.state().held == (A0,)


def test_a_mixed_group_with_members_that_never_lock_works() -> None:
    """A Java member gives a queue up, and takes one over, without a word to the lock."""
    group = Group(1)
    group.a.members = group.b.members = ["aaa"]
    rig = group.start()
    assert group.state().held == (B0,)
    members(group, "c1")
    assert group.state().held == (A0, B0)
    rig.advance(5_000)
    members(group, "c1", "zzz")
    rig.advance(60)
    assert group.state().held == (A0,)
    assert group.b.owner("T", 0) is None


def test_without_clean_handover_nothing_is_locked() -> None:
    group = Group(1, clean_handover=False)
    rig = group.start()
    assert group.state().held == (A0, B0)
    rig.advance(60_000)
    assert group.a.count(41) == 0
    assert MessageQueue("T", "a", 0) in group.state().held


def test_every_edge_of_a_claim_is_taken() -> None:
    assert_every_edge(
        CLAIMS,
        test_whoever_is_alone_takes_what_it_sought_from_the_dead,
        test_a_concurrent_consumer_goes_on_when_somebody_else_gets_its_lock,
        test_after_ten_seconds_a_concurrent_consumer_reads_without_the_lock,
    )
