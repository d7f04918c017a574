"""The rebalance benchmark runs, in miniature: one scenario, nothing lost, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.generations import table as first_table
from bench.rebalance import line, report, table
from bench.runs import Result

ROOT = Path(__file__).parents[2]


def test_tiny_grid(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "rebalance.py"), "--tiny", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results").iterdir()
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["client"], row["event"], row["brokers"]) == (
        "steelyard",
        "scale-out 1→2→4",
        "steelyard",
    )
    assert [(stage["event"], stage["settled"], len(stage["moves"])) for stage in row["stages"]] == [
        ("start m1", True, 2),
        ("start m2 m3", True, 3),
    ]
    assert (row["lost"], row["duplicates"]) == (0, 0)
    assert row["deliveries"] >= row["messages"] > 0
    assert (
        "| steelyard | scale-out 1→2→4 | steelyard | 5 |" in (tmp_path / "REBALANCE.md").read_text()
    )


def played(moved_ms: list[int], stayed_ms: list[int], shared_s: float) -> Result:
    stage = {
        "settled": True,
        "shared_s": shared_s,
        "moved_ns": [ms * 1_000_000 for ms in moved_ms],
        "stayed_ns": [ms * 1_000_000 for ms in stayed_ms],
    }
    cell = {"client": "steelyard", "event": "SIGKILL of 1 of 4", "brokers": "apache"}
    return {**cell, "stages": [stage], "duplicates": 3, "lost": 1}


def test_a_row_has_the_percentiles_of_all_rounds_and_the_slowest_step() -> None:
    rows = [played([1, 2, 3], [7], 0.5), played([400], [], 2.25)]
    told = "| steelyard | SIGKILL of 1 of 4 | apache | 4 | 2 | 400 | 400 | 7 | 7 | 6 | 2 | 2.25 |"
    assert line(rows) == told


def test_rounds_that_failed_are_counted_and_in_no_figure() -> None:
    (row,) = [played([10], [], 0.1)]
    failed = {key: row[key] for key in ("client", "event", "brokers")} | {"failed": "no members"}
    assert line([row, failed]).endswith("| 10 | 10 | 10 | 0 | 0 | 3 | 1 | 0.10 (1 failed) |")
    assert line([failed]).endswith("| 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0.00 (1 failed) |")


def test_steelyard_comes_before_apache_and_clients_in_their_order() -> None:
    one = played([1], [], 1)
    cells = [("RocketMQ Go", "apache"), ("RocketMQ Go", "steelyard"), ("steelyard", "apache")]
    rows = [one | {"client": client, "brokers": brokers} for client, brokers in cells]
    told = [line.split(" | ")[:3:2] for line in table(rows).splitlines()[2:]]
    assert told == [[f"| {client}", brokers] for client, brokers in (cells[2], cells[1], cells[0])]


def test_the_page_has_what_an_earlier_run_played_and_the_conditions_of_both() -> None:
    place = dict.fromkeys(("processor", "memory", "system", "python", "java"), "that of all")
    size = dict.fromkeys(("rounds", "queues", "messages_per_s", "message_bytes", "batch"), 5)
    size |= dict.fromkeys(("work_ms", "deadline_s", "quiet_s", "warm_up_s"), 3)
    common = {"machine": place, "size": size, "apache": {"Kafka": "4.3.1"}}
    go, ours = (
        played([ms], [], 1) | {"client": name}
        for ms, name in ((70, "RocketMQ Go"), (4, "steelyard"))
    )
    del go["stages"][0]["stayed_ns"]
    page = report(
        {
            "2026-11-21": {**common, "rows": [go, {**ours, "duplicates": 9}], "note": "By hand."},
            "2026-11-25": {
                **common,
                "rows": [ours],
                "load": [1.0, 2.5],
                "options": ["--set", "x=1"],
            },
        }
    )
    assert [line for line in page.splitlines() if "SIGKILL of 1 of 4" in line] == [
        "| steelyard | SIGKILL of 1 of 4 | apache | 1 | 4 | 4 | 4 | 0 | 0 | 3 | 1 | 1.00 | 2026-11-25 |",
        "| RocketMQ Go | SIGKILL of 1 of 4 | apache | 1 | 70 | 70 | 70 | – | – | 3 | 1 | 1.00 | 2026-11-21 |",
    ]
    told = [line for line in page.splitlines() if line.startswith("- Run")]
    assert told[0].startswith(
        "- Run **2026-11-21**: 5 round(s), 10 queues, 5 messages/s of 5 B; Apache Kafka 4.3.1;"
    )
    assert told[0].endswith("that of all. By hand.")
    assert told[1].endswith("; load average 1 to 2; Steelyard's brokers with `--set x=1`.")


def test_the_first_generations_have_their_median_and_longest() -> None:
    def took(brokers: str, held_s: float, *, settled: bool = True) -> Result:
        row = {"client": "librdkafka, range", "members": 5, "brokers": brokers}
        return {**row, "held_s": held_s, "settled": settled}

    rows = [took("apache", s) for s in (3.5, 3.25, 9.0)]
    rows.append(took("steelyard", 1.0, settled=False))
    assert first_table(rows).splitlines() == [
        "| client | members | steelyard | apache |",
        "|---|--:|--:|--:|",
        "| librdkafka, range | 5 | 1.00 / 1.00 (1 never) | 3.50 / 9.00 |",
    ]
