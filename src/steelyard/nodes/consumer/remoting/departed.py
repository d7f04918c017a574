"""Who is in the group by the plan, and who was until lately: whose locks may be nobody's.

A member that is killed keeps its locks at the brokers for `DEPARTED_MS`. Whoever was in the lists of
earlier rebalances and is not in the latest one may be such a member; or a broker has forgotten it for a
moment. So before a lock is taken from it the broker that has the lock is asked whom it knows: a member
at work has a connection there. Once tried for a queue, a name is not tried for it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from steelyard.types import MessageQueue

DEPARTED_MS = 60_000
"""Locks of somebody who departed are gone by themselves after this (rocketmq.broker.rebalance.lockMaxLiveTime)."""


class Departed:
    """See the module's text. Times are ms since the epoch."""

    def __init__(self, client_id: str) -> None:
        self._only_me = frozenset((client_id,))
        self._present: frozenset[str] = frozenset()
        self._departed: dict[str, int] = {}
        self._tried: set[tuple[str, MessageQueue]] = set()

    def heard(self, members: Collection[str], now: int) -> None:
        """The members that brokers told of in one rebalance."""
        present = frozenset(members)
        for client_id in sorted(self._present - present):
            self._departed[client_id] = now
        for client_id, at in list(self._departed.items()):
            if client_id in present or at + DEPARTED_MS < now:
                del self._departed[client_id]
                self._tried = {pair for pair in self._tried if pair[0] != client_id}
        self._present = present

    @property
    def alone(self) -> bool:
        """By the plan this member is the only one."""
        return self._present == self._only_me

    def is_alone(self, known: Collection[str]) -> bool:
        """A broker that knows `known` knows no other member."""
        return frozenset(known) == self._only_me

    def unheard_of(self, known: Collection[str]) -> bool:
        """A broker that knows `known` knows members that the plan was made without."""
        return not self._present.issuperset(known)

    def suspects(self, queue: MessageQueue) -> bool:
        """The queue's lock may belong to somebody who is gone."""
        return any((client_id, queue) not in self._tried for client_id in self._departed)

    def dead(self, known: Collection[str]) -> list[str]:
        """Those of the departed whom the broker does not know either."""
        return [client_id for client_id in self._departed if client_id not in known]

    def tried(self, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """The queues were unlocked in this name."""
        self._tried.update((client_id, queue) for queue in queues)
