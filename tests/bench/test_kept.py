"""What runs of the rebalance bench kept: each client and event from the newest run that played it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.kept import Result, new_file, newest, pauses_ns, runs

CELL = {"client": "librdkafka, range", "event": "scale-out 1→2→4"}


def played(ns: int, **cell: str) -> Result:
    return {**CELL, "brokers": "apache", **cell, "stages": [{"moved_ns": [ns]}]}


def failed(**cell: str) -> Result:
    return {**CELL, "brokers": "apache", **cell, "failed": "no members"}


def test_a_run_never_replaces_the_file_of_another(tmp_path: Path) -> None:
    for number in range(11):
        new_file(tmp_path, "2026-11-25").write_text(json.dumps({"number": number}))
    new_file(tmp_path, "2026-11-24").write_text("{}")
    (tmp_path / "2026-11-26.json").write_text("of another bench")
    kept = runs(tmp_path)
    assert list(kept)[:3] == ["2026-11-24", "2026-11-25", "2026-11-25-2"]
    assert [run["number"] for run in list(kept.values())[1:]] == list(range(11))


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([played(2)], [(2, "b")]),
        ([played(2), failed()], [(2, "b")]),
        ([failed()], [(1, "a")]),
        ([played(2, event="scale-in 4→2→1")], [(1, "a"), (2, "b")]),
        ([played(2, client="RocketMQ Go")], [(1, "a"), (2, "b")]),
    ],
)
def test_what_a_run_did_not_play_stays(
    later: list[Result], expected: list[tuple[int, str]]
) -> None:
    rows = newest({"a": {"rows": [played(1)]}, "b": {"rows": later}})
    assert [(row["stages"][0]["moved_ns"][0], row["run"]) for row in rows if "stages" in row] == [
        *expected
    ]


def test_a_client_whose_only_run_failed_is_shown_as_failed() -> None:
    rows = newest({"a": {"rows": [failed()]}})
    assert [row["failed"] for row in rows] == ["no members"]
    assert pauses_ns([*rows, played(7), played(8)]) == [7, 8]
