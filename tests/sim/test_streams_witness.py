"""What the witness of the simulated Kafka Streams application takes for a broken rule."""

from __future__ import annotations

import pytest

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.sim.kafka.streams.witness import SLACK_MS, StreamsWitness
from steelyard.sim.world import Violation

SESSION_MS = 6_000
TASKS = frozenset({TaskId("0", 1), TaskId("1", 1)})


def witness() -> StreamsWitness:
    """Two threads of one process; the first runs the tasks and was heard at 1,000 ms."""
    seen = StreamsWitness(SESSION_MS)
    seen.heard("first", 1_000)
    seen.runs("first", "process", TaskShare(TASKS))
    return seen


def test_a_task_goes_to_one_thread_at_a_time() -> None:
    seen = witness()
    seen.heard("second", 3_000)
    with pytest.raises(Violation, match="second is given the tasks 0_1, 1_1, which first runs"):
        seen.given("second", "another", TaskShare(TASKS), 3_010)


def test_a_directory_holds_one_copy_of_a_task() -> None:
    seen = witness()
    seen.heard("second", 3_000)
    with pytest.raises(Violation, match="second and first have 0_1, 1_1 in one directory"):
        seen.given("second", "process", TaskShare(standby=TASKS), 3_010)


def test_tasks_of_a_thread_that_is_silent_for_its_session_go_to_another() -> None:
    seen = witness()
    seen.heard("second", 1_000 + SESSION_MS)
    seen.given("second", "process", TaskShare(TASKS), 1_010 + SESSION_MS)
    assert seen.moves == len(TASKS)


def test_an_answer_that_is_read_after_the_session_promises_nothing() -> None:
    """Seed 30001181 of an earlier state: the thread stalled between a heartbeat and its answer."""
    seen = witness()
    seen.heard("second", 2_000)
    for late_ms, is_late in ((SESSION_MS, True), (SESSION_MS - SLACK_MS - 1, False)):
        seen.heard("first", 2_000 + late_ms)
        if is_late:
            seen.given("second", "process", TaskShare(TASKS), 2_000 + late_ms)
        else:
            with pytest.raises(Violation):
                seen.given("second", "process", TaskShare(TASKS), 2_000 + late_ms)
