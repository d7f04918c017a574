"""Defects planted in the coordinator of Kafka Streams groups, which the simulator must find."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.groups.kafka.streams import reconciliation, records
from steelyard.groups.kafka.streams.group import StreamsGroup
from steelyard.groups.kafka.streams.groups import StreamsGroups
from steelyard.groups.kafka.streams.member import NO_TASKS
from steelyard.sim.kafka.streams.witness import StreamsWitness
from steelyard.sim.run import run
from steelyard.sim.scenario import Fault, Scenario
from steelyard.sim.world import Violation

CALM = Scenario(
    seed=3,
    members=1,
    messages=10,
    streams_threads=4,
    streams_standbys=1,
    kafka_session_timeout_ms=6_000,
    settle_ms=60_000,
)
LATER = (
    Fault(kind="kill_member", target="streams-0", at_ms=14_000, for_ms=9_000),
    Fault(kind="stall", target="streams-1", at_ms=35_000, for_ms=1),
)
"""The others get the tasks of the thread that dies; its next run joins, and they give some up. Then some time passes."""
MOVING = replace(CALM, faults=LATER)
KILLED = replace(
    CALM,
    faults=(
        LATER[0],
        Fault(kind="kill_broker", target="broker-a", at_ms=24_000, for_ms=300),
        LATER[1],
    ),
)
"""While they give them up."""
SILENT = replace(
    CALM, faults=(Fault(kind="partition", target="streams-0", at_ms=12_000, for_ms=9_000),)
)


def failure(scenario: Scenario) -> str:
    found = run(scenario).failure
    assert found is not None
    return found


@pytest.mark.parametrize("scenario", [MOVING, KILLED, SILENT], ids=["moving", "killed", "silent"])
def test_a_sound_coordinator(scenario: Scenario) -> None:
    outcome = run(scenario)
    assert outcome.failure is None
    assert outcome.counts["streams_moves"] >= 7


def test_tasks_that_are_given_away_before_they_are_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "_owns", lambda owned, revoking: False)
    assert "is given the tasks" in failure(MOVING)


def test_a_coordinator_that_forgets_who_has_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_held_of", lambda row: NO_TASKS)
    found = failure(KILLED)
    assert "is given the tasks" in found or "in one directory" in found


def test_a_coordinator_that_never_looks_for_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamsGroup, "look_at_topics", lambda self: None)
    assert "of Kafka Streams runs 0 times" in failure(CALM)


def test_sessions_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has died keeps its tasks."""
    dead = replace(CALM, faults=(Fault(kind="kill_member", target="streams-0", at_ms=12_000),))
    assert run(dead).failure is None
    monkeypatch.setattr(StreamsGroups, "_expire", lambda self, *arguments: None)
    monkeypatch.setattr(StreamsGroups, "check", lambda self: None)
    assert "of Kafka Streams runs 0 times" in failure(dead)


def share(*numbers: int, standby: tuple[int, ...] = ()) -> TaskShare:
    return TaskShare(
        frozenset(TaskId("0", number) for number in numbers),
        frozenset(TaskId("0", number) for number in standby),
    )


def test_the_witness_knows_who_runs_what() -> None:
    witness = StreamsWitness(6_000)
    witness.given("a", "p", share(0, 1), 1_000)
    witness.runs("a", "p", share(0, 1))
    witness.heard("a", 1_000)
    with pytest.raises(
        Violation, match="b is given the tasks 0_1, which a runs, heard 4000 ms ago"
    ):
        witness.given("b", "q", share(1), 5_000)
    with pytest.raises(Violation, match="b and a have 0_1 in one directory"):
        witness.given("b", "p", share(standby=(1,)), 5_000)
    witness.given("b", "q", share(1), 7_000)  # the session of a is over
    witness.runs("b", "q", share(1))
    assert witness.not_running({"0": 2}, set(), 0) == (
        "task 0_1 of Kafka Streams runs 2 times, with 0 standbys"
    )
    witness.runs("a", "p", share(0, standby=(1,)))
    assert witness.not_running({"0": 2}, {"0"}, 1) == (
        "task 0_0 of Kafka Streams runs 1 times, with 0 standbys"
    )
    witness.runs("b", "q", share(1, standby=(0,)))
    assert witness.not_running({"0": 2}, {"0"}, 2) is None
    assert witness.not_running({"0": 1}, {"0"}, 1) == "tasks 0_1 run, which do not exist"
    witness.is_alive = lambda who: who == "a"
    assert witness.not_running({"0": 1}, set(), 0) is None
    assert witness.moves == 4
