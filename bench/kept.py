"""What runs of `./dev bench rebalance` kept: a file for each run, and of each client and event the newest rows.

A run may have played a few clients and events only. Its file, `rebalance-DATE.json`, stays as it is; a later one of the same day is
`rebalance-DATE-2.json`. Tables and the demo take each client and event from the newest run that played it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

Result = dict[str, Any]

RESULTS = Path(__file__).resolve().parent / "results"
_PREFIX = "rebalance-"


def new_file(folder: Path, date: str) -> Path:
    """Where a run of that day is kept, in a folder that may have others of the day."""
    names: Iterator[str] = (date if n == 1 else f"{date}-{n}" for n in count(1))
    paths = (folder / f"{_PREFIX}{name}.json" for name in names)
    return next(path for path in paths if not path.exists())


def runs(folder: Path = RESULTS) -> dict[str, Result]:
    """All runs by name, which is the date, and a number for further ones of a day; the oldest first."""
    names = [path.stem.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*.json")]
    names.sort(key=lambda name: (name[:10], int(name[11:] or 1)))
    return {name: json.loads((folder / f"{_PREFIX}{name}.json").read_text()) for name in names}


def newest(kept: Mapping[str, Result]) -> list[Result]:
    """The rows of each client and event from the newest run that played it, with the name of the `run`.

    A run in which every round of a client and event failed does not count for it, unless there is no other.
    """
    found: dict[tuple[str, str], list[Result]] = {}
    for name, run in kept.items():
        cells: dict[tuple[str, str], list[Result]] = {}
        for row in run["rows"]:
            cells.setdefault((row["client"], row["event"]), []).append({**row, "run": name})
        found |= {
            key: rows
            for key, rows in cells.items()
            if key not in found or any("failed" not in row for row in rows)
        }
    return [row for rows in found.values() for row in rows]


def pauses_ns(rows: Iterable[Result]) -> list[int]:
    """The pauses of all queues that moved, in all steps of these rows."""
    return [ns for row in played(rows) for stage in row["stages"] for ns in stage["moved_ns"]]


def played(rows: Iterable[Result]) -> Sequence[Result]:
    """Those that did not fail."""
    return [row for row in rows if "failed" not in row]
