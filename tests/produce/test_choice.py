from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from steelyard.produce.choice import QueueChoice
from steelyard.types import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in "ab" for number in range(3)]


@given(seed=st.integers(0, 1000))
def test_every_queue_in_turn_from_a_random_start(seed: int) -> None:
    choice = QueueChoice(random.Random(seed))
    chosen = [choice.choose("T", QUEUES) for _ in range(12)]
    start = QUEUES.index(chosen[0])
    assert chosen == [QUEUES[(start + step) % 6] for step in range(12)]


def test_the_starts_differ() -> None:
    starts = {QueueChoice(random.Random(seed)).choose("T", QUEUES) for seed in range(40)}
    assert starts == set(QUEUES)


@given(seed=st.integers(0, 1000))
def test_a_retry_goes_to_another_broker_if_there_is_one(seed: int) -> None:
    choice = QueueChoice(random.Random(seed))
    assert {choice.choose("T", QUEUES, "a").broker_name for _ in range(8)} == {"b"}
    only_a = QUEUES[:3]
    assert {choice.choose("T", only_a, "a") for _ in range(3)} == set(only_a)


def test_topics_have_turns_of_their_own() -> None:
    choice = QueueChoice(random.Random(1))
    first = choice.choose("T", QUEUES)
    choice.choose("U", QUEUES)
    assert choice.choose("T", QUEUES) == QUEUES[(QUEUES.index(first) + 1) % 6]
