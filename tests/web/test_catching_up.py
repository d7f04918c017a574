"""The pasts of several brokers, one read faster than another, are put together in the order of their times."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.ledger.stream import LedgerMessage
from steelyard.types import MessageQueue
from steelyard.web import catching_up
from steelyard.web.catching_up import PATIENCE_MS, Merge

A, B = (MessageQueue("T", broker, 0) for broker in "ab")


def message(at: int, broker: str = "a") -> LedgerMessage:
    return LedgerMessage((broker, 0, at), at, b"")


def times(merge: Merge, now: int = 0) -> list[int]:
    return [one.at for one in merge.take(now)]


def test_nothing_is_given_out_before_it_is_known_who_is_there() -> None:
    merge = Merge(0)
    merge.add(A, [message(1)], 0, is_at_end=True)
    assert times(merge, PATIENCE_MS) == []
    merge.expect("", [A], PATIENCE_MS)
    assert times(merge, PATIENCE_MS) == [1]
    assert merge.is_complete


def test_a_queue_is_given_out_as_far_as_the_others_were_read() -> None:
    merge = Merge(0)
    merge.expect("", [A, B], 0)
    merge.add(A, map(message, (1, 2, 5, 9)), 0, is_at_end=True)
    assert times(merge) == []
    assert merge.missing() == ["b"]
    merge.add(B, [message(4, "b")], 0, is_at_end=False)
    assert times(merge) == [1, 2, 4]
    assert not merge.is_complete
    merge.add(B, [message(6, "b")], 0, is_at_end=True)
    assert sorted(times(merge)) == [5, 6, 9]
    assert merge.is_complete
    merge.add(B, [message(3, "b")], 0, is_at_end=False)
    assert times(merge) == [3]


def test_an_absent_broker_is_waited_for_as_long_as_nameservers_would() -> None:
    merge = Merge(0)
    merge.expect("b", [A], 0)
    merge.add(A, [message(1)], 0, is_at_end=True)
    assert times(merge, PATIENCE_MS - 1) == []
    assert times(merge, PATIENCE_MS) == [1]
    assert (merge.is_complete, merge.missing(), sorted(merge.left_out)) == (True, ["b"], ["b"])
    merge.expect("b", [A, B], PATIENCE_MS)
    merge.add(B, [], PATIENCE_MS, is_at_end=True)
    assert merge.missing() == []


def test_a_broker_that_falls_silent_on_the_way_is_not_waited_for_either() -> None:
    merge = Merge(0)
    merge.expect("", [A, B], 0)
    merge.add(B, [message(2, "b")], 0, is_at_end=False)
    merge.add(A, map(message, (1, 3)), 0, is_at_end=True)
    assert times(merge) == [1, 2]
    assert times(merge, PATIENCE_MS) == [3]
    assert (merge.is_complete, merge.missing()) == (True, ["b"])


def test_without_any_answer_there_is_nothing_to_show() -> None:
    merge = Merge(0)
    merge.expect("", [A, B], 0)
    assert times(merge, 10 * PATIENCE_MS) == []
    assert not merge.is_complete


def test_a_full_queue_waits_for_the_others_and_is_not_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catching_up, "WAITING_MAX", 2)
    merge = Merge(0)
    merge.expect("", [A, B], 0)
    merge.add(A, map(message, (5, 6)), 0, is_at_end=False)
    assert merge.is_full(A)
    merge.add(B, [message(1, "b")], PATIENCE_MS, is_at_end=False)
    assert times(merge, PATIENCE_MS) == [1]
    assert merge.left_out == frozenset()
    merge.add(B, [message(9, "b")], PATIENCE_MS, is_at_end=False)
    assert times(merge, PATIENCE_MS) == [5, 6]
    assert not merge.is_full(A)


@given(
    st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_whoever_is_faster_the_pasts_come_in_order_and_whole(
    pasts: list[list[int]], rng: Random
) -> None:
    merge = Merge(0)
    queues = [MessageQueue("T", f"b{number}", 0) for number in range(len(pasts))]
    merge.expect("", queues, 0)
    left = [sorted(past) for past in pasts]
    taken: list[int] = []
    while not merge.is_complete:
        number = rng.randrange(len(left))
        merge.add(
            queues[number], map(message, left[number][:2]), 0, is_at_end=len(left[number]) <= 2
        )
        del left[number][:2]
        batch = sorted(times(merge))
        assert not taken or not batch or taken[-1] <= batch[0]
        taken += batch
    assert taken == sorted(at for past in pasts for at in past)
