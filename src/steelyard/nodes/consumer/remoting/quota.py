"""Which free queues a member of a group with quotas tries to lock next (`even`).

With quotas nobody tells a member which queues are its own, only how many (`groups.remoting.rebalancer`). What it has
too many of it gives up, the latest first; what it lacks it finds by trying: whoever locks a queue holds it.
As everybody has a quota and the quotas add up to the number of queues, there is a free queue as long as
somebody lacks one.

- In the **first pass** after a change of the plan it tries as many as it lacks at a time, in an order of its
  own (a hash of its id and the queue), so that members who start together do not all try the same.
- After that whatever is locked will come free now and then, as others give up: it tries everything at once,
  after a wait of `WAIT_MS` that doubles up to `WAIT_MAX_MS`, and lets go at once what is too much.

Nothing of this is RocketMQ's; its brokers and locks are enough for it.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from steelyard.types import MessageQueue

WAIT_MS = 10
WAIT_MAX_MS = 500


class Quota:
    """See the module's text. `size`: how many queues of `pool` this member is to hold."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.size = 0
        self.pool: frozenset[MessageQueue] = frozenset()
        self._order: list[MessageQueue] = []
        self._position = 0
        self._wait_ms = WAIT_MS

    def plan(self, size: int, pool: Collection[MessageQueue]) -> None:
        """A rebalance decided. The first pass begins again where either is new."""
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
        """The queues to try now, `ours` left out. Empty only where there are none at all."""
        picked: list[MessageQueue] = []
        while self._position < len(self._order) and len(picked) < lacking:
            queue = self._order[self._position]
            self._position += 1
            if queue not in ours:
                picked.append(queue)
        return picked or [queue for queue in self._order if queue not in ours]

    def wait(self) -> int:
        """How long to wait before the next try, the last one not having been enough; 0 in the first pass."""
        if self._position < len(self._order):
            return 0
        wait_ms = self._wait_ms
        self._wait_ms = min(2 * wait_ms, WAIT_MAX_MS)
        return wait_ms
