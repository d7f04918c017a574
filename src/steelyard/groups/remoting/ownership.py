"""The ownership of queues: the final steps of every rebalance.

`diff` computes from a new target what to give up and what to take. A `Holding` is the life cycle of
a queue at a member, from its assignment to the moment when another may have it:

- LOCKING: waiting for the broker's lock of the queue. The former owner keeps the lock until it has
  committed what its listener finished. Left when the lock is granted, or when the member decides to
  continue without it.
- ACQUIRING: requesting the start offset. Nothing is read yet. Left with the offset.
- PULLING: messages are fetched and delivered to the application; offsets are committed
  periodically.
- DRAINING: the queue is given up. No more fetches or deliveries; the application may finish what it
  has. Left when it has finished, or after a time-out.
- RELEASING: the last commit is in flight, and after its reply the lock is released. Results of the
  application are ignored from here on.
- GONE: another member may hold the queue.

A queue is dropped, without notifying the broker, if its broker or its lock is lost, or a stop times
out. A plan may revoke the queue in any state: while LOCKING or ACQUIRING there is nothing to
finish, so only the lock is released (RELEASING); a queue whose broker is gone is GONE at once. A
queue that is assigned to this member again while it is DRAINING or RELEASING is first released and
then acquired again, so that discarded messages are read again.

RocketMQ gives a queue up without draining, so that messages at its listener are read again by the
next owner (RebalancePushImpl.removeUnnecessaryMessageQueue); it drains at a stop only. Its ordered
consumers lock as ours do.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from steelyard.machine import Machine

Q = TypeVar("Q", bound=tuple[object, ...])


class QueueChange(msgspec.Struct, Generic[Q], frozen=True):
    """What to give up first, and what to take then, each sorted."""

    release: tuple[Q, ...]
    acquire: tuple[Q, ...]


def diff(
    held: Collection[Q], target: Collection[Q], stale: Collection[Q] = frozenset()
) -> QueueChange[Q]:
    """Return the change from `held` to `target`.

    Queues of `stale` that remain are given up and taken anew.
    """
    wanted = frozenset(target)
    kept = {queue for queue in held if queue in wanted and queue not in stale}
    return QueueChange(
        release=tuple(sorted(queue for queue in held if queue not in kept)),
        acquire=tuple(sorted(queue for queue in wanted if queue not in kept)),
    )


class HoldingState(StrEnum):
    LOCKING = "locking"
    ACQUIRING = "acquiring"
    PULLING = "pulling"
    DRAINING = "draining"
    RELEASING = "releasing"
    GONE = "gone"


class Move(StrEnum):
    PLANNED = "planned for this member"
    LOCKED = "locked, or read without a lock"
    STARTED = "the start offset is known"
    GIVEN_UP = "given up"
    RELEASED = "nothing to wait for any more"
    LET_GO = "unlocked"
    SET = "its offset was set anew"
    DROPPED = "dropped"


_RELEASED = {Move.RELEASED: (HoldingState.RELEASING,), Move.DROPPED: (HoldingState.GONE,)}
_SET = {Move.SET: (HoldingState.GONE,)}

HOLDINGS: Machine[HoldingState, Move] = Machine(
    "Queue at a RocketMQ consumer",
    {
        None: {Move.PLANNED: (HoldingState.LOCKING,)},
        HoldingState.LOCKING: {Move.LOCKED: (HoldingState.ACQUIRING,), **_RELEASED},
        HoldingState.ACQUIRING: {Move.STARTED: (HoldingState.PULLING,), **_SET, **_RELEASED},
        HoldingState.PULLING: {Move.GIVEN_UP: (HoldingState.DRAINING,), **_SET, **_RELEASED},
        HoldingState.DRAINING: _RELEASED,
        HoldingState.RELEASING: {
            Move.LET_GO: (HoldingState.GONE,),
            Move.DROPPED: (HoldingState.GONE,),
        },
        HoldingState.GONE: {},
    },
)

COMING = frozenset({HoldingState.LOCKING, HoldingState.ACQUIRING})
"""On the way to this member: nothing has been read yet."""

READ = frozenset({HoldingState.PULLING, HoldingState.DRAINING})
"""Read by this member: there is an offset of its own, and verdicts of the application count."""

LEAVING = frozenset({HoldingState.DRAINING, HoldingState.RELEASING})
"""On the way to another member."""


class Holding:
    """The state of one queue at one member. Times are ms since the epoch."""

    __slots__ = ("_state", "since")

    def __init__(self, now: int) -> None:
        self._state = HOLDINGS.move(None, Move.PLANNED)
        self.since = now

    @property
    def state(self) -> HoldingState:
        return self._state

    def move(self, event: Move, now: int) -> None:
        """Make the move that the table defines."""
        self._state = HOLDINGS.move(self._state, event)
        self.since = now
