"""What people complain of in other brokers' groups, one test each; the docstrings name the threads."""

from __future__ import annotations

from collections.abc import Callable

from tests.groups.kafka.conftest import REBALANCE_MS, SESSION_MS, Rig

from steelyard.groups.kafka import effects as news
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode


def test_a_rebalance_says_whom_it_waits_for() -> None:
    """confluentinc/kafka-rest#611: half an hour for a member that never polled, and nobody could tell which."""
    rig = Rig()
    leader, slow = rig.stable(2)
    started = rig.now
    rig.join(version=3, client="new")
    rig.join(leader, client="client-0")
    (waiting,) = rig.state().waiting
    assert (waiting.member_id, waiting.client_id, waiting.host) == (slow, "client-1", "/10.0.0.1")
    assert (waiting.what, waiting.since) == ("JoinGroup", started)
    assert waiting.until == started + REBALANCE_MS
    for _ in range(3):
        rig.run(5_000)
        rig.beat(slow, 1)
    expected = f"group g has waited 10000 ms for JoinGroup of {slow} (/10.0.0.1)"
    assert rig.told[-1] == LogLine("INFO", expected)


def test_the_sync_phase_says_whom_it_waits_for() -> None:
    """The same where the leader computes for ever."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.join(leader)
    rig.join(follower)
    rig.sync(follower, 2)
    (waiting,) = rig.state().waiting
    assert (waiting.member_id, waiting.what) == (leader, "SyncGroup")


def test_session_and_rebalance_timeouts_are_two_things() -> None:
    """aio-libs/aiokafka#335: members that took longer to rejoin than their session lost their ids, again and again."""
    rig = Rig()
    leader, slow = rig.stable(2)
    parked = rig.join(leader)
    new = rig.join(version=3)
    # Twice its session passes, but it heartbeats while it finishes its work.
    for _ in range(4):
        rig.run(SESSION_MS // 2)
        assert rig.beat(slow, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    last = rig.join(slow)
    assert {rig.joined(handle).generation_id for handle in (parked, new, last)} == {2}
    # And those who wait in a join phase need not heartbeat at all.
    assert len(rig.state().members) == 3


def test_members_whose_connections_are_gone_do_not_hold_a_rebalance_up() -> None:
    """redpanda-data/redpanda#3300: a group stayed in PreparingRebalance, for members that would never come."""
    rig = Rig()
    leader, _, _ = rig.stable(3)
    started = rig.now
    parked = rig.join(leader)
    rig.run(SESSION_MS)
    assert rig.joined(parked).generation_id == 2
    assert rig.state().members == (leader,)
    assert rig.now - started == SESSION_MS


def test_the_last_one_that_is_waited_for_may_leave() -> None:
    """streamnative/kop#380: members that left during the join phase were waited for until its end."""
    rig = Rig()
    one, two, three = rig.stable(3)
    handles = [rig.join(one), rig.join(two)]
    rig.leave(three)
    assert {rig.joined(handle).generation_id for handle in handles} == {2}


def test_members_that_start_one_after_the_other_share_a_generation() -> None:
    """confluent-kafka-go#638, spreedly/kaffe#92: a generation every 100 ms while a deployment starts."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    handles = []
    for _ in range(30):
        handles.append(rig.join(version=3))
        rig.run(100)
    rig.run(3_000)
    assert {rig.joined(handle).generation_id for handle in handles} == {1}


def test_the_first_delay_ends_with_the_rebalance_timeout() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=3_000, delayed_answers=False)
    first = rig.join(version=3, rebalance=7_000)
    started = rig.now
    while first not in rig.replies:
        rig.run(1_000)
        rig.join(version=3, rebalance=7_000)
    assert rig.now - started == 7_000


def test_members_that_join_a_group_that_reads_share_a_generation() -> None:
    """The same, where the group is there already: whoever comes before the last old member has rejoined is in."""
    rig = Rig()
    leader, follower = rig.stable(2)
    handles = []
    for _ in range(20):
        handles.append(rig.join(version=3))
        rig.run(100)
    rig.join(leader)
    rig.join(follower)
    assert {rig.joined(handle).generation_id for handle in handles} == {2}


def test_a_parallel_restart_settles_in_one_generation() -> None:
    """childe/healer#4: 30 consumers that restarted together took 10 to 30 minutes to settle."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    started = rig.now
    old = rig.stable(30)
    waited = rig.now - started
    for member in old[:20]:  # these close their consumers, the other ten are killed
        rig.leave(member)
    began = rig.now
    handles = [rig.join(version=3, client=f"new-{number}") for number in range(30)]
    rig.run(SESSION_MS)
    members = [rig.joined(handle).member_id for handle in handles]
    generations = {rig.joined(handle).generation_id for handle in handles}
    assert len(generations) == 1
    rig.settle(members)
    assert rig.state().state == "Stable"
    assert len(rig.state().members) == 30
    assert rig.now - began <= SESSION_MS
    assert waited <= 6_000


def test_every_rebalance_says_why_it_began() -> None:
    """spring-kafka#2337, librdkafka#2722 and many others: rebalances without an apparent reason."""
    rig = Rig()
    leader, follower = rig.stable(2)
    rig.run(SESSION_MS - 1)
    rig.beat(leader, 1)
    rig.run(1)
    again = rig.join(leader)
    assert rig.joined(again).generation_id == 2
    began = [event for event in rig.events if isinstance(event, news.Began)]
    assert [event.cause.trigger for event in began] == [news.JOINED, news.EXPIRED]
    assert follower in began[-1].cause.text
    levels = {one.level for one in rig.told}
    assert levels == {"INFO"}  # aiokafka#406: a rebalance is not an error


def test_a_member_that_is_silent_was_last_heard_of_with_its_last_request() -> None:
    """Heartbeat, commit, JoinGroup or SyncGroup, whichever was last; the ledger needs it."""
    requests: dict[str, Callable[[Rig, str], object]] = {
        "SyncGroup": lambda rig, member: rig.sync(member, 1),
        "Heartbeat": lambda rig, member: rig.beat(member, 1),
        "OffsetCommit": lambda rig, member: rig.commit(member_id=member, generation=1),
    }
    for ask in requests.values():
        rig = Rig()
        leader, follower = rig.stable(2)
        rig.run(1_000)
        heard_at = rig.now
        ask(rig, follower)
        for _ in range(4):
            rig.run(SESSION_MS // 4)
            rig.beat(leader, 1)
        (left,) = [event for event in rig.events if isinstance(event, news.Left)]
        assert (left.member_id, left.cause, left.heard_at) == (follower, "expired", heard_at)


def test_a_member_that_lives_but_does_not_rejoin_is_out_after_the_rebalance_timeout() -> None:
    """spring-kafka#2337, confluentinc/kafka-rest#611: its heartbeats go on while its processing hangs."""
    rig = Rig()
    leader, stuck = rig.stable(2)
    parked = rig.join(leader)
    for _ in range(REBALANCE_MS // 5_000):
        assert rig.beat(stuck, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        rig.run(5_000)
    assert rig.joined(parked).generation_id == 2
    assert rig.state().members == (leader,)
    text = (
        f"group g: {stuck} (/10.0.0.1) was removed: it did not join again within {REBALANCE_MS} ms"
    )
    assert LogLine("INFO", text) in rig.told
    assert rig.beat(stuck, 1) is ErrorCode.UNKNOWN_MEMBER_ID
