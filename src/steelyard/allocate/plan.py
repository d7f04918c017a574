"""The input and output of an allocation, for any type of queue.

A strategy is a pure function `(claims, queues) -> Plan` of a whole group. Claims and queues come in
an order on which all members agree: a strategy never sorts them. RocketMQ's members call it once
per topic and take their own share of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from steelyard.types import MessageQueue

Q = TypeVar("Q")


class Claim(msgspec.Struct, Generic[Q], frozen=True):
    """A member's part in an allocation.

    `held`: what it reads now, for strategies that preserve it.
    """

    member: str
    held: tuple[Q, ...] = ()


class Plan(msgspec.Struct, Generic[Q], frozen=True):
    """An allocation. `shares` has one entry per claim, in the order of the claims."""

    members: tuple[str, ...]
    shares: tuple[tuple[Q, ...], ...]

    def share(self, member: str) -> tuple[Q, ...]:
        """Return the queues of `member`, empty if it made no claim.

        If two processes claim under one name, both get the first share, and nobody reads the
        second, as in RocketMQ (`cidAll.indexOf`).
        """
        if member not in self.members:
            return ()
        return self.shares[self.members.index(member)]


class Strategy(Protocol):
    """How the members of a RocketMQ group allocate the queues of one topic.

    Equal input gives an equal plan, in every process. No queue is in two shares. Each module states
    further laws of its strategy: complete (each queue is in a share), fair (sizes differ by at most
    one). Any such callable can be passed to a consumer as `allocate=`; strategies that do not
    inspect queues are generic, for groups of other protocols.
    """

    def __call__(
        self, claims: Sequence[Claim[MessageQueue]], queues: Sequence[MessageQueue], /
    ) -> Plan[MessageQueue]: ...
