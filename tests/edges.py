"""Which edges of a machine's table are taken while something runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import pytest

from steelyard.machine import Machine

Edge = tuple[StrEnum | None, StrEnum, StrEnum]


@contextmanager
def taken_of(machine: Machine[Any, Any]) -> Iterator[set[Edge]]:
    """The edges of this machine that are taken until the block ends."""
    taken: set[Edge] = set()
    move = Machine.move

    def record(
        self: Machine[Any, Any], state: StrEnum | None, event: StrEnum, to: StrEnum | None = None
    ) -> StrEnum:
        after: StrEnum = move(self, state, event, to)
        if self is machine:
            taken.add((state, event, after))
        return after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "move", record)
        yield taken


def assert_every_edge(machine: Machine[Any, Any], *scenarios: Callable[[], None]) -> None:
    """Together the scenarios take every edge of the table."""
    with taken_of(machine) as taken:
        for scenario in scenarios:
            scenario()
    missing = [edge for edge in machine.edges() if edge not in taken]
    assert not missing, f"no scenario takes {missing}"
