"""Ten minutes of garbage against a live nameserver and broker, while a good client goes on.

    python tests/fuzz/fuzz_server.py --seconds 600 --seed N

Attackers throw random bytes, cut and mutated frames, sizes of 2 GB, unknown codes, wrong headers and
bodies; they write slowly, never read, hang up in the middle, and leave connections half open. Meanwhile a
producer and a push consumer must stay served, the servers must neither end, nor print a traceback, nor
grow beyond a limit, and what they answer must be frames. The same seed throws the same garbage; when it
meets what is up to the machine.

Exit code 1 when something was wrong: the latest inputs are then in out/fuzz-<seed>.txt as hex, newest
last, with the server's output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom

import psutil

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.fuzz import garbage  # noqa: E402

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, Producer, PushConsumer  # noqa: E402
from steelyard.errors import ProtocolError, SteelyardError  # noqa: E402
from steelyard.wire.remoting import frame  # noqa: E402
from steelyard.wire.remoting.command import Command  # noqa: E402
from steelyard.wire.strangers import Signs, Stranger, refusal  # noqa: E402

GROWTH_BYTES_MAX = 256 * 1024 * 1024
"""How much a server's memory may grow: all unsent replies, unfinished frames and held pulls are in it."""

LATE_SECONDS_MAX = 60.0
"""Longest silence between two messages at the good consumer."""

HALF_OPEN_MAX = 100
INPUTS_BYTES_MAX = 16 * 1024 * 1024
"""How much of the latest input is kept for the report of a failure."""

ATTACKERS = 8
TOPIC = "GoodTopic"
START_SECONDS = 90.0


class FaultError(Exception):
    """The servers did something that they must not; the text says what."""


class Servers:
    """`steelyard up` with one broker, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "server.txt"
        command = [sys.executable, "-m", "steelyard", "up", "--json"]
        command += ["--data", str(folder / "data"), "--nameserver-port", "0", "--broker-port", "0"]
        command += ["--restarts-max", "0"]
        with self.output.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the servers did not start: {self.output.read_text()}")
        ready = json.loads(line)
        [broker] = ready["brokers"].values()
        self.nameserver = str(ready["nameserver"])
        self.addresses = [self.nameserver, str(broker)]
        up = psutil.Process(self.process.pid)
        self.processes = {"supervisor": up}
        for child in up.children():
            name = "nameserver" if "nameserver" in child.cmdline() else "broker"
            self.processes[name] = child
        self.at_first = {name: item.memory_info().rss for name, item in self.processes.items()}
        self.peak = dict(self.at_first)
        self._output_read = 0

    def check(self) -> None:
        """Raise FaultError where a server ended, grew too much, or printed a traceback."""
        for name, process in self.processes.items():
            try:
                size = process.memory_info().rss
            except psutil.NoSuchProcess:
                size = 0
            if not size:  # as it is of a process that ended and was not waited for
                raise FaultError(f"the {name} ended")
            self.peak[name] = max(self.peak[name], size)
            if size - self.at_first[name] > GROWTH_BYTES_MAX:
                raise FaultError(f"the {name} grew from {self.at_first[name]} to {size} bytes")
        with self.output.open("rb") as text:
            text.seek(max(0, self._output_read - 20))
            new = text.read()
            self._output_read = text.tell()
        if b"Traceback" in new or b" ERROR " in new:
            raise FaultError("the server printed an error")

    def stop(self) -> None:
        """Raise FaultError where the servers do not stop cleanly."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            raise FaultError("the servers did not stop") from None
        if code:
            raise FaultError(f"the servers stopped with exit code {code}")

    def kill(self) -> None:
        if self.process.poll() is None:
            for process in self.processes.values():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait()


class GoodClient:
    """A producer and a push consumer that must not notice anything."""

    def __init__(self, nameserver: str) -> None:
        self.sent: set[str] = set()
        self.received: set[str] = set()
        self.slowest_send_s = 0.0
        self.longest_silence_s = 0.0
        self.error: str | None = None
        self._received_at = time.monotonic()
        self._stopping = threading.Event()
        self._producer = Producer("good-producers", nameserver).start()
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        self._send()
        consumer = PushConsumer("good-consumers", nameserver, self._take, config=config)
        self._consumer = consumer.subscribe(TOPIC).start()
        self._thread = threading.Thread(target=self._run, name="good client", daemon=True)

    def start(self) -> None:
        """Begin once the first message has come through."""
        end = time.monotonic() + START_SECONDS
        while not self.received:
            if time.monotonic() > end:
                raise FaultError("the good client received nothing before the start")
            time.sleep(0.05)
        self._thread.start()

    def check(self) -> None:
        if self.error is not None:
            raise FaultError(self.error)
        if time.monotonic() - self._received_at > LATE_SECONDS_MAX:
            raise FaultError(f"the good consumer received nothing for {LATE_SECONDS_MAX:.0f} s")

    def stop(self) -> None:
        """Raise FaultError where a message that was acknowledged has not come."""
        self._stopping.set()
        self._thread.join()
        end = time.monotonic() + LATE_SECONDS_MAX
        while not self.sent <= self.received and time.monotonic() < end:
            time.sleep(0.05)
        self._consumer.stop()
        self._producer.stop()
        self.check()
        if not self.sent <= self.received:
            raise FaultError(f"{len(self.sent - self.received)} acknowledged messages did not come")

    def abandon(self) -> None:
        """Close without a look at what came; the servers may be gone."""
        self._stopping.set()
        self._consumer.stop()
        self._producer.stop()

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            try:
                self._send()
            except SteelyardError as error:
                self.error = f"a good message was refused: {error!r}"
                return

    def _send(self) -> None:
        start = time.monotonic()
        result = self._producer.send(TOPIC, f"message {len(self.sent)}".encode())
        self.slowest_send_s = max(self.slowest_send_s, time.monotonic() - start)
        self.sent.add(result.message_id)

    def _take(self, message: MessageView) -> None:
        message.verify()
        now = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now - self._received_at)
        self._received_at = now
        self.received.add(message.message_id)


class Attack:
    """Everything that is thrown, and what came back."""

    def __init__(self, addresses: list[str], seed: int) -> None:
        self._addresses = addresses
        self._seed = seed
        self.counts: Counter[str] = Counter()
        self.replies = 0
        self.inputs: deque[tuple[float, str, str, bytes]] = deque()
        self._inputs_bytes = 0
        self._half_open: set[asyncio.Task[None]] = set()
        self._began = time.monotonic()

    async def run(self, until: float, check: Callable[[], None]) -> None:
        """Throw until the time comes or `check` raises."""
        tasks = [asyncio.create_task(self._attack(number, until)) for number in range(ATTACKERS)]
        try:
            while time.monotonic() < until:
                await asyncio.wait(tasks, timeout=0.5, return_when=asyncio.FIRST_EXCEPTION)
                for task in tasks:
                    if task.done() and (error := task.exception()) is not None:
                        raise error
                check()
        finally:
            for task in [*tasks, *self._half_open]:
                task.cancel()
            await asyncio.gather(*tasks, *self._half_open, return_exceptions=True)

    async def _attack(self, number: int, until: float) -> None:
        rng = Random(f"{self._seed}-{number}")
        manners: list[tuple[int, Callable[[Random, str], Awaitable[None]]]] = [
            (60, self._throw),
            (10, self._hang_up),
            (10, self._in_pieces),
            (10, self._leave_half_open),
            (5, self._write_slowly),
            (5, self._never_read),
            (1, self._pour),
        ]
        weights = [weight for weight, _ in manners]
        while time.monotonic() < until:
            [(_, manner)] = rng.choices(manners, weights)
            address = rng.choice(self._addresses)
            self.counts[manner.__name__.strip("_")] += 1
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await asyncio.wait_for(manner(rng, address), 30)

    def _next(self, rng: Random, address: str) -> bytes:
        name, data = garbage.any_bytes(rng)
        self.counts[name] += 1
        self._remember(address, name, data)
        return data

    def _remember(self, address: str, name: str, data: bytes) -> None:
        self.inputs.append((time.monotonic() - self._began, address, name, data))
        self._inputs_bytes += len(data)
        while self._inputs_bytes > INPUTS_BYTES_MAX:
            self._inputs_bytes -= len(self.inputs.popleft()[3])

    async def _open(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def _throw(self, rng: Random, address: str) -> None:
        """Write, wait for answers a moment, close."""
        reader, writer = await self._open(address)
        try:
            for _ in range(rng.choice((1, 1, 3, 10))):
                writer.write(self._next(rng, address))
                await writer.drain()
                await self._read(reader, 0.05)
            writer.write_eof()
            await self._read(reader, 0.2)
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, seconds: float) -> None:
        """Answers must be frames, or what those hear that speak HTTP or TLS."""
        decoder = frame.Decoder()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while data := await reader.read(65536):
                    if data.startswith((b"HTTP/1.1 400 ", refusal(Stranger.TLS, Signs()))):
                        return
                    try:
                        self.replies += len(decoder.feed(data))
                    except ProtocolError as error:
                        raise FaultError(f"the server's answer is not a frame: {error}") from None

    async def _hang_up(self, rng: Random, address: str) -> None:
        """Reset the connection in the middle of things."""
        _, writer = await self._open(address)
        writer.write(self._next(rng, address))
        await asyncio.sleep(rng.choice((0, 0.001, 0.01)))
        writer.transport.abort()

    async def _in_pieces(self, rng: Random, address: str) -> None:
        """Frames cut anywhere but whole in the end."""
        reader, writer = await self._open(address)
        try:
            data = garbage.many_frames(rng)
            self._remember(address, "pieces", data)
            while data:
                size = rng.choice((1, 3, 100, 1000, 5000))
                writer.write(data[:size])
                data = data[size:]
                await writer.drain()
            await self._read(reader, 0.1)
        finally:
            writer.transport.abort()

    async def _write_slowly(self, rng: Random, address: str) -> None:
        _, writer = await self._open(address)
        try:
            for byte in self._next(rng, address)[:200]:
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0.005)
        finally:
            writer.transport.abort()

    async def _never_read(self, rng: Random, address: str) -> None:
        """Ask for much and take nothing."""
        _, writer = await self._open(address)
        try:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # sockets can
            request = frame.encode(Command(code=rng.choice((21, 28, 106, 206)), opaque=1))
            for _ in range(50):
                writer.write(request * 20)
                await asyncio.wait_for(writer.drain(), 1)
            await asyncio.sleep(1)
        finally:
            writer.transport.abort()

    async def _pour(self, rng: Random, address: str) -> None:
        """Half of the largest frame there may be, and then nothing."""
        _, writer = await self._open(address)
        try:
            writer.write((frame.FRAME_BYTES_MAX - 4).to_bytes(4, "big") + bytes(4))
            for _ in range(128):
                writer.write(bytes(65536))
                await asyncio.wait_for(writer.drain(), 5)
            await asyncio.sleep(rng.uniform(0, 3))
        finally:
            writer.transport.abort()

    async def _leave_half_open(self, rng: Random, address: str) -> None:
        """A beginning without an end, for some seconds."""
        if len(self._half_open) >= HALF_OPEN_MAX:
            return
        _, writer = await self._open(address)
        writer.write(self._next(rng, address)[: rng.choice((0, 1, 4, 7, 8, 20))])
        task = asyncio.create_task(self._close_later(writer, rng.uniform(1, 20)))
        self._half_open.add(task)
        task.add_done_callback(self._half_open.discard)

    async def _close_later(self, writer: asyncio.StreamWriter, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            writer.transport.abort()


def fuzz(seconds: float, seed: int) -> int:
    """One run; the exit code."""
    print(f"seed {seed}, {seconds:.0f} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="steelyard-fuzz-") as name:
        servers = Servers(Path(name))
        attack = Attack(servers.addresses, seed)
        client: GoodClient | None = None
        failure: FaultError | SteelyardError | None = None

        def check() -> None:
            assert client is not None
            servers.check()
            client.check()

        try:
            client = GoodClient(servers.nameserver)
            client.start()
            asyncio.run(attack.run(time.monotonic() + seconds, check))
            client.stop()
            servers.check()
            servers.stop()
        except (FaultError, SteelyardError) as error:
            failure = error
        finally:
            servers.kill()
            if client is not None:
                client.abandon()
        if client is not None:
            report(servers, client, attack)
        if failure is not None:
            saved = save(seed, failure, servers, attack)
            print(f"FAILED: {failure}\nsaved: {saved}\nagain: ./dev fuzz --seed {seed}")
            return 1
    return 0


def report(servers: Servers, client: GoodClient, attack: Attack) -> None:
    thrown = ", ".join(f"{name} {count}" for name, count in sorted(attack.counts.items()))
    print(f"thrown: {thrown}")
    print(f"answers to garbage: {attack.replies}")
    print(
        f"good client: {len(client.sent)} sent, {len(client.received)} received, "
        f"slowest send {client.slowest_send_s * 1000:.0f} ms, "
        f"longest silence {client.longest_silence_s * 1000:.0f} ms"
    )
    for name, peak in servers.peak.items():
        print(f"{name}: memory {servers.at_first[name] >> 20} MiB, at most {peak >> 20} MiB")


def save(seed: int, failure: Exception, servers: Servers, attack: Attack) -> Path:
    """The latest inputs and the end of the server's output."""
    folder = ROOT / "out"
    folder.mkdir(exist_ok=True)
    path = folder / f"fuzz-{seed}.txt"
    lines = [f"seed {seed}: {failure}", ""]
    lines += [
        f"{at:9.3f} {'nameserver' if address == servers.nameserver else 'broker'} {name} {data.hex()}"
        for at, address, name, data in attack.inputs
    ]
    output = servers.output.read_text(errors="replace")
    path.write_text("\n".join([*lines, "", "server output, the last of it:", output[-100_000:]]))
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="garbage against a live nameserver and broker")
    parser.add_argument("--seconds", type=float, default=600, help="how long; default 600")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    options = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    return fuzz(options.seconds, seed)


if __name__ == "__main__":
    sys.exit(main())
