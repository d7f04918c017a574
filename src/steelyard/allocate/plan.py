"""What an allocation takes in and gives out, whatever a queue is.

A strategy is a pure function `(claims, queues) -> Plan` of a whole group. Claims and queues come in
the order that all members agree on: a strategy never sorts them. RocketMQ's members call it once
per topic and take their own share of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

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
    """Laws of every strategy: each queue is in exactly one share, and equal input gives an equal plan."""

    def __call__(self, claims: Sequence[Claim[Q]], queues: Sequence[Q]) -> Plan[Q]: ...
