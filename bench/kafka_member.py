"""A member of a Kafka consumer group with librdkafka; the commands are those of `member.py`.

`python kafka_member.py ASSIGNMENT`, an assignor of the classic protocol or `consumer` (KIP-848). Offsets are committed every 5 s,
as by default, and when partitions are revoked.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.clusters import NAMES  # noqa: E402
from bench.costs import RECORD, queue_number  # noqa: E402
from confluent_kafka import Consumer  # noqa: E402

ASSIGNMENT = sys.argv[1]


class Reading(threading.Thread):
    """One run of a member."""

    def __init__(
        self, servers: str, group: str, topic: str, name: str, file: str, work_ms: str
    ) -> None:
        super().__init__(daemon=True)
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._work_s = int(work_ms) / 1e3
        self._topic = topic
        protocol = (
            {"group.protocol": "consumer"}
            if ASSIGNMENT == "consumer"
            else {"partition.assignment.strategy": ASSIGNMENT}
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                **protocol,
            }
        )
        self._stopping = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe([self._topic])
        numbers: dict[int, int] = {}
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            now = time.monotonic_ns()
            partition = message.partition()
            if partition not in numbers:
                numbers = self._numbers()
            os.write(self._file, RECORD.pack(now, numbers[partition], message.offset()))
            time.sleep(self._work_s)
        self._consumer.close()

    def _numbers(self) -> dict[int, int]:
        """The number of each partition's queue: a broker's partitions are its queues, in their order."""
        metadata = self._consumer.list_topics(self._topic, 10)
        found: dict[int, int] = {}
        for broker, name in enumerate(NAMES, 1):
            led = [
                n
                for n, one in metadata.topics[self._topic].partitions.items()
                if one.leader == broker
            ]
            found |= {number: queue_number(name, queue) for queue, number in enumerate(sorted(led))}
        return found

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def main() -> None:
    member: Reading | None = None
    for line in sys.stdin:
        match line.split():
            case ["clock"]:
                print(time.monotonic_ns(), flush=True)
            case ["start", servers, group, topic, name, file, work_ms]:
                member = Reading(servers, group, topic, name, file, work_ms)
                member.start()
                print("started", flush=True)
            case ["stop"] if member is not None:
                member.stop()
                member = None
                print("stopped", flush=True)
            case words:
                raise SystemExit(f"no such command: {words}")
    if member is not None:
        member.stop()


if __name__ == "__main__":
    main()
