"""Which dialect a topic of Steelyard is written in: the clients of both can read it.

A record of a Kafka producer that is read as a RocketMQ message has a unique key that ends with its
offset (`conversion.messages.unique_prefix`); that of a RocketMQ producer ends with a counter.
"""

from __future__ import annotations

from steelyard.errors import SteelyardError
from steelyard.web.console.answers import BrowsedMessage, Dialect
from steelyard.web.console.contract import DialectSource
from steelyard.web.console.questions import MessagesQuestion

TOPICS_MAX = 10_000
"""Most topics that are remembered."""


class Writers:
    """Remembers the dialect of each topic, once it has a message."""

    def __init__(self) -> None:
        self._dialects: dict[str, Dialect] = {}

    async def dialect(self, remoting: DialectSource, topic: str) -> Dialect | None:
        """Return the dialect of a topic's first message; None without one."""
        known = self._dialects.get(topic)
        if known is not None:
            return known
        question = MessagesQuestion(dialect="rocketmq", topic=topic, from_="earliest", limit=1)
        try:
            found = (await remoting.messages(question)).messages
        except SteelyardError:
            return None
        if not found:
            return None
        dialect = written_in(found[0])
        self._dialects[topic] = dialect
        while len(self._dialects) > TOPICS_MAX:
            del self._dialects[next(iter(self._dialects))]
        return dialect


def written_in(message: BrowsedMessage) -> Dialect:
    """Return the dialect of the producer of a message, which was read as a RocketMQ message."""
    is_converted = (message.id or "").endswith(f"{message.offset:014X}")
    return "kafka" if is_converted else "rocketmq"
