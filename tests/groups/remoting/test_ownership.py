from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.groups.remoting.ownership import Holding, HoldingState, Move, QueueChange, diff
from steelyard.types import MessageQueue

QUEUES = st.sets(
    st.builds(MessageQueue, st.sampled_from("TU"), st.sampled_from("ab"), st.integers(0, 5))
)


def test_diff_gives_up_what_is_not_wanted_and_takes_what_is_missing() -> None:
    one, two, three = (MessageQueue("T", "a", number) for number in (1, 2, 3))
    assert diff([two, one], [three, two]) == QueueChange(release=(one,), acquire=(three,))


def test_a_stale_queue_that_stays_is_given_up_and_taken_anew() -> None:
    one, two = (MessageQueue("T", "a", number) for number in (1, 2))
    assert diff([one, two], [one], stale=[one]) == QueueChange(release=(one, two), acquire=(one,))


@given(held=QUEUES, target=QUEUES, stale=QUEUES)
def test_after_a_change_the_target_is_held(
    held: set[MessageQueue], target: set[MessageQueue], stale: set[MessageQueue]
) -> None:
    change = diff(held, target, stale)
    assert set(change.release) <= held
    assert (held - set(change.release)) | set(change.acquire) == target
    assert not (held - set(change.release)) & set(change.acquire)
    assert list(change.release) == sorted(change.release)
    assert list(change.acquire) == sorted(change.acquire)
    assert not diff(target, target).release
    assert not diff(target, target).acquire


def test_a_holding_knows_since_when_it_is_in_its_state() -> None:
    holding = Holding(5)
    assert (holding.state, holding.since) == (HoldingState.LOCKING, 5)
    holding.move(Move.LOCKED, 7)
    assert (holding.state, holding.since) == (HoldingState.ACQUIRING, 7)
    with pytest.raises(AssertionError):
        holding.move(Move.LET_GO, 8)
    assert (holding.state, holding.since) == (HoldingState.ACQUIRING, 7)
