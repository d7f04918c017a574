"""How long can one request hold up a broker's event loop?

Requests that are legal and as costly as their sender can make them go through one broker in this process: decoding the
frame, the node's `handle` calls, encoding the answer, each by the processor time of its longest single step. Timers are
served as they come. No socket and no disk is involved, and nobody else's load is: what is measured is what others wait.

    python -m bench.stalls [name ...]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.seam import (
    KAFKA,
    REMOTING,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    Opened,
    Received,
    Send,
    SetTimer,
)
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import MessageQueue
from steelyard.wire.kafka import frame as kafka_frames
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
from steelyard.wire.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from steelyard.wire.kafka.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from steelyard.wire.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from steelyard.wire.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting import frame as remoting_frames
from steelyard.wire.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.properties import encode_properties

TOPIC = "stalls"
GROUP = "stalls-group"
START = 1_700_000_000_000
T = TypeVar("T")


class Broker:
    """One broker of both dialects. `slowest`: by kind of step, the longest so far, seconds."""

    def __init__(self) -> None:
        self.now = START
        self.timers: dict[Hashable, int] = {}
        config = BrokerConfig(kafka=KafkaConfig(message_max_bytes=16 * 1024 * 1024))
        self.store = Store(MemoryDisk(), config.store)
        self.store.open(self.now)
        self.node = BrokerNode(config, self.store, random.Random(1))
        self.dialects: dict[int, str] = {}
        self.answers: list[object] = []
        self.numbers = 0
        self.slowest = dict.fromkeys(("decode", "handle", "encode"), 0.0)
        self._make_true(self.node.start(self.now))

    def _timed(self, kind: str, step: Callable[[], T]) -> T:
        before = time.thread_time()
        result = step()
        self.slowest[kind] = max(self.slowest[kind], time.thread_time() - before)
        return result

    def event(self, event: Event) -> None:
        self._make_true(self._timed("handle", lambda: self.node.handle(event, self.now)))

    def _make_true(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(key, at):
                    self.timers[key] = at
                case DropTimer(key):
                    self.timers.pop(key, None)
                case Send(link, message):
                    write = (
                        kafka_frames.write
                        if self.dialects[link] == KAFKA
                        else remoting_frames.write
                    )
                    out: list[bytes] = []
                    self._timed("encode", lambda: write(out, message))  # noqa: B023
                    self.answers.append(message)
                case Flush(ticket):
                    self.event(Flushed(ticket))

    def pass_time(self, milliseconds: int) -> None:
        until = self.now + milliseconds
        while self.timers:
            key = min(self.timers, key=lambda each: self.timers[each])
            if self.timers[key] > until:
                break
            self.now = max(self.now, self.timers.pop(key))
            self.event(Due(key))
        self.now = until

    def connect(self, dialect: str) -> int:
        link = len(self.dialects) + 1
        self.dialects[link] = dialect
        self.event(Opened(link, f"10.0.0.1:{link}", dialect=dialect))
        return link

    def kafka(self, message: ApiMessage, version: int, link: int | None = None) -> object:
        """Ask as a Kafka client; the last answer that came."""
        link = self.connect(KAFKA) if link is None else link
        api = next(api for api in APIS.values() if api.request is type(message))
        self.numbers += 1
        request = kafka_frames.Request(api, version, self.numbers, "client", message)
        data = kafka_frames.encode(request)
        decoder = kafka_frames.server_decoder()
        self._received(link, self._timed("decode", lambda: decoder.feed(data)))
        return self.answers[-1] if self.answers else None

    def remoting(self, code: int, ext: dict[str, object], body: bytes = b"") -> object:
        """Ask as a client of RocketMQ; the last answer that came."""
        link = self.connect(REMOTING)
        texts = {name: str(value) for name, value in ext.items()}
        self.numbers += 1
        data = remoting_frames.encode(
            Command(int(code), self.numbers, 0, texts, body, language="JAVA", version=409)
        )
        decoder = remoting_frames.Decoder()
        self._received(link, self._timed("decode", lambda: decoder.feed(data)))
        return self.answers[-1] if self.answers else None

    def _received(self, link: int, messages: list[object] | list[Command]) -> None:
        for message in messages:
            self.event(Received(link, message))

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """What is done in between does not count."""
        kept = dict(self.slowest)
        yield
        self.slowest = kept

    def topic(self, name: str = TOPIC, partitions: int = 1) -> None:
        self.kafka(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 1000), 7)

    def produce(self, batch: bytes, topic: str = TOPIC, index: int = 0) -> None:
        parts = [PartitionProduceData(index, batch)]
        self.kafka(
            ProduceRequest(None, -1, 1000, [TopicProduceData(topic, partition_data=parts)]), 9
        )

    def send(self, count: int, queues: int = 1, body: bytes = b"x" * 20) -> None:
        for number in range(count):
            ext = dict(zip("abcdefghijkmn", _SEND_V2, strict=True)) | {
                "e": number % queues,
                "i": encode_properties({"KEYS": "k", "TAGS": "t", "UNIQ_KEY": f"{number:032X}"}),
            }
            self.remoting(RequestCode.SEND_MESSAGE_V2, ext, body)


_SEND_V2: list[object] = ["p", TOPIC, "TBW102", 4, 0, 0, START, 0, "", 0, "false", "false", "b"]


def tiny_records(count: int, compression: int = Compression.ZSTD) -> bytes:
    return write_batch(
        [Record(n, START + n, None, b"") for n in range(count)], compression=compression
    )


def pull(offset: int, **more: object) -> dict[str, object]:
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 1,
        "expressionType": "TAG",
        "subscription": "*",
    } | more


CASES: dict[str, Callable[[Broker], None]] = {}


def case(text: str) -> Callable[[Callable[[Broker], None]], Callable[[Broker], None]]:
    def add(run: Callable[[Broker], None]) -> Callable[[Broker], None]:
        CASES[text] = run
        return run

    return add


# -- batches ---------------------------------------------------------------------------------------


@case("Produce: a batch of 1,048,576 records")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        batch = tiny_records(1_048_576)
    broker.produce(batch)


def with_large_batch(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        broker.produce(tiny_records(1_000_000))


@case("pull: first messages of a batch of 1,000,000 records")
def _(broker: Broker) -> None:
    with_large_batch(broker)
    broker.remoting(RequestCode.PULL_MESSAGE, pull(0))


@case("pull: last messages of a batch of 1,000,000 records")
def _(broker: Broker) -> None:
    with_large_batch(broker)
    broker.remoting(RequestCode.PULL_MESSAGE, pull(999_990))
    broker.pass_time(5_000)


@case("pull: 60 MB in 2 KB of zstd, one record")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        broker.produce(
            write_batch([Record(0, 0, None, bytes(60_000_000))], compression=Compression.ZSTD)
        )
    broker.remoting(RequestCode.PULL_MESSAGE, pull(0))
    broker.pass_time(5_000)


@case("pull: 20 MB in one block of snappy")
def _(broker: Broker) -> None:
    from cramjam import snappy

    with broker.quietly():
        broker.topic()
        plain = write_batch([Record(0, 0, None, bytes(20_000_000))])
        packed = bytes(snappy.compress_raw(plain[61:]))
        import struct

        from crc32c import crc32c

        checked = struct.pack(">h", Compression.SNAPPY) + plain[23:61] + packed
        head = plain[:8] + struct.pack(">i", len(checked) + 9) + plain[12:17]
        broker.produce(head + struct.pack(">I", crc32c(checked)) + checked)
    broker.remoting(RequestCode.PULL_MESSAGE, pull(0))
    broker.pass_time(5_000)


@case("pull: records with 10,000 headers")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        headers = (("h", None),) * 10_000
        broker.produce(
            write_batch(
                [Record(n, 0, None, b"", headers) for n in range(100)],
                compression=Compression.ZSTD,
            )
        )
    broker.remoting(RequestCode.PULL_MESSAGE, pull(0))
    broker.pass_time(5_000)


@case("ListOffsets: a time in a batch of 1,000,000 records")
def _(broker: Broker) -> None:
    with_large_batch(broker)
    part = ListOffsetsPartition(0, -1, START + 999_999)
    broker.kafka(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [part])]), 7)
    broker.pass_time(5_000)


@case("ListOffsets: the first time among 50,000 batches")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        log = broker.store.create_log(TOPIC, 0)
        for number in range(50_000):
            batch = write_batch([Record(number, START + number, None, b"x")])
            log.append_batch(batch, 1, START + number)
    part = ListOffsetsPartition(0, -1, START + 49_999)
    broker.kafka(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [part])]), 7)
    broker.pass_time(5_000)


@case("query by key in a batch of 1,000,000 records")
def _(broker: Broker) -> None:
    with_large_batch(broker)
    broker.remoting(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": TOPIC,
            "key": "nothing",
            "maxNum": 64,
            "beginTimestamp": 0,
            "endTimestamp": 2**63 - 1,
        },
    )
    broker.pass_time(5_000)


# -- RocketMQ's messages ---------------------------------------------------------------------------


@case("Fetch: RocketMQ's messages from 32 queues")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic(partitions=32)
        broker.send(20_000, 32)
    parts = [FetchPartition(index, partition_max_bytes=1 << 20) for index in range(32)]
    broker.kafka(
        FetchRequest(
            max_wait_ms=100, max_bytes=50 << 20, topics=[FetchTopic(TOPIC, partitions=parts)]
        ),
        11,
    )
    broker.pass_time(1_000)


@case("pull: a condition of 15,000 characters that matches nothing")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        broker.send(2_000)
    condition = " OR ".join(f"a = {number % 10}" for number in range(1_700))
    broker.remoting(
        RequestCode.PULL_MESSAGE, pull(0, expressionType="SQL92", subscription=condition)
    )
    broker.pass_time(1_000)


@case("pull: a condition that matches nothing, 16 clients at once")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        broker.send(2_000)
    for _ in range(16):
        broker.remoting(
            RequestCode.PULL_MESSAGE, pull(0, expressionType="SQL92", subscription="a = 1")
        )
    broker.pass_time(1_000)


@case("pull: every other message, 8,192 of them, by tag")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        broker.send(20_000)
    broker.remoting(RequestCode.PULL_MESSAGE, pull(0, maxMsgNums=8_192, subscription="t"))
    broker.pass_time(1_000)


@case("query by key: every message has it")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
        broker.send(5_000)
    broker.remoting(
        RequestCode.QUERY_MESSAGE,
        {"topic": TOPIC, "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**63 - 1},
    )
    broker.pass_time(5_000)


@case("heartbeat: 16 MB of JSON, 20,000 subscriptions")
def _(broker: Broker) -> None:
    topics = tuple(SubscriptionData(f"t{n}" + "x" * 600, "*") for n in range(20_000))
    groups = (ConsumerData("g", subscription_data_set=topics),)
    broker.remoting(RequestCode.HEART_BEAT, {}, fastjson.write(HeartbeatData("c", (), groups)))


@case("heartbeat: 1,000 groups of 30 topics")
def _(broker: Broker) -> None:
    topics = tuple(SubscriptionData(f"t{number}", "a || b", sub_version=1) for number in range(30))
    groups = tuple(
        ConsumerData(f"g{number}", message_model="CLUSTERING", subscription_data_set=topics)
        for number in range(1_000)
    )
    broker.remoting(RequestCode.HEART_BEAT, {}, fastjson.write(HeartbeatData("c", (), groups)))


@case("lock: 20,000 queues")
def _(broker: Broker) -> None:
    queues = tuple(MessageQueue("t", "b", number) for number in range(20_000))
    broker.remoting(RequestCode.LOCK_BATCH_MQ, {}, fastjson.write(LockBatchBody("g", "c", queues)))


@case("send: a batch of 10,000 messages")
def _(broker: Broker) -> None:
    send_batch(broker, 10_000)


@case("send: a batch of 180,000 messages")
def _(broker: Broker) -> None:
    send_batch(broker, 180_000)


def send_batch(broker: Broker, count: int) -> None:
    with broker.quietly():
        broker.topic()
    one = b"\0\0\0\x17" + bytes(12) + b"\0\0\0\1x\0\0"
    assert len(one) == 23
    ext = dict(zip("abcdefghijkmn", _SEND_V2, strict=True)) | {"i": "", "m": "true"}
    broker.remoting(RequestCode.SEND_BATCH_MESSAGE, ext, one * count)
    broker.pass_time(10_000)
    answer = broker.answers[-1]
    assert isinstance(answer, Command)
    assert answer.code == 0, answer.remark


# -- many topics, queues and groups -------------------------------------------------------------------


def with_topics(broker: Broker, count: int, partitions: int) -> None:
    with broker.quietly():
        for first in range(0, count, 100):
            made = [
                CreatableTopic(f"topic-{number}", partitions, 1)
                for number in range(first, min(first + 100, count))
            ]
            broker.kafka(CreateTopicsRequest(made, 1000), 7)


@case("CreateTopics: 100 topics of 1,000 partitions")
def _(broker: Broker) -> None:
    made = [CreatableTopic(f"topic-{number}", 1_000, 1) for number in range(100)]
    broker.kafka(CreateTopicsRequest(made, 1000), 7)


@case("Metadata: 100 topics of 1,000 partitions")
def _(broker: Broker) -> None:
    with_topics(broker, 100, 1_000)
    broker.kafka(MetadataRequest(None), 9)
    broker.pass_time(1_000)


@case("Metadata: 10,000 topics")
def _(broker: Broker) -> None:
    with_topics(broker, 10_000, 1)
    broker.kafka(MetadataRequest(None), 9)
    broker.pass_time(1_000)


@case("Metadata: 100,000 names that are unknown")
def _(broker: Broker) -> None:
    names = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(100_000)]
    broker.kafka(MetadataRequest(names, False), 9)
    broker.pass_time(1_000)


@case("Fetch: 100,000 partitions")
def _(broker: Broker) -> None:
    with_topics(broker, 100, 1_000)
    parts = [FetchPartition(index, partition_max_bytes=1) for index in range(1_000)]
    topics = [FetchTopic(f"topic-{number}", partitions=parts) for number in range(100)]
    broker.kafka(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1, topics=topics), 11)
    broker.pass_time(1_000)


@case("ListOffsets: 100,000 partitions")
def _(broker: Broker) -> None:
    with_topics(broker, 100, 1_000)
    parts = [ListOffsetsPartition(index, -1, -1) for index in range(1_000)]
    topics = [ListOffsetsTopic(f"topic-{number}", parts) for number in range(100)]
    broker.kafka(ListOffsetsRequest(-1, 0, topics), 7)
    broker.pass_time(1_000)


def commit(broker: Broker, count: int) -> None:
    parts = [OffsetCommitRequestPartition(index, 5) for index in range(1_000)]
    topics = [
        OffsetCommitRequestTopic(f"topic-{number}", partitions=parts)
        for number in range(count // 1_000)
    ]
    broker.kafka(OffsetCommitRequest("g", topics=topics), 8)


@case("OffsetCommit: 100,000 partitions")
def _(broker: Broker) -> None:
    with_topics(broker, 100, 1_000)
    commit(broker, 100_000)
    broker.pass_time(1_000)


@case("OffsetFetch: all of 100,000")
def _(broker: Broker) -> None:
    with_topics(broker, 100, 1_000)
    with broker.quietly():
        commit(broker, 100_000)
    broker.kafka(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 8)
    broker.pass_time(1_000)


@case("OffsetFetch: 100,000 partitions that have none")
def _(broker: Broker) -> None:
    topics = [OffsetFetchRequestTopic("t", partition_indexes=range(100_000))]
    broker.kafka(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)]), 8)
    broker.pass_time(2_000)


@case("Fetch: 100,000 partitions that are unknown")
def _(broker: Broker) -> None:
    parts = [FetchPartition(index, partition_max_bytes=1) for index in range(100_000)]
    broker.kafka(FetchRequest(topics=[FetchTopic("t", partitions=parts)]), 11)
    broker.pass_time(2_000)


@case("Produce: 100,000 batches to one partition")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic()
    parts = [PartitionProduceData(0, write_batch([Record(0, START, None, b"x")]))] * 100_000
    topics = [TopicProduceData(TOPIC, partition_data=parts)]
    broker.kafka(ProduceRequest(None, -1, 1000, topics), 9)
    broker.pass_time(2_000)


@case("JoinGroup: 16 MB of metadata")
def _(broker: Broker) -> None:
    protocols = [JoinGroupRequestProtocol("range", bytes(15_000_000))]
    broker.kafka(JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols), 5)
    broker.pass_time(1_000)


def with_groups(broker: Broker, count: int) -> None:
    with broker.quietly():
        broker.topic()
        for number in range(count):
            parts = [OffsetCommitRequestPartition(0, 5)]
            topics = [OffsetCommitRequestTopic(TOPIC, partitions=parts)]
            broker.kafka(OffsetCommitRequest(f"g{number}", topics=topics), 8)


@case("ListGroups: 10,000 groups")
def _(broker: Broker) -> None:
    with_groups(broker, 10_000)
    broker.kafka(ListGroupsRequest(), 4)


@case("DescribeGroups: 10,000 groups")
def _(broker: Broker) -> None:
    with_groups(broker, 10_000)
    broker.kafka(DescribeGroupsRequest([f"g{number}" for number in range(10_000)]), 5)


@case("DescribeConfigs: 10,000 topics")
def _(broker: Broker) -> None:
    with_topics(broker, 10_000, 1)
    asked = [DescribeConfigsResource(2, f"topic-{number}", None) for number in range(10_000)]
    broker.kafka(DescribeConfigsRequest(asked), 4)
    broker.pass_time(1_000)


@case("RocketMQ: all topics, 10,000 of them")
def _(broker: Broker) -> None:
    with_topics(broker, 10_000, 1)
    broker.remoting(RequestCode.GET_ALL_TOPIC_CONFIG, {})


@case("RocketMQ: registration of 10,000 topics")
def _(broker: Broker) -> None:
    with_topics(broker, 10_000, 1)
    broker.pass_time(60_000)


@case("RocketMQ: statistics of a topic of 16,384 queues")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic(partitions=16_384)
        for index in range(16_384):
            log = broker.store.create_log(TOPIC, index)
            log.append_batch(write_batch([Record(0, START, None, b"x")]), 1, START)
    broker.remoting(RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC})


@case("RocketMQ: progress of a group, 16,384 queues")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic(partitions=16_384)
        for index in range(16_384):
            log = broker.store.create_log(TOPIC, index)
            log.append_batch(write_batch([Record(0, START, None, b"x")]), 1, START)
    broker.remoting(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": TOPIC})


@case("RocketMQ: progress of all groups, 1,000 of 100 queues")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic(partitions=100)
        for number in range(1_000):
            for queue_id in range(100):
                broker.node._remoting._committed.put(f"g{number}", TOPIC, queue_id, 1)
    broker.remoting(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})


@case("RocketMQ: runtime information, 10,000 logs")
def _(broker: Broker) -> None:
    with broker.quietly():
        broker.topic(partitions=10_000)
        for index in range(10_000):
            log = broker.store.create_log(TOPIC, index)
            log.append_batch(write_batch([Record(0, START, None, b"x")]), 1, START)
    broker.remoting(RequestCode.GET_BROKER_RUNTIME_INFO, {})


def main(names: list[str]) -> None:
    print(f"{'longest single step, ms of processor time':56}  decode  handle  encode")
    for text, run in CASES.items():
        if names and not any(name in text for name in names):
            continue
        broker = Broker()
        try:
            run(broker)
            broker.pass_time(5_000)
            figures = "".join(f"{broker.slowest[kind] * 1000:8.1f}" for kind in broker.slowest)
        except Exception as error:
            figures = f"  {error!r}"[:90]
        print(f"{text:56}{figures}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
