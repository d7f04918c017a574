"""The commands that a member of a consumer group takes on standard input, one answer each.

    clock                                          the monotonic clock, ns
    start SERVERS GROUP TOPIC NAME FILE WORK_MS    joins                -> started
    stop                                           leaves cleanly       -> stopped

The listener appends a record (`costs.RECORD`) to FILE for each message, then sleeps WORK_MS.
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
        self._work_s = int(work_ms) / 1e3

    def listen(self, at: int, queue: int, offset: int) -> None:
        """`at`: when the message came, on the monotonic clock in ns; `queue`: its number."""
        os.write(self._records, RECORD.pack(at, queue, offset))
        time.sleep(self._work_s)


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
