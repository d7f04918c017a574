"""Rates and mean times of the last minute and hour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.consume.statistics import ConsumeStatistics, TopicStatistics

NOON = 1_700_000_000_000


def begun() -> ConsumeStatistics:
    statistics = ConsumeStatistics()
    statistics.begin(NOON)
    return statistics


def test_nothing_is_zero() -> None:
    assert begun().of("T", NOON + 5_000) == TopicStatistics()


def test_of_a_young_consumer_the_rates_are_those_of_its_life() -> None:
    statistics = begun()
    statistics.pulled("T", 20, 30, NOON + 1_000)
    statistics.pulled("T", 40, 10, NOON + 2_000)
    statistics.consumed("T", 6, 20, 0, NOON + 2_000)
    statistics.consumed("T", 2, 0, 4, NOON + 3_000)
    assert statistics.of("T", NOON + 4_000) == TopicStatistics(
        pull_ms=30.0,
        pulled_per_second=10.0,
        consume_ms=4.0,
        consumed_per_second=5.0,
        failed_per_second=1.0,
        failed_in_hour=4,
    )


def test_topics_do_not_mix() -> None:
    statistics = begun()
    statistics.consumed("T", 1, 1, 0, NOON)
    statistics.consumed("%RETRY%g", 9, 0, 1, NOON)
    assert statistics.of("T", NOON + 1_000).failed_in_hour == 0
    assert statistics.of("%RETRY%g", NOON + 1_000).consume_ms == 9.0


def test_what_is_older_than_a_minute_counts_for_the_hour_only() -> None:
    statistics = begun()
    statistics.pulled("T", 20, 30, NOON)
    statistics.consumed("T", 8, 0, 1, NOON)
    assert statistics.of("T", NOON + 70_000) == TopicStatistics(consume_ms=8.0, failed_in_hour=1)
    assert statistics.of("T", NOON + 3_610_000) == TopicStatistics()


@given(
    st.lists(
        st.tuples(st.integers(0, 120_000), st.integers(0, 50), st.integers(1, 9), st.booleans()),
        max_size=60,
    )
)
def test_an_hour_counts_every_failure_once(
    events: list[tuple[int, int, int, bool]],
) -> None:
    statistics = begun()
    now = NOON
    failed = 0
    for wait_ms, took_ms, messages, ok in events:
        now += wait_ms % 40_000
        lost = 0 if ok else messages
        statistics.consumed("T", took_ms, messages - lost, lost, now)
        failed += lost
    assert now - NOON < 3_000_000
    seen = statistics.of("T", now)
    assert seen.failed_in_hour == failed
    times = [took_ms for _, took_ms, _, _ in events]
    assert not times or min(times) <= seen.consume_ms <= max(times)
