"""Kafka Streams and Kafka Connect find their state again after the broker has compacted the topics that they keep it in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.clients.test_kills import Brokers
from tests.peers.apache import Missing
from tests.peers.kafka import servers
from tests.peers.kafka.connect_worker import KINDS, Worker, state_topic
from tests.peers.kafka.members import Group
from tests.peers.kafka.servers import HEARTBEAT_MS, SESSION_MS, SETTINGS, Running
from tests.peers.kafka.streams_apps import Totals
from tests.peers.kafka.test_compaction import messages, read
from tests.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

OFTEN_MS = 1000
"""How often a broker looks for what to compact, and for transactions that have timed out."""
TRANSACTIONS_MS = 5000
"""Time-out of transactions: so long those of a killed program keep the next one waiting."""
COMPACTED: dict[str, object] = {
    "segment.ms": 500,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 1000,
}
"""Settings of the topics; the programs create them."""

UPDATES = 20_000
KEYS = [f"key-{number}" for number in range(100)]
REMOVED, UPDATED = KEYS[:10], KEYS[10:20]
"""Of the keys, those that are removed before the compaction, and those with all updates after it."""
STREAMS: dict[str, object] = {
    "group.protocol": "classic",
    "processing.guarantee": "exactly_once_v2",
    "consumer.session.timeout.ms": SESSION_MS,
    "consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "producer.transaction.timeout.ms": TRANSACTIONS_MS,
    **{f"topic.{key}": value for key, value in COMPACTED.items()},
}

LINE = 1024
"""Bytes: Kafka's connector reads so many at a time. It would keep back what it has read of further lines, until the file grows."""
CONNECT: dict[str, object] = {
    "offset.storage.partitions": 1,
    "status.storage.partitions": 1,
    "offset.flush.interval.ms": 50,
    "producer.transaction.timeout.ms": TRANSACTIONS_MS,
    **{f"{kind}.storage.{key}": value for kind in KINDS for key, value in COMPACTED.items()},
}
EXACTLY_ONCE: dict[str, object] = {"exactly.once.source.support": "enabled"}


@pytest.fixture(scope="module", params=["apache", "steelyard"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Each kind of cluster in turn, with brokers that compact often and can be killed."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "steelyard":
        brokers = Brokers(folder, "--set", f"store.compaction_interval_ms={OFTEN_MS}")
        yield brokers.running
        brokers.stop()
        return
    settings = SETTINGS | {
        "log.cleaner.backoff.ms": OFTEN_MS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": OFTEN_MS,
    }
    try:
        with servers.run_apache(folder, settings=settings) as running:
            yield running
    except Missing as reason:
        pytest.skip(f"no Apache Kafka: {reason}")


def test_streams_restores_its_stores(cluster: Running, name: str, tmp_path: Path) -> None:
    """1. An instance makes 20,000 updates of 100 keys, and removes ten of them. 2. The changelogs of its stores are compacted.
    3. It is killed among further updates of ten others, and the brokers restart, ours killed as well. 4. One without its folder
    has what it had, and goes on."""
    with Totals(cluster, name, tmp_path, STREAMS) as app:
        app.start("one")
        app.send(UPDATES, KEYS)
        app.remove(REMOVED)
        app.wait_stores()

        def is_compacted(changelog: str) -> bool:
            app.send(1, UPDATED)  # what comes after a segment closes it
            parts = [read(cluster, changelog, partition) for partition in app.partitions]
            left = [key.decode() for part in parts for _, key, _ in part]
            return len(left) < UPDATES / 10 and not set(left) & set(REMOVED)

        for changelog in app.changelogs:
            until(lambda: is_compacted(changelog), f"{changelog} without tombstones")  # noqa: B023
        before = app.stores()
        app.send(UPDATES // 5, UPDATED)
        until(lambda: app.stores() != before, app)
        app.instance.kill()
        assert cluster.restart is not None
        cluster.restart()
        app.start("two")
        app.wait_stores()
        restored = app.restored()
        assert 0 < min(restored.values()) <= max(restored.values()) < UPDATES / 2, restored
        app.send(200, KEYS)
        app.wait_stores()
        app.instance.leave()


class File:
    """A file that grows by numbered lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        path.touch()

    def grow(self, lines: int) -> None:
        with self.path.open("ab") as file:
            for number in range(self.lines, self.lines + lines):
                file.write((b"%d " % number).ljust(LINE - 1, b".") + b"\n")
        self.lines += lines

    @property
    def size(self) -> int:
        return self.lines * LINE


def test_connect_goes_on_where_it_stopped(
    cluster: Running, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """1. A worker reads a file, while one of its connectors is altered time and again and one is deleted. 2. All its topics
    are compacted, and it leaves. 3. Another worker, with transactions, goes on. 4. The topic of its offsets is compacted, and
    it is killed among further lines. 5. A third one goes on. Each line has come once, the connectors are as they were left."""
    if cluster.kind != "steelyard":
        reason = "Apache Kafka 4.3.1 may fail a task on a busy machine: InvalidTxnStateException at a commit"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    lines, nothing = File(tmp_path / "lines"), File(tmp_path / "nothing")
    topic = f"{name}-lines"
    Group(cluster, name, tmp_path).create_topic(topic, 1)
    configs: dict[str, dict[str, str]] = {}

    def put(worker: Worker, connector: str, file: File, tasks_max: int = 1) -> None:
        """Create a connector or alter it."""
        config = {
            "connector.class": "FileStreamSource",
            "tasks.max": str(tasks_max),
            "file": str(file.path),
            "topic": topic,
            "batch.size": "1",
        }
        worker.ask("PUT", f"/connectors/{connector}/config", config)
        configs[connector] = {"name": connector, **config}

    def position(worker: Worker) -> int:
        """Up to where the file was read, by the offsets that are committed.

        With transactions, a look at them may find none: those at its beginning are gone when it gets there.
        """
        offsets = worker.ask("GET", "/connectors/lines/offsets")["offsets"]
        return max((each["offset"]["position"] for each in offsets), default=0)

    def check(worker: Worker) -> None:
        """Wait until the connectors are as they were left; no other one is there."""
        states = {"lines": "RUNNING", "idle": "PAUSED"}
        until(lambda: sorted(worker.ask("GET", "/connectors")) == sorted(states), worker)
        for connector, state in states.items():
            assert worker.ask("GET", f"/connectors/{connector}")["config"] == configs[connector]
            path = f"/connectors/{connector}/status"

            def is_so(path: str = path, state: str = state) -> bool:
                status = worker.ask("GET", path)
                return {each["state"] for each in (status["connector"], *status["tasks"])} == {
                    state
                }

            until(is_so, worker)

    def left(kind: str, first: int = 0) -> float:
        """The share of the offsets from this first one on that still have a record."""
        offsets = [offset for offset, _, _ in read(cluster, state_topic(name, kind))]
        later = [offset for offset in offsets if offset >= first]
        return len(later) / (later[-1] + 1 - first) if later else 1.0

    with Worker(cluster, name, tmp_path / "one", CONNECT) as worker:
        put(worker, "lines", lines)
        put(worker, "gone", nothing)
        put(worker, "idle", nothing)
        lines.grow(200)
        worker.ask("DELETE", "/connectors/gone")
        worker.ask("PUT", "/connectors/idle/pause")
        changes = count(2)

        def are_compacted() -> bool:
            put(worker, "idle", nothing, tasks_max=next(changes))
            lines.grow(1)
            return all(left(kind) < 1 / 2 for kind in KINDS)

        until(are_compacted, "the compaction of the topics")
        lines.grow(200)
        worker.leave()
    with Worker(cluster, name, tmp_path / "two", CONNECT | EXACTLY_ONCE) as worker:
        check(worker)
        first = read(cluster, state_topic(name, "offset"))[-1][0] + 1
        lines.grow(200)

        def is_compacted() -> bool:
            lines.grow(1)
            return left("offset", first) < 1 / 4  # a half are markers

        until(lambda: position(worker) == lines.size, worker)
        until(is_compacted, "the compaction of the offsets")
        before = position(worker)
        lines.grow(200)
        until(lambda: position(worker) > before, worker)
        worker.kill()
    with Worker(cluster, name, tmp_path / "three", CONNECT | EXACTLY_ONCE) as worker:
        check(worker)
        until(lambda: position(worker) == lines.size, worker)
        worker.leave()
    read_lines = [message.value() or b"" for message in messages(cluster, topic)]
    assert [int(line.split()[0]) for line in read_lines] == list(range(lines.lines))
