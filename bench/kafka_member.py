"""A member of a Kafka consumer group with librdkafka; commands: see `commands`.

`python kafka_member.py ASSIGNMENT`, an assignor of the classic protocol or `consumer` (KIP-848). Offsets are committed every 5 s,
as by default, and when partitions are revoked. Where messages are work, each partition has a thread that works on them, one after
the other, so that no partition waits for the application's work on another.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.commands import Joining, serve  # noqa: E402
from confluent_kafka import Consumer  # noqa: E402

ASSIGNMENT = sys.argv[1]


class Reading(threading.Thread):
    """One run of a member."""

    def __init__(self, joining: Joining) -> None:
        super().__init__(daemon=True)
        self._topic, self._listener = joining.topic, joining.listener
        protocol = (
            {"group.protocol": "consumer"}
            if ASSIGNMENT == "consumer"
            else {"partition.assignment.strategy": ASSIGNMENT}
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": joining.servers,
                "group.id": joining.group,
                "client.id": joining.name,
                "auto.offset.reset": "earliest",
                **protocol,
            }
        )
        self._stopping = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe([self._topic])
        workers: dict[int, ThreadPoolExecutor] = {}
        while not self._stopping.is_set():
            message = self._consumer.poll(0.01)
            if message is None or message.error():
                continue
            partition, offset = message.partition(), message.offset()
            if not self._listener.work_s:
                self._work(partition, offset)
                continue
            if partition not in workers:
                workers[partition] = ThreadPoolExecutor(1)
            workers[partition].submit(self._work, partition, offset)
        for worker in workers.values():
            worker.shutdown()
        self._consumer.close()

    def _work(self, partition: int, offset: int) -> None:
        self._listener.listen(time.monotonic_ns(), partition, offset)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def start(joining: Joining) -> Reading:
    reading = Reading(joining)
    reading.start()
    return reading


if __name__ == "__main__":
    serve(start)
