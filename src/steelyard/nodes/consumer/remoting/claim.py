"""A member's claim to the lock of one queue.

- SEEKING: the member has no holding of the queue, but takes it if its lock is free (see `quota`).
- WAITING: the queue is planned for this member; its holding waits for the lock (LOCKING).
- GRANTED: the broker has granted the lock, and it is renewed. A broker that does not answer changes
  nothing: code that must be certain of the lock checks `granted_at`.
- WITHOUT: the queue is read without the lock, because nobody else reads it (`Locks` says when that
  is so), or because an unordered consumer lost the lock. The lock is still requested, so that the
  next owner has to wait for it.

A claim ends, in any state, when the queue is given up or is no longer sought.
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
    """One claim. `since`: when the lock was first wanted, in ms since the epoch."""

    state: ClaimState
    since: int
    address: Address | None = None
    """Broker of the last request for it; None: it was never requested, so it cannot be ours."""
    granted_at: int = 0
    """When the request that obtained or renewed it was sent; 0: it is not ours."""

    def grant(self, address: Address, at: int) -> None:
        """Note that the broker granted the lock to this member, in reply to a request sent `at`."""
        self.state = CLAIMS.move(self.state, ClaimMove.GRANTED)
        self.address, self.granted_at = address, at

    def refuse(self) -> None:
        """Note that, according to the broker, another member has the lock."""
        if self.state is ClaimState.GRANTED:
            self.state = CLAIMS.move(self.state, ClaimMove.REFUSED)
            self.granted_at = 0

    def waive(self) -> None:
        """Continue without the lock."""
        self.state = CLAIMS.move(self.state, ClaimMove.WAIVED)

    @property
    def awaited(self) -> bool:
        """Return whether the queue must not be read before the lock is granted."""
        return self.state in (ClaimState.SEEKING, ClaimState.WAITING)
