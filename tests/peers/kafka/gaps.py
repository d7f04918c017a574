"""The longest time for which a partition was not read, while members of a group come and go.

`python -m tests.peers.kafka.gaps ROUNDS` prints the figures of docs/REBALANCING.md.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running
from tests.waiting import until

PARTITIONS = 12
PROTOCOLS = ("cooperative-sticky", "range", "uniform")
"""By assignor; `uniform` is the server's, with group.protocol=consumer."""
MIXED = ("cooperative-sticky", "uniform")
"""Of two members and a third: the group changes its protocol, and back."""
EACH_S = 0.02
"""Interval of the records of each partition."""
SETTLED_S = 5.5
"""Longer than any interval of heartbeats: members are as they are most of the time."""


class Gaps(NamedTuple):
    """In seconds, of the partition that stood still for longest; and what must not be."""

    join_s: float
    leave_s: float
    close_s: float
    repeated: int
    errors: tuple[str, ...]


class Member(threading.Thread):
    """A consumer with librdkafka's defaults, and when it got each record."""

    def __init__(self, running: Running, topic: str, group: str, name: str, assignor: str) -> None:
        super().__init__(daemon=True)
        self.held: set[int] = set()
        self.got: list[tuple[int, int, float]] = []
        """(partition, offset, when)"""
        self.errors: list[str] = []
        self.close_s = 0.0
        self._stopping = threading.Event()
        logger = logging.Logger(name)
        logger.addHandler(_Complaints(self.errors))
        protocol = (
            {"group.protocol": "consumer"}
            if assignor == "uniform"
            else {"partition.assignment.strategy": assignor}
        )
        settings = {
            "bootstrap.servers": running.bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "error_cb": self._failed,
            **protocol,
        }
        self._consumer = Consumer(settings, logger=logger)
        self._consumer.subscribe([topic])

    def _failed(self, error: KafkaError) -> None:
        self.errors.append(str(error))

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.02)
            self.held = {one.partition for one in self._consumer.assignment()}
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.got.append((partition, offset, time.monotonic()))
        self.held = set()
        began = time.monotonic()
        self._consumer.close()
        self.close_s = time.monotonic() - began

    def leave(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive()


class _Complaints(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record.getMessage())


@contextmanager
def feeding(running: Running, topic: str) -> Iterator[None]:
    """Records for each partition at a steady rate, until the block ends."""
    stopping = threading.Event()
    producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0})

    def feed() -> None:
        while not stopping.wait(EACH_S):
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x", partition=partition)
            producer.poll(0)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        stopping.set()
        feeder.join()
        producer.flush(10)


def options(*, delayed: bool) -> tuple[str, ...]:
    """Return the options of a cluster that delays answers or not, with Kafka's usual intervals."""
    settings = {
        "group.consumer.session.timeout.ms": 45_000,
        "group.consumer.heartbeat.interval.ms": 5_000,
    }
    usual = [text for pair in settings.items() for text in ("--kafka-set", f"{pair[0]}={pair[1]}")]
    return (*usual, "--set", f"delayed_answers={str(delayed).lower()}")


def longest_gap(members: list[Member], begin: float, end: float) -> float:
    """Return the longest time in which no member got a record of one partition."""
    times: dict[int, list[float]] = defaultdict(lambda: [begin])
    for at, partition in sorted((at, p) for one in members for p, _, at in one.got):
        if begin <= at <= end:
            times[partition].append(at)
    return max(
        later - earlier
        for found in (times[partition] for partition in range(PARTITIONS))
        for earlier, later in zip(found, [*found[1:], end], strict=True)
    )


def is_shared(members: list[Member]) -> bool:
    """Return whether the members have equal shares of all partitions."""
    held = [one.held for one in members]
    share = PARTITIONS // len(members)
    return all(len(one) == share for one in held) and len(set().union(*held)) == PARTITIONS


def measure(running: Running, assignor: str, name: str, third_assignor: str = "") -> Gaps:
    """Two members read; a third joins, and leaves later. `third_assignor`: the third's, if it has another."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    for created in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
        created.result()
    members = [Member(running, name, name, f"{name}-{number}", assignor) for number in range(2)]
    with feeding(running, name):
        for one in members:
            one.start()
        until(lambda: is_shared(members), "two members share the partitions")
        time.sleep(SETTLED_S)
        third = Member(running, name, name, f"{name}-2", third_assignor or assignor)
        everybody = [*members, third]
        begin = time.monotonic()
        third.start()
        until(lambda: is_shared(everybody), "three members share the partitions")
        time.sleep(SETTLED_S)
        join_s = longest_gap(everybody, begin, time.monotonic())
        begin = time.monotonic()
        third.leave()
        until(lambda: is_shared(members), "two members share them again")
        time.sleep(1)
        leave_s = longest_gap(everybody, begin, time.monotonic())
        for one in members:
            one.leave()
    seen = [(p, offset) for one in everybody for p, offset, _ in one.got]
    errors = tuple(text for one in everybody for text in one.errors)
    closed = max(one.close_s for one in everybody)
    return Gaps(join_s, leave_s, closed, len(seen) - len(set(seen)), errors)


def main() -> None:
    rounds = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for delayed in (True, False):
                place = Path(folder) / f"{number}{delayed}"
                with servers.run_steelyard(place, *options(delayed=delayed)) as running:
                    for assignor, third in (*((one, one) for one in PROTOCOLS), MIXED):
                        found = measure(running, assignor, f"{assignor}-{third}-{number}", third)
                        print(assignor, third, "on " if delayed else "off", found, flush=True)


if __name__ == "__main__":
    main()
