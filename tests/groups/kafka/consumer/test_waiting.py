"""Heartbeats of KIP-848 groups that wait: each rule, and that a wait never costs a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.kafka.consumer.conftest import GROUP, Rig, assigned, of

from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.groups.kafka.waiting import JAVA, SLOT_MS
from steelyard.groups.kafka.window import QUIET_MS_MIN
from steelyard.nodes.calls.kafka import SOFTWARE_NAME
from steelyard.wire.kafka.errors import ErrorCode

LONG_MS, FIRST_MS, SHORT_MS, JAVA_SHORT_MS = 5_000, 1_500, 200, 100
FIRST_WAIT_MS = 750
"""What a time-out of FIRST_MS leaves after 750 ms."""
GROWING = (
    (750, 2_250),
    (1_500, 3_000),
    (2_250, 3_750),
    (3_000, 4_500),
    (3_750, 5_000),
)
"""Waits after each other, and the intervals told then: what was waited and 1.5 s."""


def alone(rig: Rig, member: str = "m1") -> None:
    """A member that has got all partitions and reported so, and whose next heartbeat may wait."""
    rig.join(member)
    assert rig.beat(member, 1, of("t", 0, 1, 2, 3)).heartbeat_interval_ms == SHORT_MS
    assert rig.beat(member, 1).heartbeat_interval_ms == FIRST_MS


def test_waits_end_before_the_time_out_that_was_told_which_grows_step_by_step() -> None:
    rig = Rig()
    alone(rig)
    for wait_ms, told_ms in (*GROWING, (4_250, LONG_MS), (4_250, LONG_MS)):
        waiting = rig.wait("m1", 1, link=1)
        rig.pass_time(wait_ms - SLOT_MS)
        assert rig.waited(waiting) is None
        rig.pass_time(SLOT_MS)
        answer = rig.waited(waiting)
        assert answer is not None
        assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m1", 1, None)
        assert answer.heartbeat_interval_ms == told_ms


@pytest.mark.parametrize("software", [JAVA, SOFTWARE_NAME])
def test_java_and_our_own_member_wait_for_the_whole_time_and_come_back_at_once(
    software: str,
) -> None:
    """It counts the interval from the answer, and has a time-out of its own."""
    rig = Rig()
    alone(rig)
    for _ in range(3):
        waiting = rig.wait("m1", 1, link=1, software=software)
        rig.pass_time(rig.config.group_heartbeat_wait_max_ms - SLOT_MS)
        assert rig.waited(waiting) is None
        rig.pass_time(SLOT_MS)
        answer = rig.waited(waiting)
        assert answer is not None
        assert answer.heartbeat_interval_ms == JAVA_SHORT_MS


def test_member_that_changes_is_told_a_short_interval_until_it_has_reported() -> None:
    rig = Rig()
    assert rig.join("m1").heartbeat_interval_ms == SHORT_MS
    everything = of("t", 0, 1, 2, 3)
    assert rig.beat("m1", 1, everything).heartbeat_interval_ms == SHORT_MS
    # A client that reports in each heartbeat is not asked ten times a second.
    assert rig.beat("m1", 1, everything).heartbeat_interval_ms == FIRST_MS
    assert rig.beat("m1", 1, everything).heartbeat_interval_ms == FIRST_MS


def test_newcomer_answers_the_member_that_must_give_up_partitions() -> None:
    rig = Rig()
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    rig.join("m2")
    answer = rig.waited(waiting)
    assert answer is not None
    kept = assigned(answer)
    assert kept is not None
    assert len(kept) == 2
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, SHORT_MS)


def test_member_with_partitions_to_give_up_is_never_kept_waiting() -> None:
    rig = Rig()
    alone(rig)
    rig.join("m2")
    rig.beat("m1", 1)
    for _ in range(3):
        answer = rig.waited(rig.wait("m1", 1, link=1))
        assert answer is not None
        assert answer.heartbeat_interval_ms == SHORT_MS


def test_partitions_that_become_free_answer_the_member_that_waits_for_them() -> None:
    rig = Rig()
    alone(rig)
    rig.join("m2")
    waiting = rig.wait("m2", 2, link=2, software=JAVA)
    kept = assigned(rig.beat("m1", 1))
    assert kept is not None
    assert rig.waited(waiting) is None
    rig.beat("m1", 1, kept)
    answer = rig.waited(waiting)
    assert answer is not None
    assert assigned(answer) == of("t", 0, 1, 2, 3) - kept


def test_wait_for_partitions_ends_with_a_short_interval() -> None:
    rig = Rig()
    alone(rig)
    rig.join("m2")
    waiting = rig.wait("m2", 2, link=2, software=JAVA)
    rig.pass_time(rig.config.group_heartbeat_wait_max_ms)
    answer = rig.waited(waiting)
    assert answer is not None
    assert answer.heartbeat_interval_ms == JAVA_SHORT_MS


def test_after_a_short_interval_only_java_waits() -> None:
    """librdkafka takes the interval as the time-out of its next heartbeat, which a wait would use up."""
    rig = Rig()
    alone(rig)
    rig.join("m2")
    for _ in range(3):
        answer = rig.waited(rig.wait("m2", 2, link=2))
        assert answer is not None
        assert answer.heartbeat_interval_ms == SHORT_MS
    assert rig.waited(rig.wait("m2", 2, link=2, software=JAVA)) is None


def test_member_that_leaves_or_expires_answers_the_others() -> None:
    for leaves in (True, False):
        rig = Rig()
        alone(rig)
        rig.join("m2")
        kept = assigned(rig.beat("m1", 1))
        rig.beat("m1", 1, kept)
        rig.beat("m2", 2, of("t", 0, 1, 2, 3) - (kept or set()))
        if not leaves:
            rig.pass_time(44_000)
            rig.beat("m1", 2)
            rig.pass_time(500)
        rig.beat("m1", 2)
        waiting = rig.wait("m1", 2, link=1)
        if leaves:
            rig.beat("m2", -1)
        else:
            rig.pass_time(500)
        answer = rig.waited(waiting)
        assert answer is not None
        assert assigned(answer) == of("t", 0, 1, 2, 3)
        assert answer.member_epoch == 3


def test_higher_epoch_alone_is_no_news() -> None:
    rig = Rig()
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    rig.join("m2", topics=("other",))
    assert rig.group.epoch == 2
    assert rig.waited(waiting) is None
    rig.pass_time(FIRST_WAIT_MS)
    answer = rig.waited(waiting)
    assert answer is not None
    assert answer.member_epoch == 1
    assert rig.beat("m1", 1).member_epoch == 2


def test_topics_that_grow_are_news() -> None:
    rig = Rig()
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    rig.world.set("t", 6)
    rig.consumers.look_at_topics(rig.now, rig.effects)
    rig.consumers.wake(rig.now, rig.effects)
    rig.consumers.check()
    answer = rig.waited(waiting)
    assert answer is not None
    assert assigned(answer) == of("t", 0, 1, 2, 3, 4, 5)


def test_target_that_may_not_be_computed_yet_is_computed_later() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=200)
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    rig.join("m2")
    assert rig.waited(waiting) is None
    rig.pass_time(200)
    answer = rig.waited(waiting)
    assert answer is not None
    assert len(assigned(answer) or ()) == 2


@pytest.mark.parametrize(("waited_ms", "told_ms"), [(0, SHORT_MS), (700, 700)])
def test_answer_that_another_request_releases_tells_a_short_interval(
    waited_ms: int, told_ms: int
) -> None:
    """So that the next heartbeat comes at once; with what was waited it may wait the longer."""
    rig = Rig()
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    rig.pass_time(waited_ms)
    rig.consumers.released(1, rig.now, rig.effects)
    answer = rig.waited(waiting)
    assert answer is not None
    assert answer.heartbeat_interval_ms == told_ms


def test_member_that_has_reconnected_hears_the_news_on_its_new_connection() -> None:
    """1. A heartbeat waits on a connection that is dead, which nobody knows. 2. Its member reports on another one. 3. There is news."""
    rig = Rig()
    alone(rig)
    dead = rig.wait("m1", 1, link=7)
    rig.beat(
        "m1", 1, of("t", 0, 1, 2, 3), rebalance_timeout_ms=60_000, subscribed_topic_names=["t"]
    )
    assert rig.waited(dead) is not None
    rig.join("m2")
    kept = assigned(rig.beat("m1", 1))
    assert kept is not None
    assert len(kept) == 2


def test_client_with_a_shorter_time_out_closes_one_connection_and_waits_less_from_then_on() -> None:
    rig = Rig()
    alone(rig)
    rig.wait("m1", 1, link=1, software=JAVA)
    rig.pass_time(3_000)
    rig.consumers.closed(1, rig.now, rig.effects)
    for limit_ms in (1_500, 1_500):
        waiting = rig.wait("m1", 1, link=2, software=JAVA)
        rig.pass_time(limit_ms - SLOT_MS)
        assert rig.waited(waiting) is None
        rig.pass_time(SLOT_MS)
        assert rig.waited(waiting) is not None


def test_static_member_that_is_replaced_is_fenced() -> None:
    rig = Rig()
    rig.join("m1", instance_id="i")
    rig.beat("m1", 1, of("t", 0, 1, 2, 3))
    rig.beat("m1", 1)
    waiting = rig.wait("m1", 1, link=1)
    rig.beat("m1", -2, instance_id="i")
    answer = rig.waited(waiting)
    assert answer is not None
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_of_another_coordinator_is_told_so() -> None:
    rig = Rig()
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    assert rig.consumers.waiting_groups() == [GROUP]
    rig.consumers.refused(GROUP, ErrorCode.NOT_COORDINATOR, rig.effects)
    answer = rig.waited(waiting)
    assert answer is not None
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_nobody_waits_if_the_setting_is_off() -> None:
    rig = Rig()
    rig.consumers = ConsumerGroups(
        rig.config,
        rig.world,
        rig.groups,
        rig.store.table("kafka_consumer_groups"),
        rig.rng,
        rig.coordinator,
        delayed_answers=False,
    )
    assert rig.join("m1").heartbeat_interval_ms == LONG_MS
    answer = rig.waited(rig.wait("m1", 1, link=1))
    assert answer is not None
    assert answer.heartbeat_interval_ms == LONG_MS


@pytest.mark.parametrize("member", ["m1", "m2"])
def test_session_counts_from_the_arrival_of_the_heartbeat(member: str) -> None:
    rig = Rig()
    alone(rig, member)
    rig.wait(member, 1, link=1)
    rig.pass_time(44_999)
    assert rig.group.member(member) is not None
    rig.pass_time(1)
    assert rig.group.member(member) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6_000)), max_size=30))
def test_no_wait_is_longer_than_the_time_out_that_librdkafka_sets(
    steps: list[tuple[bool, int]],
) -> None:
    """Its next heartbeat has the interval told last as its time-out."""
    rig = Rig()
    alone(rig)
    told = FIRST_MS
    for is_released, ms in steps:
        waiting = rig.wait("m1", 1, link=1)
        limit = max(told - 750, 0)
        released = is_released and limit > SLOT_MS
        waited = min(ms, max(limit - SLOT_MS, 0) // 2)  # waits end up to a slot early
        if released:
            rig.pass_time(waited)
            rig.consumers.released(1, rig.now, rig.effects)
        else:
            rig.pass_time(limit)
        answer = rig.waited(waiting)
        assert answer is not None
        told = answer.heartbeat_interval_ms
        assert told == (max(SHORT_MS, waited) if released else min(limit + 1_500, LONG_MS))
        rig.pass_time(ms % 700)
    assert rig.group.member("m1") is not None


def test_target_of_a_window_answers_those_that_wait() -> None:
    rig = Rig(group_join_window_max_ms=1_000)
    alone(rig)
    waiting = rig.wait("m1", 1, link=1)
    rig.join("m2")
    newcomer = rig.wait("m2", 1, link=2, software=JAVA)
    assert (rig.waited(waiting), rig.waited(newcomer)) == (None, None)
    rig.pass_time(QUIET_MS_MIN)
    answer = rig.waited(waiting)
    assert answer is not None
    assert len(assigned(answer) or ()) == 2


def test_newcomer_of_a_window_asks_again_soon() -> None:
    rig = Rig(group_join_window_max_ms=10_000)
    alone(rig)
    rig.pass_time(1_000)
    rig.join("m2")
    waiting = rig.wait("m2", 1, link=2)
    rig.pass_time(FIRST_WAIT_MS)
    answer = rig.waited(waiting)
    assert answer is not None
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, SHORT_MS)
    others = rig.waited(rig.wait("m1", 1, link=1))
    assert others is None
