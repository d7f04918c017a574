"""Messages that RocketMQ consumers cannot receive: they are skipped, counted, and reported.

One message that cannot be delivered must not keep a group from all those behind it. Two kinds are
skipped: messages that do not fit into one answer, because RocketMQ's clients close a connection
that brings a frame above 16 MiB (com.rocketmq.remoting.frameMaxLength,
remoting/netty/NettySystemConfig.java), and records of Kafka's producers that cannot be read. The
messages stay in the log, and Kafka's consumers get them.
"""

from __future__ import annotations

from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.types import LogLine
from steelyard.wording import counted

INTERVAL_MS = 10_000
"""Interval in which at most one WARNING is logged."""


class PassedOver:
    """Counts skipped messages and reports them: `note` each, and call `report` after each event."""

    def __init__(self) -> None:
        self.count = 0
        """Messages skipped since the start; one that several groups reach counts each time."""
        self.has_news = False
        self._reported = 0
        self._report_at = 0
        self._last = ""

    def note(self, log: Log, offset: int, count: int, reason: str) -> None:
        """Note that `count` messages from `offset` on were skipped."""
        self.count += count
        self.has_news = True
        self._last = f"topic {log.topic}, queue {log.queue_id}, offset {offset}: {reason}"

    def report(self, now: int, effects: list[Effect]) -> None:
        """Log a WARNING with the number of skipped messages and the last of them, if one is due."""
        news = self.count - self._reported
        if not news or now < self._report_at:
            return
        self._report_at = now + INTERVAL_MS
        self._reported = self.count
        self.has_news = False
        what = f"{counted(news, 'message')} {'was' if news == 1 else 'were'}"
        text = f"{what} skipped for RocketMQ consumers; the last: {self._last}"
        effects.append(LogLine("WARNING", text))
