"""What every member of a consumer group in the bench does alike, in whatever language it is written.

It is a process. It takes these commands on standard input, a line each, and gives one line of answer to each on standard output:

    clock                                          the monotonic clock, ns
    start SERVERS GROUP TOPIC NAME FILE WORK_MS    joins                -> started
    stop                                           leaves cleanly       -> stopped

At the end of its input it leaves and ends. What its library prints goes to standard error. Its client id, or what of it can be
chosen, is NAME; it begins at the first offset where its group has committed none; all other settings are its library's defaults.
SERVERS are nameservers of RocketMQ, or where Kafka's clients begin.

For each message its listener appends 20 bytes (`costs.RECORD`) to FILE in one write, big-endian: the time on the monotonic clock
in ns (8 bytes), the queue (4), the offset (8); then it works on the message, which is to sleep WORK_MS. A queue of RocketMQ has the
number that `costs.queue_number` gives it, a partition of Kafka its own.

The members: `member` (Steelyard's push consumer) and `kafka_member` (librdkafka), which use this module;
tests/peers/java/Member.java (RocketMQ), tests/peers/kafka/java/BenchMember.java (kafka-clients); tests/peers/go/rocketmq/member
(rocketmq-client-go) and tests/peers/kafka/go/bench (franz-go), which use tests/peers/go/listener. `members` starts them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bench.costs import RECORD


class Listener:
    """Logs each message, then works on it for a while."""

    def __init__(self, file: str, work_ms: str) -> None:
        self._records = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.work_s = int(work_ms) / 1e3

    def listen(self, at: int, queue: int, offset: int) -> None:
        """`at`: when the message came, on the monotonic clock in ns; `queue`: its number."""
        os.write(self._records, RECORD.pack(at, queue, offset))
        if self.work_s:
            time.sleep(self.work_s)


class Joining(NamedTuple):
    """Who joins what."""

    servers: str
    group: str
    topic: str
    name: str
    listener: Listener


class Member(Protocol):
    def stop(self) -> None:
        """Leave the group cleanly."""


def serve(start: Callable[[Joining], Member]) -> None:
    """Follow commands to the end of the input, then leave."""
    member: Member | None = None
    for line in sys.stdin:
        match line.split():
            case ["clock"]:
                print(time.monotonic_ns(), flush=True)
            case ["start", servers, group, topic, name, file, work_ms]:
                member = start(Joining(servers, group, topic, name, Listener(file, work_ms)))
                print("started", flush=True)
            case ["stop"] if member is not None:
                member.stop()
                member = None
                print("stopped", flush=True)
            case words:
                raise SystemExit(f"no such command: {words}")
    if member is not None:
        member.stop()
