"""Which queue a message goes to: round robin per topic, from a random start.

A retry avoids the broker that failed last, unless there is no other. Source:
client/impl/producer/TopicPublishInfo.java `selectOneMessageQueue`, ThreadLocalIndex.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.types import MessageQueue, Random


class QueueChoice:
    """One turn per topic. The random start keeps producers that begin together from moving in step."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._turns: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], avoid_broker: str = ""
    ) -> MessageQueue:
        """The next queue of the topic. `queues` is not empty."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._rng.randrange(1 << 31)
        chosen = queues[turn % len(queues)]
        if avoid_broker:
            for step in range(len(queues)):
                queue = queues[(turn + step) % len(queues)]
                if queue.broker_name != avoid_broker:
                    turn += step
                    chosen = queue
                    break
        self._turns[topic] = turn + 1
        return chosen
