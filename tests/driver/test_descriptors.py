"""A server that runs out of file descriptors: which connections it lets in, and that writes and syncs go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.config import BrokerConfig, KafkaConfig, NameserverConfig
from steelyard.driver.accepting import TELL_MS
from steelyard.driver.descriptors import connections_max, files_max, in_use
from steelyard.driver.disk import SPARES, LiveDisk
from steelyard.driver.links import LinkLimits
from steelyard.driver.listening import bind
from steelyard.driver.loops import run
from steelyard.errors import ConfigError, DescriptorsError
from steelyard.nodes.seam import Effect, Event, Flush, Flushed
from steelyard.servers.server import serve_broker, serve_nameserver
from steelyard.store.files import Files
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import encode

Run = Callable[[Callable[..., object]], None]


@contextmanager
def exhausted(left: int = 0) -> Iterator[list[int]]:
    """This process has `left` file descriptors, and gives the others back in the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, in_use() + 200), hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        for _ in range(left):
            os.close(taken.pop())
        yield taken
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- arithmetic ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "files", "connections"), [(1024, 256, 620), (20_000, 256, 19_596), (256, 64, 140)]
)
def test_connections_get_what_files_and_a_reserve_leave(
    limit: int, files: int, connections: int
) -> None:
    assert files_max(limit) == files
    assert connections_max(limit, 20, files) == connections


def test_a_limit_that_leaves_no_connections_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"may open 64 files.*leaves 20 connections.*by 12 or more"
    ):
        connections_max(64, 20, 16)


def test_a_server_raises_its_soft_limit_to_the_hard_one() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 700));"
        "from steelyard.driver.descriptors import raise_limit;"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE), raise_limit())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "700 (700, 700) 700"


# -- connections -----------------------------------------------------------------------------------


async def dropped(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(60):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def answered(peer: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    peer[1].write(encode(Command(1)))
    async with asyncio.timeout(60):
        return bool(await peer[0].read(65536))


async def serve(bench: Any, limits: LinkLimits, **bounds: int) -> tuple[Any, str]:
    driver = bench.drive(bench.node(), limits)
    listener = bind("127.0.0.1", 0)
    await driver.listen(listener, **bounds)
    return driver, f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("total", "bounds"),
    [
        (3, {}),
        (100, {"connections_max": 3}),
        (100, {"connections_per_ip_max": 3}),
    ],
    ids=["descriptors", "listener", "address"],
)
def test_connections_above_a_bound_are_closed_logged_and_counted(
    run_scenario: Run, caplog: pytest.LogCaptureFixture, total: int, bounds: dict[str, int]
) -> None:
    async def scenario(bench: Any) -> None:
        driver, address = await serve(bench, LinkLimits(accepted_max=total), **bounds)
        kept = [await bench.connect(address) for _ in range(3)]
        for peer in kept:
            assert await answered(peer)
        for _ in range(5):
            reader, writer = await bench.connect(address)
            assert await dropped(reader)
            writer.close()
        assert driver.accepting.refused == 5
        for peer in kept:
            assert await answered(peer)
        kept[0][1].close()
        await bench.until(lambda: driver.accepting.descriptors == 2)
        again = await bench.connect(address)
        assert await answered(again)
        for _, writer in (*kept, again):
            writer.close()

    with caplog.at_level(logging.WARNING, "steelyard"):
        run_scenario(scenario)
    (record,) = caplog.records
    assert "1 connections closed for lack of room" in record.getMessage()


@pytest.mark.parametrize("name", ["max_connections", "max_connections_per_ip"])
def test_servers_have_the_bounds_of_their_configuration(tmp_path: Path, name: str) -> None:
    """Of one connection to each listener: those of the others do not count."""

    async def main() -> None:
        bounded = replace(NameserverConfig(), **{name: 1})  # type: ignore[arg-type]  # a number
        nameserver = await serve_nameserver(port=0, config=bounded)
        config = BrokerConfig(
            nameservers=(nameserver.address,),
            kafka=replace(KafkaConfig(), **{name: 1}),  # type: ignore[arg-type]  # a number
        )
        config = replace(config, **{name: 2})  # type: ignore[arg-type]  # a number
        broker = await serve_broker(str(tmp_path), port=0, config=config, kafka_port=0)
        api_versions = b"\0\0\0\x0e\0\x12\0\0\0\0\0\x01\0\x04test"
        remoting = encode(Command(RequestCode.GET_BROKER_CONFIG))
        for address, bound, request in (
            (broker.address, 2, remoting),
            (broker.kafka, 1, api_versions),
        ):
            host, _, port = address.rpartition(":")
            peers = [await asyncio.open_connection(host, int(port)) for _ in range(bound)]
            for reader, writer in peers:
                writer.write(request)
                async with asyncio.timeout(60):
                    assert await reader.read(65536)
            extra = await asyncio.open_connection(host, int(port))
            assert await dropped(extra[0])
            for _, writer in (*peers, extra):
                writer.close()
        assert broker.driver.accepting.refused == 2
        await broker.stop()
        await nameserver.stop()

    run(main())


def test_who_says_nothing_makes_room_for_who_does(
    run_scenario: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Four connections take every place; one speaks. 2. Two more come: the oldest silent ones go, one for each.
    3. Once all speak, the next is refused."""

    async def scenario(bench: Any) -> None:
        driver, address = await serve(bench, LinkLimits(accepted_max=4))
        now = [10_000]
        monkeypatch.setattr(driver, "clock", lambda: now[0])
        peers = []
        for number in range(4):
            peers.append(await bench.connect(address))
            await bench.until(lambda n=number: driver.accepting.descriptors == n + 1)
            now[0] += 1
        assert await answered(peers[0])
        late = [await bench.connect(address), await bench.connect(address)]
        assert [await answered(peer) for peer in late] == [True, True]
        assert await dropped(peers[1][0])
        assert await dropped(peers[2][0])
        assert await answered(peers[3])
        assert await answered(peers[0])
        assert (driver.accepting.refused, driver.accepting.displaced) == (0, 2)
        last = await bench.connect(address)
        assert await dropped(last[0])
        assert driver.accepting.refused == 1
        for _, writer in (*peers, *late, last):
            writer.close()

    run_scenario(scenario)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_who_spoke_keeps_its_place_though_the_server_has_not_read_it_yet(
    run_scenario: Run, turns: int
) -> None:
    """1. A server with three places is busy. 2. Meanwhile a client comes and sends, and then ten come that say nothing.
    3. The server goes on, and has them all at once: the client is answered. (`turns`: passes of its loop between.)"""

    async def scenario(bench: Any) -> None:
        driver, address = await serve(bench, LinkLimits(accepted_max=3))
        host, _, port = address.rpartition(":")
        good = socket.create_connection((host, int(port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        good.sendall(encode(Command(1)))
        flood = [socket.create_connection((host, int(port))) for _ in range(10)]
        good.setblocking(False)
        async with asyncio.timeout(60):
            assert await asyncio.get_running_loop().sock_recv(good, 65536)
        await bench.until(lambda: driver.accepting.displaced == 8)
        await bench.until(lambda: driver.accepting.descriptors == 3)
        assert driver.accepting.refused == 0
        for each in (good, *flood):
            each.close()

    run_scenario(scenario)


def test_refusals_are_logged_every_half_minute(
    run_scenario: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Any) -> None:
        driver, address = await serve(bench, LinkLimits(accepted_max=0))
        now = [10_000]
        monkeypatch.setattr(driver, "clock", lambda: now[0])
        for round_number in range(2):
            now[0] += TELL_MS
            for _ in range(20):
                reader, writer = await bench.connect(address)
                assert await dropped(reader)
                writer.close()
            assert driver.accepting.refused == 20 * (round_number + 1)
        assert driver.accepting.descriptors == 0

    with caplog.at_level(logging.WARNING, "steelyard"):
        run_scenario(scenario)
    first, second = (
        record.getMessage() for record in caplog.records if record.name.startswith("steelyard")
    )
    assert first.startswith("1 connections")
    assert second.startswith("20 connections")
    assert "in all 21 were refused" in second


def test_accept_without_a_descriptor_neither_spins_nor_floods_the_log(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """1. The process has no descriptor; 50 clients connect. 2. A connection from before is served. 3. The descriptors
    come back: a new one is served."""

    async def scenario(bench: Any) -> None:
        driver, address = await serve(bench, LinkLimits())
        good = await bench.connect(address)
        assert await answered(good)
        waiting = [socket.socket() for _ in range(50)]
        with exhausted():
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(driver._servers[0].sockets[0].getsockname())
            async with asyncio.timeout(60):
                for _ in range(50):
                    await asyncio.sleep(0.01)
            assert await answered(good)
            assert not driver.failed.done()
        for each in waiting:
            each.close()
        new = await bench.connect(address)
        assert await answered(new)
        for _, writer in (good, new):
            writer.close()

    with caplog.at_level(logging.WARNING):
        run_scenario(scenario)
    assert len(caplog.records) <= 3, [record.getMessage() for record in caplog.records[:5]]


# -- syncs -----------------------------------------------------------------------------------------


def test_a_sync_needs_no_free_descriptor(tmp_path: Path) -> None:
    disk = LiveDisk(str(tmp_path))
    files = Files(disk)
    for number in range(10):
        files.create(f"folder/file{number}")
        files.write(f"folder/file{number}", 0, b"data")
    taken = files.take()
    gc.collect()  # what other tests left behind is closed now, not in between
    before = in_use()
    with exhausted():
        for _ in range(3):
            taken.sync()
            assert len(disk._spares._numbers) == SPARES
    assert in_use() <= before
    files.close()
    disk.close()


def test_a_store_without_descriptors_opens_files_in_the_place_of_others(tmp_path: Path) -> None:
    disk = LiveDisk(str(tmp_path))
    files = Files(disk)
    for number in range(10):
        files.create(f"file{number}")
        files.write(f"file{number}", 0, b"%d" % number)
    files.forget("file0")
    with exhausted():
        assert files.read("file0", 0, 9) == b"0"
        files.write("file1", 0, b"x")
        assert files.list("") == [f"file{number}" for number in range(10)]
        files.close()
        with exhausted(), pytest.raises(DescriptorsError, match="cannot open file0"):
            files.read("file0", 0, 9)
    assert files.read("file0", 0, 9) == b"0"
    files.close()
    disk.close()


def test_a_flush_without_a_descriptor_is_tried_again(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """1. The flush of tickets 1 and 2 finds no descriptor, three times. 2. Nothing is acknowledged, the node goes on.
    3. The fourth try succeeds: both are acknowledged, and what was synced is what was taken first."""

    async def scenario(bench: Any) -> None:
        tries: list[int] = []
        prepared: list[int] = []

        def prepare() -> Callable[[], None]:
            number = len(prepared)
            prepared.append(number)

            def sync() -> None:
                tries.append(number)
                if len(tries) < 4:
                    assert not any(isinstance(event, Flushed) for event in node.events)
                    raise DescriptorsError("cannot sync logs/0: Too many open files")

            return sync

        def nothing(event: Event, now: int) -> list[Effect]:
            return []

        node = bench.node(nothing, [Flush(1), Flush(2)])
        driver = bench.drive(node, prepare_flush=prepare)
        await bench.until(lambda: Flushed(2) in node.events)
        assert node.events == [Flushed(1), Flushed(2)]
        assert tries == [0, 0, 0, 0]
        assert not driver.failed.done()

    with caplog.at_level(logging.WARNING, "steelyard"):
        run_scenario(scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
