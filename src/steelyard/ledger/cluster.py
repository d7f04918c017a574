"""The states of all groups of a cluster: each gets its own records, and those about brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from steelyard.ledger.events import BrokerStarted, BrokerStopped, Record
from steelyard.ledger.group import GroupState, Row

BrokerRecord = BrokerStarted | BrokerStopped


class NamedRow(NamedTuple):
    """A row, and the group that it is about."""

    group: str
    row: Row


class LedgerGroups:
    """Distributes records among the states of groups, which it makes or loads when it needs them.

    `heard`: the groups that there are, and when each was last heard of. `brokers`: the last record
    about each broker; that is all of what was before its first record that matters to a group.
    """

    def __init__(
        self,
        load: Callable[[str], GroupState | None] = lambda _: None,
        heard: Mapping[str, int] | None = None,
        brokers: Mapping[str, BrokerRecord] | None = None,
    ) -> None:
        self._load = load
        self.heard = dict(heard or {})
        self.brokers = dict(brokers or {})
        self.states: dict[str, GroupState] = {}
        """The states that were made or loaded."""
        self.added: dict[str, int] = {}
        """When the latest record that was added to each happened."""

    def add(self, records: Iterable[Record]) -> list[NamedRow]:
        """Add the next records, which are in order; return the rows that are final now."""
        rows: list[NamedRow] = []
        waiting: dict[str, list[Record]] = {}
        for record in records:
            if isinstance(record, BrokerStarted | BrokerStopped):
                rows += self._add_to_groups(waiting)
                waiting = {}
                self.brokers[record.broker] = record
                for group in sorted(self.heard):
                    rows += _named(group, self.state(group).add([record]))
                    self.added[group] = record.at
            elif record.group in waiting:
                waiting[record.group].append(record)
            else:
                waiting[record.group] = [record]
        return rows + self._add_to_groups(waiting)

    def _add_to_groups(self, records: Mapping[str, list[Record]]) -> list[NamedRow]:
        rows: list[NamedRow] = []
        for group, mine in records.items():
            rows += _named(group, self.state(group).add(mine))
            self.heard[group] = self.added[group] = mine[-1].at
        return rows

    def state(self, group: str) -> GroupState:
        """Return the state of a group."""
        state = self.states.get(group)
        if state is None:
            state = self._load(group)
            if state is None:
                state = GroupState(group)
                state.add(self.brokers.values())
            self.states[group] = state
        return state

    def finish(self) -> list[NamedRow]:
        """Return the rows that are not final, of all groups in `states`; ends the states."""
        return [
            row
            for group, state in sorted(self.states.items())
            for row in _named(group, state.finish())
        ]


def _named(group: str, rows: Iterable[Row]) -> Iterator[NamedRow]:
    return (NamedRow(group, row) for row in rows)
