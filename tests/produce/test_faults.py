from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.produce.faults import FAULT_TABLES, Failure, FaultStrategy, pause_ms

NOW = 1_700_000_000_000
FOUR, FIVE = FAULT_TABLES["4.x"], FAULT_TABLES["5.x"]


def faults(version: str = "5.x", *, detecting: bool = False) -> FaultStrategy:
    return FaultStrategy(FAULT_TABLES[version], random.Random(7), detecting=detecting)


@pytest.mark.parametrize(
    ("latency_ms", "four_ms", "five_ms"),
    [
        (0, 0, 0),
        (49, 0, 0),
        (50, 0, 0),
        (549, 0, 0),
        (550, 30_000, 2_000),
        (999, 30_000, 2_000),
        (1_000, 60_000, 2_000),
        (1_799, 60_000, 2_000),
        (1_800, 60_000, 5_000),
        (2_000, 120_000, 5_000),
        (2_999, 120_000, 5_000),
        (3_000, 180_000, 6_000),
        (4_999, 180_000, 6_000),
        (5_000, 180_000, 10_000),
        (14_999, 180_000, 10_000),
        (15_000, 600_000, 30_000),
        (10**9, 600_000, 30_000),
    ],
)
def test_pauses_by_hand_from_both_sources(latency_ms: int, four_ms: int, five_ms: int) -> None:
    """computeNotAvailableDuration of 4.9.8 and 5.3.3."""
    assert (pause_ms(FOUR, latency_ms), pause_ms(FIVE, latency_ms)) == (four_ms, five_ms)


@pytest.mark.parametrize(
    ("version", "failure", "detecting", "pause", "reachable"),
    [
        ("4.x", Failure.NO_REPLY, False, 600_000, True),
        ("4.x", Failure.REFUSED, False, 600_000, True),
        ("4.x", Failure.NO_ROUTE, False, 600_000, True),
        ("5.x", Failure.NO_REPLY, False, 10_000, True),
        ("5.x", Failure.NO_REPLY, True, 10_000, False),
        ("5.x", Failure.REFUSED, False, 10_000, False),
        ("5.x", Failure.REFUSED, True, 10_000, False),
        ("5.x", Failure.NO_ROUTE, False, 0, True),
    ],
)
def test_what_a_failure_costs(
    version: str, failure: Failure, detecting: bool, pause: int, reachable: bool
) -> None:
    """The calls of updateFaultItem in sendDefaultImpl: an isolation counts as 30 s in 4.x, as 10 s in 5.x."""
    known = faults(version, detecting=detecting)
    known.failed("a", failure, 3, NOW)
    assert known.reachable("a") is reachable
    assert [known.available("a", NOW + wait) for wait in (pause - 1, pause)] == [pause == 0, True]
    assert known.available("b", NOW)
    assert known.reachable("b")


def test_a_quick_answer_ends_the_pause_in_4x_only() -> None:
    for version, available in (("4.x", True), ("5.x", False)):
        known = faults(version)
        known.failed("a", Failure.NO_REPLY, 3, NOW)
        known.answered("a", 3, NOW + 1)
        assert known.available("a", NOW + 1) is available
        assert known.reachable("a")


def test_a_pause_of_5x_is_only_ever_prolonged() -> None:
    known = faults()
    known.answered("a", 15_000, NOW)
    known.answered("a", 600, NOW + 1)
    assert not known.available("a", NOW + 29_999)
    assert known.available("a", NOW + 30_000)


def test_who_returned_is_reachable_but_its_pause_goes_on() -> None:
    known = faults(detecting=True)
    for broker in ("a", "b", "c"):
        known.failed(broker, Failure.NO_REPLY, 3, NOW)
    known.answered("b", 3, NOW)
    assert known.unreachable() == ["a", "c"]
    known.returned("a")
    known.returned("unknown")
    assert (known.unreachable(), known.available("a", NOW)) == (["c"], False)
    known.forget("c")
    assert (known.unreachable(), known.available("c", NOW)) == ([], True)


def test_the_least_bad_half_in_turn() -> None:
    """compareTo of 4.9.8: available first, then the lower latency, then who is available earlier."""
    known = faults("4.x")
    assert known.pick_one_at_least(NOW) is None
    known.answered("slow", 2_000, NOW)  # for 120 s
    assert known.pick_one_at_least(NOW) == "slow"
    known.answered("quick", 10, NOW)
    assert {known.pick_one_at_least(NOW) for _ in range(4)} == {"quick"}
    known.answered("dead", 20_000, NOW)
    known.answered("late", 2_000, NOW + 5)
    assert {known.pick_one_at_least(NOW + 5) for _ in range(4)} == {"quick", "slow"}
    later = NOW + 120_000
    assert [known.pick_one_at_least(later), known.pick_one_at_least(later)].count("slow") == 1


BROKERS = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(BROKERS, st.sampled_from([None, *Failure]), st.integers(0, 20_000)), max_size=12
)


@given(st.sampled_from(["4.x", "5.x"]), st.booleans(), STEPS, st.integers(0, 100))
def test_laws(
    version: str,
    detecting: bool,
    steps: list[tuple[str, Failure | None, int]],
    seed: int,
) -> None:
    """Somebody is always picked of the known; the better half is never worse than the rest; nobody is avoided forever."""
    known = FaultStrategy(FAULT_TABLES[version], random.Random(seed), detecting=detecting)
    now = NOW
    for broker, failure, latency in steps:
        now += 7
        if failure is None:
            known.answered(broker, latency, now)
            assert known.reachable(broker)
        else:
            known.failed(broker, failure, latency, now)
    met = {broker for broker, _, _ in steps}
    assert set(known.unreachable()) == {b for b in met if not known.reachable(b)}
    picked = known.pick_one_at_least(now)
    assert (picked in met) if met else picked is None
    if len([b for b in met if known.available(b, now)]) > len(met) // 2:
        assert picked is not None
        assert known.available(picked, now)
    assert all(known.available(broker, now + 600_000) for broker in met)
