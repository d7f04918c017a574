"""The broker's queue locks, for groups of ordered consumers.

A lock belongs to a client id of a group and expires when it is not renewed. Locks are kept in
memory, as in RocketMQ: a restarted broker has none, and clients request them again within 20
seconds. Two processes with one client id both own a lock; the registry warns about them.
Source: broker/client/rebalance/RebalanceLockManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.session_clock import SessionClock
from steelyard.types import MessageQueue

LOCKS_MAX = 1_000_000
"""Most locks of one broker; further ones are not granted."""


class _Lock(msgspec.Struct):
    client_id: str
    renewed_at: int


class QueueLocks:
    """The locks of all groups.

    `expiry_ms`: life of a lock that is not renewed, measured by `clock`.
    """

    def __init__(self, expiry_ms: int, clock: SessionClock | None = None) -> None:
        self._expiry_ms = expiry_ms
        self._clock = clock or SessionClock()
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now: int
    ) -> list[MessageQueue]:
        """Lock queues or renew locks; return the queues that the client has now, as ordered."""
        held: list[MessageQueue] = []
        locks = self._locks.setdefault(group, {})
        expired = self._clock.ago(self._expiry_ms, now)
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= LOCKS_MAX:
                    continue
                locks[queue] = _Lock(client_id, now)
                self._count += 1
            elif lock.client_id == client_id or lock.renewed_at < expired:
                lock.client_id = client_id
                lock.renewed_at = now
            else:
                continue
            held.append(queue)
        if not locks:
            del self._locks[group]
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Unlock what the client holds; others' locks stay."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._locks[group]

    def unlock_all(self, group: str, client_id: str) -> list[MessageQueue]:
        """Unlock everything that the client holds in the group; return it."""
        locks = self._locks.get(group, {})
        mine = [queue for queue, lock in locks.items() if lock.client_id == client_id]
        self.unlock(group, client_id, mine)
        return mine

    def owner(self, group: str, queue: MessageQueue, now: int) -> str | None:
        """Return the client id that holds the lock, None if there is none."""
        lock = self._locks.get(group, {}).get(queue)
        if lock is None or lock.renewed_at < self._clock.ago(self._expiry_ms, now):
            return None
        return lock.client_id

    def expires_at(self, group: str, queue: MessageQueue, now: int) -> int | None:
        """Return when the queue is free if its lock is not renewed, None if it is free now."""
        if self.owner(group, queue, now) is None:
            return None
        renewed_at = self._locks[group][queue].renewed_at
        return now + 1 + renewed_at - self._clock.ago(self._expiry_ms, now)

    def locked(self, group: str, now: int) -> bool:
        """Return whether any client of the group holds a lock, as in ordered groups only."""
        locks = self._locks.get(group, {})
        expired = self._clock.ago(self._expiry_ms, now)
        return any(lock.renewed_at >= expired for lock in locks.values())

    def expire(self, now: int) -> None:
        """Remove expired locks; without this they only stop counting."""
        expired = self._clock.ago(self._expiry_ms, now)
        for group, locks in list(self._locks.items()):
            for queue, lock in list(locks.items()):
                if lock.renewed_at < expired:
                    del locks[queue]
                    self._count -= 1
            if not locks:
                del self._locks[group]

    def check(self) -> None:
        assert all(self._locks.values())
        assert self._count == sum(len(locks) for locks in self._locks.values())
        assert self._count <= LOCKS_MAX
