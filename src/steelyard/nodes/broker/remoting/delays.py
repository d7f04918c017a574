"""Messages of RocketMQ's clients that are to be delivered later: by level, or to the millisecond.

Producers, committed transactions and retries go through here. DELAY counts before TIMER_*, whose
properties are then removed, as in RocketMQ.
Source: broker/util/HookUtils.java `handleScheduleMessage`.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.nodes.broker.remoting.schedule import Schedule, delay_level
from steelyard.nodes.broker.timers.due import due_of
from steelyard.nodes.broker.timers.timers import KAFKA_RECORD, DelayedMessages
from steelyard.nodes.broker.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.properties import TIMER_PROPERTIES


class Delays:
    """See the module docstring."""

    def __init__(self, schedule: Schedule, timers: DelayedMessages) -> None:
        self._schedule = schedule
        self._timers = timers

    def admit(self, properties: Mapping[str, str], now: int) -> None:
        """Raise MessageError if a message cannot be delayed as its properties say."""
        if delay_level(properties) <= 0:
            self._timers.admit(properties, now)

    def divert(
        self, topic: str, queue_id: int, properties: dict[str, str], now: int
    ) -> tuple[str, int, dict[str, str]]:
        """Return where to store a message that may be delayed, and its properties.

        Call `stored` afterwards if that is another topic. The mark of Kafka's records is the
        broker's own: with it, the body of a client's message would be taken for a record batch.
        """
        level = delay_level(properties)
        if level > 0:
            for name in TIMER_PROPERTIES:
                properties.pop(name, None)
            return self._schedule.divert(topic, queue_id, level, properties)
        due = due_of(properties, now)
        if due is None:
            return topic, queue_id, properties
        properties.pop(KAFKA_RECORD, None)
        return self._timers.divert(topic, queue_id, due, properties)

    def stored(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        properties: Mapping[str, str],
        now: int,
        effects: list[Effect],
    ) -> None:
        """Note that a message was stored, with the results of `divert`."""
        if topic == SCHEDULE_TOPIC:
            self._schedule.arm(queue_id + 1, now, effects)
        elif topic == TIMER_TOPIC:
            self._timers.stored(offset, properties, now, effects)
