"""Threads that take items one by one, with few wake-ups.

Waking a thread costs more than a quick listener, and a woken thread competes for the interpreter.
So there is one wake-up at a time: a woken worker wakes the next if there are still items. Quick
listeners are thus served by few threads, slow ones soon by all.

Correct without a lock because `deque.append`, `popleft`, `pop` and `remove` are atomic: a worker
first lists itself as idle and then looks for items again; `put` first adds the item and then looks
for idle workers.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Threads(Generic[T]):
    """`count` daemon threads that call `work` with each item put; `work` must not raise."""

    def __init__(self, count: int, work: Callable[[T], None], name: str) -> None:
        self._work = work
        self._name = name
        self._items: deque[T] = deque()
        self._idle: deque[threading.Lock] = deque()
        self._waking = False
        self._closed = False
        self._sizing = threading.Lock()
        self._started = 0
        self._surplus = 0
        """Number of threads that are to end after their current item."""
        self.threads: list[threading.Thread] = []
        self.resize(count)

    def put(self, item: T) -> None:
        """Queue an item for `work`; from one thread only."""
        self._items.append(item)
        if not self._waking:
            self._wake()

    def resize(self, count: int) -> None:
        """Set the number of threads; surplus ones end after their current item. Returns at once."""
        with self._sizing:
            if self._closed:
                return
            missing = count - len(self.threads)
            self._surplus = max(0, -missing)
            started = range(self._started, self._started + max(0, missing))
            fresh = [
                threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
                for number in started
            ]
            self._started = started.stop
            self.threads += fresh
        for thread in fresh:
            thread.start()
        for _ in range(self._surplus):
            self._wake()

    def close(self) -> None:
        """Let the threads end when no items are left. Returns at once."""
        self._closed = True
        while self._idle:
            self._wake()

    def _wake(self) -> None:
        try:
            lock = self._idle.pop()
        except IndexError:
            return
        self._waking = True
        lock.release()

    def _leaves(self) -> bool:
        """Return whether this thread is surplus and ends now."""
        with self._sizing:
            if not self._surplus:
                return False
            self._surplus -= 1
            self.threads.remove(threading.current_thread())
            return True

    def _run(self) -> None:
        items, idle, work = self._items, self._idle, self._work
        lock = threading.Lock()
        lock.acquire()
        while True:
            if self._surplus and self._leaves():
                if items and not self._waking:  # it may have been woken for one of them
                    self._wake()
                return
            try:
                item = items.popleft()
            except IndexError:
                if self._closed:
                    return
                idle.append(lock)
                if items or self._closed or self._surplus:
                    try:
                        idle.remove(lock)
                    except ValueError:
                        lock.acquire()  # somebody took it off the list to wake us: that comes now
                        self._waking = False
                    continue
                lock.acquire()
                self._waking = False
                continue
            if items and idle and not self._waking:
                self._wake()
            work(item)
