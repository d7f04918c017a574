"""A broker is killed with SIGKILL while it compacts what is written to it, and loses the last value of no key.

Kills come at random moments of compactions that never pause. After each, a consumer reads the topic from its beginning: of
every key it must find the last value that was acknowledged, or one that was sent later. In the end `steelyard check` finds
nothing wrong. KILLS=200 in the environment makes more of it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.crash.conftest import SECONDS_MAX, STEELYARD, ready
from tests.peers.apache import free_port

KILLS = int(os.environ.get("KILLS", "6"))
SEED = 20261126
KEYS = 60
TOPIC = "table"
SEGMENT_BYTES = 20_000

pytestmark = pytest.mark.timeout(120 + 30 * KILLS)


class CompactingBroker:
    """One broker process with a Kafka listener that compacts without a pause."""

    def __init__(self, data: Path, nameserver: str) -> None:
        self.data = data
        self._port = free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._nameserver = nameserver
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(str(STEELYARD), "broker", "--data", str(self.data), "--port", "0", "--json"),
                *("--nameserver", self._nameserver, "--kafka-port", str(self._port)),
                *("--set", f"store.segment_bytes={SEGMENT_BYTES}"),
                *("--set", "store.compaction_interval_ms=20"),
            ],
            stdout=subprocess.PIPE,
        )
        ready(self._process)

    def end(self, *, kill: bool) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if kill:
            process.kill()
        else:
            process.terminate()
        assert process.stdout is not None
        process.stdout.close()
        return process.wait(SECONDS_MAX)


class Writer:
    """Writes values that count up to random keys, and notes what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.sent: dict[bytes, int] = {}
        self.acknowledged: dict[bytes, int] = defaultdict(lambda: -1)
        self.count = 0

    def write(self, rng: Random, until: threading.Event) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._bootstrap,
            "linger.ms": 2,
            "compression.type": rng.choice(["none", "gzip", "lz4", "snappy", "zstd"]),
            "enable.idempotence": rng.random() < 0.5,
            "message.timeout.ms": 3_000,
            "log_level": 0,
        }
        producer = Producer(settings)
        while not until.is_set():
            for _ in range(rng.randrange(1, 20)):
                key = b"key-%d" % rng.randrange(KEYS)
                self.count += 1
                self.sent[key] = self.count
                value = b"%d %s" % (self.count, b"x" * rng.randrange(80))
                producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            producer.poll(0)
            time.sleep(0.01)
        producer.purge()
        producer.flush(5)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            number = int(value.split()[0])
            self.acknowledged[key] = max(self.acknowledged[key], number)


def table(bootstrap: str) -> tuple[dict[bytes, int], int, int]:
    """The last value of each key, how many records there are, and how many were ever written."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[bytes, int] = {}
    count = end = 0
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found, count, end
            continue
        key, value, offset = message.key(), message.value(), message.offset()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        assert isinstance(offset, int)
        assert offset >= end
        found[key], count, end = int(value.split()[0]), count + 1, offset + 1
    raise AssertionError("the end of the topic was not reached")


@pytest.fixture
def broker(tmp_path: Path, nameserver: str) -> Iterator[CompactingBroker]:
    broker = CompactingBroker(tmp_path / "data", nameserver)
    broker.start()
    yield broker
    broker.end(kill=True)


def test_the_last_value_of_each_key_survives_kills(broker: CompactingBroker) -> None:
    rng = Random(SEED)
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(30)
    writer = Writer(broker.bootstrap)
    unfinished = 0
    for kill in range(KILLS):
        over = threading.Event()
        thread = threading.Thread(target=writer.write, args=(Random(rng.random()), over))
        thread.start()
        time.sleep(rng.uniform(0.1, 1.5))
        assert broker.end(kill=True) == -9
        over.set()
        thread.join(SECONDS_MAX)
        unfinished += any(broker.data.rglob("*.cleaning"))
        broker.start()
        found, count, end = table(broker.bootstrap)
        for key, number in writer.acknowledged.items():
            assert number <= found.get(key, -1) <= writer.sent[key], f"{key!r} after kill {kill}"
        print(f"kill {kill + 1}: {count} of {end} records are left", flush=True)
    deadline = time.monotonic() + SECONDS_MAX
    while count >= end / 2:  # the broker that was killed last has only just begun to compact
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.1)
        _, count, end = table(broker.bootstrap)
    print(
        f"{KILLS} kills, {unfinished} in the middle of a compaction; {count} of {end} records are left"
    )
    assert broker.end(kill=False) == 0
    command = [str(STEELYARD), "check", str(broker.data)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
