"""The driver of `steelyard pipeline ledger --follow` is killed again and again; its tables have each row exactly once.

Meanwhile a ledger is written to a topic of two brokers, five times as fast as time goes.

    STEELYARD_SPARK_KILLS=50 ./dev spark tests/spark_long/test_ledger_kills.py -s
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.ledger_tables import BROKERS, seconds_of
from tests.api.conftest import Servers
from tests.ledger.stories import expected
from tests.spark_long.running import Job

from steelyard import Admin, Message, MessageQueue, Producer
from steelyard.ledger.columns import ColumnKind, columns
from steelyard.ledger.events import BrokerStarted, Record, encode
from steelyard.ledger.tables import TABLES

KILLS = int(os.environ.get("STEELYARD_SPARK_KILLS", "3"))
SEED = int(os.environ.get("STEELYARD_SPARK_SEED", "1"))
TOPIC = "Copy"
GROUPS = 3
SECONDS_PER_SEND = 5
SEND_PAUSE_S = 1.0

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(3_600 + 120 * KILLS)]


class Feeder:
    """Writes what brokers record in `SECONDS_PER_SEND` seconds, and waits a little."""

    def __init__(self, nameservers: str) -> None:
        self._nameservers = nameservers
        self.records: list[Record] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failure: BaseException | None = None

    def _run(self) -> None:
        told = [seconds_of(f"group-{n}", Random(SEED + n)) for n in range(GROUPS)]
        try:
            with Producer("feeder", self._nameservers) as producer:
                while not self._done.wait(SEND_PAUSE_S):
                    for _ in range(SECONDS_PER_SEND):
                        second = [next(one) for one in told]
                        for broker in BROKERS:
                            self._send(
                                producer, broker, [r for made in second for r in made[broker]]
                            )
        except BaseException as error:
            self.failure = error
            raise

    def _send(self, producer: Producer, broker: str, noted: list[Record]) -> None:
        if not any(one.broker == broker for one in self.records):
            noted.insert(0, BrokerStarted(at=noted[0].at - 10, broker=broker))
        self.records += noted
        queue = MessageQueue(TOPIC, broker, 0)
        producer.send_batch([Message(TOPIC, encode(noted))], queue=queue)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        assert self.failure is None


class Ledger(Job):
    """`steelyard pipeline ledger` in a process of its own."""

    def __init__(self, folder: Path, nameservers: str) -> None:
        self.out = folder / "out"
        command = ("-m", "steelyard", "pipeline", "ledger", "-t", TOPIC, "-n", nameservers)
        super().__init__(folder / "log", self.out / "_checkpoint", *command, "--out", str(self.out))

    def rows(self) -> list[bytes]:
        """All rows of all tables, as in `stories.expected`."""
        return sorted(row for table in TABLES for row in self._rows(table))

    def _rows(self, name: str) -> Iterator[bytes]:
        kind = TABLES[name].rows
        folder = self.out / name
        for path in folder.rglob("*.parquet"):
            if any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
                continue  # as Spark does; a writer that was killed leaves files there
            table = pq.read_table(path, partitioning=None)
            for each in columns(kind):
                if columns(kind)[each].kind is ColumnKind.MOMENT:
                    moments = table.column(each).cast(pa.timestamp("ms")).cast(pa.int64())
                    table = table.set_column(table.schema.get_field_index(each), each, moments)
            for row in table.to_pylist():
                yield kind.__name__.encode() + msgspec.json.encode(msgspec.convert(row, kind))


def test_each_row_once(tmp_path: Path) -> None:
    random = Random(SEED)
    servers = Servers(tmp_path / "brokers")
    job = Ledger(tmp_path, servers.nameservers)
    inside = 0
    begun = time.monotonic()
    try:
        with Admin(servers.nameservers) as admin:
            admin.create_topic(TOPIC, queues=1)
        with Feeder(servers.nameservers) as feeder:
            for kill in range(KILLS):
                with job.running("--follow", "--interval", "0", "--messages-max", "200"):
                    job.until_batch("offsets", job.batches("offsets") + 2)
                    time.sleep(random.random() * 3)
                inside += job.batches("offsets") > job.batches("commits")
                print(f"kill {kill}: {time.monotonic() - begun:.0f} s", flush=True)
        job.end()
    finally:
        servers.stop()
    found = job.rows()
    wanted = expected(feeder.records)
    print(
        f"{KILLS} kills ({inside} inside a batch), {job.batches('commits') + 1} batches,"
        f" {len(feeder.records)} records, {len(found)} rows"
    )
    assert Counter(found) - Counter(wanted) == Counter()
    assert Counter(wanted) - Counter(found) == Counter()
