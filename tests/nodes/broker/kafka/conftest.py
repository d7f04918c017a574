"""A rig that drives a broker's Kafka listener through the seam: a disk in memory, a clock of our own, a client that asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pytest
from tests.nodes.broker.driver import START, TOPIC, Driver

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.turns import TURNS_TIMER
from steelyard.nodes.seam import KAFKA, Opened, Received
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.frame import (
    Reply,
    ReplyDecoder,
    Request,
    encode,
    read_reply,
    server_decoder,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wire.kafka.schema import ApiMessage, Written

R = TypeVar("R", bound=ApiMessage)


class KafkaRig(Driver):
    """`ask` sends a request and gives the answer. Every request takes the way over the wire."""

    def __init__(
        self, config: BrokerConfig | None = None, disk: MemoryDisk | None = None, now: int = START
    ) -> None:
        self.answers: dict[int, Reply] = {}
        self.correlation = 0
        self.links = 0
        super().__init__(
            config
            or BrokerConfig(
                kafka=KafkaConfig(
                    group_consumer_migration_policy="bidirectional", group_join_window_max_ms=0
                ),
                delayed_answers=True,
            ),
            disk,
            now,
        )

    def restart(self) -> None:
        """A new node on what the disk holds, and a new link to it."""
        super().restart()
        self.link = self.connect()

    def _carry(self, link: int, message: object) -> None:
        assert isinstance(message, Reply)
        (raw,) = ReplyDecoder().feed(encode(message))
        if isinstance(message.message, Written):
            read = read_reply(message.api, message.version, raw)
            message = msgspec.structs.replace(message, message=read)
        assert message.correlation_id not in self.answers
        self.answers[message.correlation_id] = message

    # -- the client ------------------------------------------------------------------------------

    def connect(self) -> int:
        self.links += 1
        self.event(Opened(self.links, f"10.0.0.{self.links}:5000", dialect=KAFKA))
        return self.links

    def post(self, message: ApiMessage, version: int, *, link: int | None = None) -> int:
        """Send a request; its correlation id."""
        api = next(api for api in APIS.values() if api.request is type(message))
        self.correlation += 1
        frame = encode(Request(api, version, self.correlation, "client", message))
        (request,) = server_decoder().feed(frame)
        self.event(Received(self.link if link is None else link, request))
        return self.correlation

    def answer_to(self, correlation: int, kind: type[R]) -> R | None:
        """The answer, None while there is none."""
        reply = self.answers.get(correlation)
        if reply is None:
            return None
        assert isinstance(reply.message, kind)
        return reply.message

    def ask(
        self, message: ApiMessage, version: int, kind: type[R], *, link: int | None = None
    ) -> R:
        """Send a request that is answered at once, or in turns."""
        correlation = self.post(message, version, link=link)
        while correlation not in self.answers and TURNS_TIMER in self.timers:
            self.advance(1)
        answer = self.answer_to(correlation, kind)
        assert answer is not None, "no answer yet"
        return answer

    def create_topic(
        self, name: str = TOPIC, partitions: int = 1, settings: dict[str, str] | None = None
    ) -> bytes:
        """Make a topic; its id."""
        configs = [CreatableTopicConfig(key, value) for key, value in (settings or {}).items()]
        topic = CreatableTopic(name, partitions, 1, (), configs)
        answer = self.ask(CreateTopicsRequest([topic], 1000), 7, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0].topic_id

    def log(self, topic: str = TOPIC, queue_id: int = 0) -> Log:
        log = self.store.log(topic, queue_id)
        assert log is not None
        return log


def batch(
    *values: bytes,
    timestamps: Sequence[int] | None = None,
    compression: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """What a producer sends: records with these values, or one of `x`."""
    records = [
        Record(number, START + number if timestamps is None else timestamps[number], None, value)
        for number, value in enumerate(values or (b"x",))
    ]
    return write_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )


@pytest.fixture
def rig() -> KafkaRig:
    return KafkaRig()
