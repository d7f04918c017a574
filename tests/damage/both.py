"""A rig for one broker with clients of both dialects: `ask` speaks RocketMQ's, `kafka` Kafka's."""

from __future__ import annotations

from typing import TypeVar

from tests.nodes.broker.conftest import Rig
from tests.nodes.broker.driver import START

from steelyard.config import BrokerConfig, KafkaConfig, StoreConfig
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.broker.turns import TURNS_TIMER
from steelyard.nodes.seam import KAFKA, Asked, Opened, Received
from steelyard.store.memory import MemoryDisk
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.frame import (
    Reply,
    ReplyDecoder,
    Request,
    RequestDecoder,
    encode,
    read_reply,
)
from steelyard.wire.kafka.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

SMALL = BrokerConfig(
    kafka=KafkaConfig(),
    ledger=False,
    store=StoreConfig(segment_bytes=3_000, index_flush_rows=8, retention_ms=0),
)
"""Several segments a log, and index rows that are written as they come."""


class BothRig(Rig):
    """See the module's text. Both links are opened anew after each restart."""

    def __init__(
        self, disk: MemoryDisk | None = None, config: BrokerConfig = SMALL, now: int = START
    ) -> None:
        self.replies: dict[int, ApiMessage] = {}
        self.correlation = 0
        super().__init__(config, disk, now=now)

    def restart(self) -> None:
        super().restart()
        self.replies.clear()
        self.remoting_link = self.connect("10.0.0.1:5000")
        self.link += 1
        self.kafka_link = self.link
        self.event(Opened(self.kafka_link, "10.0.0.2:5000", dialect=KAFKA))

    def stop(self) -> None:
        """A clean stop, after which only `disk` is of use."""
        self.event(Asked(1, Stop()))
        assert self.answers.pop(1) is None

    def _carry(self, link: int, message: object) -> None:
        if isinstance(message, Reply):
            (raw,) = ReplyDecoder().feed(encode(message))
            self.replies[message.correlation_id] = read_reply(message.api, message.version, raw)
        else:
            super()._carry(link, message)

    def kafka(self, message: ApiMessage, version: int, kind: type[R]) -> R:
        """Send a request of Kafka's that is answered within 10 ms, or in turns."""
        api = next(api for api in APIS.values() if api.request is type(message))
        self.correlation += 1
        frame = encode(Request(api, version, self.correlation, "client", message))
        (request,) = RequestDecoder().feed(frame)
        self.event(Received(self.kafka_link, request))
        if self.correlation not in self.replies:
            self.advance(10)  # a rebalance begins with a timer
        while self.correlation not in self.replies and TURNS_TIMER in self.timers:
            self.advance(1)
        reply = self.replies.pop(self.correlation, None)
        assert reply is not None, "no answer yet"
        assert isinstance(reply, kind)
        return reply
