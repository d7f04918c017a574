"""A program that publishes the flights and says on its standard output how many were acknowledged.

    python -m demo.publisher NAMESERVER FLIGHTS PER_SECOND

It prints one JSON object per line: {"published": so_far}. A batch that is sent again is reported on
standard error.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

import msgspec

from demo.flights import message, rows
from steelyard import Message, ProducerConfig, SteelyardError
from steelyard.aio import Producer

BATCH = 8
IN_FLIGHT = 4


class Publisher:
    """Sends `per_second` messages in batches, of which at most `IN_FLIGHT` are unacknowledged."""

    def __init__(self, producer: Producer, per_second: int) -> None:
        self.producer = producer
        self.per_second = per_second
        self.published = 0
        self.slots = asyncio.Semaphore(IN_FLIGHT)

    async def publish(self, flights: list[Message]) -> None:
        """Send one batch again and again until it is acknowledged: brokers come and go here."""
        while True:
            try:
                await self.producer.send_batch(flights)
                break
            except SteelyardError as error:
                print(f"batch sent again: {error}", file=sys.stderr)
                await asyncio.sleep(0.2)
        self.published += len(flights)
        self.slots.release()

    async def run(self, count: int) -> None:
        source = (
            message(number, row) for number, row in enumerate(itertools.islice(rows(), count))
        )
        started, told = time.monotonic(), 0.0
        async with asyncio.TaskGroup() as tasks:
            for number in range(0, count, BATCH):
                await self.slots.acquire()
                tasks.create_task(self.publish(list(itertools.islice(source, BATCH))))
                ahead = number / self.per_second - (time.monotonic() - started)
                if ahead > 0:
                    await asyncio.sleep(ahead)
                if time.monotonic() - told > 0.2:
                    told = time.monotonic()
                    self.tell()
        self.tell()

    def tell(self) -> None:
        line = msgspec.json.encode({"published": self.published})
        print(line.decode(), flush=True)


async def main(nameserver: str, count: int, per_second: int) -> None:
    config = ProducerConfig(route_poll_ms=5_000)
    async with Producer("flight-schedule", nameserver, config=config) as producer:
        await Publisher(producer, per_second).run(count)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
