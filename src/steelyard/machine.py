"""State machines as tables: `{state: {event: states}}`.

Tables are executed: the owner of a state sets it to the result of `Machine.move`, which asserts
that the event may lead there. `None` is the state of an object that does not exist yet, so creation
and restart have entries, too. If an event leads to one state only, the table determines it.

docs/STATES.md is generated from the tables (`./dev generate`), and each machine has a test that
takes every edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)
M = TypeVar("M", bound=StrEnum)


class Machine(Generic[S, M]):
    """A table for any number of objects. `title`: a name for people.

    States and events are StrEnums, because their hashes are cheap. The value of an event is its
    label in diagrams.
    """

    __slots__ = ("_table", "title")

    def __init__(self, title: str, table: Mapping[S | None, Mapping[M, tuple[S, ...]]]) -> None:
        self.title = title
        self._table = table

    def move(self, state: S | None, event: M, to: S | None = None) -> S:
        """Return the state to which `event` leads: `to`, or the only one.

        Any other move is a bug.
        """
        states = self._table.get(state, {}).get(event, ())
        if to is None and len(states) == 1:
            return states[0]
        assert to is not None, f"{self.title}: {event.name} in {state} leads to {states}: say where"
        assert to in states, f"{self.title}: {event.name} in {state} leads to {states}, not to {to}"
        return to

    def can(self, state: S, event: M) -> bool:
        """Return whether the table has this event in this state."""
        return event in self._table.get(state, {})

    def edges(self) -> Iterator[tuple[S | None, M, S]]:
        """Yield every move that the table allows, in order."""
        for state, events in self._table.items():
            for event, states in events.items():
                for to in states:
                    yield state, event, to

    def diagram(self) -> str:
        """Return the table as a Mermaid state diagram; states without outgoing moves are final."""
        arrows: dict[tuple[str, str], list[str]] = {}
        for state, event, to in self.edges():
            arrow = ("[*]" if state is None else state.name, to.name)
            arrows.setdefault(arrow, []).append(event.value)
        lines = [f"{a} --> {b}: {' / '.join(events)}" for (a, b), events in arrows.items()]
        lines += [
            f"{state.name} --> [*]" for state in self._table if state and not self._table[state]
        ]
        return "\n    ".join(["stateDiagram-v2", *lines]) + "\n"
