"""The Kafka listener over sockets: a real client's traffic, replies of 50 MB, and peers that send rubbish."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.driver.test_garbage import Address, throw
from tests.examples import examples

from steelyard.config import BrokerConfig
from steelyard.driver.loops import Background
from steelyard.servers.server import serve_broker
from steelyard.types import joined
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.frame import ReplyDecoder, Request, encode, read_reply
from steelyard.wire.kafka.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.records import Record, read_headers, write_batch
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

MEMORY_GROWTH_MAX = 400 * 1024 * 1024


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Where a broker's Kafka listener listens."""
    background = Background()
    folder = str(tmp_path_factory.mktemp("kafka"))
    server = background.wait(serve_broker(folder, port=0, kafka_port=0, config=BrokerConfig()))
    host, _, port = server.kafka.rpartition(":")
    yield host, int(port)
    background.wait(server.stop(), 60)
    assert not server.driver.failed.done()
    background.loop.call_soon_threadsafe(background.loop.stop)


class Client:
    """One connection that asks one thing after the other."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, 60)
        self._socket.settimeout(60)
        self._number = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, message: ApiMessage, version: int) -> ApiMessage:
        api = next(api for api in APIS.values() if api.request is type(message))
        self._number += 1
        self._socket.sendall(encode(Request(api, version, self._number, "test", message)))
        decoder = ReplyDecoder()
        while not (replies := decoder.feed(data := self._socket.recv(1 << 20))):
            assert data, "the broker hung up"
        assert replies[0].correlation_id == self._number
        return read_reply(api, version, replies[0])

    def make_topic(self, name: str) -> None:
        """Asked for until it is told: the first answer may come before it is made."""
        asked = MetadataRequest([MetadataRequestTopic(NO_ID, name)])
        error = None
        while error != 0:
            answer = self.ask(asked, 9)
            assert isinstance(answer, MetadataResponse)
            error = answer.topics[0].error_code


def test_a_client_writes_and_reads(listener: Address) -> None:
    """Three partitions' worth of order, with an idempotent producer."""
    bootstrap = f"{listener[0]}:{listener[1]}"
    with Client(listener) as client:
        client.make_topic("traffic")
    errors: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
    )
    for number in range(20_000):
        producer.produce("traffic", b"%d" % number, on_delivery=delivered)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0
    assert errors == []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition("traffic", 0, 0)])
    values: list[bytes | None] = []
    while len(values) < 20_000:
        messages = consumer.consume(5_000, 20)
        assert messages, "nothing came for 20 seconds"
        values += [message.value() for message in messages]
    consumer.close()
    assert values == [b"%d" % number for number in range(20_000)]


def test_an_unknown_api_closes_the_link_and_the_log_names_it(
    listener: Address, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka; 83 is InitializeShareGroupState, which is not served."""
    with socket.create_connection(listener, 60) as link:
        link.sendall(struct.pack(">ihhih", 10, 83, 1, 1, -1))
        assert link.recv(1) == b""
    assert "broke the protocol: API key 83 is not supported" in caplog.text


def test_a_reply_of_50_megabytes(listener: Address) -> None:
    batch = write_batch([Record(0, 1, None, b"x" * 1_000_000)])
    parts = [PartitionProduceData(0, batch)]
    asked = FetchRequest(
        max_bytes=50 * 1024 * 1024,
        topics=[
            FetchTopic("large", NO_ID, [FetchPartition(0, partition_max_bytes=50 * 1024 * 1024)])
        ],
    )
    with Client(listener) as client:
        client.make_topic("large")
        for number in range(53):
            produced = client.ask(
                ProduceRequest(None, -1, 1000, [TopicProduceData("large", NO_ID, parts)]), 7
            )
            assert isinstance(produced, ProduceResponse)
            assert produced.responses[0].partition_responses[0].base_offset == number
        answer = client.ask(asked, 11)
        assert isinstance(answer, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert records is not None
        found = [header.base_offset for _, header in read_headers(joined([records]))]
        assert found == list(range(50 * 1024 * 1024 // len(batch)))


# -- rubbish ---------------------------------------------------------------------------------------


def serves_others(address: Address) -> None:
    with Client(address) as client:
        answer = client.ask(ApiVersionsRequest("test", "1"), 3)
        assert isinstance(answer, ApiVersionsResponse)
        assert answer.error_code == 0


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Requests of every API with empty fields, bent or cut."""
    api = draw(st.sampled_from(list(APIS.values())))
    version = draw(st.integers(*api.versions))
    data = encode(Request(api, version, draw(st.integers(0, 2**31 - 1)), "c", api.request()))
    at = draw(st.integers(0, len(data)))
    bent = data[:at] + draw(st.binary(max_size=8)) + data[at + draw(st.integers(0, 8)) :]
    if draw(st.booleans()):
        bent = struct.pack(">i", max(0, len(bent) - 4)) + bent[4:]
    return bent


lengths = st.sampled_from([-1, 0, 3, 4, 8, 100 * 1024 * 1024, 100 * 1024 * 1024 + 1, 2**31 - 1])
headed = st.builds(
    lambda size, key, version, rest: struct.pack(">ihhi", size, key, version, 1) + rest,
    lengths | st.integers(-(2**31), 2**31 - 1),
    st.integers(-1, 80),
    st.integers(-1, 20),
    st.binary(max_size=300),
)


@settings(max_examples=examples(150))
@given(data=st.binary(max_size=400) | headed | st.lists(frames(), max_size=4).map(b"".join))
def test_garbage_harms_nobody_else(listener: Address, data: bytes) -> None:
    throw(listener, data)
    serves_others(listener)


def test_memory_stays_bounded(listener: Address) -> None:
    """100 peers announce frames of 2 GB or 100 MB and send a part of them."""
    process = psutil.Process()
    before = process.memory_info().rss
    peers = [socket.create_connection(listener, 10) for _ in range(100)]
    for number, peer in enumerate(peers):
        size = 2**31 - 1 if number % 2 else 100 * 1024 * 1024
        try:
            peer.sendall(struct.pack(">ihhi", size, 0, 7, 1) + bytes(4_000_000))
        except OSError:
            """Closed already."""
    serves_others(listener)
    for peer in peers:
        peer.close()
    assert process.memory_info().rss - before < MEMORY_GROWTH_MAX
