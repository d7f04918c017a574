"""How long do other clients wait while one client gives a broker all the work it can?

A broker runs in a process of its own. A good client of each dialect sends one small message after the other, and reads it
back; meanwhile an attacker, in a process of its own, sends what is costly to answer, as fast as it is answered. What is
printed are the good clients' times per round, in milliseconds: alone, then under each attack.

    python -m bench.others [seconds per attack [part of an attack's name]]
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from multiprocessing.connection import Connection

from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.frame import ReplyDecoder, Request, read_reply
from steelyard.wire.kafka.frame import encode as encode_kafka
from steelyard.wire.kafka.messages.cluster import MetadataRequest, MetadataRequestTopic
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
from steelyard.wire.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from steelyard.wire.kafka.records import Record, write_batch
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import Decoder, encode

MAX_MESSAGE = CreatableTopicConfig("max.message.bytes", str(16 * 1024 * 1024))


class Kafka:
    """One connection of a Kafka client."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._number = 0

    def ask(self, message: ApiMessage, version: int) -> ApiMessage:
        api = next(api for api in APIS.values() if api.request is type(message))
        self._number += 1
        request = Request(api, version, self._number, "bench", message)
        return read_reply(api, version, self._exchange(encode_kafka(request)))

    def repeated(self, message: ApiMessage, version: int) -> Callable[[], None]:
        """Asks the same each time; what is costly to encode is encoded once, and the answers are not read."""
        api = next(api for api in APIS.values() if api.request is type(message))
        data = encode_kafka(Request(api, version, 1, "bench", message))
        return lambda: self._exchange(data) and None

    def _exchange(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        decoder = ReplyDecoder()
        while not (replies := decoder.feed(self._socket.recv(1 << 20))):
            pass
        return replies[0]

    def topic(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(name, partitions, 1, (), [MAX_MESSAGE])
        self.ask(CreateTopicsRequest([topic], 10_000), 7)

    def produce(self, topic: str, batch: bytes) -> int:
        parts = [PartitionProduceData(0, batch)]
        request = ProduceRequest(None, -1, 10_000, [TopicProduceData(topic, partition_data=parts)])
        answer = self.ask(request, 9)
        assert isinstance(answer, ProduceResponse)
        part = answer.responses[0].partition_responses[0]
        assert not part.error_code, part
        return part.base_offset

    def fetch(self, topic: str, *offsets: int, max_bytes: int = 1 << 20) -> FetchResponse:
        parts = [
            FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index, offset in enumerate(offsets)
        ]
        topics = [FetchTopic(topic, partitions=parts)]
        answer = self.ask(FetchRequest(max_wait_ms=0, max_bytes=50 << 20, topics=topics), 11)
        assert isinstance(answer, FetchResponse)
        return answer


class Remoting:
    """One connection of a client of RocketMQ."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._number = 0

    def ask(self, code: int, ext: dict[str, object], body: bytes = b"") -> Command:
        self._number += 1
        texts = {name: str(value) for name, value in ext.items()}
        self._socket.sendall(encode(Command(int(code), self._number, 0, texts, body)))
        decoder = Decoder()
        while not (answers := decoder.feed(self._socket.recv(1 << 20))):
            pass
        return answers[0]

    def send(self, topic: str, queue_id: int = 0, body: bytes = b"x" * 100) -> int:
        values: list[object] = ["p", topic, "TBW102", 4, queue_id, 0, 0, 0]
        values += ["KEYS\1k\2TAGS\1t", 0, "false", "false", "b"]
        ext = dict(zip("abcdefghijkmn", values, strict=True))
        answer = self.ask(RequestCode.SEND_MESSAGE_V2, ext, body)
        assert answer.code == 0, answer
        return int(answer.ext["queueOffset"])

    def pull(self, topic: str, offset: int, expression: str = "*", kind: str = "TAG") -> Command:
        ext: dict[str, object] = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 1,
            "expressionType": kind,
            "subscription": expression,
        }
        return self.ask(RequestCode.PULL_MESSAGE, ext)


def rounds(run: Callable[[], None], stop: threading.Event, times: list[float]) -> None:
    while not stop.is_set():
        begun = time.perf_counter()
        run()
        times.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.002)


def kafka_round(client: Kafka) -> None:
    offset = client.produce("good-kafka", write_batch([Record(0, 0, None, b"x" * 100)]))
    assert client.fetch("good-kafka", offset).responses[0].partitions[0].records


def remoting_round(client: Remoting) -> None:
    offset = client.send("good-remoting")
    assert client.pull("good-remoting", offset).body


def attack_of_pulls(
    topic: str, step: int, end: int, expression: str = "*", kind: str = "TAG"
) -> Callable[[int, int], Callable[[], None]]:
    """Pulls all over a queue of `end` messages."""

    def begin(remoting_port: int, kafka_port: int) -> Callable[[], None]:
        client = Remoting(remoting_port)
        at = [0]

        def run() -> None:
            at[0] = (at[0] + step) % end
            client.pull(topic, at[0], expression, kind)

        return run

    return begin


def attack_of_times(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Kafka(kafka_port)

    def run() -> None:
        part = ListOffsetsPartition(0, -1, 900_000)
        client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("large", [part])]), 7)

    return run


def attack_of_queries(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Remoting(remoting_port)
    ext: dict[str, object] = {
        "topic": "large",
        "key": "none",
        "maxNum": 64,
        "beginTimestamp": 0,
        "endTimestamp": 2**63 - 1,
    }
    return lambda: client.ask(RequestCode.QUERY_MESSAGE, ext) and None


def attack_of_fetches(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Kafka(kafka_port)
    return lambda: client.fetch("native", 0, 0, 0, 0) and None


def attack_of_commits(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Kafka(kafka_port)
    parts = [OffsetCommitRequestPartition(index, 5) for index in range(100_000)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("wide", partitions=parts)])
    return client.repeated(request, 8)


def attack_of_wide_fetches(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Kafka(kafka_port)
    parts = [FetchPartition(index, partition_max_bytes=1) for index in range(100_000)]
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic("wide", partitions=parts)])
    return client.repeated(request, 11)


def attack_of_names(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Kafka(kafka_port)
    names = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(100_000)]
    return client.repeated(MetadataRequest(names, False), 9)


def attack_of_batches(remoting_port: int, kafka_port: int) -> Callable[[], None]:
    client = Remoting(remoting_port)
    values: list[object] = ["p", "large", "TBW102", 4, 0, 0, 0, 0, "", 0, "false", "false", "b"]
    ext = dict(zip("abcdefghijkmn", values, strict=True)) | {"m": "true"}
    one = b"\0\0\0\x17" + bytes(12) + b"\0\0\0\1x\0\0"
    return lambda: client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, one * 20_000) and None


def prepare(kafka: Kafka, remoting: Remoting) -> None:
    for name in ("good-kafka", "good-remoting", "large", "bomb"):
        kafka.topic(name)
    kafka.topic("native", 4)
    records = [Record(n, n, None, b"") for n in range(1_000_000)]
    kafka.produce("large", write_batch(records, compression=Compression.ZSTD))
    for _ in range(4):
        value = bytes(15_000_000)
        records = [Record(n, 0, None, value) for n in range(4)]
        kafka.produce("bomb", write_batch(records, compression=Compression.ZSTD))
    for number in range(8_000):
        remoting.send("native", number % 4)


ATTACKS: dict[str, Callable[[int, int], Callable[[], None]]] = {
    "pulls all over a batch of 1,000,000": attack_of_pulls("large", 333_333, 1_000_000),
    "pulls of 60 MB in 2 KB": attack_of_pulls("bomb", 5, 16),
    "SQL92 that matches nothing": attack_of_pulls("large", 800, 990_000, "a = 1", "SQL92"),
    "SQL92, RocketMQ's messages": attack_of_pulls("native", 1, 1_000, "a = 1", "SQL92"),
    "ListOffsets by time": attack_of_times,
    "queries by key": attack_of_queries,
    "fetches of RocketMQ's messages": attack_of_fetches,
    "commits of 100,000 partitions": attack_of_commits,
    "fetches of 100,000 partitions": attack_of_wide_fetches,
    "metadata of 100,000 unknown names": attack_of_names,
    "RocketMQ batches of 20,000": attack_of_batches,
}
LINKS = 4
"""Connections of the attacker."""


def attack(ports: tuple[int, int], name: str, control: Connection) -> None:
    """Attack from the first word on `control` to the second; then tell how long each round took."""
    runs = [ATTACKS[name](*ports) for _ in range(LINKS)]
    control.send("ready")
    control.recv()
    stop = threading.Event()
    times: list[float] = []
    threads = [threading.Thread(target=rounds, args=(run, stop, times)) for run in runs]
    for thread in threads:
        thread.start()
    control.recv()
    stop.set()
    for thread in threads:
        thread.join()
    control.send(times)


@contextmanager
def attacked(ports: tuple[int, int], name: str, heavy: list[float]) -> Iterator[None]:
    """While another process attacks; how long its rounds took is in `heavy` afterwards."""
    context = get_context("spawn")
    control, theirs = context.Pipe()
    attacker = context.Process(target=attack, args=(ports, name, theirs))
    attacker.start()
    control.recv()
    control.send("go")
    yield
    control.send("stop")
    heavy += control.recv()
    attacker.join()


def measure(ports: tuple[int, int], name: str, seconds: float) -> None:
    stop = threading.Event()
    heavy: list[float] = []
    good: dict[str, list[float]] = {"RocketMQ": [], "Kafka": []}
    remoting, kafka = Remoting(ports[0]), Kafka(ports[1])
    threads = [
        threading.Thread(target=rounds, args=(run, stop, times))
        for run, times in (
            (lambda: remoting_round(remoting), good["RocketMQ"]),
            (lambda: kafka_round(kafka), good["Kafka"]),
        )
    ]
    with attacked(ports, name, heavy) if name else nullcontext():
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
    cells = []
    for times in good.values():
        times.sort()
        cells.append(
            f"{times[len(times) // 2]:6.1f}{times[len(times) * 99 // 100]:7.1f}{times[-1]:7.1f}"
        )
    slowest = f"{len(heavy):6d}{max(heavy):8.0f}" if heavy else ""
    print(f"{name or 'alone':36}{'  '.join(cells)}{slowest}", flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "steelyard", "broker", "--data", folder]
        command += ["--port", str(ports[0]), "--kafka-port", str(ports[1])]
        broker = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for port in ports:
                while True:
                    try:
                        socket.create_connection(("127.0.0.1", port)).close()
                        break
                    except OSError:
                        time.sleep(0.05)
            prepare(Kafka(ports[1]), Remoting(ports[0]))
            print(f"{'ms per round':36}{'RocketMQ p50, p99, max':22}{'Kafka p50, p99, max':22}")
            wanted = sys.argv[2] if len(sys.argv) > 2 else ""
            for name in ("", *(name for name in ATTACKS if wanted in name)):
                measure(ports, name, seconds)
        finally:
            broker.terminate()
            broker.wait()


if __name__ == "__main__":
    main()
