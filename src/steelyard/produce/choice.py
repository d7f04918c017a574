"""The choice of a queue for a message.

- By default: round robin per topic, from a random start; a retry avoids the broker that failed
  last, unless there is no other.
- With latency fault tolerance (`faults`), available brokers come first, by the rules of each
  version: 4.x: available > one of the least bad > any. 5.x: available and not the last > reachable
  and not the last > any.
- A sharding key always leads to the same queue, as long as the number of queues is the same.

Source: client/impl/producer/TopicPublishInfo.java, client/latency/MQFaultStrategy.java
`selectOneMessageQueue`, ThreadLocalIndex.java,
client/producer/selector/SelectMessageQueueByHash.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steelyard.produce.faults import FaultStrategy
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting.flags import tag_code


class QueueChoice:
    """The turn of each topic.

    Random starts keep producers that start together from staying in step.
    """

    def __init__(self, rng: Random, faults: FaultStrategy | None = None) -> None:
        self._rng = rng
        self._faults = faults
        self._turns: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], now: int, avoid_broker: str = ""
    ) -> MessageQueue:
        """Choose the next queue of the topic.

        `queues` is not empty; `avoid_broker` failed just before.
        """
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._rng.randrange(1 << 31)
        faults = self._faults
        if faults is not None:
            if avoid_broker and faults.table.pauses_are_kept:
                turn = self._rng.randrange(1 << 31)
            step = self._healthy(faults, queues, turn, now, avoid_broker)
        elif avoid_broker:
            step = _steps_to(queues, turn, lambda broker: broker != avoid_broker)
        else:
            step = 0
        turn += step or 0
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]

    def _healthy(
        self,
        faults: FaultStrategy,
        queues: Sequence[MessageQueue],
        turn: int,
        now: int,
        avoid_broker: str,
    ) -> int | None:
        """Return how many queues to skip; None if no broker is healthy."""
        if faults.table.pauses_are_kept:
            step = _steps_to(
                queues,
                turn,
                lambda broker: broker != avoid_broker and faults.available(broker, now),
            )
            if step is not None:
                return step
            return _steps_to(
                queues, turn, lambda broker: broker != avoid_broker and faults.reachable(broker)
            )
        step = _steps_to(queues, turn, lambda broker: faults.available(broker, now))
        if step is not None:
            return step
        least_bad = faults.pick_one_at_least(now)
        step = _steps_to(queues, turn, lambda broker: broker == least_bad)
        if step is None and least_bad is not None:
            faults.forget(least_bad)  # it has no writable queue of this topic
        return step


def _steps_to(
    queues: Sequence[MessageQueue], turn: int, is_good: Callable[[str], bool]
) -> int | None:
    """Return the distance to the next queue with a healthy broker; None if there is none."""
    for step in range(len(queues)):
        if is_good(queues[(turn + step) % len(queues)].broker_name):
            return step
    return None


def queue_of_key(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """Choose the queue that Java clients choose for the key.

    `queues`: not empty, in route order.
    """
    return queues[abs(tag_code(sharding_key)) % len(queues)]
