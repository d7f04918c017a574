"""A client that asks for a lot of work keeps nobody waiting: others' requests are answered between its turns."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.driver.test_garbage import Address
from tests.driver.test_kafka_listener import Client

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.loops import Background
from steelyard.nodes.seam import Effect, Event
from steelyard.servers.server import LocalServer, serve_broker
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.messages.data import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import Decoder, encode
from steelyard.wire.remoting.message import decode_records

TOPIC = "turns"
HEAVY = 200
CPU_SECONDS_MAX = 0.5
"""Of one event, on any machine: the whole work takes many seconds."""


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    background = Background()
    config = BrokerConfig(kafka=KafkaConfig(message_max_bytes=8 * 1024 * 1024))
    server = background.wait(serve_broker(str(tmp_path), port=0, kafka_port=0, config=config))
    yield server
    background.wait(server.stop(), 60)
    assert not server.driver.failed.done()
    background.loop.call_soon_threadsafe(background.loop.stop)


def produce(client: Client, batch: bytes) -> None:
    parts = [PartitionProduceData(0, batch)]
    request = ProduceRequest(None, -1, 10_000, [TopicProduceData(TOPIC, partition_data=parts)])
    answer = client.ask(request, 9)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def pull(opaque: int, offset: int, expression: str = "", count: int = 32) -> bytes:
    ext = {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 1,
        "expressionType": "SQL92" if expression else "TAG",
        "subscription": expression or "*",
    }
    texts = {name: str(value) for name, value in ext.items()}
    return encode(Command(int(RequestCode.PULL_MESSAGE), opaque, 0, texts))


def test_others_are_served_while_a_client_has_millions_of_records_searched(
    server: LocalServer,
) -> None:
    """1. A batch of 300,000 records is stored, 2. one client pulls from it HEAVY times, by a condition that none meets and
    from all over the batch, 3. another produces with Kafka's protocol, and is answered, 4. a small pull follows on the first
    link, 5. whose answer comes before those of most of the others.
    """
    longest = 0.0
    handle = server.driver.node.handle

    def timed(event: Event, now: int) -> list[Effect]:
        nonlocal longest
        begun = time.thread_time()
        effects = handle(event, now)
        longest = max(longest, time.thread_time() - begun)
        return effects

    with Client(address_of(server.kafka)) as kafka:
        kafka.make_topic(TOPIC)
        records = [Record(number, 0, None, b"x") for number in range(300_000)]
        produce(kafka, write_batch(records, compression=Compression.ZSTD))
        server.driver.node.handle = timed  # type: ignore[method-assign]
        with socket.create_connection(address_of(server.address), 20) as link:
            link.settimeout(60)
            offsets = [299_000 - number * 1_000 for number in range(HEAVY)]
            link.sendall(b"".join(pull(n, offset, "a = 1") for n, offset in enumerate(offsets)))
            produce(kafka, write_batch([Record(0, 0, None, b"small")]))
            link.sendall(pull(HEAVY, 0, count=1))
            decoder = Decoder()
            answers: list[Command] = []
            while len(answers) <= HEAVY:
                data = link.recv(1 << 20)
                assert data, "the broker hung up"
                answers += decoder.feed(data)
    order = [answer.opaque for answer in answers]
    assert order.index(HEAVY) < HEAVY // 2
    small = answers[order.index(HEAVY)]
    assert [view.body for view in decode_records(small.body)] == [b"x"]
    codes = {answer.code for answer in answers if answer.opaque != HEAVY}
    assert codes == {int(ResponseCode.PULL_RETRY_IMMEDIATELY)}
    assert longest < CPU_SECONDS_MAX
