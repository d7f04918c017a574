"""Prints the line coverage of each room after `./dev coverage`; fails if one is below its floor.

Floors are in pyproject.toml, `[tool.steelyard.coverage_floors]`, in percent. Processes started by
tests count, unless they are killed. With `--show` it never fails. The lines themselves are in
build/coverage/index.html.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build/coverage"
LINES = FOLDER / "lines.json"
PACKAGE = "src/steelyard/"


def floors() -> dict[str, int]:
    """Percent by room."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted: dict[str, int] = project["tool"]["steelyard"]["coverage_floors"]
    return wanted


def room(path: str) -> str:
    """The package or module below `steelyard` that a file is in."""
    return path.removeprefix(PACKAGE).split("/")[0].removesuffix(".py")


def covered(files: dict[str, tuple[int, int]]) -> dict[str, float]:
    """Return the percentage of lines run, by room; `files`: lines and lines run, by path."""
    lines: defaultdict[str, int] = defaultdict(int)
    run: defaultdict[str, int] = defaultdict(int)
    for path, (of_file, run_of_file) in files.items():
        lines[room(path)] += of_file
        run[room(path)] += run_of_file
    return {name: 100 * run[name] / lines[name] for name in sorted(lines) if lines[name]}


def below(found: dict[str, float], wanted: dict[str, int]) -> list[str]:
    """What is wrong, a line each."""
    wrong = [
        f"{name} has {found[name]:.1f} % of its lines run, its floor is {floor} %"
        for name, floor in wanted.items()
        if name in found and found[name] < floor
    ]
    wrong += [f"{name} has no floor in pyproject.toml" for name in sorted(found.keys() - wanted)]
    return wrong + [f"{name} has a floor, and no lines" for name in sorted(wanted - found.keys())]


def measured() -> dict[str, float]:
    """Percent by room, of what was recorded."""
    for step in (
        ("combine", "--quiet"),
        ("json", "--quiet", "-o", str(LINES)),
        ("html", "--quiet", "-d", str(FOLDER)),
    ):
        subprocess.run((sys.executable, "-m", "coverage", *step), cwd=ROOT, check=True)
    files = json.loads(LINES.read_text("utf-8"))["files"]
    summaries = {path: file["summary"] for path, file in files.items()}
    return covered(
        {path: (each["num_statements"], each["covered_lines"]) for path, each in summaries.items()}
    )


def main(arguments: list[str]) -> int:
    found, wanted = measured(), floors()
    for name, percent in found.items():
        print(f"{name:<18} {percent:5.1f} %   floor {wanted.get(name, 0):3} %")
    wrong = [] if "--show" in arguments else below(found, wanted)
    for line in wrong:
        print(f"coverage: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
