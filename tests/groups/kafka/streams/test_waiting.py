"""Heartbeats of streams groups that wait: each kind of news, and that a wait never costs a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.kafka.consumer.conftest import World
from tests.groups.kafka.streams.conftest import BEAT_MS, GROUP, INTERNAL, Rig, Thread, named, tasks

from steelyard.errors import StorageError
from steelyard.groups.kafka.streams.configuration import StreamsStatus
from steelyard.groups.kafka.streams.groups import SHORT_MS, StreamsGroups
from steelyard.groups.kafka.waiting import JAVA, SLOT_MS
from steelyard.nodes.calls.kafka import SOFTWARE_NAME
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.streams_groups import Endpoint, StreamsGroupHeartbeatResponse

ALL = tasks("0_0 0_1 1_0 1_1")
SESSION_MS = 45_000


def alone(rig: Rig, name: str = "p.1") -> Thread:
    """A thread that runs all tasks and has reported so."""
    thread = rig.join(name)
    thread.beat()
    assert thread.active == ALL
    return thread


def news(rig: Rig, handle: object) -> StreamsGroupHeartbeatResponse:
    answer = rig.answer(handle)
    assert answer is not None
    return answer


@pytest.mark.parametrize("software", [JAVA, SOFTWARE_NAME])
def test_heartbeat_without_news_waits_and_the_next_one_comes_soon(software: str) -> None:
    rig = Rig()
    thread = alone(rig)
    for _ in range(3):
        waiting = thread.wait(software=software)
        rig.wait(rig.config.group_heartbeat_wait_max_ms - SLOT_MS)
        assert rig.answer(waiting) is None
        rig.wait(SLOT_MS)
        answer = news(rig, waiting)
        assert (answer.member_epoch, answer.active_tasks) == (thread.epoch, None)
        assert answer.heartbeat_interval_ms == SHORT_MS


@pytest.mark.parametrize("software", ["", "librdkafka", "sarama"])
def test_clients_that_may_count_intervals_from_the_heartbeat_are_answered_at_once(
    software: str,
) -> None:
    rig = Rig()
    thread = alone(rig)
    assert news(rig, thread.wait(software=software)).heartbeat_interval_ms == BEAT_MS


def test_newcomer_answers_the_thread_that_must_release_tasks() -> None:
    rig = Rig()
    thread = alone(rig)
    waiting = thread.wait()
    rig.join("q.1")
    answer = news(rig, waiting)
    assert answer.active_tasks is not None
    assert len(named(answer.active_tasks)) == 2
    assert answer.heartbeat_interval_ms == SHORT_MS


def test_thread_that_must_release_tasks_is_never_kept_waiting() -> None:
    rig = Rig()
    thread = alone(rig)
    rig.join("q.1")
    for _ in range(3):
        assert rig.answer(thread.wait(active_tasks=None, standby_tasks=None)) is not None


def test_tasks_that_become_free_answer_the_thread_that_waits_for_them() -> None:
    rig = Rig()
    thread = alone(rig)
    other = rig.join("q.1")
    thread.beat()
    assert len(thread.active) == 2
    waiting = other.wait(link=2)
    assert rig.answer(waiting) is None
    thread.beat()
    answer = news(rig, waiting)
    assert answer.active_tasks is not None
    assert named(answer.active_tasks) == ALL - thread.active


def test_report_of_tasks_is_answered_at_once() -> None:
    rig = Rig()
    thread = rig.join("p.1")
    assert thread.request().active_tasks is not None
    assert news(rig, thread.wait()).heartbeat_interval_ms == SHORT_MS


@pytest.mark.parametrize(
    "goes", [lambda rig, other: other.leave(), lambda rig, other: rig.wait(SHORT_MS)]
)
def test_thread_that_leaves_or_expires_answers_the_others(
    goes: Callable[[Rig, Thread], object],
) -> None:
    rig = Rig()
    thread = alone(rig)
    other = rig.join("q.1")
    rig.settle()
    rig.wait(SESSION_MS - SHORT_MS)
    thread.beat()
    waiting = thread.wait()
    assert rig.answer(waiting) is None
    goes(rig, other)
    assert rig.group.member("q.1") is None
    answer = news(rig, waiting)
    assert answer.active_tasks is not None
    assert named(answer.active_tasks) == ALL


def test_target_that_may_not_be_computed_yet_is_computed_later() -> None:
    rig = Rig(group_streams_assignment_interval_ms=1_000)
    thread = alone(rig)
    waiting = thread.wait()
    rig.join("q.1")
    assert rig.answer(waiting) is None
    rig.wait(1_000)
    assert news(rig, waiting).active_tasks is not None


def test_newcomer_without_a_target_comes_again_when_there_is_one() -> None:
    rig = Rig(group_streams_initial_rebalance_delay_ms=3_000)
    thread = rig.thread("p.1")
    answer = news(rig, thread.wait())
    assert [one.status_code for one in answer.status or ()] == [StreamsStatus.ASSIGNMENT_DELAYED]
    assert answer.heartbeat_interval_ms == 3_000


def test_status_is_told_with_the_usual_interval() -> None:
    """Java waits for missing source topics as long as two of the intervals that it is told."""
    world = World(**dict.fromkeys(INTERNAL, 2))
    rig = Rig(world)
    for _ in range(2):
        answer = news(rig, rig.thread("p.1").wait())
        statuses = [one.status_code for one in answer.status or ()]
        assert statuses == [StreamsStatus.MISSING_SOURCE_TOPICS]
        assert answer.heartbeat_interval_ms == BEAT_MS


def test_topics_that_grow_have_the_threads_come_again() -> None:
    rig = Rig()
    thread = alone(rig)
    waiting = thread.wait()
    rig.world.set("in", 3)
    for topic in INTERNAL:
        rig.world.set(topic, 3)
    rig.streams.look_at_topics(rig.now, rig.effects)
    rig.wake()
    answer = news(rig, waiting)
    assert (answer.active_tasks, answer.heartbeat_interval_ms) == (None, SHORT_MS)
    thread.beat()
    assert thread.active == tasks("0_0 0_1 0_2 1_0 1_1 1_2")


def test_topology_that_cannot_be_configured_any_more_has_the_threads_come_again() -> None:
    rig = Rig()
    thread = alone(rig)
    waiting = thread.wait()
    rig.world.set("in", 0)
    rig.streams.look_at_topics(rig.now, rig.effects)
    assert rig.answer(waiting) is not None
    thread.beat()
    assert thread.statuses == [StreamsStatus.MISSING_SOURCE_TOPICS]


def test_shutdown_of_the_application_answers_all() -> None:
    rig = Rig()
    thread, other = alone(rig), rig.join("q.1")
    rig.settle()
    waiting = thread.wait(link=1)
    assert rig.answer(other.wait(link=2, shutdown_application=True)) is not None
    statuses = [one.status_code for one in news(rig, waiting).status or ()]
    assert statuses == [StreamsStatus.SHUTDOWN_APPLICATION]


def test_endpoints_of_others_are_news() -> None:
    rig = Rig()
    thread = rig.join("p.1", Endpoint("here", 1))
    thread.beat()
    known = thread.beat().endpoint_information_epoch
    waiting = thread.wait(endpoint_information_epoch=known)
    assert rig.answer(waiting) is None
    rig.join("q.1", Endpoint("there", 2))
    endpoints = news(rig, waiting).partitions_by_user_endpoint
    assert endpoints is not None
    assert {one.user_endpoint.host for one in endpoints} == {"here", "there"}


def test_another_request_on_the_connection_releases_the_answer() -> None:
    rig = Rig()
    thread = alone(rig)
    waiting = thread.wait(link=7)
    rig.wait(700)
    rig.streams.released(7, rig.now, rig.effects)
    assert news(rig, waiting).heartbeat_interval_ms == SHORT_MS


def test_leaving_answers_what_waits() -> None:
    rig = Rig()
    thread = alone(rig)
    waiting = thread.wait()
    assert not thread.leave().error_code
    assert news(rig, waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_thread_that_has_reconnected_hears_the_news_on_its_new_connection() -> None:
    rig = Rig()
    thread = alone(rig)
    dead = thread.wait(link=7)
    waiting = thread.wait(link=8)
    assert rig.answer(dead) is not None
    rig.join("q.1")
    assert news(rig, waiting).active_tasks is not None


def test_client_with_a_shorter_time_out_waits_less_from_then_on() -> None:
    rig = Rig()
    thread = alone(rig)
    thread.wait(link=1)
    rig.wait(3_000)
    rig.streams.closed(1, rig.now, rig.effects)
    waiting = thread.wait(link=2)
    rig.wait(1_500 - SLOT_MS)
    assert rig.answer(waiting) is None
    rig.wait(SLOT_MS)
    assert rig.answer(waiting) is not None


def test_group_of_another_coordinator_is_told_so() -> None:
    rig = Rig()
    thread = alone(rig)
    waiting = thread.wait()
    assert rig.streams.waiting_groups() == [GROUP]
    rig.streams.refused(GROUP, ErrorCode.NOT_COORDINATOR, rig.effects)
    assert news(rig, waiting).error_code == ErrorCode.NOT_COORDINATOR


def test_news_that_cannot_be_stored_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    thread, other = alone(rig), rig.join("q.1")
    rig.settle()
    waiting = thread.wait()

    def full(*_: object) -> None:
        raise StorageError("disk full")

    monkeypatch.setattr(rig.streams._records, "write", full)
    with pytest.raises(StorageError):
        other.leave()
    rig.wake()
    answer = news(rig, waiting)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    thread.take(answer)
    monkeypatch.undo()
    thread.beat()
    assert thread.active == ALL


def test_nobody_waits_if_the_setting_is_off() -> None:
    rig = Rig()
    rig.streams = StreamsGroups(rig.config, rig.world, rig.groups, rig.table, delayed_answers=False)
    assert news(rig, rig.thread("p.1").wait()).heartbeat_interval_ms == BEAT_MS


def test_session_counts_from_the_arrival_of_the_heartbeat() -> None:
    rig = Rig()
    alone(rig).wait()
    rig.wait(SESSION_MS - 1)
    assert rig.group.member("p.1") is not None
    rig.wait(1)
    assert rig.group.member("p.1") is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9_000)), max_size=40))
def test_threads_that_always_wait_are_never_expelled_and_share_all_tasks(
    steps: list[tuple[str, int]],
) -> None:
    """Threads join at any time; each sends its next heartbeat a short interval after an answer."""
    rig = Rig()
    waiting: dict[str, object] = {}
    due: dict[str, int] = {}

    def pump() -> None:
        for name, handle in list(waiting.items()):
            answer = rig.answer(handle)
            if answer is not None:
                del waiting[name]
                rig.threads[name].take(answer)
                due[name] = rig.now + answer.heartbeat_interval_ms
        for name in [one for one, at in due.items() if at <= rig.now]:
            del due[name]
            waiting[name] = rig.thread(name).wait(link=ord(name))

    for name, ms in [*steps, ("a", 0), ("a", 30_000)]:
        if name not in waiting and name not in due:
            due[name] = rig.now
        for _ in range(1 + ms // 50):
            pump()
            rig.wait(50)
    members = {name for name, _ in steps} | {"a"}
    assert set(rig.group.member_ids()) == members
    held = [task for name in members for task in rig.threads[name].active]
    assert sorted(held) == sorted(ALL)
    assert rig.state() == "Stable"
