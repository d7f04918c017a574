"""15 seeds: the nodes keep every rule under whatever the seeds draw."""

import multiprocessing
from collections.abc import Callable, Generator, Iterator

import pytest
from msgspec.structs import replace

from steelyard.sim.__main__ import failure
from steelyard.sim.drawing import draw
from steelyard.sim.run import RunOutcome
from steelyard.sim.scenario import FAULT_KINDS, Fault, Scenario
from steelyard.sim.shrinking import shrink
from steelyard.sim.swarm import run_seeds

SEEDS = range(1, 201)
MANY_SEEDS = range(1_000)
RUN = SEEDS[:15]
"""These are run here; `./dev seeds` runs others, drawn from the commit."""


class Outcomes:
    """Those of one seed after the other; they are run ahead while tests ask for them in order."""

    def __init__(self, run: Callable[[range], Generator[RunOutcome, None, None]]) -> None:
        self._run = run
        self._running = run(RUN[:0])
        self._next: int | None = None

    def of(self, seed: int) -> RunOutcome:
        """Begin anew at this seed if the one before was not asked for or did not end in time."""
        if self._next != seed:
            self.close()
            self._running = self._run(range(seed, RUN.stop))
        self._next = None
        outcome = next(self._running)
        self._next = seed + 1
        return outcome

    def close(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    outcomes = Outcomes(run_seeds)
    yield outcomes
    outcomes.close()


@pytest.mark.parametrize("seed", RUN)
def test_seeds(seed: int, outcomes: Outcomes) -> None:
    outcome = outcomes.of(seed)
    assert outcome.scenario.seed == seed
    assert outcome.failure is None, failure(outcome, f"--seed {seed}")


def test_a_seed_that_takes_too_long_fails_alone() -> None:
    """1. A time-out ends the test of a seed. 2. The tests of later seeds have their outcomes."""
    begun = []

    def run(seeds: range) -> Generator[RunOutcome, None, None]:
        for seed in seeds:
            begun.append(seed)
            if seed == 2:
                raise TimeoutError
            yield RunOutcome(scenario=Scenario(seed=seed), digest="", failure=None, counts={})

    outcomes = Outcomes(run)
    assert outcomes.of(1).scenario.seed == 1
    with pytest.raises(TimeoutError):
        outcomes.of(2)
    assert [outcomes.of(seed).scenario.seed for seed in (3, 4, 5)] == [3, 4, 5]
    assert begun == [1, 2, 3, 4, 5]


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
    assert len(SEEDS) // 4 < len(kafka) < len(SEEDS) // 2
    classic = [scenario for scenario in kafka if scenario.kafka_protocol == "classic"]
    consumer = [scenario for scenario in kafka if scenario.kafka_protocol == "consumer"]
    for each in (classic, consumer):
        assert len(each) > len(SEEDS) // 8
        assert {s.kafka_members for s in each} >= {1, 2, 3, 4}
        assert {(s.kafka_static, s.kafka_auto_commit) for s in each} == {
            (static, auto_commit) for static in (True, False) for auto_commit in (True, False)
        }
        assert {s.delayed_answers for s in each} == {True, False}
        assert any(f.kind == "join" and f.target == "kafka" for s in each for f in s.faults)
    assert {s.kafka_assignor for s in classic} == {"range", "cooperative-sticky", "sticky"}
    assert {s.kafka_assignor for s in consumer} == {"range", "uniform"}
    assert {s.is_planned for s in consumer if s.faults} == {True, False}


def test_some_seeds_have_kafka_producers_of_every_kind() -> None:
    scenarios = [draw(seed) for seed in MANY_SEEDS]
    found = [scenario for scenario in scenarios if scenario.kafka_producers]
    assert len(found) > len(MANY_SEEDS) // 20
    assert all(scenario.has_kafka for scenario in found)
    assert not any(fault.kind == "rot_table" for s in found for fault in s.faults)
    assert {s.kafka_transactional for s in found} == {0, 1, 2, 3}
    assert {s.kafka_producers > s.kafka_transactional for s in found} == {True, False}
    assert {s.kafka_transaction_version for s in found} == {"1", "2", "both"}
    assert {s.flush for s in found} == {"async", "sync"}
    targets = {fault.target for s in found for fault in s.faults}
    assert targets >= {"kafka-producer-0", "kafka-producer-1", "kafka-producer-2"}


def test_some_seeds_have_a_share_group() -> None:
    shares = [scenario for seed in SEEDS if (scenario := draw(seed)).share_members]
    assert len(SEEDS) // 10 < len(shares) < len(SEEDS) // 4
    assert {s.share_members for s in shares} == {1, 2, 3, 4}
    assert {s.share_lock_ms for s in shares} == {1_000, 3_000, 10_000, 30_000}
    assert {s.share_deliveries_max for s in shares} == {2, 5, 25}
    assert {s.share_renewals for s in shares} == {True, False}
    targets = {fault.target for s in shares for fault in s.faults}
    assert {"share", "share-0", "share-1"} <= targets


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
