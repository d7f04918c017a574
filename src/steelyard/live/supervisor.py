"""`steelyard up`: a nameserver in this process and each broker in a process of its own.

A broker process tells over its standard output, in one line of JSON, where it listens or what is wrong. It
stops when its standard input ends, so that no broker outlives the supervisor, however that ends. A broker
that dies is reported and left alone: `steelyard broker` starts it again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steelyard.errors import ConfigError, SteelyardError
from steelyard.live.listening import advertised, bind

if TYPE_CHECKING:
    import asyncio

    from steelyard.live.server import Server

START_SECONDS = 30.0
"""Longest start of a broker: recovery of a large log takes its time."""

CHILD_STOP_SECONDS = 15.0
"""How long a broker may take to stop before it is killed."""

BROKERS_MAX = 26
"""broker-a .. broker-z."""

PORT_STEP = 10
"""Between the ports of neighbouring brokers: RocketMQ uses the two below and the one above as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What to start."""

    brokers: int = 1
    data: str = "steelyard-data"
    host: str = "127.0.0.1"
    nameserver_port: int = 9876
    broker_port: int = 10911
    """Of the first broker; the others follow in steps. 0: a free one for each."""
    kafka_port: int | None = None
    """Of the first broker's Kafka door; the others follow one by one. 0: a free one for each; None: no such doors."""
    options: tuple[str, ...] = ()
    """Further options for each `steelyard broker`."""


@dataclass(slots=True)
class Child:
    """One broker process."""

    name: str
    process: subprocess.Popen[bytes]
    output: asyncio.StreamReader | None = None
    watch: asyncio.Task[None] | None = None


def broker_name(position: int) -> str:
    return f"broker-{chr(ord('a') + position)}"


def report_line(*, address: str = "", kafka: str = "", error: str = "") -> str:
    """What a broker process says to its supervisor."""
    return json.dumps({"address": address, "kafka": kafka, "error": error})


class Supervisor:
    """Call `spawn`, then, in an event loop, `start` and `wait`.

    `spawn` comes first and loads little, so that the brokers load while the supervisor does.
    """

    def __init__(self, layout: Layout) -> None:
        if not 1 <= layout.brokers <= BROKERS_MAX:
            raise ConfigError(f"brokers is {layout.brokers}; it must be 1 to {BROKERS_MAX}")
        last_port = layout.broker_port + PORT_STEP * (layout.brokers - 1)
        if not 0 <= layout.broker_port <= last_port <= 65_535:
            raise ConfigError(f"broker port {layout.broker_port} leaves no room up to 65535")
        kafka_port = layout.kafka_port
        if kafka_port is not None and not 0 <= kafka_port <= 65_536 - layout.brokers:
            raise ConfigError(f"Kafka port {kafka_port} leaves no room up to 65535")
        self._layout = layout
        self._children: list[Child] = []
        self._stopping = False
        self._nameserver: Server | None = None

    def spawn(self) -> None:
        """Take the nameserver's port and start the broker processes."""
        layout = self._layout
        self._listener = bind(layout.host, layout.nameserver_port)
        self._address = advertised(layout.host, self._listener)
        for position in range(layout.brokers):
            self._children.append(self._spawn(position, self._address))

    async def start(self) -> dict[str, object]:
        """Serve, and return the addresses when clients can use them: what `up --json` prints.

        Raises what went wrong, with nothing left behind.
        """
        import asyncio

        from steelyard.live.server import serve_nameserver, stop_signals

        self._stop = stop_signals()
        try:
            self._nameserver = await serve_nameserver(self._layout.host, listener=self._listener)
            addresses = await asyncio.gather(*map(self._ready, self._children))
        except BaseException:
            await self.stop()
            raise
        for child in self._children:
            child.watch = asyncio.create_task(self._watch(child))
        names = [child.name for child in self._children]
        brokers = dict(zip(names, [address for address, _ in addresses], strict=True))
        ready: dict[str, object] = {"nameserver": self._address, "brokers": brokers}
        if self._layout.kafka_port is not None:
            ready["kafka"] = ",".join([kafka for _, kafka in addresses])
        return ready

    async def wait(self) -> int:
        """Serve until a signal comes, then stop everything; the exit code."""
        from steelyard.live.server import until_stopped

        assert self._nameserver is not None
        code = await until_stopped(self._nameserver.driver, self._stop)
        await self.stop()
        return code

    async def stop(self) -> None:
        """Stop all brokers, together, and wait for their end; then the nameserver."""
        import asyncio

        self._stopping = True
        for child in self._children:
            assert child.process.stdin is not None
            child.process.stdin.close()
        await asyncio.gather(*map(self._reap, self._children))
        if self._nameserver is not None:
            await self._nameserver.stop()

    def _spawn(self, position: int, nameserver: str) -> Child:
        layout = self._layout
        name = broker_name(position)
        port = layout.broker_port + PORT_STEP * position if layout.broker_port else 0
        command = [sys.executable, "-m", "steelyard", "broker", "--supervised"]
        command += ["--name", name, "--data", os.path.join(layout.data, name)]
        command += ["--host", layout.host, "--port", str(port), "--nameserver", nameserver]
        if layout.kafka_port is not None:
            kafka_port = layout.kafka_port + position if layout.kafka_port else 0
            command += ["--kafka-port", str(kafka_port), "--node-id", str(position + 1)]
            names = map(broker_name, range(layout.brokers))
            command += ["--kafka-brokers", ",".join(names)]
        process = subprocess.Popen(
            [*command, *layout.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, which stops them in order
        )
        return Child(name, process)

    async def _ready(self, child: Child) -> tuple[str, str]:
        """The address that the broker says it has, and that of its Kafka door."""
        import asyncio

        assert child.process.stdout is not None
        output = child.output = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), child.process.stdout
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await output.readline()
        except TimeoutError:
            raise SteelyardError(f"{child.name} did not start in {START_SECONDS:.0f} s") from None
        if not line:
            raise SteelyardError(f"{child.name} ended before it was ready")
        report = json.loads(line)
        if report["error"]:
            raise ConfigError(f"{child.name}: {report['error']}")
        return report["address"], report["kafka"]

    async def _watch(self, child: Child) -> None:
        """Say so when a broker dies on its own."""
        import asyncio

        assert child.output is not None
        await child.output.read()
        code = await asyncio.get_running_loop().run_in_executor(None, child.process.wait)
        if not self._stopping:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            print(
                f"steelyard: {child.name} ended ({how}); `steelyard broker` starts it again",
                file=sys.stderr,
                flush=True,
            )

    async def _reap(self, child: Child) -> None:
        import asyncio

        ended = asyncio.get_running_loop().run_in_executor(None, child.process.wait)
        done, _ = await asyncio.wait([ended], timeout=CHILD_STOP_SECONDS)
        if not done:
            child.process.kill()
            await ended
        if child.watch is not None:
            await child.watch
