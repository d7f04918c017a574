"""A query that copies a topic exactly once is killed, at every point of its micro-batches; no row is lost or twice.

Nine of ten times all Python workers are killed, in which tasks, the source and the sink's commit run; otherwise the
whole driver with its JVM. The brokers are in this process, so that the point is seen where it matters:

    staging    a task has opened its transaction, and writes
    decided    the coordinator has just committed the batch; Spark does not know yet
    later      some time after a task has opened its transaction: in the commit, or after it

    STEELYARD_SPARK_KILLS=100 ./dev spark tests/spark_long/test_sink_kills.py -s
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest
from confluent_kafka import Consumer
from tests.api.kafka import KafkaServers
from tests.spark_long.running import Job, kill_at_once
from tests.waiting import until

from steelyard import Admin, Message, Producer
from steelyard.groups.kafka.transactional_ids import Transaction, TransactionalIdState
from steelyard.nodes.broker.node import BrokerNode
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading.planning import plan
from steelyard.spark.reading.pull import batches

KILLS = int(os.environ.get("STEELYARD_SPARK_KILLS", "10"))
SEED = int(os.environ.get("STEELYARD_SPARK_SEED", "1"))
SOURCE, SINK = "Original", "Copy"
DELAYS_S = {"staging": 0.1, "decided": 0.0, "later": 0.6}
"""The points, and how long after one is reached the kill comes, at most."""
PER_SEND = 50
SEND_PAUSE_S = 0.2

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(7_200)]


class Publisher:
    """Sends numbers, as bodies and keys."""

    def __init__(self, nameservers: str) -> None:
        self._nameservers = nameservers
        self.sent = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Producer("kills", self._nameservers, retries=0, send_timeout_ms=60_000) as producer:
            while not self._done.wait(SEND_PAUSE_S):
                numbers = [f"{n}" for n in range(self.sent, self.sent + PER_SEND)]
                producer.send_batch([Message(SOURCE, n.encode(), keys=n) for n in numbers])
                self.sent += PER_SEND

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


class Query(Job):
    """The driver's process."""

    def __init__(self, folder: Path, nameservers: str) -> None:
        source = {
            "nameservers": nameservers,
            "subscribe": SOURCE,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "2000",
        }
        sink = {"nameservers": nameservers, "topic": SINK, "exactlyOnce": "true"}
        driver, checkpoint = Path(__file__).with_name("sink_driver.py"), folder / "checkpoint"
        command = (str(driver), str(checkpoint), json.dumps(source), json.dumps(sink))
        super().__init__(folder / "log", checkpoint, *command)

    def kill_workers(self) -> None:
        """SIGKILL at once for the workers that Spark's Python daemons have forked."""
        kill_at_once(workers(self.check().children(recursive=True)))


def workers(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that Spark's Python daemons have forked."""
    parents: dict[psutil.Process, psutil.Process | None] = {}
    for each in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "pyspark.daemon" in each.cmdline():
                parents[each] = each.parent()
    return [each for each, parent in parents.items() if parent in parents]


class Coordinators:
    """What the brokers know of the query's transactions."""

    def __init__(self, servers: KafkaServers) -> None:
        self._servers = servers

    def _all(self) -> list[Transaction]:
        found: list[Transaction] = []
        for server in self._servers._brokers.values():
            node = server.driver.node
            assert isinstance(node, BrokerNode)
            assert node._kafka is not None
            found += list(dict(node._kafka.markings._transactions._all).values())
        return [each for each in found if each.transactional_id.startswith("spark-stream:")]

    def open(self) -> set[tuple[str, int, int]]:
        """The open transactions."""
        return {
            (each.transactional_id, each.producer_id, each.producer_epoch)
            for each in self._all()
            if each.state is TransactionalIdState.ONGOING
        }

    def decided(self) -> int:
        """The last batch that was committed; -1: none."""
        return max((each.decided.number for each in self._all() if each.decided), default=-1)


def wait_for_a_moment(query: Query, coordinators: Coordinators, random: Random) -> str:
    kind = random.choice([*DELAYS_S])
    left, last = coordinators.open(), coordinators.decided() + random.randrange(2)

    def reached() -> bool:
        if kind == "decided":
            return coordinators.decided() > last
        return coordinators.decided() >= last and bool(coordinators.open() - left)

    deadline = time.monotonic() + 300
    while not reached():
        query.check()
        assert time.monotonic() < deadline, query.told()
        time.sleep(0.001)
    time.sleep(random.random() * DELAYS_S[kind])
    return kind


def copies(servers: KafkaServers) -> Counter[int]:
    """What our own reader finds."""
    options = read_options({"nameservers": servers.nameservers, "topic": SINK})
    found = [row for part in plan(options) for rows in batches(part, options) for row in rows.to_pylist()]  # fmt: skip
    assert all(str(row["body"], "utf-8") == row["keys"] for row in found)
    return Counter(int(row["body"]) for row in found)


def copies_of_kafka(servers: KafkaServers, expected: int) -> Counter[int]:
    """What librdkafka's consumer finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers.bootstrap,
            "group.id": "copies",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([SINK])
    found: Counter[int] = Counter()
    while found.total() < expected:
        for message in consumer.consume(1_000, timeout=20):
            if message.error() is None:
                found[int(message.value() or b"")] += 1
    consumer.close()
    return found


def test_each_row_once(tmp_path: Path) -> None:
    random = Random(SEED)
    servers = KafkaServers(tmp_path / "brokers")
    coordinators = Coordinators(servers)
    query = Query(tmp_path, servers.nameservers)
    moments: Counter[str] = Counter()
    points: Counter[str] = Counter()
    began = time.monotonic()
    try:
        with Admin(servers.nameservers) as admin:
            for topic in (SOURCE, SINK):
                admin.create_topic(topic, queues=2)
        publisher = Publisher(servers.nameservers)
        query.start()
        with publisher:
            for kill in range(KILLS):
                kind = wait_for_a_moment(query, coordinators, random)
                if everything := kill % 10 == 9:
                    query.kill()
                else:
                    query.kill_workers()
                noted, planned, decided = query.batches("commits"), query.batches("offsets"), coordinators.decided()  # fmt: skip
                if planned == noted:
                    point = "between batches"
                elif decided == planned:
                    point = "between the decision and Spark's note of it"
                else:
                    point = f"before the decision, {'with' if coordinators.open() else 'without'} staged rows"
                moments[kind] += 1
                points[point] += 1
                print(f"kill {kill}: {time.monotonic() - began:.0f} s, batch {planned}, {kind}: {point}", flush=True)  # fmt: skip
                if everything:
                    query.start()
        until(lambda: copies(servers).total() >= publisher.sent, query.log, 600)
        query.kill()
        found = copies(servers)
        assert copies_of_kafka(servers, found.total()) == found
    finally:
        with suppress(AssertionError):
            query.kill()
        servers.stop()
    print(f"{KILLS} kills: {dict(points)}; moments: {dict(moments)}; {publisher.sent} rows")
    assert {number for number, times in found.items() if times > 1} == set()
    assert found.keys() == {*range(publisher.sent)}
