"""Messages that a RocketMQ consumer cannot be given: they are passed over, counted, and a WARNING names one of them.

One message that cannot be delivered must not keep a group from all those behind it. Passed over are: what does not fit into
one answer, for RocketMQ's clients close a connection that brings a frame above 16 MiB
(com.rocketmq.remoting.frameMaxLength, remoting/netty/NettySystemConfig.java), and records of Kafka's producers that cannot
be read. The messages stay in the log, and Kafka's consumers get them.
"""

from __future__ import annotations

from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.types import LogLine

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Largest frame that RocketMQ's clients take, with its size field."""
ANSWER_BYTES_MAX = FRAME_BYTES_MAX - 64 * 1024
"""Most bytes of messages in an answer: what a frame holds beside its header."""

INTERVAL_MS = 10_000
"""At most one WARNING in this time."""


class PassedOver:
    """Counts what was passed over and says so: `note` as it happens, `report` after each event."""

    def __init__(self) -> None:
        self.count = 0
        """Messages passed over since the start. One that several groups come to counts each time."""
        self.has_news = False
        self._reported = 0
        self._report_at = 0
        self._last = ""

    def note(self, log: Log, offset: int, count: int, reason: str) -> None:
        """`count` messages from `offset` on were passed over."""
        self.count += count
        self.has_news = True
        self._last = f"topic {log.topic}, queue {log.queue_id}, offset {offset}: {reason}"

    def report(self, now: int, effects: list[Effect]) -> None:
        """The WARNING, where there is news and the last one is old enough."""
        news = self.count - self._reported
        if not news or now < self._report_at:
            return
        self._report_at = now + INTERVAL_MS
        self._reported = self.count
        self.has_news = False
        what = "1 message was" if news == 1 else f"{news} messages were"
        text = f"{what} skipped for RocketMQ consumers; the last: {self._last}"
        effects.append(LogLine("WARNING", text))


def too_large(size: int) -> str:
    """The reason where a message does not fit into an answer."""
    return f"{size} bytes; an answer holds at most {ANSWER_BYTES_MAX}"
