"""Lines of RocketMQ's logs about consumer groups, of brokers (`broker.log`) and of Java clients.

The words are those of RocketMQ 4.3 to 5.3. Its own configuration writes the time of UTC+8, in
brokers without milliseconds; where a line has a heartbeat's time, that counts.
Source: broker/client/ConsumerGroupInfo.java, broker/client/ConsumerManager.java,
client/impl/consumer/RebalanceImpl.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from steelyard.incident.log_lines import at_of
from steelyard.types import MessageQueue

UTC_OFFSET_MS = 8 * 3_600_000
"""Time zone of RocketMQ's logs, unless somebody has changed its configuration."""
SECOND_MS = 1_000


class Connected(NamedTuple):
    """A consumer registered with a broker."""

    at: int
    group: str
    client: str


class Disconnected(NamedTuple):
    """A consumer is gone at a broker. `cause`: unregistered, closed or expired."""

    at: int
    group: str
    client: str
    cause: str


class HeldQueues(NamedTuple):
    """A client has other queues of a topic than before: these."""

    at: int
    group: str
    topic: str
    client: str
    queues: frozenset[MessageQueue]


LogEvent = Connected | Disconnected | HeldQueues

_CHANNEL = (
    r"ClientChannelInfo \[channel=\[.*?R:/?(?P<address>\S+)\], clientId=(?P<client>.*?), "
    r"language=.*?lastUpdateTimestamp=(?P<heard>\d+)\]"
)
_CONNECTED = re.compile(rf"new consumer connected, group: (?P<group>\S+) .*?{_CHANNEL}")
_UNREGISTERED = re.compile(
    rf"unregister a consumer\[(?P<group>.*?)\] from consumerGroupInfo {_CHANNEL}"
)
_CLOSED = re.compile(
    rf"NETTY EVENT: remove not active channel\[{_CHANNEL}\] from ConsumerGroupInfo"
    r" groupChannelTable, consumer group: (?P<group>\S+)"
)
_EXPIRED = re.compile(
    r"SCAN: remove expired channel from ConsumerManager consumerTable\."
    r" channel=(?P<address>[^,\s]+), consumerGroup=(?P<group>\S+)"
)
_SHARE = re.compile(
    r"rebalanced result changed\. allocateMessageQueueStrategyName=[^,]*, group=(?P<group>.*?),"
    r" topic=(?P<topic>.*?), clientId=(?P<client>.*?), mqAllSize=.*?"
    r"rebalanceResultSet=\[(?P<queues>.*)\]"
)
_QUEUE = re.compile(r"MessageQueue \[topic=(.*?), brokerName=(.*?), queueId=(\d+)\]", re.IGNORECASE)


def read_rocketmq_log(
    lines: Iterable[str], utc_offset_ms: int = UTC_OFFSET_MS
) -> Iterator[LogEvent]:
    """Yield what the lines of one file say about groups, in their order."""
    clients: dict[str, str] = {}
    """Client ids by address, as far as lines name both."""
    for line in lines:
        if "onsumer" not in line and "rebalanced result" not in line:
            continue
        at = at_of(line, utc_offset_ms)
        if at is None:
            continue
        if match := _CONNECTED.search(line):
            clients[match["address"]] = match["client"]
            yield Connected(_exact(at, match["heard"]), match["group"], match["client"])
        elif match := _UNREGISTERED.search(line):
            yield Disconnected(at, match["group"], match["client"], "unregistered")
        elif match := _CLOSED.search(line):
            yield Disconnected(at, match["group"], match["client"], "closed")
        elif match := _EXPIRED.search(line):
            address = match["address"].lstrip("/")
            if address in clients:
                yield Disconnected(at, match["group"], clients[address], "expired")
        elif match := _SHARE.search(line):
            queues = frozenset(
                MessageQueue(topic, broker, int(number))
                for topic, broker, number in _QUEUE.findall(match["queues"])
            )
            yield HeldQueues(at, match["group"], match["topic"], match["client"], queues)


def _exact(at: int, heard: str) -> int:
    """Return the time of a heartbeat if it is in the second that the log names."""
    return int(heard) if at <= int(heard) < at + SECOND_MS else at
