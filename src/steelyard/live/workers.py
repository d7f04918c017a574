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


class Workers(Generic[T]):
    """`count` daemon threads that call `work` with each item put; `work` must not raise."""

    def __init__(self, count: int, work: Callable[[T], None], name: str) -> None:
        self._work = work
        self._items: deque[T] = deque()
        self._idle: deque[threading.Lock] = deque()
        self._waking = False
        self._closed = False
        self.threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def put(self, item: T) -> None:
        """Have `work` called with the item soon; from one thread only."""
        self._items.append(item)
        if not self._waking:
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

    def _run(self) -> None:
        items, idle, work = self._items, self._idle, self._work
        lock = threading.Lock()
        lock.acquire()
        while True:
            try:
                item = items.popleft()
            except IndexError:
                if self._closed:
                    return
                idle.append(lock)
                if items or self._closed:
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
