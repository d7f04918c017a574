"""Threads that take items one by one, woken sparingly.

Waking a thread costs more than a quick listener does, and a woken thread has to fight for the interpreter.
So one wake-up is under way at a time: a worker that was woken wakes the next when there is still something to
take. Quick listeners are thus served by few threads, slow ones soon by all.

Correct without a lock of its own because `deque.append`, `popleft`, `pop` and `remove` are atomic: a worker
first lists itself as idle and then looks again, a giver first adds the item and then looks for the idle.
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
        """Threads that are to end when they are done with what they have."""
        self.threads: list[threading.Thread] = []
        self.resize(count)

    def put(self, item: T) -> None:
        """Have `work` called with the item soon; from one thread only."""
        self._items.append(item)
        if not self._waking:
            self._wake()

    def resize(self, count: int) -> None:
        """Have so many threads; those that are too many end when they are done. Returns at once."""
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
        """Let the threads end when they have taken what is there. Returns at once."""
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
        """This thread is one too many and ends now."""
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
