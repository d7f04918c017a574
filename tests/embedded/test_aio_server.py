"""`steelyard.aio.Server`: the same with coroutines, and what a cancelled start leaves behind."""

from __future__ import annotations

import asyncio
import inspect

import psutil
import pytest

from steelyard import ArgumentError, ClosedError, Server, aio
from steelyard.driver.loops import run


def test_a_server_for_coroutines() -> None:
    async def main() -> None:
        async with aio.Server(in_process=True) as server:
            topic = await server.create_topic("Orders")
            async with aio.Producer("p", server.nameserver) as producer:
                await producer.send(topic, b"one apple")
            async with aio.KafkaConsumer(
                topic,
                bootstrap_servers=server.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
            ) as consumer:
                records = await consumer.poll(60_000)
                assert [record.value for record in records] == [b"one apple"]
            assert {row.group for row in await server.rebalances()} == {"g"}
            await server.kill_broker()
            await server.restart_broker("broker-a")
            with pytest.raises(ArgumentError):
                await server.kill_broker("broker-z")
        with pytest.raises(ClosedError):
            await server.create_topic("Orders")

    run(main())


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        server = aio.Server()
        starting = asyncio.ensure_future(server.start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(ClosedError, match="was stopped"):
            _ = server.nameserver

    before = set(psutil.Process().children(recursive=True))
    run(main())
    assert set(psutil.Process().children(recursive=True)) <= before


def test_both_classes_have_the_same_methods() -> None:
    def methods(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert methods(aio.Server) == methods(Server)
    for name in sorted(methods(Server)):
        ours, theirs = getattr(aio.Server, name), getattr(Server, name)
        if not isinstance(ours, property):
            assert inspect.iscoroutinefunction(ours), name
        if name != "start":
            assert ours.__doc__ == theirs.__doc__, name


def test_an_unknown_name_of_the_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Servers'"):
        _ = aio.Servers
