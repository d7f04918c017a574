"""Many timers behind one; most are set repeatedly (sessions, at every heartbeat) and rarely fire.

Postponing a timer costs one dict write: its old heap entry stays, and is moved when it comes up.
Time in which the coordinator did not run does not count: all timers are later by it
(`session_clock`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from steelyard.session_clock import SessionClock

Key = tuple[str, str, str]
"""Group id, purpose, member id (or nothing)."""

SESSION, JOIN, SYNC, WAITING, LEAVES = "session", "join", "sync", "waiting", "leaves"
"""Purposes of timers. WAITING: report whom a rebalance waits for; LEAVES: begin one."""


class Timers:
    """A set of timers by key. `clock`: by default one that never stands still."""

    def __init__(self, clock: SessionClock | None = None) -> None:
        self._clock = clock or SessionClock()
        # Times in here are without the lost time, so that all timers move when it grows.
        self._due_at: dict[Key, int] = {}
        self._queued_at: dict[Key, int] = {}
        """The earliest heap entry of each key."""
        self._heap: list[tuple[int, Key]] = []

    def set(self, key: Key, at: int) -> None:
        """Set `key` to fall due at `at`, replacing the time set before."""
        at -= self._clock.lost_ms
        self._due_at[key] = at
        queued = self._queued_at.get(key)
        if queued is None or at < queued:
            self._push(key, at)

    def drop(self, key: Key) -> None:
        self._due_at.pop(key, None)

    def at(self, key: Key) -> int | None:
        """Return when `key` falls due."""
        at = self._due_at.get(key)
        return None if at is None else at + self._clock.lost_ms

    @property
    def next_at(self) -> int | None:
        """Return when to call `due`; nothing need be due by then."""
        return self._heap[0][0] + self._clock.lost_ms if self._heap else None

    def due(self, now: int) -> Iterator[Key]:
        """Yield the keys that fell due by `now`, in order; each is unset when it is yielded.

        Handling one key may set and drop others, which affects those that follow.
        """
        now -= self._clock.lost_ms
        while self._heap and self._heap[0][0] <= now:
            queued, key = heapq.heappop(self._heap)
            if self._queued_at.get(key) != queued:
                continue  # it was set to an earlier time meanwhile, and has fired then
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
        """Assert that every set timer has a heap entry no later than it falls due."""
        places = set(self._heap)
        for key, at in self._due_at.items():
            queued = self._queued_at[key]
            assert queued <= at
            assert (queued, key) in places
