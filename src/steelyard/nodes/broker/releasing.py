"""Delivery of messages that have waited in a system topic: they are written to their real queue.

A message whose topic was deleted meanwhile is dropped, with a line in the log; so is a damaged one.
A queue that no longer exists is replaced by the last one.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.nodes.broker.topics import TopicConfigs
from steelyard.nodes.broker.writer import Draft, Writer
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import Properties


class Releasing:
    """See the module docstring."""

    def __init__(self, topics: TopicConfigs, writer: Writer) -> None:
        self._topics = topics
        self._writer = writer

    def place(self, view: MessageView, effects: list[Effect]) -> tuple[str, int] | None:
        """Return the real topic and queue of a message; None, and a line in the log, if gone."""
        topic = view.property_of(props.REAL_TOPIC) or ""
        config = self._topics.get(topic)
        if config is None:
            text = f"a delayed message was dropped: its topic {topic!r} is gone"
            effects.append(LogLine("WARNING", text))
            return None
        queue = view.property_of(props.REAL_QID) or ""
        if not queue.isdecimal() or len(queue) > 9:
            text = (
                f"a delayed message of topic {topic!r} was dropped:"
                f" it is damaged, its queue is {queue!r}"
            )
            effects.append(LogLine("ERROR", text))
            return None
        queues = max(config.write_queue_nums, config.read_queue_nums)
        return topic, min(int(queue), queues - 1)

    def release(
        self,
        view: MessageView,
        properties: Mapping[str, str],
        now: int,
        effects: list[Effect],
    ) -> None:
        """Write a message to its real queue, with these properties. Raises StorageError."""
        place = self.place(view, effects)
        if place is None:
            return
        draft = Draft(
            view.stored_body,
            Properties.of(properties),
            view.born_host_bytes,
            view.born_timestamp,
            view.flag,
            view.sys_flag,
            view.reconsume_times,
        )
        self._writer.write(*place, draft, now, effects)

    def release_batch(self, view: MessageView, now: int, effects: list[Effect]) -> None:
        """Write the body of a message, a record batch of Kafka's with one record, to its partition.

        Raises StorageError.
        """
        place = self.place(view, effects)
        if place is None:
            return
        config = self._topics.get(place[0])
        assert config is not None
        at_append = config.attributes.get("message.timestamp.type") == "LogAppendTime"
        log = self._writer.log(*place)
        offset = self._writer.write_batch(log, view.body, 1, now, now if at_append else None)
        self._writer.wrote(log, offset, now, effects)
