"""Many timers behind one: most are set again and again (sessions, with every heartbeat) and hardly ever fire.

Setting a timer later costs one dict write: its old place in the heap stays, and moves on when its turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

Key = tuple[str, str, str]
"""Group id, what it is for, member id (or nothing)."""

SESSION, JOIN, SYNC, WAITING = "session", "join", "sync", "waiting"
"""What timers are for. WAITING: people are to hear whom a rebalance waits for."""


class Timers:
    """See the module's text."""

    def __init__(self) -> None:
        self._due_at: dict[Key, int] = {}
        self._queued_at: dict[Key, int] = {}
        """The earliest place of each key in the heap."""
        self._heap: list[tuple[int, Key]] = []

    def set(self, key: Key, at: int) -> None:
        """Have `key` fall due at `at`, in place of when it would have."""
        self._due_at[key] = at
        queued = self._queued_at.get(key)
        if queued is None or at < queued:
            self._push(key, at)

    def drop(self, key: Key) -> None:
        self._due_at.pop(key, None)

    def at(self, key: Key) -> int | None:
        """When `key` falls due."""
        return self._due_at.get(key)

    @property
    def next_at(self) -> int | None:
        """When to call `due`; nothing need be due by then."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[Key]:
        """The keys that fell due by `now`, in order; none of them is set any longer when it comes.

        What is done for one key may set and drop others, and counts for those that follow.
        """
        while self._heap and self._heap[0][0] <= now:
            queued, key = heapq.heappop(self._heap)
            if self._queued_at.get(key) != queued:
                continue  # it was set to an earlier time meanwhile, and had its turn then
            del self._queued_at[key]
            at = self._due_at.get(key)
            if at is None:
                continue
            if at == queued:
                del self._due_at[key]
                yield key
            else:
                self._push(key, at)

    def _push(self, key: Key, at: int) -> None:
        self._queued_at[key] = at
        heapq.heappush(self._heap, (at, key))

    def __len__(self) -> int:
        return len(self._due_at)

    def check(self) -> None:
        """Every timer that is set has a place in the heap, no later than it falls due."""
        places = set(self._heap)
        for key, at in self._due_at.items():
            queued = self._queued_at[key]
            assert queued <= at
            assert (queued, key) in places
