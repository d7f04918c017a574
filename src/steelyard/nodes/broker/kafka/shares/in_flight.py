"""What becomes of the records of a share partition, and runs of records with the same fate.

Records that were fetched once are in flight until they are accepted or archived, and all before
them are. A record is archived if its member rejects it, if it was delivered too often, or if there
is nothing to deliver at its offset: a marker, an aborted record, one that compaction removed.
Source: server/share/fetch/RecordState.java, InFlightState.java; KIP-932.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from steelyard.machine import Machine

NOBODY = ""
"""The member of records that are not acquired."""


class RecordState(StrEnum):
    """The states of a record."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"


class RecordEvent(StrEnum):
    """The events of a record."""

    RESTORED = "restored from disk"
    FETCHED = "fetched for the first time"
    ACQUIRED = "fetched again"
    SKIPPED = "nothing to deliver"
    RENEWED = "lock renewed"
    ACCEPTED = "accepted"
    REJECTED = "rejected, or nothing was there"
    RELEASED = "released, or the lock timed out"


_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
_ACKNOWLEDGED, _ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED

DELIVERY: Machine[RecordState, RecordEvent] = Machine(
    "Record of a share partition, at the broker",
    {
        None: {
            RecordEvent.RESTORED: (_AVAILABLE, _ACKNOWLEDGED, _ARCHIVED),
            RecordEvent.FETCHED: (_ACQUIRED,),
            RecordEvent.SKIPPED: (_ARCHIVED,),
        },
        _AVAILABLE: {
            RecordEvent.ACQUIRED: (_ACQUIRED,),
            RecordEvent.SKIPPED: (_ARCHIVED,),
        },
        _ACQUIRED: {
            RecordEvent.RENEWED: (_ACQUIRED,),
            RecordEvent.ACCEPTED: (_ACKNOWLEDGED,),
            RecordEvent.REJECTED: (_ARCHIVED,),
            RecordEvent.RELEASED: (_AVAILABLE, _ARCHIVED),
        },
    },
)

FINAL = (_ACKNOWLEDGED, _ARCHIVED)
"""States that never end."""


class InFlight(msgspec.Struct, frozen=True, gc=False):
    """A run of records with the same state, from `first` to `last`.

    `count`: how often they were delivered. `member`: who has acquired them. `locked_until`: until
    when, in ms. `batch_size`: how many records were acquired together at first: it determines how
    few are delivered together after failures.
    """

    first: int
    last: int
    state: RecordState
    count: int = 0
    member: str = NOBODY
    locked_until: int = 0
    batch_size: int = 1

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    def acquired(self, member: str, locked_until: int) -> InFlight:
        """Return the run as it is when a member fetches it again."""
        state = DELIVERY.move(self.state, RecordEvent.ACQUIRED)
        return replace(
            self, state=state, count=self.count + 1, member=member, locked_until=locked_until
        )

    def renewed(self, locked_until: int) -> InFlight:
        state = DELIVERY.move(self.state, RecordEvent.RENEWED)
        return replace(self, state=state, locked_until=locked_until)

    def ended(self, event: RecordEvent, deliveries_max: int) -> InFlight:
        """Return the run after an event that takes it from its member, or from the others.

        Released records are archived when they were delivered `deliveries_max` times.
        """
        to = None
        if event is RecordEvent.RELEASED:
            to = _ARCHIVED if self.count >= deliveries_max else _AVAILABLE
        state = DELIVERY.move(self.state, event, to)
        return replace(self, state=state, member=NOBODY, locked_until=0)


def fetched(first: int, last: int, member: str, locked_until: int) -> InFlight:
    """Return a run that is delivered for the first time."""
    state = DELIVERY.move(None, RecordEvent.FETCHED)
    return InFlight(first, last, state, 1, member, locked_until, last - first + 1)


def skipped(first: int, last: int) -> InFlight:
    """Return a run of offsets without records to deliver."""
    return InFlight(first, last, DELIVERY.move(None, RecordEvent.SKIPPED))
