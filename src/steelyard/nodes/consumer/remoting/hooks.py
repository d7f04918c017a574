"""The notifications of queues that come and go (`config.hooks`), one at a time.

`Assigned` is delivered before a queue is pulled; `Revoked` when a queue is given up and the
application has finished with it, before its last commit; `Lost` if it was taken away without that.
The next step waits until the application has answered, but at most `timeout_ms`. This is like
Kafka's ConsumerRebalanceListener; RocketMQ's MessageQueueListener is called after the change.
"""

from __future__ import annotations

from collections import deque

import msgspec

from steelyard.nodes.consumer.remoting.contract import Assigned, Lost, Revoked
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.seam import Deliver, Effect, SetTimer

Told = Assigned | Revoked | Lost


class HookTimer(msgspec.Struct, frozen=True):
    """Timer key: the application's time is over."""

    ticket: int


class Telling(msgspec.Struct, frozen=True):
    """A notification, and the holdings that wait for its answer."""

    what: Told
    waiting: tuple[Held, ...] = ()


class Hooks:
    """The notifications of one consumer. Their tickets are negative, unlike a delivery's."""

    def __init__(self, *, wanted: bool, timeout_ms: int) -> None:
        self.wanted = wanted
        self._timeout_ms = timeout_ms
        self._ticket = 0
        self._now_told: Telling | None = None
        self._next: deque[Telling] = deque()

    def tell(self, telling: Telling, now: int, effects: list[Effect]) -> None:
        """Deliver this notification after those before it have been answered."""
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
        """Handle the application's answer, or the end of its time.

        Returns the notification; None if it had ended before.
        """
        ended = self._now_told
        if ended is None or ticket != self._ticket:
            return None
        self._now_told = None
        self._tell_next(now, effects)
        return ended

    def drop(self) -> None:
        """Discard all notifications at the end."""
        self._now_told = None
        self._next.clear()

    def check(self) -> None:
        """Assert that a notification waits only for another one."""
        assert self._now_told is not None or not self._next
