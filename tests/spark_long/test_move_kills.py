"""`steelyard pipeline move` is killed, or a broker stops, while it moves; each message is at the target once, in order.

STEELYARD_MOVE_KILLS=50 ./dev spark tests/spark_long/test_move_kills.py -s
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import pytest
from tests.api.kafka import KafkaServers
from tests.moves import PARTITIONS, commit, committed, contents, read
from tests.waiting import until

from steelyard import Admin, Message, Producer, PullConsumer

KILLS = int(os.environ.get("STEELYARD_MOVE_KILLS", "8"))
SEED = int(os.environ.get("STEELYARD_SPARK_SEED", "1"))
TOPIC, GROUP = "Orders", "stock"

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(3_600)]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[KafkaServers, KafkaServers]]:
    source, target = (KafkaServers(tmp_path / name) for name in ("source", "target"))
    yield source, target
    source.stop()
    target.stop()


PROGRESS = re.compile(r"(moved|read back) [\d,]+ of [\d,]+ messages$")


class Mover:
    """The process of the command."""

    def __init__(self, protocol: str, source: str, target: str, folder: Path) -> None:
        self._state = folder / "state"
        self._log = folder / "log"
        self._command = [sys.executable, "-m", "steelyard", "pipeline", "move", protocol]
        self._command += ["--from", source, "--to", target, "-t", TOPIC, "-g", GROUP, "--json"]
        self._command += ["--state", str(self._state)]
        self.in_doubt = 0

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start it, and wait until it has stored something."""
        before = self._noted()
        with self._log.open("wb") as log:
            process = subprocess.Popen([*self._command, *options], stdout=log, stderr=log)
        until(lambda: process.poll() is not None or self._noted() > before, self._log)
        return process

    def told(self) -> str:
        """What it printed but its progress, of which there is as much as it takes time."""
        lines = self._log.read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not PROGRESS.match(line))

    def kill(self, rng: Random) -> None:
        """Start it, and kill it some time after it has stored something."""
        process = self.start()
        time.sleep(rng.random() * 0.3)
        process.kill()
        process.wait()
        self.in_doubt += sum(
            b"sending" in path.read_bytes().splitlines()[-1]
            for path in self._state.rglob("*.jsonl")
        )

    def finish(self) -> dict[str, Any]:
        done = subprocess.run(self._command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        printed: dict[str, Any] = json.loads(done.stdout)
        return printed

    def _noted(self) -> int:
        return sum(path.stat().st_size for path in self._state.rglob("*.jsonl"))


def killed(mover: Mover, send: Callable[[range], None], count: int) -> dict[str, Any]:
    """Kill it again and again, each time with `count` new messages, then let it end."""
    rng = Random(SEED)
    for round_ in range(KILLS):
        send(range(round_ * count, (round_ + 1) * count))
        mover.kill(rng)
    printed = mover.finish()
    print(f"{KILLS} kills, {mover.in_doubt} chunks in doubt, {KILLS * count:,} messages")
    assert mover.in_doubt
    return printed


def send_kafka(source: KafkaServers, numbers: range) -> None:
    client = confluent_kafka.Producer(
        {"bootstrap.servers": source.bootstrap, "linger.ms": 5, "enable.idempotence": True}
        | {"queue.buffering.max.messages": 1_000_000}
    )
    for number in numbers:
        value = b"%d" % number
        client.produce(TOPIC, value * 20, value, number % PARTITIONS, headers=[("n", value)])
        client.poll(0)
    assert client.flush(60) == 0


def send_rocketmq(source: KafkaServers, numbers: range) -> None:
    with Producer("p", source.nameservers) as producer:
        queues = sorted(producer.queues(TOPIC))
        for start in numbers[::20]:
            batch = [
                Message(TOPIC, b"%d" % number * 20, keys=f"k{number}")
                for number in range(start, start + 20)
            ]
            producer.send_batch(batch, queue=queues[start // 20 % len(queues)])


def fill_kafka(source: KafkaServers, count: int) -> None:
    """So many records, and a group with an offset."""
    source.topic(TOPIC, PARTITIONS)
    send_kafka(source, range(count))
    commit(source.bootstrap, GROUP, TOPIC, {0: 777})


def fill_rocketmq(source: KafkaServers, count: int) -> None:
    with Admin(source.nameservers) as admin:
        admin.create_topic(TOPIC, queues=2)
    send_rocketmq(source, range(count))
    with PullConsumer(GROUP, source.nameservers) as consumer:
        consumer.commit(min(consumer.queues(TOPIC)), 7)


def test_kafka(clusters: tuple[KafkaServers, KafkaServers], tmp_path: Path) -> None:
    source, target = clusters
    fill_kafka(source, PARTITIONS)
    mover = Mover("kafka", source.bootstrap, target.bootstrap, tmp_path)
    printed = killed(mover, partial(send_kafka, source), 45_000)
    assert read(target.bootstrap, TOPIC) == read(source.bootstrap, TOPIC)
    assert sum(one["count"] for one in printed["queues"]) == KILLS * 45_000 + PARTITIONS
    assert committed(target.bootstrap, GROUP, TOPIC) == {0: 777}


def test_rocketmq(clusters: tuple[KafkaServers, KafkaServers], tmp_path: Path) -> None:
    source, target = clusters
    fill_rocketmq(source, 20)
    mover = Mover("rocketmq", source.nameservers, target.nameservers, tmp_path)
    printed = killed(mover, partial(send_rocketmq, source), 8_000)
    assert contents(target.nameservers, TOPIC) == contents(source.nameservers, TOPIC)
    assert sum(one["count"] for one in printed["queues"]) == KILLS * 8_000 + 20
    assert [one["target_offset"] for one in printed["offsets"]] == [7]


class Moving:
    """A move between two clusters, and what both have in the end."""

    def __init__(self, protocol: str, source: KafkaServers, target: KafkaServers, folder: Path):
        self._is_kafka = protocol == "kafka"
        self._clusters = source, target
        self.count = 200_000 if self._is_kafka else 60_000
        (fill_kafka if self._is_kafka else fill_rocketmq)(source, self.count)
        self.mover = Mover(protocol, self._address(source), self._address(target), folder)

    def _address(self, servers: KafkaServers) -> str:
        return servers.bootstrap if self._is_kafka else servers.nameservers

    def compare(self, printed: dict[str, Any]) -> None:
        source, target = map(self._address, self._clusters)
        seen = read if self._is_kafka else contents
        assert seen(target, TOPIC) == seen(source, TOPIC)
        assert sum(one["count"] for one in printed["queues"]) == self.count
        expected = 777 if self._is_kafka else 7
        assert [one["target_offset"] for one in printed["offsets"]] == [expected]


@pytest.fixture
def moving(
    request: pytest.FixtureRequest, clusters: tuple[KafkaServers, KafkaServers], tmp_path: Path
) -> Moving:
    source, target = clusters
    return Moving(request.param, source, target, tmp_path)


BOTH = pytest.mark.parametrize("moving", ["kafka", "rocketmq"], indirect=True)
SIDES = pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])


@BOTH
@SIDES
def test_a_broker_returns(
    moving: Moving, side: int, clusters: tuple[KafkaServers, KafkaServers]
) -> None:
    process = moving.mover.start()
    servers = clusters[side]
    ports = servers.stop_broker("broker-1")
    assert process.poll() is None, moving.mover.told()
    servers.start_broker("broker-1", *ports)
    assert process.wait(120) == 0, moving.mover.told()
    moving.compare(json.loads(moving.mover.told()))


@BOTH
@SIDES
def test_a_broker_stays_away(
    moving: Moving, side: int, clusters: tuple[KafkaServers, KafkaServers]
) -> None:
    """The move ends with one line, and goes on when it is started again."""
    process = moving.mover.start(f"--{('from', 'to')[side]}-option", "retryTimeoutMs=500")
    servers = clusters[side]
    ports = servers.stop_broker("broker-1")
    assert process.wait(60) == 2, moving.mover.told()
    (line,) = moving.mover.told().splitlines()
    assert line.startswith("steelyard pipeline: "), line
    servers.start_broker("broker-1", *ports)
    moving.compare(moving.mover.finish())
