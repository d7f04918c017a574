"""The bench of compaction at its smallest: both runs write, and one of them is compacted."""

from __future__ import annotations

from bench import compaction


def test_both_runs_take_what_they_are_given() -> None:
    for interval_ms in (0, 50):
        found = compaction.measure(interval_ms, 1.0)
        assert 0 < found.p50 <= found.p99 <= found.longest
        assert found.written >= compaction.PER_TICK
