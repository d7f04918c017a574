"""What an allocation takes in and gives out, whatever a queue is.

A strategy is a pure function `(claims, queues) -> Plan` of a whole group. Claims and queues come in
the order that all members agree on: a strategy never sorts them. RocketMQ's members call it once
per topic and take their own share of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from steelyard.types import MessageQueue

Q = TypeVar("Q")


class Claim(msgspec.Struct, Generic[Q], frozen=True):
    """One member's part in an allocation. `held`: what it reads now, for strategies that try to keep it."""

    member: str
    held: tuple[Q, ...] = ()


class Plan(msgspec.Struct, Generic[Q], frozen=True):
    """Who reads what. `shares` has one entry per claim, in the order of the claims."""

    members: tuple[str, ...]
    shares: tuple[tuple[Q, ...], ...]

    def share(self, member: str) -> tuple[Q, ...]:
        """The queues of `member`, empty if it made no claim.

        Where two processes claim under one name both get the first share, and the second is read by
        nobody: so it is in RocketMQ (`cidAll.indexOf`).
        """
        if member not in self.members:
            return ()
        return self.shares[self.members.index(member)]


class Strategy(Protocol):
    """How the members of a RocketMQ group allocate the queues of one topic.

    Equal input gives an equal plan, in every process. No queue is in two shares. Each module states which
    laws else its strategy has: complete (each queue is in a share), fair (sizes differ by at most one).
    Anything callable like this can be given to a consumer as `allocate=`; what does not look into a queue
    is generic, for the groups of other protocols.
    """

    def __call__(
        self, claims: Sequence[Claim[MessageQueue]], queues: Sequence[MessageQueue], /
    ) -> Plan[MessageQueue]: ...
