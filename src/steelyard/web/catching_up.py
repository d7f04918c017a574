"""What was read of the ledger's queues, and how much of it can be computed.

    merge = Merge(now)
    merge.expect(absent, queues, now)       # who is there, as often as it is asked
    merge.add(queue, messages, now, is_at_end=...)
    messages = merge.take(now)

While brokers' pasts are read, one is faster than another. `ledger.stream` takes records of nearly
any order, but not those of an hour ago after those of now. So messages are given out in the order
of their times, only as far as every queue has been read, and none before all brokers that are
expected have answered. Once all queues were read to their ends, everything is given out at once.

A broker that does not answer for `PATIENCE_MS` is left out then: an outage would otherwise hide all
rebalances of the brokers that are up. What it recorded comes too late when it is back, and is
reason to read again.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.ledger.stream import LedgerMessage
from steelyard.types import MessageQueue

PATIENCE_MS = 120_000
"""How long to wait for a broker: as long as nameservers list one that has fallen silent."""

WAITING_MAX = 5_000
"""Messages of a queue that may wait; then it is not read for a while."""


class _Progress:
    """A queue: the time of its latest message so far, and when it was read last or became known."""

    __slots__ = ("heard_at", "is_at_end", "newest", "waiting")

    def __init__(self, now: int) -> None:
        self.waiting: list[LedgerMessage] = []
        self.newest: int | None = None
        self.heard_at = now
        self.is_at_end = False

    @property
    def is_full(self) -> bool:
        return len(self.waiting) >= WAITING_MAX

    def taken(self, limit: int | None) -> list[LedgerMessage]:
        """Give out the messages up to a time; None: all."""
        found = [one for one in self.waiting if limit is None or one.at <= limit]
        self.waiting = [one for one in self.waiting if limit is not None and one.at > limit]
        return found


class Merge:
    """See the module docstring. Times are in ms since the epoch."""

    def __init__(self, now: int) -> None:
        self._began = now
        self._queues: dict[MessageQueue, _Progress] = {}
        self._absent: frozenset[str] | None = None
        """Brokers that must be there, and are not; None before anybody was asked."""
        self.is_complete = False
        """Whether all queues were read to the ends that they had at some time."""
        self.left_out: frozenset[str] = frozenset()
        """Brokers that are not waited for any longer, if it is not complete."""

    def expect(self, absent: Iterable[str], queues: Iterable[MessageQueue], now: int) -> None:
        """Note who is there: the queues of the brokers that have a ledger.

        `absent`: names of brokers that must be there, but are unknown to the nameservers.
        """
        self._absent = frozenset(absent)
        for queue in queues:
            self._queues.setdefault(queue, _Progress(now))

    def add(
        self, queue: MessageQueue, messages: Iterable[LedgerMessage], now: int, *, is_at_end: bool
    ) -> None:
        """Add what was read of a queue. `is_at_end`: it had no more messages then."""
        progress = self._queues.setdefault(queue, _Progress(now))
        progress.heard_at = now
        progress.is_at_end |= is_at_end
        for message in messages:
            progress.waiting.append(message)
            progress.newest = max(message.at, progress.newest or message.at)

    def is_full(self, queue: MessageQueue) -> bool:
        """Return whether a queue should not be read for now."""
        progress = self._queues.get(queue)
        return progress is not None and progress.is_full

    def missing(self) -> list[str]:
        """Return the brokers whose queues have not been read to their ends, sorted."""
        behind = {queue.broker_name for queue, one in self._queues.items() if not one.is_at_end}
        return sorted(behind | self._strangers())

    def _strangers(self) -> frozenset[str]:
        """Return the absent brokers of which nothing is known."""
        return (self._absent or frozenset()) - {queue.broker_name for queue in self._queues}

    def take(self, now: int) -> list[LedgerMessage]:
        """Return the messages that can be computed, each once."""
        limit = None
        if not self.is_complete:
            if self._absent is None or not self._have_answered(now):
                return []
            behind = [
                one
                for queue, one in self._queues.items()
                if not one.is_at_end and queue.broker_name not in self.left_out
            ]
            if any(one.newest is None for one in behind):
                return []
            limit = min((one.newest for one in behind if one.newest is not None), default=None)
            self.is_complete = not behind
        return [one for progress in self._queues.values() for one in progress.taken(limit)]

    def _have_answered(self, now: int) -> bool:
        """Find out who does not answer; return whether the others may be computed."""
        absent = self._strangers()
        silent = {
            queue.broker_name
            for queue, one in self._queues.items()
            if not one.is_at_end and not one.is_full and now - one.heard_at >= PATIENCE_MS
        }
        if absent and now - self._began < PATIENCE_MS:
            return False
        self.left_out = absent | silent
        return not self._queues or any(
            queue.broker_name not in self.left_out for queue in self._queues
        )
