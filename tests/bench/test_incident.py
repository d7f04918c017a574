"""The bench of `steelyard pipeline incident`, in miniature: its dump is Kafka's, and its comparison notices what differs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.incident import Group, Rebalance, compare, run_command, write_dump

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Group], Path]:
    """What was written, and the folder of the tables."""
    folder = tmp_path_factory.mktemp("incident")
    groups, _ = write_dump(folder / "dump", 100_000)
    run_command(folder / "dump", folder / "tables")
    return groups, folder / "tables"


def test_everything_is_found(found: tuple[list[Group], Path]) -> None:
    groups, out = found
    check = compare(groups, out)
    assert check.wrong == []
    assert check.rebalances == sum(len(group.rebalances) for group in groups) > 2 * len(groups)
    assert check.pauses > 2 * len(groups)


def other_pause(one: Rebalance) -> Rebalance:
    place, move = next(iter(one.moves.items()))
    return one._replace(moves={**one.moves, place: move._replace(pause_ms=60_000)})


def other_owner(one: Rebalance) -> Rebalance:
    place, move = next(iter(one.moves.items()))
    return one._replace(moves={**one.moves, place: move._replace(new="somebody")})


DIFFERENT: dict[str, Callable[[Rebalance], Rebalance]] = {
    "trigger": lambda one: one._replace(trigger="topics"),
    "member": lambda one: one._replace(after=one.after | {"somebody"}),
    "owner": other_owner,
    "pause": other_pause,
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_difference_is_noticed(found: tuple[list[Group], Path], what: str) -> None:
    groups, out = found
    true = groups[0].rebalances[-1]
    groups[0].rebalances[-1] = DIFFERENT[what](true)
    assert len(compare(groups, out).wrong) == 1
    groups[0].rebalances[-1] = true


def test_a_missing_rebalance_is_noticed(found: tuple[list[Group], Path]) -> None:
    groups, out = found
    true = groups[0].rebalances.pop()
    assert f"{groups[0].name}: " in compare(groups, out).wrong[0]
    groups[0].rebalances.append(true)


def test_page(tmp_path: Path) -> None:
    command = [sys.executable, "bench/incident.py", "--commits", "50000", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "INCIDENT.md").read_text().splitlines()
    cells = [line.split("|")[1:-1] for line in lines if line.startswith("| ") and line[2] != "|"]
    numbers = [number.replace(",", "") for _, number in cells if number != " as written "]
    assert len(numbers) == 10
    assert all(float(number) > 0 for number in numbers)
