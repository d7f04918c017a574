"""State machines as tables: `{state: {event: states}}`.

A machine's table is executed: whoever has a state sets it to what `Machine.move` returns, and that asserts that the event
may lead there. `None` is the state of what does not exist yet, so a creation and a restart have entries, too. Where an
event leads to one state only, the table chooses it.

docs/STATES.md is drawn from the tables (`./dev generate`), and each machine has a test that takes every edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)
M = TypeVar("M", bound=StrEnum)


class Machine(Generic[S, M]):
    """One table, for any number of objects in its states. `title`: what they are, for people.

    States and events are StrEnums: their hashes cost little. The value of an event is what a diagram says of it.
    """

    __slots__ = ("_table", "title")

    def __init__(self, title: str, table: Mapping[S | None, Mapping[M, tuple[S, ...]]]) -> None:
        self.title = title
        self._table = table

    def move(self, state: S | None, event: M, to: S | None = None) -> S:
        """The state that `event` leads to: `to`, or the only one that there is. Any other move is a bug."""
        states = self._table.get(state, {}).get(event, ())
        if to is None and len(states) == 1:
            return states[0]
        assert to is not None, f"{self.title}: {event.name} in {state} leads to {states}: say where"
        assert to in states, f"{self.title}: {event.name} in {state} leads to {states}, not to {to}"
        return to

    def can(self, state: S, event: M) -> bool:
        """The table knows this event in this state."""
        return event in self._table.get(state, {})

    def edges(self) -> Iterator[tuple[S | None, M, S]]:
        """Every move that the table allows, in its order."""
        for state, events in self._table.items():
            for event, states in events.items():
                for to in states:
                    yield state, event, to

    def diagram(self) -> str:
        """The table as a state diagram of Mermaid; states that nothing leads out of are ends."""
        arrows: dict[tuple[str, str], list[str]] = {}
        for state, event, to in self.edges():
            arrow = ("[*]" if state is None else state.name, to.name)
            arrows.setdefault(arrow, []).append(event.value)
        lines = [f"{a} --> {b}: {' / '.join(events)}" for (a, b), events in arrows.items()]
        lines += [
            f"{state.name} --> [*]" for state in self._table if state and not self._table[state]
        ]
        return "\n    ".join(["stateDiagram-v2", *lines]) + "\n"
