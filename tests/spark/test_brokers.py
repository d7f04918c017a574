"""Reads from brokers of ours in this process: filters, times and progress as real brokers have them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
from tests.api.conftest import Servers
from tests.waiting import until

from steelyard import Admin, Message, MessageQueue, Producer
from steelyard.errors import BrokerError
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading.catalog import Catalog
from steelyard.spark.reading.stream import RocketMQStreamReader
from steelyard.spark.source import RocketMQReader
from steelyard.wire.remoting.codes import ResponseCode

_serial = count(1)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A nameserver and two brokers."""
    made = Servers(tmp_path_factory.mktemp("brokers"))
    yield made
    made.stop()


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"Spark{next(_serial)}"


def bodies(servers: Servers, **options: str) -> list[bytes]:
    reader = RocketMQReader(read_options({"nameservers": servers.nameservers} | options))
    return [
        body
        for one in reader.partitions()
        for batch in reader.read(one)
        for body in batch.column("body").to_pylist()  # type: ignore[attr-defined]
    ]


def send(servers: Servers, topic: str, messages: list[Message]) -> None:
    """In order, to one queue."""
    with Producer("p", servers.nameservers) as producer:
        producer.send_batch(messages, queue=MessageQueue(topic, "broker-a", 1))


def numbered(topic: str, first: int, last: int, **more: str) -> list[Message]:
    return [
        Message(topic, b"%d" % n, tags="ab"[n % 2], properties={"n": str(n)} | more)
        for n in range(first, last)
    ]


def test_brokers_filter_by_tags_and_conditions(servers: Servers, topic: str) -> None:
    send(servers, topic, numbered(topic, 0, 3_000))
    send(servers, topic, [Message(topic, b"no tag")])
    even = [b"%d" % n for n in range(0, 3_000, 2)]
    assert bodies(servers, subscribe=topic, tags="a") == even
    assert len(bodies(servers, subscribe=topic, tags="a || b")) == 3_000
    assert len(bodies(servers, subscribe=topic, tags="*")) == 3_001
    assert bodies(servers, subscribe=topic, tags="nobody") == []
    found = bodies(servers, subscribe=topic, sql="n >= 2990 AND TAGS = 'a'")
    assert found == even[-5:]
    pieces = bodies(servers, subscribe=topic, sql="n >= 2990 AND TAGS = 'a'", minPartitions="7")
    assert pieces == even[-5:]


def test_a_pull_that_a_filter_leaves_empty_fails_only_for_lost_data(
    servers: Servers, topic: str
) -> None:
    """All but the last message are refused: the broker answers "try again" with a later offset."""
    send(servers, topic, numbered(topic, 0, 5_000))
    assert bodies(servers, subscribe=topic, sql="n = 4999", pullBatchSize="32") == [b"4999"]


def test_from_one_time_to_another(servers: Servers, topic: str) -> None:
    times = []
    for part in range(3):
        send(servers, topic, numbered(topic, 10 * part, 10 * part + 10))
        time.sleep(0.02)
        times.append(int(time.time() * 1000))
        time.sleep(0.02)
    middle = {"startingTimestamp": str(times[0]), "endingTimestamp": str(times[1])}
    options = {"subscribe": topic, "queues": "broker-a:1"} | middle
    assert bodies(servers, **options) == [b"%d" % n for n in range(10, 20)]


def test_from_the_progress_of_a_group(servers: Servers, topic: str) -> None:
    send(servers, topic, numbered(topic, 0, 10))
    options = {"nameservers": servers.nameservers, "subscribe": topic, "consumerGroup": "readers"}
    with Catalog(read_options(options)) as catalog:
        addresses = catalog.queues().addresses
        name = (topic, "broker-a", 1)
        catalog.commit(addresses, {name: 7})
        assert catalog.committed(addresses) == {name: 7}
    read = {"subscribe": topic, "consumerGroup": "readers", "startingOffsets": "committed"}
    assert bodies(servers, **read) == [b"7", b"8", b"9"]
    assert len(bodies(servers, subscribe=topic, consumerGroup="readers")) == 10


def test_the_progress_of_a_stream_is_seen_by_operators(servers: Servers, topic: str) -> None:
    send(servers, topic, numbered(topic, 0, 10))
    options = {"nameservers": servers.nameservers, "subscribe": topic, "consumerGroup": "watched"}
    reader = RocketMQStreamReader(
        read_options(
            options | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}, "stream"
        )
    )
    limit = reader.getDefaultReadLimit()
    at = reader.initialOffset()
    for _ in range(3):
        at = reader.latestOffset(at, limit)
    with Admin(servers.nameservers) as admin:
        until(lambda: "%RETRY%watched" in admin.topics())
        progress = admin.consumer_progress("watched", topic)
        with pytest.raises(BrokerError) as caught:
            admin.members("watched")
        assert caught.value.code == ResponseCode.CONSUMER_NOT_ONLINE
    (queue,) = [one for one in progress.queues if one.queue == MessageQueue(topic, "broker-a", 1)]
    assert (queue.consumer_offset, queue.broker_offset) == (4, 10)
