"""30 seeds: the nodes keep every rule under whatever the seeds draw."""

import multiprocessing
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from steelyard.sim.__main__ import failure
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import FAULT_KINDS, Fault, Scenario
from steelyard.sim.swarm import draw, run_seeds, shrink

SEEDS = range(1, 201)
RUN = SEEDS[:30]
"""These are run here; `./dev seeds` runs others, drawn from the commit."""
BLOCK = 10


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Iterator[RunOutcome]]:
    """All seeds, in order; they are run while the tests ask for them."""
    running = run_seeds(RUN)
    yield running
    running.close()


@pytest.mark.parametrize("first", RUN[::BLOCK])
def test_seeds(first: int, outcomes: Iterator[RunOutcome]) -> None:
    failures = []
    for seed in range(first, first + BLOCK):
        outcome = next(outcomes)
        assert outcome.scenario.seed == seed
        if outcome.failure is not None:
            failures.append(failure(outcome, f"--seed {seed}"))
    assert not failures, "\n".join(failures)


def test_outcomes_come_in_order_and_closing_ends_the_processes() -> None:
    others = set(multiprocessing.active_children())
    running = run_seeds(RUN, 2)
    assert [next(running).scenario.seed for _ in range(3)] == [1, 2, 3]
    processes = set(multiprocessing.active_children()) - others
    assert len(processes) == 2
    running.close()
    assert not any(process.is_alive() for process in processes)


def test_a_process_that_ends_by_itself_is_missed() -> None:
    others = set(multiprocessing.active_children())
    running = run_seeds(RUN, 2)
    assert next(running).scenario.seed == 1
    first, second = set(multiprocessing.active_children()) - others
    first.kill()
    with pytest.raises(RuntimeError, match=r"the process of seed \d+ ended by itself"):
        list(running)
    assert not second.is_alive()


def test_the_seeds_draw_every_fault_and_every_size() -> None:
    scenarios = [draw(seed) for seed in SEEDS]
    assert {fault.kind for s in scenarios for fault in s.faults} == set(FAULT_KINDS)
    assert {s.brokers for s in scenarios} == {1, 2, 3}
    assert {s.members for s in scenarios} == {1, 2, 3, 4, 5}
    assert {s.strategy for s in scenarios} == {"AVG", "AVG_BY_CIRCLE", "EVEN"}
    assert {s.thread_ms_max for s in scenarios} == {0, 5, 30}
    assert {s.clean_handover for s in scenarios} == {True, False}
    assert {s.flush for s in scenarios} == {"async", "sync"}
    assert {(s.ordered, s.transactions_of_100 > 0) for s in scenarios} == {
        (ordered, transactions) for ordered in (True, False) for transactions in (True, False)
    }


def test_some_seeds_have_a_kafka_group_of_every_kind() -> None:
    scenarios = [draw(seed) for seed in SEEDS]
    kafka = [scenario for scenario in scenarios if scenario.kafka_members]
    assert len(SEEDS) // 5 < len(kafka) < len(SEEDS) // 2
    assert {s.kafka_members for s in kafka} == {1, 2, 3, 4}
    assert {s.kafka_assignor for s in kafka} == {"range", "cooperative-sticky", "sticky"}
    assert {(s.kafka_static, s.kafka_auto_commit) for s in kafka} == {
        (static, auto_commit) for static in (True, False) for auto_commit in (True, False)
    }
    assert any(f.kind == "join" and f.target == "kafka" for s in kafka for f in s.faults)


def test_shrinking_keeps_what_the_failure_needs() -> None:
    needed = Fault(kind="join", at_ms=7_000)
    others = tuple(Fault(kind="stall", at_ms=n * 1_000) for n in range(5))
    scenario = replace(draw(9), faults=(*others, needed), messages=200, members=5)

    def fails(candidate: Scenario) -> bool:
        return needed in candidate.faults and candidate.messages >= 10 and candidate.members >= 2

    small = shrink(scenario, fails)
    assert small.faults == (needed,)
    assert (small.members, small.brokers, small.topics) == (2, 1, 1)
    assert 10 <= small.messages < 20
