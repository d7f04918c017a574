"""The bit flips, sixty of them: that none passes, and that the mode notices when one does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fuzz import flips

from steelyard.store import check, tables
from steelyard.store.table_records import Entry, Gap, decode


def test_a_short_run_finds_nothing() -> None:
    lines: list[str] = []
    assert flips.fuzz(1, flips=30, say=lines.append) == 0, "\n".join(lines)
    assert lines[0] == "seed 1"
    assert lines[-1] == "30 flips, 0 failures"
    header, *rows = lines[1:-1]
    assert header.split() == ["folder", "file", *flips.OUTCOMES]
    assert sum(int(number) for number in rows[-1].split()[1:]) == 30


def test_tables_that_end_at_damage_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they did once: what followed the damage was cut, and nothing but INFO said so."""

    def up_to_damage(data: bytes) -> Iterator[Entry | Gap]:
        for item in decode(data):
            if isinstance(item, Gap):
                yield Gap(item.position, len(data) - item.position, torn=True)
                return
            yield item

    monkeypatch.setattr(tables, "decode", up_to_damage)
    monkeypatch.setattr(check, "decode", up_to_damage)
    lines: list[str] = []
    failures = flips.fuzz(2, flips=20, kinds=("table",), say=lines.append)
    assert failures
    failed = [line for line in lines if line.startswith(("WRONG", "SILENT", "CRASHED", "REPAIR"))]
    assert len(failed) == min(failures, flips.REPORTS_MAX)
    assert "(seed 2, flip " in failed[0]
