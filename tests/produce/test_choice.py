from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.produce.choice import QueueChoice, queue_of_key
from steelyard.produce.faults import FAULT_TABLES, Failure, FaultStrategy
from steelyard.types import MessageQueue

NOW = 1_700_000_000_000
QUEUES = [MessageQueue("T", broker, number) for broker in "ab" for number in range(3)]


def with_faults(version: str, *, detecting: bool = False) -> tuple[QueueChoice, FaultStrategy]:
    rng = random.Random(3)
    faults = FaultStrategy(FAULT_TABLES[version], rng, detecting=detecting)
    return QueueChoice(rng, faults), faults


@given(seed=st.integers(0, 1000))
def test_every_queue_in_turn_from_a_random_start(seed: int) -> None:
    choice = QueueChoice(random.Random(seed))
    chosen = [choice.choose("T", QUEUES, NOW) for _ in range(12)]
    start = QUEUES.index(chosen[0])
    assert chosen == [QUEUES[(start + step) % 6] for step in range(12)]


def test_the_starts_differ() -> None:
    starts = {QueueChoice(random.Random(seed)).choose("T", QUEUES, NOW) for seed in range(40)}
    assert starts == set(QUEUES)


@given(seed=st.integers(0, 1000))
def test_a_retry_goes_to_another_broker_if_there_is_one(seed: int) -> None:
    choice = QueueChoice(random.Random(seed))
    assert {choice.choose("T", QUEUES, NOW, "a").broker_name for _ in range(8)} == {"b"}
    only_a = QUEUES[:3]
    assert {choice.choose("T", only_a, NOW, "a") for _ in range(3)} == set(only_a)


def test_topics_have_turns_of_their_own() -> None:
    choice = QueueChoice(random.Random(1))
    first = choice.choose("T", QUEUES, NOW)
    choice.choose("U", QUEUES, NOW)
    assert choice.choose("T", QUEUES, NOW) == QUEUES[(QUEUES.index(first) + 1) % 6]


@pytest.mark.parametrize("version", ["4.x", "5.x"])
def test_a_broker_that_failed_gets_nothing_until_its_pause_is_over(version: str) -> None:
    choice, faults = with_faults(version)
    faults.failed("a", Failure.NO_REPLY, 3, NOW)
    pause = {"4.x": 600_000, "5.x": 10_000}[version]
    assert {choice.choose("T", QUEUES, NOW + pause - 1) for _ in range(9)} == set(QUEUES[3:])
    assert {choice.choose("T", QUEUES, NOW + pause) for _ in range(9)} == set(QUEUES)


def test_in_4x_the_least_bad_gets_all_when_nobody_is_available() -> None:
    choice, faults = with_faults("4.x")
    faults.answered("a", 16_000, NOW)
    faults.answered("b", 600, NOW)
    assert {choice.choose("T", QUEUES, NOW) for _ in range(3)} == set(QUEUES[3:])


def test_in_4x_a_least_bad_broker_without_the_topic_is_forgotten() -> None:
    choice, faults = with_faults("4.x")
    faults.answered("other", 600, NOW)
    faults.answered("a", 16_000, NOW)
    only_a = QUEUES[:3]
    assert choice.choose("T", only_a, NOW) in only_a
    assert faults.available("other", NOW)
    assert {choice.choose("T", only_a, NOW) for _ in range(3)} == set(only_a)


def test_in_5x_a_slow_broker_comes_before_one_that_cannot_be_reached() -> None:
    choice, faults = with_faults("5.x", detecting=True)
    faults.failed("a", Failure.NO_REPLY, 3, NOW)
    faults.answered("b", 16_000, NOW)
    assert {choice.choose("T", QUEUES, NOW).broker_name for _ in range(9)} == {"b"}
    faults.failed("b", Failure.NO_REPLY, 3, NOW)
    assert {choice.choose("T", QUEUES, NOW) for _ in range(6)} == set(QUEUES)


def test_in_5x_a_retry_starts_anywhere() -> None:
    """`resetIndex`: what follows a retry does not follow from what came before it."""
    firsts = set()
    for seed in range(40):
        rng = random.Random(seed)
        choice = QueueChoice(rng, FaultStrategy(FAULT_TABLES["5.x"], random.Random(0)))
        first = choice.choose("T", QUEUES, NOW)
        again = choice.choose("T", QUEUES, NOW, "none")
        firsts.add((QUEUES.index(again) - QUEUES.index(first)) % 6)
    assert firsts == set(range(6))


STATES = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from(["slow", "refused", "lost"]), max_size=3
)


@given(
    version=st.sampled_from(["4.x", "5.x"]),
    states=STATES,
    avoid=st.sampled_from(["", "a", "b"]),
    seed=st.integers(0, 50),
)
def test_the_better_broker_is_always_preferred(
    version: str, states: dict[str, str], avoid: str, seed: int
) -> None:
    """Available ones before all; in 5.x then reachable ones; and there is always a queue."""
    queues = [MessageQueue("T", broker, number) for broker in "abc" for number in range(2)]
    rng = random.Random(seed)
    faults = FaultStrategy(FAULT_TABLES[version], rng, detecting=True)
    for broker, state in states.items():
        if state == "slow":
            faults.answered(broker, 16_000, NOW)
        else:
            faults.failed(broker, Failure[{"lost": "NO_REPLY"}.get(state, "REFUSED")], 3, NOW)
    chosen = QueueChoice(rng, faults).choose("T", queues, NOW, avoid).broker_name
    others = [broker for broker in "abc" if version == "4.x" or broker != avoid]
    available = [broker for broker in others if faults.available(broker, NOW)]
    reachable = [broker for broker in others if faults.reachable(broker)]
    if available:
        assert chosen in available
    elif version == "5.x" and reachable:
        assert chosen in reachable


@pytest.mark.parametrize(
    ("key", "position"),
    [
        ("a", 1),  # 97
        ("FB", 4),  # 2236, as "Ea"
        ("Ea", 4),
        ("order-1", 2),  # -1207111310
        ("polygenelubricants", 2),  # Integer.MIN_VALUE, whose abs() Java cannot say
    ],
)
def test_a_key_leads_to_the_queue_that_java_chooses(key: str, position: int) -> None:
    """value = key.hashCode() % size, then abs: SelectMessageQueueByHash."""
    assert queue_of_key(QUEUES, key) == QUEUES[position]
