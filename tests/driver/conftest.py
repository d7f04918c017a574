"""Nodes and sockets for the driver's tests: every test runs one coroutine on a fresh loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.waiting import until_async

from steelyard.driver.driver import Driver
from steelyard.driver.links import LinkLimits
from steelyard.driver.listening import advertised, bind
from steelyard.nodes.seam import Effect, Event, Received, Send
from steelyard.wire.remoting.command import Command

Reaction = Callable[[Event, int], list[Effect]]


class Script:
    """A node that remembers every event and does what a function says; by default it echoes commands."""

    def __init__(self, reaction: Reaction | None = None, begin: list[Effect] | None = None) -> None:
        self.events: list[Event] = []
        self.times: list[int] = []
        self.reaction = reaction or echo
        self.begin = begin or []

    def start(self, now: int) -> list[Effect]:
        return self.begin

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.events.append(event)
        self.times.append(now)
        return self.reaction(event, now)

    def check(self) -> None:
        """Nothing to assert."""

    def commands(self) -> list[Command]:
        return [
            event.message
            for event in self.events
            if isinstance(event, Received) and isinstance(event.message, Command)
        ]


def echo(event: Event, now: int) -> list[Effect]:
    return [Send(event.link, event.message)] if isinstance(event, Received) else []


class Bench:
    """What a test gets: drivers by node, all closed in the end."""

    def __init__(self) -> None:
        self.drivers: list[Driver] = []

    def drive(
        self,
        node: Script,
        limits: LinkLimits | None = None,
        prepare_flush: Callable[[], Callable[[], None]] | None = None,
        on_hand: Callable[[int, object], None] | None = None,
    ) -> Driver:
        driver = Driver(
            node, name="test", limits=limits, prepare_flush=prepare_flush, on_hand=on_hand
        )
        driver.start()
        self.drivers.append(driver)
        return driver

    @staticmethod
    def node(reaction: Reaction | None = None, begin: list[Effect] | None = None) -> Script:
        return Script(reaction, begin)

    async def serve(self, node: Script, limits: LinkLimits | None = None) -> str:
        """A listening driver's address."""
        driver = self.drive(node, limits)
        listener = bind("127.0.0.1", 0)
        await driver.listen(listener)
        return advertised("127.0.0.1", listener)

    @staticmethod
    async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    until = staticmethod(until_async)


@asynccontextmanager
async def _bench() -> AsyncIterator[Bench]:
    bench = Bench()
    try:
        yield bench
    finally:
        for driver in bench.drivers:
            await driver.close()


Scenario = Callable[[Bench], Awaitable[None]]


@pytest.fixture(params=["uvloop", "asyncio"])
def run_scenario(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario on uvloop and on asyncio's own loop."""
    from steelyard.driver.loops import new_loop

    factory = new_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def main(scenario: Scenario) -> None:
        async with _bench() as bench:
            await scenario(bench)

    def run(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main(scenario))

    return run
