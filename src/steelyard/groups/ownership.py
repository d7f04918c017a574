"""Who holds which queue: the last metre that every rebalance ends in, in any dialect.

`diff` turns a new target into what is to be given up and what is to be taken. A `Holding` is the
life of one queue at one member, from the moment it is its own to the moment it is not:

- ACQUIRING: the start offset is being asked for. Nothing is read yet.
- PULLING: messages are fetched and handed to the listener; offsets are committed.
- DRAINING: no more fetching, no more handing; messages at the listener may finish, and are committed.
- GONE: what was finished has been committed; whatever still happens counts for nothing.

RocketMQ gives a queue up without draining, so that messages at its listener are read again by the
next owner (RebalancePushImpl.removeUnnecessaryMessageQueue); it drains at a stop only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

Q = TypeVar("Q", bound=tuple[object, ...])


class Change(msgspec.Struct, Generic[Q], frozen=True):
    """What to give up first and what to take then, each in the order of the queues."""

    release: tuple[Q, ...]
    acquire: tuple[Q, ...]


def diff(
    held: Collection[Q], target: Collection[Q], stale: Collection[Q] = frozenset()
) -> Change[Q]:
    """The change from `held` to `target`. Queues of `stale` that stay are given up and taken anew."""
    wanted = frozenset(target)
    kept = {queue for queue in held if queue in wanted and queue not in stale}
    return Change(
        release=tuple(sorted(queue for queue in held if queue not in kept)),
        acquire=tuple(sorted(queue for queue in wanted if queue not in kept)),
    )


class State(Enum):
    ACQUIRING = "acquiring"
    PULLING = "pulling"
    DRAINING = "draining"
    GONE = "gone"


MOVES: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.ACQUIRING: frozenset({State.PULLING, State.GONE}),
        State.PULLING: frozenset({State.DRAINING, State.GONE}),
        State.DRAINING: frozenset({State.GONE}),
        State.GONE: frozenset(),
    }
)


class Holding:
    """The state of one queue at one member. Times are ms since the epoch."""

    __slots__ = ("_state", "since")

    def __init__(self, now: int) -> None:
        self._state = State.ACQUIRING
        self.since = now

    @property
    def state(self) -> State:
        return self._state

    def move(self, state: State, now: int) -> None:
        """Go on to `state`; a move that MOVES does not know is a bug."""
        assert state in MOVES[self._state], f"{self._state} cannot become {state}"
        self._state = state
        self.since = now
