"""Answers of classic groups that wait: each rule, and that a wait never costs a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.kafka.conftest import GROUP, START, Rig, assignment, subscription

from steelyard.groups.kafka import waiting as waits
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.rebalances import LEAVES_MS
from steelyard.groups.kafka.classic.waiting import TOGETHER_MS
from steelyard.groups.kafka.groups import Asker
from steelyard.groups.kafka.waiting import (
    FRANZ_GO,
    JAVA,
    SLOT_MS,
    Waiter,
    Waiters,
    WaitLimits,
    may_wait,
    wait_ms,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import HeartbeatResponse

WAIT_MS = 10_000 // 3 - SLOT_MS
"""The longest wait with the session time-out of `Rig.stable`."""


def test_heartbeat_of_a_stable_group_waits_and_is_answered_when_it_is_due() -> None:
    rig = Rig()
    one, two = rig.stable()
    waiting = rig.wait(one, 1)
    assert rig.waited(waiting) is None
    rig.run(WAIT_MS - SLOT_MS)
    assert rig.waited(waiting) is None
    rig.run(SLOT_MS)
    assert rig.waited(waiting) is ErrorCode.NONE
    assert rig.beat(two, 1) is ErrorCode.NONE


def test_session_counts_from_the_arrival_of_the_heartbeat() -> None:
    """A member that dies while it waits is removed exactly when it would be without a wait."""
    rig = Rig()
    one, two = rig.stable()
    rig.run(1_000)
    rig.wait(one, 1)
    for _ in range(9):
        rig.run(1_000)
        rig.beat(two, 1)
    rig.run(999)
    assert one in rig.state().members
    rig.run(1)
    assert one not in rig.state().members


def test_rebalance_answers_all_that_wait() -> None:
    rig = Rig()
    one, two = rig.stable()
    waiting = [rig.wait(one, 1), rig.wait(two, 1)]
    rig.join(client="newcomer", version=3)
    assert [rig.waited(one) for one in waiting] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2


def test_members_that_leave_expire_or_are_removed() -> None:
    rig = Rig()
    one, two, three = rig.stable(3)
    waiting = [rig.wait(one, 1), rig.wait(two, 1), rig.wait(three, 1)]
    rig.leave(two)
    rebalance, gone = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID
    assert [rig.waited(one) for one in waiting] == [rebalance, gone, rebalance]


def test_static_member_that_returns_fences_the_one_that_waits() -> None:
    rig = Rig()
    handle = rig.join(instance="i")
    rig.run(0)
    member = rig.joined(handle).member_id
    rig.settle([member])
    waiting = rig.wait(member, 1, "i")
    assert rig.waited(waiting) is None
    rig.join(instance="i")
    assert rig.waited(waiting) is ErrorCode.FENCED_INSTANCE_ID


def test_next_request_of_the_link_releases_the_heartbeat() -> None:
    rig = Rig()
    one, two = rig.stable()
    first, second = rig.wait(one, 1), rig.wait(two, 1)
    rig.release(rig.link_of(one))
    assert rig.waited(first) is ErrorCode.NONE
    assert rig.waited(second) is None


def test_heartbeats_of_franz_go_are_answered_soon_after_the_one_that_was_released() -> None:
    """Each client sends the next one an interval later: with gaps of their own, some member can mostly not be told."""
    rig = Rig()
    one, two, three = rig.stable(3)
    released, other = (rig.wait(member, 1, software=FRANZ_GO) for member in (one, two))
    java = rig.wait(three, 1, software=JAVA)
    rig.release(rig.link_of(one))
    assert rig.waited(released) is ErrorCode.NONE
    rig.run(TOGETHER_MS - SLOT_MS)
    assert rig.waited(other) is None
    rig.run(SLOT_MS)
    assert rig.waited(other) is ErrorCode.NONE
    assert rig.waited(java) is None


@pytest.mark.parametrize("software", ["", JAVA, "librdkafka"])
def test_heartbeats_of_other_clients_wait_by_themselves(software: str) -> None:
    rig = Rig()
    one, two = rig.stable()
    rig.wait(one, 1, software=FRANZ_GO)
    other = rig.wait(two, 1, software=software)
    rig.release(rig.link_of(one))
    rig.run(TOGETHER_MS)
    assert rig.waited(other) is None
    rig.release(rig.link_of(two))
    rig.wait(two, 1, software=software)
    again = rig.wait(one, 1, software=FRANZ_GO)
    rig.release(rig.link_of(two))
    rig.run(TOGETHER_MS)
    assert rig.waited(again) is None


def test_heartbeats_of_franz_go_still_wait_when_a_member_leaves_after_its_last_commit() -> None:
    """That commit releases its own heartbeat only; the others are told of the rebalance."""
    rig = Rig(group_join_window_max_ms=1_000)
    members = rig.stable(3)
    waiting = [rig.wait(member, 1, software=FRANZ_GO) for member in members]
    rig.release(rig.link_of(members[0]))
    rig.run(50)
    rig.leave(members[0])
    rig.run(LEAVES_MS)
    told = [rig.waited(handle) for handle in waiting]
    assert told == [ErrorCode.NONE, *[ErrorCode.REBALANCE_IN_PROGRESS] * 2]


def test_second_heartbeat_of_a_member_releases_the_first() -> None:
    """A client that has reconnected: the first connection is dead, which nobody knows yet."""
    rig = Rig()
    one, _ = rig.stable()
    first = rig.wait(one, 1)
    second = rig.wait(one, 1, link=999)
    assert rig.waited(first) is ErrorCode.NONE
    assert rig.waited(second) is None


def longest_wait(rig: Rig, member: str) -> int:
    """How long a heartbeat waits on a new connection, in ms."""
    waiting = rig.wait(member, 1, link=900 + rig.now % 90)
    began = rig.now
    while rig.waited(waiting) is None:
        rig.run(SLOT_MS)
    return rig.now - began


def test_client_with_a_shorter_time_out_closes_one_connection_and_waits_less_from_then_on() -> None:
    """A Java client with request.timeout.ms=2500, say: it takes its coordinator for dead then."""
    rig = Rig()
    one, two = rig.stable()
    rig.wait(one, 1)
    rig.run(2_500)
    rig.close(rig.link_of(one))
    assert 1_250 - SLOT_MS < longest_wait(rig, one) <= 1_250
    assert WAIT_MS - SLOT_MS < longest_wait(rig, two) <= WAIT_MS


def test_connection_that_closes_soon_says_nothing_of_time_outs() -> None:
    rig = Rig()
    one, _ = rig.stable()
    rig.wait(one, 1)
    rig.run(900)
    rig.close(rig.link_of(one))
    assert WAIT_MS - SLOT_MS < longest_wait(rig, one) <= WAIT_MS


def test_members_of_which_it_is_known_may_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LIMITS_MAX", 2)
    patience = WaitLimits()
    for number, member in enumerate("abca"):
        waiter = Waiter("g", member, object(), number, HeartbeatResponse(), START, START + 5_000)
        patience.closed(waiter, START + 4_000)
    assert len(patience) == 2
    assert [patience.limited("g", member, 3_000) for member in "abc"] == [2_000, 3_000, 2_000]


def test_errors_are_answered_at_once() -> None:
    rig = Rig()
    one, _ = rig.stable()
    assert rig.waited(rig.wait(one, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert rig.waited(rig.wait("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.waited(rig.wait(one, 1, group="none")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.waited(rig.wait(one, 1, group="")) is ErrorCode.INVALID_GROUP_ID


def test_heartbeats_in_the_middle_of_a_rebalance_are_answered_at_once() -> None:
    rig = Rig()
    one, two = rig.stable()
    rig.join(one)  # the leader
    assert rig.waited(rig.wait(two, 1)) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(two)
    assert rig.waited(rig.wait(two, 2)) is ErrorCode.NONE  # the leader has yet to assign


def test_group_of_another_coordinator_is_told_so() -> None:
    rig = Rig()
    one, _ = rig.stable()
    waiting = rig.wait(one, 1)
    assert rig.coordinator.waiting_groups() == [GROUP]
    effects: list[object] = []
    rig.coordinator.refused(GROUP, ErrorCode.NOT_COORDINATOR, effects)  # type: ignore[arg-type]
    rig.took(effects)  # type: ignore[arg-type]
    assert rig.waited(waiting) is ErrorCode.NOT_COORDINATOR
    assert rig.coordinator.waiting_groups() == []


@pytest.mark.parametrize(
    "settings", [{"delayed_answers": False}, {"group_heartbeat_wait_max_ms": 0}]
)
def test_nobody_waits_if_the_setting_is_off(settings: dict[str, int]) -> None:
    rig = Rig(**settings)  # type: ignore[arg-type]
    one, _ = rig.stable()
    assert rig.waited(rig.wait(one, 1)) is ErrorCode.NONE


def test_limit_of_the_wait_is_a_setting() -> None:
    rig = Rig(group_heartbeat_wait_max_ms=1_000)
    one, _ = rig.stable()
    waiting = rig.wait(one, 1)
    rig.run(1_000)
    assert rig.waited(waiting) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("software", "version", "expected"),
    [
        ("librdkafka", 3, True),
        ("apache-kafka-java", 4, True),
        ("sarama", 4, False),
        ("", 4, True),  # franz-go, on a second connection
        ("", 3, False),  # kafkajs
        ("", 0, False),
    ],
)
def test_who_may_wait(software: str, version: int, expected: bool) -> None:
    assert may_wait(Asker("c", "/10.0.0.1", 1, software), version) is expected


# -- the second round of a cooperative rebalance -----------------------------------------------------


def cooperative(rig: Rig) -> tuple[str, str, int]:
    """One member has orders/0 and /1 when another one joins; both have joined generation 2.

    Returns their ids, and the handle of the newcomer's SyncGroup.
    """
    first = rig.join(version=3, protocols={"cooperative-sticky": subscription()})
    rig.run(0)
    one = rig.joined(first).member_id
    rig.sync(one, 1, {one: assignment([0, 1])})
    newcomer = rig.join(version=3, client="new", protocols={"cooperative-sticky": subscription()})
    rig.join(one, protocols={"cooperative-sticky": subscription(owned=[0, 1])})
    two = rig.joined(newcomer).member_id
    parked = rig.sync(two, 2)
    return one, two, parked


def test_member_that_got_nothing_waits_for_the_round_that_follows() -> None:
    rig = Rig()
    one, two, parked = cooperative(rig)
    assert rig.sync_error(rig.sync(one, 2, {one: assignment([0])})) is ErrorCode.NONE
    assert rig.state().state == "Stable"
    assert rig.waited(parked) is None
    rig.join(one, protocols={"cooperative-sticky": subscription(owned=[0])})
    assert rig.waited(parked) is ErrorCode.REBALANCE_IN_PROGRESS
    rig.join(two, protocols={"cooperative-sticky": subscription()})
    assert rig.state().generation == 3


@pytest.mark.parametrize("software", [JAVA, "confluent-kafka-python"])
def test_member_that_keeps_what_it_has_waits_for_the_round_that_follows(software: str) -> None:
    """Not librdkafka's, which rejoins late after a refused SyncGroup."""
    rig = Rig()
    wanted = {"cooperative-sticky": subscription()}
    newcomers = [rig.join(version=3, client=name, protocols=wanted) for name in "ab"]
    rig.run(0)
    one, two = (rig.joined(handle).member_id for handle in newcomers)
    two_synced = rig.sync(two, 1)
    rig.sync(one, 1, {one: assignment([0, 1, 2]), two: assignment([3])})
    assert rig.sync_error(two_synced) is ErrorCode.NONE
    rig.join(version=3, client="c", protocols=wanted)
    rig.join(one, protocols={"cooperative-sticky": subscription(owned=[0, 1, 2])})
    rig.join(two, protocols={"cooperative-sticky": subscription(owned=[3])})
    keeps = rig.sync(two, 2, software=software)
    gives_up = rig.sync(one, 2, {one: assignment([0, 1]), two: assignment([3])})
    assert rig.sync_error(gives_up) is ErrorCode.NONE
    if software == JAVA:
        assert rig.waited(keeps) is None
        rig.join(one, protocols={"cooperative-sticky": subscription(owned=[0, 1])})
        assert rig.waited(keeps) is ErrorCode.REBALANCE_IN_PROGRESS
    else:
        assert rig.synced(keeps).assignment == assignment([3])


def test_its_wait_is_limited() -> None:
    rig = Rig()
    one, _, parked = cooperative(rig)
    rig.sync(one, 2, {one: assignment([0])})
    rig.run(WAIT_MS)
    assert rig.waited(parked) is ErrorCode.NONE
    assert rig.synced(parked).assignment == b""


def test_member_that_got_nothing_for_good_is_answered_at_once() -> None:
    rig = Rig()
    one, _, parked = cooperative(rig)
    rig.sync(one, 2, {one: assignment([0, 1])})
    assert rig.waited(parked) is ErrorCode.NONE


# -- the first generation ----------------------------------------------------------------------------


def test_first_generation_begins_when_nobody_has_come_for_a_moment() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    handles = []
    for _ in range(5):
        handles.append(rig.join(version=3))
        rig.run(150)
    rig.run(400)
    assert {rig.joined(handle).generation_id for handle in handles} == {1}


def test_it_never_waits_longer_than_the_configured_delay() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    first = rig.join(version=3)
    started = rig.now
    while first not in rig.replies:
        rig.run(100)
        rig.join(version=3)
    assert rig.now - started == 3_000


def test_it_waits_for_those_that_have_asked_for_an_id() -> None:
    """A client that comes asks twice (KIP-394), and the second request may be a while on its way."""
    rig = Rig(group_initial_rebalance_delay_ms=3_000)
    first = rig.join(version=3)
    asked = rig.joined(rig.join(version=9)).member_id
    rig.run(900)
    second = rig.join(asked)
    rig.run(400)
    assert rig.joined(first).generation_id == rig.joined(second).generation_id == 1


# -- laws --------------------------------------------------------------------------------------------


@given(st.integers(0, 60_000), st.integers(0, 1_800_000))
def test_wait_is_less_than_a_third_of_the_session(most: int, session: int) -> None:
    found = wait_ms(most, session)
    assert 0 <= found <= most
    assert found == 0 or found * 3 < session


@given(
    st.lists(
        st.tuples(st.sampled_from("wrcd"), st.integers(0, 3), st.integers(1, 4_000)), max_size=40
    ),
    st.lists(st.sampled_from(["", FRANZ_GO]), min_size=4, max_size=4),
)
def test_client_that_answers_never_loses_its_session(
    steps: list[tuple[str, int, int]], softwares: list[str]
) -> None:
    """A live member sends its next heartbeat within an interval of 3 s after the last answer."""
    rig = Rig()
    members = rig.stable(4)
    handles: dict[str, int] = {}
    sent: dict[str, int] = dict.fromkeys(members, rig.now)
    for what, number, ms in steps:
        rig.run(ms % 500)
        for member in members:
            if member in handles and rig.waited(handles[member]) is None:
                continue
            if member not in handles or rig.now - sent[member] >= 3_000:
                software = softwares[members.index(member)]
                handles[member] = rig.wait(member, 1, software=software)
                sent[member] = rig.now
        member = members[number]
        if what == "r":
            rig.release(rig.link_of(member))
        elif what == "c":
            rig.release(rig.link_of(member))
            assert rig.commit(member_id=member, generation=1) is ErrorCode.NONE
    group = rig.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == set(members)
    for member in members:
        assert (ends := group.session_ends(group.members[member])) is not None
        waiting = handles.get(member)
        if waiting is not None and rig.waited(waiting) is None:
            rig.run(WAIT_MS)
            assert rig.waited(waiting) is ErrorCode.NONE
            assert rig.now < ends


@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 5), st.integers(0, 5), st.integers(0, 1_000)),
            st.none() | st.integers(0, 1_000),
        ),
        max_size=30,
    )
)
def test_waiting_keeps_one_request_of_a_link_and_of_a_member(
    steps: list[tuple[int, int, int, int | None]],
) -> None:
    waiting = Waiters()
    alive: dict[int, Waiter] = {}
    now = START
    for link, member, ms, hastened_ms in steps:
        for waiter in waiting.due(now):
            assert waiter.due_at // SLOT_MS * SLOT_MS <= now
            del alive[waiter.link]
        before = waiting.of_link(link)
        for old in (before, waiting.of_member("g", str(member))):
            if old is not None and old.link in alive:
                waiting.remove(old)
                del alive[old.link]
        alive[link] = Waiter("g", str(member), object(), link, HeartbeatResponse(), now, now + ms)
        waiting.add(alive[link])
        if hastened_ms is not None:
            waiting.hasten(alive[link], now + hastened_ms)
            hastened = waiting.of_link(link)
            assert hastened is not None
            assert hastened.due_at == now + min(ms, hastened_ms)
            alive[link] = hastened
        waiting.check()
        assert len(waiting) == len(alive)
        assert waiting.of_group("g") == sorted(alive.values(), key=lambda one: one.member_id)
        now += 100
