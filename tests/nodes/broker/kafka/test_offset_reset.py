"""share.auto.offset.reset: where share groups begin, and how far back."""

from __future__ import annotations

import pytest

from steelyard.nodes.broker.kafka.cluster.offset_reset import age_ms, strategy_fault


@pytest.mark.parametrize(
    ("duration", "age"),
    [
        ("PT1S", 1_000),
        ("PT1.5S", 1_500),
        ("PT0.0019S", 1),
        ("P1D", 86_400_000),
        ("P1DT2H3M4S", 93_784_000),
        ("PT1H", 3_600_000),
        ("pt1m", 60_000),
        *[(wrong, None) for wrong in ("", "P", "PT", "P1DT", "1H", "PT-1S", "P1Y", "PT1H2H")],
    ],
)
def test_durations(duration: str, age: int | None) -> None:
    strategy = f"by_duration:{duration}"
    assert age_ms(strategy) == age
    assert bool(strategy_fault(strategy)) == (age is None)


@pytest.mark.parametrize("strategy", ["earliest", "latest"])
def test_other_strategies(strategy: str) -> None:
    assert age_ms(strategy) is None
    assert not strategy_fault(strategy)


@pytest.mark.parametrize("strategy", ["none", "by_duration", "Latest", ""])
def test_what_is_no_strategy(strategy: str) -> None:
    assert "either" in strategy_fault(strategy)
