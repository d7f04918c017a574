"""Sends at a steady rate: batches, in turn to the queues of each broker, over one connection a broker.

With RocketMQ's protocol, or Kafka's where `Feed.partitions` says which partitions the queues are.

`python feed.py '{...}'` (see `Feed`) runs until its standard input ends. For each batch that a broker
acknowledged it appends a record (`costs.RECORD`) to its file: when it was sent, the queue, the first
offset. A broker that does not answer is tried again every 50 ms; what was due meanwhile is left out.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.costs import RECORD, queue_number  # noqa: E402
from bench.load import Load, send_frame  # noqa: E402
from bench.produce import base_offset, produce_frame  # noqa: E402

_OK = b'"code":0,'
_OFFSET = re.compile(rb'"queueOffset":"?(\d+)')
BEHIND_MAX_NS = 200_000_000
"""A feeder further behind than this goes on from now."""


@dataclass(frozen=True)
class Feed:
    brokers: dict[str, str]
    """Addresses by name."""
    topic: str
    queues: int
    """On each broker."""
    messages_per_s: int
    """To all brokers together."""
    batch: int
    message_bytes: int
    file: str
    partitions: dict[str, list[int]] = field(default_factory=dict)
    """Of each broker, by name: the number of the partition that each of its queues is to Kafka's clients."""

    def frames(self, name: str) -> list[bytes]:
        """A request for each queue of a broker."""
        address = self.brokers[name]
        if self.partitions:
            now_ms = time.time_ns() // 1_000_000
            return [
                produce_frame(self.topic, partition, self.batch, self.message_bytes, now_ms)
                for partition in self.partitions[name]
            ]
        load = Load("batch", address, self.topic, self.queues, 1, self.message_bytes, self.batch, 0)
        return [send_frame(load, queue, queue) for queue in range(self.queues)]

    def first_offset(self, reply: bytes) -> int | None:
        """Where the broker put the batch; None if it did not take it."""
        if self.partitions:
            return base_offset(reply, self.topic)
        found = _OFFSET.search(reply)
        return int(found[1]) if _OK in reply and found is not None else None


def feed_one(feed: Feed, name: str, file: int, stop: threading.Event) -> None:
    """Feed one broker until `stop`."""
    frames = feed.frames(name)
    gap_ns = 1_000_000_000 * feed.batch * len(feed.brokers) // feed.messages_per_s
    due = time.monotonic_ns()
    link: socket.socket | None = None
    for number in count():
        if stop.wait(max(0, due - time.monotonic_ns()) / 1e9):
            break
        queue = number % feed.queues
        try:
            if link is None:
                link = connect(feed.brokers[name])
            at = time.monotonic_ns()
            link.sendall(frames[queue])
            first = feed.first_offset(receive(link))
            if first is not None:
                os.write(file, RECORD.pack(at, queue_number(name, queue), first))
            else:
                stop.wait(0.05)
        except OSError:
            if link is not None:
                link.close()
            link = None
            stop.wait(0.05)
        due += gap_ns
        if time.monotonic_ns() - due > BEHIND_MAX_NS:
            due = time.monotonic_ns()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    link = socket.create_connection((host, int(port)), 3)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def receive(link: socket.socket) -> bytes:
    """One frame."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
        more = link.recv(65_536)
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return data


def main(text: str) -> None:
    feed = Feed(**json.loads(text))
    file = os.open(feed.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stop = threading.Event()
    threads = [
        threading.Thread(target=feed_one, args=(feed, name, file, stop)) for name in feed.brokers
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
