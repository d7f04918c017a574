"""The lock of a queue that a member wants, from its side.

- SEEKING: the member has no holding of the queue, and would take it if the lock is free (see `quota`).
- WAITING: the queue is planned for this member; its holding waits for the lock (LOCKING).
- GRANTED: the broker has given the lock, and it is renewed. A broker that does not answer changes nothing: whoever must be sure
  looks at `granted_at`.
- WITHOUT: the queue is read without the lock, for nobody else reads it (`Locks` says when that is so), or because an unordered
  consumer lost it. It is still asked for, so that the next owner waits.

A claim ends in any state, when the queue is given up or is not sought any more.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.machine import Machine
from steelyard.nodes.seam import Address


class ClaimState(StrEnum):
    SEEKING = "seeking"
    WAITING = "waiting"
    GRANTED = "granted"
    WITHOUT = "without"


class ClaimMove(StrEnum):
    SOUGHT = "looked for"
    PLANNED = "planned for this member"
    GRANTED = "granted, or renewed"
    WAIVED = "not waited for any longer"
    REFUSED = "somebody else has it"


_AWAITED = {
    ClaimMove.GRANTED: (ClaimState.GRANTED,),
    ClaimMove.WAIVED: (ClaimState.WITHOUT,),
}

CLAIMS: Machine[ClaimState, ClaimMove] = Machine(
    "Lock of a queue, at a RocketMQ consumer",
    {
        None: {
            ClaimMove.SOUGHT: (ClaimState.SEEKING,),
            ClaimMove.PLANNED: (ClaimState.WAITING,),
        },
        ClaimState.SEEKING: _AWAITED,
        ClaimState.WAITING: _AWAITED,
        ClaimState.GRANTED: {
            ClaimMove.GRANTED: (ClaimState.GRANTED,),
            ClaimMove.REFUSED: (ClaimState.WITHOUT,),
        },
        ClaimState.WITHOUT: {ClaimMove.GRANTED: (ClaimState.GRANTED,)},
    },
)


class LockClaim(msgspec.Struct):
    """One lock. `since`: when it was first wanted, in ms since the epoch."""

    state: ClaimState
    since: int
    address: Address | None = None
    """Where it was asked for last; None: nowhere, so it cannot be ours."""
    granted_at: int = 0
    """When the request was sent that got or renewed it; 0: it is not ours."""

    def grant(self, address: Address, at: int) -> None:
        """The broker answers to what was sent `at` that the lock is this member's."""
        self.state = CLAIMS.move(self.state, ClaimMove.GRANTED)
        self.address, self.granted_at = address, at

    def refuse(self) -> None:
        """The broker answers that somebody else has it."""
        if self.state is ClaimState.GRANTED:
            self.state = CLAIMS.move(self.state, ClaimMove.REFUSED)
            self.granted_at = 0

    def waive(self) -> None:
        """Go on without it."""
        self.state = CLAIMS.move(self.state, ClaimMove.WAIVED)

    @property
    def awaited(self) -> bool:
        """Nothing is read before the lock is there."""
        return self.state in (ClaimState.SEEKING, ClaimState.WAITING)
