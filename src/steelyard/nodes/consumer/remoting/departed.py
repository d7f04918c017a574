"""The members in the plan, and those who left lately and may have left locks behind.

A member that is killed keeps its locks at the brokers for `DEPARTED_MS`. A member that was in the
lists of earlier rebalances and is not in the latest one may have been killed, or a broker has
forgotten it for a moment. So before its lock is taken, the broker with the lock is asked for the
members that it knows, because a live member has a connection there. Once tried for a queue, a
client id is not tried for it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from steelyard.types import MessageQueue

DEPARTED_MS = 60_000
"""Locks of a departed member expire after this (rocketmq.broker.rebalance.lockMaxLiveTime)."""


class Departed:
    """The members present and departed, as one consumer sees them. Times are ms since the epoch."""

    def __init__(self, client_id: str) -> None:
        self._only_me = frozenset((client_id,))
        self._present: frozenset[str] = frozenset()
        self._departed: dict[str, int] = {}
        self._tried: set[tuple[str, MessageQueue]] = set()

    def heard(self, members: Collection[str], now: int) -> None:
        """Note the members that brokers listed in one rebalance."""
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
        """Return whether this member is the only one in the plan."""
        return self._present == self._only_me

    def is_alone(self, known: Collection[str]) -> bool:
        """Return whether a broker that knows `known` knows no member but this one."""
        return frozenset(known) == self._only_me

    def unheard_of(self, known: Collection[str]) -> bool:
        """Return whether a broker that knows `known` knows members missing in the plan."""
        return not self._present.issuperset(known)

    def suspects(self, queue: MessageQueue) -> bool:
        """Return whether the queue's lock may belong to a departed member."""
        return any((client_id, queue) not in self._tried for client_id in self._departed)

    def dead(self, known: Collection[str]) -> list[str]:
        """Return the departed members that the broker does not know either."""
        return [client_id for client_id in self._departed if client_id not in known]

    def tried(self, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Note that the queues were unlocked on behalf of this member."""
        self._tried.update((client_id, queue) for queue in queues)
