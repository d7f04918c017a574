"""Draws docs/STATES.md from the tables of all state machines: `./dev generate`.

With --check: exit code 1 if it is stale.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import steelyard
from steelyard.machine import Machine

PAGE = Path(__file__).parent / "STATES.md"
SOURCES = Path(steelyard.__file__).parent

HEAD = """\
# State machines

Drawn by `./dev generate` from the tables that the code executes (`src/steelyard/machine.py`); do
not edit. An arrow is an event; a transition without an arrow fails an assertion. The docstring of
each module says what its states mean.
"""


def machines() -> dict[str, Machine[Any, Any]]:
    """All state machines, by the files that declare them."""
    found: dict[str, Machine[Any, Any]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if "] = Machine(" in text:
            name = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
            for key, value in vars(importlib.import_module(name)).items():
                if isinstance(value, Machine) and f"\n{key}: Machine[" in text:
                    found[f"src/{path.relative_to(SOURCES.parent).as_posix()}"] = value
    return found


def page() -> str:
    """What STATES.md should say."""
    parts = [HEAD]
    for path, machine in machines().items():
        title = f"## {machine.title}\n\n[`{path.removeprefix('src/steelyard/')}`](../{path})\n"
        parts.append(f"{title}\n```mermaid\n{machine.diagram()}```\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        stale = not PAGE.exists() or PAGE.read_text() != page()
        if stale:
            print("docs/STATES.md is stale: run ./dev generate", file=sys.stderr)
        return int(stale)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
