"""A query's driver is killed, between micro-batches and inside them; its Parquet files have each message exactly once.

Meanwhile a publisher sends, queues are added, brokers stop and come back, what was read expires; once so much is sent
while no driver runs that unread messages expire, too.

    STEELYARD_SPARK_KILLS=50 ./dev spark tests/spark_long/test_stream_kills.py -s
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from tests.api.conftest import Servers
from tests.spark_long.running import Job
from tests.waiting import until

from steelyard import Admin, Message, MessageQueue, Producer
from steelyard.config import BrokerConfig, StoreConfig
from steelyard.errors import RouteError
from steelyard.spark.offsets import QueueName, from_json
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading.catalog import Catalog

KILLS = int(os.environ.get("STEELYARD_SPARK_KILLS", "5"))
SEED = int(os.environ.get("STEELYARD_SPARK_SEED", "1"))
TOPIC = "Kills"
QUEUES = 2
PER_SEND = 4
SEND_PAUSE_S = 0.2
STORE = StoreConfig(
    segment_bytes=256 << 10, retention_bytes=4 << 20, retention_check_interval_ms=500
)
"""Some 14,000 messages of a queue are kept: what arrives in ten minutes."""
EXPIRING = 40_000
"""Messages that are sent to a queue while no driver runs, so that unread ones expire."""

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(3_600)]


def patient(nameservers: str) -> Producer:
    """A producer that sends a batch once, or fails."""
    return Producer("kills", nameservers, retries=0, send_timeout_ms=60_000)


class Publisher:
    """Sends to every queue in turn. Bodies are the names of their places: `broker-a/1/23` has the offset 23."""

    def __init__(self, nameservers: str) -> None:
        self._nameservers = nameservers
        self.sent: Counter[tuple[str, int]] = Counter()
        self.queues = QUEUES
        self.stopped: set[str] = set()
        """Brokers to leave alone."""
        self.lock = threading.Lock()
        """Held while it sends, and by those who change what it sends to."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failure: BaseException | None = None

    def send(self, broker: str, queue: int, count: int) -> None:
        """In order, one by one acknowledged batch."""
        while count > 0:
            first = self.sent[broker, queue]
            names = [f"{broker}/{queue}/{n}" for n in range(first, first + min(count, 500))]
            messages = [Message(TOPIC, name.encode().ljust(100)) for name in names]
            with patient(self._nameservers) as producer:
                producer.send_batch(messages, queue=MessageQueue(TOPIC, broker, queue))
            self.sent[broker, queue] += len(names)
            count -= len(names)

    def _run(self) -> None:
        try:
            with patient(self._nameservers) as producer:
                while not self._done.wait(SEND_PAUSE_S):
                    for broker in ("broker-a", "broker-b"):
                        for queue in range(self.queues):
                            self._send_some(producer, broker, queue)
        except BaseException as error:
            self.failure = error
            raise

    def _send_some(self, producer: Producer, broker: str, queue: int) -> None:
        with self.lock:
            if broker in self.stopped or queue >= self.queues:
                return
            first = self.sent[broker, queue]
            names = [f"{broker}/{queue}/{n}" for n in range(first, first + PER_SEND)]
            messages = [Message(TOPIC, name.encode().ljust(100)) for name in names]
            try:
                producer.send_batch(messages, queue=MessageQueue(TOPIC, broker, queue))
            except RouteError:
                return  # the broker is back, but this producer does not know yet
            self.sent[broker, queue] += PER_SEND

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        assert self.failure is None


class Query(Job):
    """The driver's process, and what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        driver, checkpoint = Path(__file__).with_name("stream_driver.py"), folder / "checkpoint"
        super().__init__(folder / "log", checkpoint, str(driver), str(self.out), str(checkpoint))

    def position(self) -> dict[QueueName, int]:
        """Where the last finished batch ended."""
        done = self.batches("commits")
        if done < 0:
            return {}
        lines = (self.checkpoint / "offsets" / str(done)).read_text().splitlines()
        return from_json(json.loads(lines[2]))

    def rows(self) -> list[tuple[str, int, int, bytes]]:
        """The rows of the files that Spark's log of them names."""
        names: set[str] = set()
        for log in (self.out / "_spark_metadata").iterdir():
            if not log.name.startswith("."):
                parts = log.read_text().split('"path":"')[1:]
                names.update(part.split('"')[0].rpartition("/")[2] for part in parts)
        rows: list[tuple[str, int, int, bytes]] = []
        for name in sorted(names):
            table = pq.read_table(self.out / name).to_pydict()
            rows += zip(*(table[column] for column in table), strict=True)
        return rows


def options(nameservers: str, **more: str) -> str:
    """The options of the source, as JSON."""
    chosen = {
        "nameservers": nameservers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4000",
        "consumerGroup": "kills",
        "columns": "brokerName,queueId,queueOffset,body",
    }
    return json.dumps(chosen | more)


def caught_up(query: Query, publisher: Publisher) -> Callable[[], bool]:
    def look() -> bool:
        query.check()
        at = query.position()
        return all(
            at.get((TOPIC, broker, queue), 0) >= count
            for (broker, queue), count in publisher.sent.items()
        )

    return look


def wait_for_a_moment(query: Query, random: Random) -> str:
    """Wait for a batch to be planned or done, after some others, or for any moment; which it was."""
    kind = random.choice(["planned", "planned", "done", "any"])
    log = {"planned": "offsets", "done": "commits", "any": "offsets"}[kind]
    query.until_batch(log, query.batches(log) + random.randrange(1, 5))
    if kind == "any":
        time.sleep(random.random() * 0.5)
    elif kind == "planned":
        time.sleep(random.random() * 0.06)
    return kind


def earliest(nameservers: str) -> dict[QueueName, int]:
    with Catalog(read_options({"nameservers": nameservers, "subscribe": TOPIC})) as catalog:
        return catalog.earliest(catalog.queues().addresses)


def settled(nameservers: str) -> dict[QueueName, int]:
    """The least offsets, once nothing expires any more."""
    before = earliest(nameservers)
    while True:
        time.sleep(3 * STORE.retention_check_interval_ms / 1_000)
        found = earliest(nameservers)
        if found == before:
            return found
        before = found


def test_each_message_once(tmp_path: Path) -> None:
    random = Random(SEED)
    servers = Servers(tmp_path / "brokers", BrokerConfig(store=STORE))
    query = Query(tmp_path)
    usual = options(servers.nameservers)
    forgiving = options(servers.nameservers, failOnDataLoss="false")
    publisher = Publisher(servers.nameservers)
    moments: Counter[str] = Counter()
    inside = restarts = 0
    began = time.monotonic()
    try:
        with Admin(servers.nameservers) as admin, publisher:
            admin.create_topic(TOPIC, queues=QUEUES)
            for kill in range(KILLS):
                with query.running(usual):
                    if kill and kill % 5 == 0:  # a broker stops and comes back while the query runs
                        broker = random.choice(["broker-a", "broker-b"])
                        with publisher.lock:
                            publisher.stopped.add(broker)
                            port = servers.stop_broker(broker)
                        time.sleep(random.random() * 8)
                        servers.start_broker(broker, port)
                        with publisher.lock:
                            publisher.stopped.clear()
                        restarts += 1
                    if kill and kill % 10 == 3:  # queues are added
                        admin.create_topic(TOPIC, queues=publisher.queues + 1)
                        publisher.queues += 1
                    moments[wait_for_a_moment(query, random)] += 1
                inside += query.batches("offsets") > query.batches("commits")
                print(
                    f"kill {kill}: {time.monotonic() - began:.0f} s, batch {query.batches('offsets')}",
                    flush=True,
                )
        # the publisher has ended
        with query.running(usual):
            until(caught_up(query, publisher), "the end of every queue")
        lost = expire_unread(query, publisher, servers.nameservers)
        with query.running(forgiving):
            until(caught_up(query, publisher), "the end of every queue")
    finally:
        servers.stop()
    expected = {
        (broker, queue, n)
        for (broker, queue), count in publisher.sent.items()
        for n in range(count)
        if (broker, queue, n) not in lost
    }
    rows = query.rows()
    for broker, queue, offset, body in rows:
        assert body.rstrip() == f"{broker}/{queue}/{offset}".encode()
    found = Counter((broker, queue, offset) for broker, queue, offset, _ in rows)
    print(
        f"{KILLS} kills ({inside} inside a batch; {dict(moments)}), {restarts} restarts of brokers,"
        f" {2 * publisher.queues} queues, {query.batches('commits') + 1} batches, {len(rows)} rows,"
        f" {len(lost)} expired unread"
    )
    assert {place for place, times in found.items() if times > 1} == set()
    assert found.keys() == expected


def expire_unread(
    query: Query, publisher: Publisher, nameservers: str
) -> set[tuple[str, int, int]]:
    """Send so much that unread messages expire; which ones."""
    done = query.position()
    publisher.send("broker-a", 0, EXPIRING)
    lost = {
        (broker, queue, offset)
        for (topic, broker, queue), least in settled(nameservers).items()
        for offset in range(done.get((topic, broker, queue), 0), least)
    }
    assert lost, "nothing expired"
    assert len(lost) < EXPIRING
    return lost
