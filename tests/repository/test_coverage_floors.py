"""`./dev coverage`: lines are added up by room, and every room has a floor."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = runpy.run_path(str(ROOT / "tools/coverage_floors.py"))


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("src/steelyard/types.py", "types"),
        ("src/steelyard/wire/kafka/apis.py", "wire"),
        ("src/steelyard/__init__.py", "__init__"),
    ],
)
def test_the_room_of_a_file(path: str, room: str) -> None:
    assert PROGRAM["room"](path) == room


def test_lines_are_added_up_by_room() -> None:
    files = {
        "src/steelyard/wire/one.py": (100, 90),
        "src/steelyard/wire/kafka/two.py": (300, 300),
        "src/steelyard/types.py": (10, 5),
        "src/steelyard/routes/__init__.py": (0, 0),
    }
    assert PROGRAM["covered"](files) == {"types": 50.0, "wire": 97.5}


def test_what_is_below_its_floor_or_has_none_is_told() -> None:
    found = {"types": 50.0, "wire": 97.5, "store": 99.0}
    assert PROGRAM["below"](found, {"types": 50, "wire": 97, "store": 99}) == []
    assert PROGRAM["below"](found, {"types": 51, "wire": 98, "gone": 1}) == [
        "types has 50.0 % of its lines run, its floor is 51 %",
        "wire has 97.5 % of its lines run, its floor is 98 %",
        "store has no floor in pyproject.toml",
        "gone has a floor, and no lines",
    ]


def test_every_room_has_a_floor() -> None:
    sources = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src/steelyard").rglob("*.py")]
    assert {PROGRAM["room"](path) for path in sources} == set(PROGRAM["floors"]())
