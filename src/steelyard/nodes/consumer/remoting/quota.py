"""The free queues that a member of a group with quotas tries to lock next (`even`).

With quotas a member is told only how many queues it may hold, not which
(`groups.remoting.rebalancer`). If it has too many, it gives up those taken last. If it has too few,
it tries to lock others: whoever locks a queue holds it. As every member has a quota and the quotas
add up to the number of queues, some queue is free, or soon will be, while a member has too few.

- In the **first pass** after a change of the plan it tries only as many at a time as are missing,
  in an order of its own (a hash of its id and the queue), so that members that start together do
  not all try the same.
- After that, locked queues become free now and then, as others give them up. It tries all of them
  at once, after a delay of `WAIT_MS` that doubles up to `WAIT_MAX_MS`, and unlocks at once any that
  are too many.

RocketMQ has nothing like this; its brokers and locks suffice for it.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from steelyard.types import MessageQueue

WAIT_MS = 10
WAIT_MAX_MS = 500


class Quota:
    """The search for free queues. `size`: how many queues of `pool` this member is to hold."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.size = 0
        self.pool: frozenset[MessageQueue] = frozenset()
        self._order: list[MessageQueue] = []
        self._position = 0
        self._wait_ms = WAIT_MS

    def plan(self, size: int, pool: Collection[MessageQueue]) -> None:
        """Handle the result of a rebalance; a changed one starts the first pass again."""
        new = (size, frozenset(pool))
        if new != (self.size, self.pool):
            self.size, self.pool = new
            self._order = sorted(pool, key=self._rank)
            self._position = 0
        self._wait_ms = WAIT_MS

    def _rank(self, queue: MessageQueue) -> bytes:
        text = f"{self._client_id} {queue.topic} {queue.broker_name} {queue.queue_id}"
        return blake2b(text.encode(), digest_size=8).digest()

    def pick(self, lacking: int, ours: Collection[MessageQueue]) -> list[MessageQueue]:
        """Return the queues to try now, without `ours`; empty only if there are no others."""
        picked: list[MessageQueue] = []
        while self._position < len(self._order) and len(picked) < lacking:
            queue = self._order[self._position]
            self._position += 1
            if queue not in ours:
                picked.append(queue)
        return picked or [queue for queue in self._order if queue not in ours]

    def wait(self) -> int:
        """Return the delay before the next try after one that did not suffice.

        0 in the first pass.
        """
        if self._position < len(self._order):
            return 0
        wait_ms = self._wait_ms
        self._wait_ms = min(2 * wait_ms, WAIT_MAX_MS)
        return wait_ms
