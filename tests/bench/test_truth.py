"""The comparison of the ledger with what listeners logged, in miniature: members join and leave, and nothing is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.costs import MS, Delivery
from bench.runs import Stage, Watch
from bench.truth import BROKER_RETURNS, Figures, Series, drain_ms, moves_of, rows

ROOT = Path(__file__).parents[2]


def figures(folder: Path, case: str) -> list[list[str]]:
    """The table of the cases with this in their names, played in miniature: event, figure, listeners, ledger, and whether true."""
    command = [sys.executable, str(ROOT / "bench" / "truth.py"), "--tiny", "--out", str(folder)]
    done = subprocess.run([*command, "--case", case], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "TRUTH.md").read_text().splitlines()
    cells = [line.split("|")[2:-1] for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in cells[1:]]


def test_tiny_case(tmp_path: Path) -> None:
    cells = [row[1:] for row in figures(tmp_path, "clean")]
    moved = [row[1:] for row in cells if row[0] == "queues moved"]
    assert moved == [["2", "2", "yes"], ["1", "1", "yes"], ["1", "1", "yes"]] * 2
    again = [row[1:] for row in cells if row[0] == "reprocessed"]
    assert [row[2] for row in again] == ["yes"] * 6
    assert again[:3] == [["0", "0", "yes"]] * 3  # members that hand over cleanly


def test_a_queue_that_stands_still_until_the_next_stage_moved_in_this_one(tmp_path: Path) -> None:
    """Its broker stops at 1 000 and returns at 8 000; a had queue 7 before, and b has it from 8 500 on."""
    watch = Watch(tmp_path, 1)
    watch.deliveries[7] += [Delivery(900 * MS, "a", 0), Delivery(8_500 * MS, "b", 1)]
    watch.deliveries[8] += [Delivery(8_400 * MS, "a", 0), Delivery(8_600 * MS, "b", 1)]
    for queue, at in ((7, 950), (8, 8_450)):
        watch.sent.add(0, queue, 0)
        watch.sent.add(at * MS, queue, 1)
    ends = [8_000 * MS, 20_000 * MS]
    stop, start = (
        Stage(step, at * MS, at * MS, at * MS, end, settled=True)
        for step, at, end in zip(BROKER_RETURNS.steps, (1_000, 8_000), ends, strict=True)
    )
    watch.close()
    moved = moves_of(watch, [stop, start], ends)
    seen = [[(m.queue, m.pause_ns // MS, m.after_ns // MS) for m in of_stage] for of_stage in moved]
    assert seen == [[(7, 7_550, 7_500)], []]


SEEN = Figures({1: 1_000}, {2: 300}, {2: 300, 3: 210}, (0, 400), (5, 5), 200, 3_000, 20)


def test_what_counts_as_true() -> None:
    def wrong(**told: Any) -> list[str]:
        same = SEEN._replace(near_stalls={}, began_ms=(100, 100))
        return [row[2] for row in rows("c", "e", SEEN, same._replace(**told)) if row[-1] != "yes"]

    assert wrong() == []
    assert wrong(pauses={1: 1_050}, stalls={2: 340, 3: 205}, drain_ms=2_100) == []
    assert wrong(pauses={1: 1_051}) == ["longest pause, ms", "largest error of a pause, ms"]
    assert "queues moved" in wrong(pauses={1: 1_000, 4: 0})
    assert wrong(stalls={3: 205}) == ["queues stalled", "longest stall, ms"]
    assert wrong(began_ms=(1_401, 1_401)) == ["began, ms after it"]
    assert wrong(reprocessed=(0, 4)) == ["reprocessed"]
    assert wrong(reprocessed=(0, 9), peak=237) == []
    assert wrong(peak=238) == ["peak backlog"]
    assert wrong(drain_ms=4_100) == wrong(drain_ms=None) == ["drain, ms"]


def test_a_backlog_is_back_when_it_has_fallen_to_what_is_usual_after_its_peak() -> None:
    waiting = Series([0, 10 * MS, 20 * MS, 30 * MS, 40 * MS], [3, 9, 4, 7, 3])
    assert [drain_ms(waiting, 5 * MS, 50 * MS, usual) for usual in (9, 4, 3, 2)] == [
        0,
        15,
        35,
        None,
    ]
