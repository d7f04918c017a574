"""What a rebalance of a Kafka group costs: members of librdkafka join one by one while messages flow."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from bench.kafka_door.load import create_topic
from confluent_kafka import Consumer, Producer, TopicPartition

ROOT = Path(__file__).resolve().parents[2]

PARTITIONS = 12
RATE = 1_200
HEARTBEAT_MS = 3_000
SETTLE_S = 4.0
PATIENCE_S = 60.0

PROTOCOLS = {
    "eager (range)": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer (KIP-848)": {"group.protocol": "consumer"},
}
STEPS = ("1 to 2", "2 to 4")


class Member:
    """A member process: what it holds, and when it got which message."""

    def __init__(self, bootstrap: str, topic: str, name: str, protocol: str) -> None:
        self.held: set[int] = set()
        self.got: list[tuple[float, int]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.kafka_door.group", bootstrap, topic, name, protocol],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "held" in told:
                self.held = set(told["held"])
            else:
                self.got.append((told["at"], told["partition"]))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join()


class Feed:
    """Messages to every partition in turn, at a steady rate, until closed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begun, number = time.perf_counter(), 0
        while not self._over.is_set():
            pause = begun + number / RATE - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            self._producer.produce(self._topic, b"x" * 100, partition=number % PARTITIONS)
            self._producer.poll(0)
            number += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(30)


def measure(bootstrap: str, protocol: str) -> dict[str, dict[str, float]]:
    """The figures of each step: until every member holds its share, and the longest gap of a partition."""
    topic = f"rebalance-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, PARTITIONS)
    feed = Feed(bootstrap, topic)
    members: list[Member] = []
    result: dict[str, dict[str, float]] = {}
    try:
        for step, count in (("", 1), *zip(STEPS, (2, 4), strict=True)):
            begun = time.time()
            while len(members) < count:
                members.append(Member(bootstrap, topic, f"group-{topic}", protocol))
            converged = wait_even(members)
            time.sleep(SETTLE_S)
            if step:
                pause = longest_gap(members, begun - 1.0)
                result[step] = {"converged_s": converged - begun, "pause_ms": pause * 1000}
    finally:
        for member in members:
            member.close()
        feed.close()
    return result


def wait_even(members: list[Member]) -> float:
    """When every partition was held once and every member had its share."""
    share = PARTITIONS // len(members)
    end = time.time() + PATIENCE_S
    while time.time() < end:
        held = [partition for member in members for partition in member.held]
        if sorted(held) == list(range(PARTITIONS)) and {len(m.held) for m in members} == {share}:
            return time.time()
        time.sleep(0.005)
    raise RuntimeError(f"no even shares: {[sorted(member.held) for member in members]}")


def longest_gap(members: list[Member], since: float) -> float:
    """The longest time between two messages of one partition, whoever got them, in seconds."""
    longest = 0.0
    got = sorted(event for member in members for event in list(member.got) if event[0] >= since)
    latest: dict[int, float] = {}
    for at, partition in got:
        longest = max(longest, at - latest.get(partition, at))
        latest[partition] = at
    return longest


# -- the member process ----------------------------------------------------------------------------


def consume(bootstrap: str, topic: str, name: str, protocol: str) -> None:
    def tell(**told: Any) -> None:
        print(json.dumps(told), flush=True)

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "auto.offset.reset": "latest",
        "topic.metadata.refresh.interval.ms": 300_000,
        **PROTOCOLS[protocol],
    }
    if "group.protocol" not in settings:
        settings["heartbeat.interval.ms"] = HEARTBEAT_MS
    consumer = Consumer(settings)
    cooperative = protocol != "eager (range)"
    held: set[int] = set()

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        held.update(each.partition for each in partitions)
        (consumer.incremental_assign if cooperative else consumer.assign)(partitions)
        tell(held=sorted(held))

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        held.difference_update(each.partition for each in partitions)
        tell(held=sorted(held))
        if cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
    while not over.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            tell(at=time.time(), partition=message.partition())
    consumer.close()


if __name__ == "__main__":
    consume(*sys.argv[1:])
