"""What a server's driver measures: the loop's delay, the disk, and its connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from steelyard.driver.driver import Driver
from steelyard.driver.listening import bind
from steelyard.nodes.seam import Effect, Event, Flush, Flushed, Measured
from steelyard.wire.figures import DURATION_BOUNDS, Durations, ProcessFigures


class Node:
    """Asks for a flush at the start, and keeps what was measured."""

    def __init__(self) -> None:
        self.flushed = False
        self.measured: list[ProcessFigures] = []

    def start(self, now: int) -> list[Effect]:
        return [Flush(1)]

    def handle(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Measured):
            self.measured.append(event.figures)
        self.flushed |= isinstance(event, Flushed)
        return []

    def check(self) -> None:
        """Nothing can be wrong."""


def longer(durations: Durations, seconds: float) -> int:
    """How many took longer than one of the bounds."""
    return sum(durations.counts[DURATION_BOUNDS.index(seconds) + 1 :])


async def reports(node: Node, count: int) -> Sequence[ProcessFigures]:
    while len(node.measured) < count:
        await asyncio.sleep(0.01)
    return node.measured


def test_delays_of_the_loop_and_of_the_disk() -> None:
    async def main() -> None:
        node = Node()
        driver = Driver(node, prepare_flush=lambda: lambda: time.sleep(0.06), measures=True)
        driver.start()
        before = (await reports(node, 1))[-1]
        assert before.resident_bytes > 1_000_000
        time.sleep(0.8)  # what a handler must not do
        while not node.flushed:
            await asyncio.sleep(0.01)
        after = (await reports(node, len(node.measured) + 1))[-1]
        assert longer(after.loop_delay, 0.5) > longer(before.loop_delay, 0.5)
        assert sum(after.syncs.counts) == longer(after.syncs, 0.05) == 1
        assert after.syncs.sum_seconds >= 0.06
        assert after.cpu_seconds >= before.cpu_seconds > 0
        assert sum(before.syncs.counts) <= 1, "a report does not change afterwards"
        await driver.close()

    asyncio.run(main())


def test_connections_and_bytes() -> None:
    async def main() -> None:
        node = Node()
        driver = Driver(node, prepare_flush=lambda: lambda: None, measures=True)
        driver.start()
        listener = bind("127.0.0.1", 0)
        await driver.listen(listener)
        host, port = listener.getsockname()
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"\0\0")  # half of a frame's length
        await writer.drain()
        while (found := (await reports(node, 1))[-1].listeners["remoting"]).received_bytes < 2:
            await asyncio.sleep(0.01)
        assert (found.connections, found.received_bytes, found.sent_bytes) == (1, 2, 0)
        writer.close()
        while node.measured[-1].listeners["remoting"].connections:
            await asyncio.sleep(0.01)
        await driver.close()

    asyncio.run(main())


def test_a_driver_that_was_not_told_to_measure_does_not() -> None:
    async def main() -> None:
        quiet, watched = Node(), Node()
        drivers = [
            Driver(node, prepare_flush=lambda: lambda: None, measures=measures)
            for node, measures in ((quiet, False), (watched, True))
        ]
        for driver in drivers:
            driver.start()
        await reports(watched, 2)
        assert quiet.measured == []
        for driver in drivers:
            await driver.close()

    asyncio.run(main())
