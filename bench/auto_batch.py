"""What gathering sends into batches (`auto_batch`) gains: a producer with it and without, on our broker and Apache's.

Tasks of one asyncio producer each send one message after the other. The producers take turns on both servers.

    python -m bench.auto_batch [rounds]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.load import create_topic
from bench.servers import Apache, Server, Steelyard

from steelyard import aio

SECONDS = 4.0
TASKS = (1, 16, 256)
DELAY_MS = 5
"""`batch_max_delay_ms`; its default of 10 suits senders that wait for less."""
TOPIC, QUEUES = "Gathered", 4
BODY = b"x" * 128


class Rate(NamedTuple):
    """Messages per second, and CPU time of the broker and of this process, in µs per message."""

    messages_per_s: float
    broker_us: float
    client_us: float


async def send_for(producer: aio.Producer, tasks: int, seconds: float) -> int:
    end = time.perf_counter() + seconds

    async def send() -> int:
        count = 0
        while time.perf_counter() < end:
            await producer.send(TOPIC, BODY)
            count += 1
        return count

    return sum(await asyncio.gather(*(send() for _ in range(tasks))))


async def measure(server: Server, tasks: int, *, gathers: bool) -> Rate:
    async with aio.Producer(
        "senders", server.nameserver, auto_batch=gathers, batch_max_delay_ms=DELAY_MS
    ) as producer:
        await send_for(producer, tasks, SECONDS / 8)
        begun, broker, client = time.perf_counter(), server.cpu_s(), time.process_time()
        count = await send_for(producer, tasks, SECONDS)
        took = time.perf_counter() - begun
        spent = server.cpu_s() - broker, time.process_time() - client
    return Rate(count / took, *(1e6 * each / count for each in spent))


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        servers: list[Server] = [Steelyard(Path(folder) / "ours"), Apache(Path(folder) / "apache")]
        for server in servers:
            create_topic(server.broker, TOPIC, QUEUES)
            server.freeze()
        found: dict[tuple[str, int, bool], list[Rate]] = {}
        for number in range(rounds + 1):  # the first warms up
            for tasks in TASKS:
                for server in servers:
                    server.thaw()
                    for gathers in (False, True) if number % 2 else (True, False):
                        rate = asyncio.run(measure(server, tasks, gathers=gathers))
                        if number:
                            found.setdefault((server.kind, tasks, gathers), []).append(rate)
                    server.freeze()
        for server in servers:
            server.stop()
    print(table(found))


def table(found: dict[tuple[str, int, bool], list[Rate]]) -> str:
    """A row for each server and number of tasks: medians alone and gathered, and the ratio of the rates."""
    lines = [
        "| server | tasks | messages/s, alone | gathered | ratio | broker µs | gathered | client µs | gathered |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, tasks in dict.fromkeys((kind, tasks) for kind, tasks, _ in found):
        alone, gathered = (
            [statistics.median(each) for each in zip(*found[kind, tasks, gathers], strict=True)]
            for gathers in (False, True)
        )
        rates = f"{alone[0]:,.0f} | {gathered[0]:,.0f} | {gathered[0] / alone[0]:.2f}"
        costs = " | ".join(f"{alone[at]:.1f} | {gathered[at]:.1f}" for at in (1, 2))
        lines.append(f"| {kind} | {tasks} | {rates} | {costs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
