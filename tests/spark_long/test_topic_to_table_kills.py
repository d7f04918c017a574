"""The driver of `steelyard pipeline sink` is killed; table and dead letters have each message exactly once, together.

Small files are merged meanwhile, and a reader looks at what Spark's readers would see.

    STEELYARD_TABLE_KILLS=50 ./dev spark tests/spark_long/test_topic_to_table_kills.py -s
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from tests.api.conftest import Servers
from tests.spark_long.running import Job
from tests.waiting import until

import steelyard
from steelyard import Admin, Message, MessageQueue, Producer
from steelyard.spark.table.files import TableLog
from steelyard.spark.table.tables import open_log

KILLS = int(os.environ.get("STEELYARD_TABLE_KILLS", "10"))
SEED = int(os.environ.get("STEELYARD_SPARK_SEED", "1"))
PACKAGE = Path(steelyard.__file__).parent
"""Stands in each traceback that our code is part of."""
TOPIC = "Orders"
QUEUES = [(broker, queue) for broker in ("broker-a", "broker-b") for queue in range(2)]
PER_ROUND = 600
"""Messages that a queue gets before each start: some twelve micro-batches."""
BAD_EVERY = 7

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(3_600)]

Place = tuple[str, int, int]


def body(n: int) -> bytes:
    return b"text %d" % n if n % BAD_EVERY == 0 else b'{"n": %d}' % n


class Sink(Job):
    """The process of the command, and its tables."""

    def __init__(self, folder: Path, nameservers: str, to: str) -> None:
        out = folder / "out"
        command = ["-m", "steelyard", "pipeline", "sink", "--to", to, "--out", str(out)]
        command += ["-n", nameservers, "-t", TOPIC]
        command += ["--schema", "json", "--schema-ddl", "n bigint", "--batch-max", "200"]
        command += ["--interval", "0", "--compact-every", "3", "--retain", "30"]
        super().__init__(folder / "log", out / "_checkpoint", *command)
        self.tables = {
            "_queueOffset": open_log(to, str(out), ("day",), "_storeTimestamp"),
            "queueOffset": open_log(to, f"{out}_dead_letters", ("day",), "storeTimestamp"),
        }
        self.looks = 0

    def look(self) -> dict[str, list[tuple[Place, bytes | int]]]:
        """What both tables have: nothing twice."""
        found = {column: self._rows(column, log) for column, log in self.tables.items()}
        for rows in found.values():
            places = Counter(place for place, _ in rows)
            assert not places or max(places.values()) == 1, places.most_common(3)
        self.looks += 1
        return found

    def _rows(self, column: str, log: TableLog) -> list[tuple[Place, bytes | int]]:
        prefix = column.removesuffix("queueOffset")
        names = [prefix + "brokerName", prefix + "queueId", column]
        names.append("n" if prefix else "body")
        rows: list[tuple[Place, bytes | int]] = []
        for file in log.files():
            table = pq.ParquetFile(file.path).read(columns=names)
            for broker, queue, offset, value in zip(*table.to_pydict().values(), strict=True):
                rows.append(((broker, queue, offset), value))
        return rows


@pytest.mark.parametrize("to", ["parquet", "delta"])
def test_each_message_once(tmp_path: Path, to: str) -> None:
    if to == "delta":
        pytest.importorskip("deltalake", reason="pip install 'steelyard[delta]'")
    random = Random(SEED)
    servers = Servers(tmp_path / "brokers")
    sink = Sink(tmp_path, servers.nameservers, to)
    sent = inside = between = 0
    try:
        with Admin(servers.nameservers) as admin:
            admin.create_topic(TOPIC, queues=2)
        for kill in range(KILLS if to == "parquet" else max(KILLS // 3, 1)):
            send(servers.nameservers, sent)
            sent += PER_ROUND
            sink.start()
            log = random.choice(["offsets", "offsets", "commits"])
            goal = sink.batches(log) + random.randrange(1, 8)

            def reached(log: str = log, goal: int = goal) -> bool:
                sink.look()
                return sink.batches(log) >= goal

            until(reached, "more micro-batches", 300)
            time.sleep(random.random() * 0.5)
            sink.kill()
            inside += sink.batches("offsets") > sink.batches("commits")
            good, bad = (max_batch(log) for log in sink.tables.values())
            between += good > bad
            print(f"kill {kill}: batch {sink.batches('offsets')}, table {good}, dead letters {bad}")
        sink.end("--once")
        found = sink.look()
    finally:
        servers.stop()
    expected = {(broker, queue, n) for broker, queue in QUEUES for n in range(sent)}
    good_rows, bad_rows = found["_queueOffset"], found["queueOffset"]
    assert {place for place, _ in good_rows} == {p for p in expected if p[2] % BAD_EVERY}
    assert {place for place, _ in bad_rows} == {p for p in expected if not p[2] % BAD_EVERY}
    assert all(value == place[2] for place, value in good_rows)
    assert all(value == body(place[2]) for place, value in bad_rows)
    print(
        f"{to}: {inside} kills inside a batch, {between} with the table ahead of the dead letters,"
        f" {sink.looks} looks, {len(good_rows)} rows and {len(bad_rows)} dead letters once"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_it_goes_on_where_it_was(tmp_path: Path, number: int) -> None:
    servers = Servers(tmp_path / "brokers")
    sink = Sink(tmp_path, servers.nameservers, "parquet")
    try:
        with Admin(servers.nameservers) as admin:
            admin.create_topic(TOPIC, queues=2)
        send(servers.nameservers, 0)
        process = sink.start()
        until(lambda: sink.batches("commits") >= 1, "micro-batches", 300)
        process.send_signal(number)
        assert process.wait(120) == 0
        said = (tmp_path / "log").read_text()
        assert "stopped; started again, it continues here" in said
        # Spark's own Python workers may print one, for the end of their connections.
        assert str(PACKAGE) not in said
        sink.end("--once")
        found = sink.look()
    finally:
        servers.stop()
    assert sum(len(rows) for rows in found.values()) == PER_ROUND * len(QUEUES)


def max_batch(log: TableLog) -> int:
    checkpoint = Path(str(log.data).removesuffix("_dead_letters")) / "_checkpoint" / "sink.json"
    return log.batch(json.loads(checkpoint.read_text())["query"]) if checkpoint.exists() else -1


def send(nameservers: str, first: int) -> None:
    with Producer("kills", nameservers, send_timeout_ms=60_000) as producer:
        for broker, queue in QUEUES:
            messages = [Message(TOPIC, body(n)) for n in range(first, first + PER_ROUND)]
            producer.send_batch(messages, queue=MessageQueue(TOPIC, broker, queue))
