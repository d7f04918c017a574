"""What the application is told of queues that come and go (`config.hooks`), one thing at a time.

`Assigned` before a queue is pulled, `Revoked` when it is given up and the application has nothing of it any
more, before its last commit; `Lost` when it was taken away without that. What follows waits until the
application has answered, but for `timeout_ms` only. Like Kafka's ConsumerRebalanceListener; RocketMQ has
MessageQueueListener, which is told of a change after it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from steelyard.nodes.consumer.remoting.contract import Assigned, Lost, Revoked
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.seam import Deliver, Effect, SetTimer

Told = Assigned | Revoked | Lost


class HookTimer(msgspec.Struct, frozen=True):
    """Timer key: the application has had its time."""

    ticket: int


class Telling(msgspec.Struct, frozen=True):
    """Something to tell, and the holdings that wait for the answer."""

    what: Told
    waiting: tuple[Held, ...] = ()


class Hooks:
    """See the module's text. Its tickets are negative: those of a delivery are not."""

    def __init__(self, *, wanted: bool, timeout_ms: int) -> None:
        self.wanted = wanted
        self._timeout_ms = timeout_ms
        self._ticket = 0
        self._now_told: Telling | None = None
        self._next: deque[Telling] = deque()

    def tell(self, telling: Telling, now: int, effects: list[Effect]) -> None:
        """Tell the application, after what it is being told."""
        assert self.wanted
        self._next.append(telling)
        if self._now_told is None:
            self._tell_next(now, effects)

    def _tell_next(self, now: int, effects: list[Effect]) -> None:
        if not self._next:
            return
        self._now_told = self._next.popleft()
        self._ticket -= 1
        hand = Deliver(self._ticket, self._now_told.what)
        effects += [hand, SetTimer(HookTimer(self._ticket), now + self._timeout_ms)]

    def ended(self, ticket: int, now: int, effects: list[Effect]) -> Telling | None:
        """The application answered, or its time is over. Returns what that was; None if it ended before."""
        ended = self._now_told
        if ended is None or ticket != self._ticket:
            return None
        self._now_told = None
        self._tell_next(now, effects)
        return ended

    def drop(self) -> None:
        """The end: nothing more is told."""
        self._now_told = None
        self._next.clear()

    def check(self) -> None:
        """Assert that nothing waits for nothing."""
        assert self._now_told is not None or not self._next
