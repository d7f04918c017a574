"""The events of a group that may start rebalances whose rows are not final."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from copy import copy
from operator import attrgetter

import msgspec

from steelyard.ledger.starts import Event, MembersSoFar, Start

_at = attrgetter("at")


class Timeline(msgspec.Struct, array_like=True):
    """Events in the order of their times.

    `read_from`, in its methods, are the brokers that deliver to the group: events of other brokers
    do not matter to it.
    """

    events: list[Event] = []
    membership: MembersSoFar = msgspec.field(default_factory=MembersSoFar)
    """As of before the first of `events`."""
    since: int | None = None
    """Events before that are gone."""

    def add(self, event: Event) -> None:
        """Add an event; after those of the same time, unless there are later ones."""
        if self.events and event.at < self.events[-1].at:
            self.insert(event)
        else:
            self.events.append(event)

    def insert(self, event: Event) -> None:
        """Insert an event that is known late at its time, before those of the same time."""
        if self.since is None or event.at >= self.since:
            self.events.insert(bisect_left(self.events, event.at, key=_at), event)

    def starts(self, read_from: Container[str]) -> list[Start]:
        """Return the rebalances that the events start."""
        return copy(self.membership).find_starts(self._known(read_from))

    def drop(self, before: int, read_from: Container[str]) -> None:
        """Forget the events before a time, but for what they did to the membership."""
        self.membership.find_starts([one for one in self._known(read_from) if one.at < before])
        self.events = [one for one in self.events if one.at >= before]
        self.since = max(before, self.since or before)

    def _known(self, read_from: Container[str]) -> list[Event]:
        return [one for one in self.events if not one.broker or one.broker in read_from]
