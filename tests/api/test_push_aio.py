"""`steelyard.aio.PushConsumer` beyond the plain listener: order, hooks, pauses, sizes; against real brokers."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import replace

import pytest
from tests.waiting import until_async

from steelyard import (
    ClosedError,
    ConfigError,
    ConsumeFrom,
    ConsumerConfig,
    MessageQueue,
    MessageView,
    aio,
)
from steelyard.allocate import circle
from steelyard.driver.loops import run

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=10)


async def fill(nameservers: str, topic: str, rounds: range) -> None:
    """In each round one message for every queue, with the round's number in it."""
    async with aio.Producer("p", nameservers) as producer:
        queues = await producer.queues(topic)
        for number in rounds:
            for queue in queues:
                await producer.send(topic, f"{number}", queue=queue)


def test_the_order_of_each_queue_survives_members_that_come_and_go(nameservers: str) -> None:
    numbers: dict[MessageQueue, list[int]] = defaultdict(list)
    busy: set[MessageQueue] = set()

    async def listener(message: MessageView) -> None:
        assert message.queue not in busy
        busy.add(message.queue)
        await asyncio.sleep(0.001)
        numbers[message.queue].append(int(message.body))
        busy.discard(message.queue)

    def count() -> int:
        return sum(len(part) for part in numbers.values())

    async def member() -> aio.PushConsumer:
        consumer = aio.PushConsumer(
            "aio-ordered", nameservers, listener, orderly=True, config=FIRST
        )
        return await consumer.subscribe("AioOrdered").start()

    async def main() -> None:
        await fill(nameservers, "AioOrdered", range(30))
        first = await member()
        await until_async(lambda: count() >= 20)
        second = await member()
        await fill(nameservers, "AioOrdered", range(30, 60))

        async def has_its_share() -> bool:
            return len((await second.state()).held) >= 4

        await until_async(has_its_share)
        await first.stop()
        await fill(nameservers, "AioOrdered", range(60, 90))
        await until_async(lambda: count() >= 90 * 8)
        await second.stop()

    run(main())
    assert list(numbers.values()) == [list(range(90))] * 8


def test_a_failed_message_holds_its_queue_up(nameservers: str) -> None:
    seen: list[tuple[bytes, int]] = []

    async def listener(message: MessageView) -> bool:
        seen.append((message.body, message.reconsume_times))
        if len(seen) == 2:
            raise ValueError("no")
        return len(seen) > 1

    async def main() -> None:
        async with aio.Producer("p", nameservers) as producer:
            queue = (await producer.queues("AioHeldUp"))[0]
            for body in (b"0", b"1"):
                await producer.send("AioHeldUp", body, queue=queue)
        consumer = aio.PushConsumer("aio-held", nameservers, listener, orderly=True, config=FIRST)
        async with consumer.subscribe("AioHeldUp"):
            await until_async(lambda: len(seen) == 4)

    run(main())
    assert seen == [(b"0", 0), (b"0", 1), (b"0", 2), (b"1", 0)]


def test_hooks_may_be_functions_of_either_kind(
    nameservers: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, int]] = []
    seen: list[bytes] = []

    async def listener(message: MessageView) -> None:
        seen.append(message.body)

    async def on_assigned(queues: tuple[MessageQueue, ...]) -> None:
        await asyncio.sleep(0)
        told.append(("assigned", len([q for q in queues if q.topic == "AioHooked"])))

    def on_revoked(queues: tuple[MessageQueue, ...]) -> None:
        told.append(("revoked", len([q for q in queues if q.topic == "AioHooked"])))
        raise ValueError("no")

    async def main() -> None:
        await fill(nameservers, "AioHooked", range(1))
        consumer = aio.PushConsumer(
            "aio-hooked",
            nameservers,
            listener,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            config=FIRST,
        )
        async with consumer.subscribe("AioHooked"):
            await until_async(lambda: len(seen) == 8)

    with caplog.at_level(logging.ERROR, "steelyard"):
        run(main())
    for word in ("assigned", "revoked"):
        assert sum(count for kind, count in told if kind == word) == 8
    assert "the hook for Revoked failed" in [record.message for record in caplog.records]


def test_pause_resume_and_resize(nameservers: str) -> None:
    seen: list[tuple[MessageQueue, bytes]] = []
    running = most = 0

    async def listener(message: MessageView) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        seen.append((message.queue, message.body))

    def reached(number: bytes) -> int:
        return len({queue for queue, body in seen if body == number})

    async def main() -> None:
        nonlocal most
        consumer = aio.PushConsumer("aio-paused", nameservers, listener, config=FIRST)
        async with consumer.subscribe("AioPaused"):
            await fill(nameservers, "AioPaused", range(1))
            await until_async(lambda: reached(b"0") == 8)
            await consumer.pause()
            assert (await consumer.state()).paused
            await fill(nameservers, "AioPaused", range(1, 2))
            await until_async(lambda: reached(b"1") == 8)
            await consumer.resize(2)
            await fill(nameservers, "AioPaused", range(2, 5))
            assert len(seen) == 16
            most = 0
            await consumer.resume()
            await until_async(lambda: len(seen) == 40)
            assert most == 2
            await consumer.resize(8)
            await consumer.pause()
            await fill(nameservers, "AioPaused", range(5, 8))
            await consumer.resume()
            await until_async(lambda: len(seen) == 64)
            assert most > 2
            with pytest.raises(ConfigError, match="32767"):
                await consumer.resize(0)

    run(main())


def test_batches_in_order_and_a_strategy(nameservers: str) -> None:
    numbers: dict[MessageQueue, list[int]] = defaultdict(list)

    async def listener(messages: object) -> None:
        assert isinstance(messages, tuple)
        for message in messages:
            numbers[message.queue].append(int(message.body))

    async def main() -> None:
        await fill(nameservers, "AioBatches", range(20))
        consumer = aio.PushConsumer(
            "aio-batches",
            nameservers,
            batch_listener=listener,
            orderly=True,
            allocate=circle.allocate,
            config=replace(FIRST, consume_batch=7),
        )
        async with consumer.subscribe("AioBatches"):
            await until_async(lambda: sum(len(part) for part in numbers.values()) >= 160)

    run(main())
    assert list(numbers.values()) == [list(range(20))] * 8


def test_before_the_start_and_after_the_stop(nameservers: str) -> None:
    async def listener(message: MessageView) -> None:
        """Not called."""

    async def main() -> None:
        consumer = aio.PushConsumer("g", nameservers, listener).subscribe("T")
        for call in (consumer.pause, consumer.resume, consumer.state):
            with pytest.raises(ClosedError, match="not running"):
                await call()
        async with consumer:
            pass
        with pytest.raises(ClosedError, match="not running"):
            await consumer.resize(3)
        with pytest.raises(ConfigError, match="on_lost is 5; it must be a function"):
            aio.PushConsumer("g", nameservers, listener, on_lost=5)  # type: ignore[arg-type]

    run(main())


def test_a_queue_is_not_given_up_before_the_hook_even_if_all_listeners_are_busy(
    nameservers: str,
) -> None:
    async def main() -> None:
        began, released, revoked = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def busy(message: MessageView) -> None:
            began.set()
            await released.wait()

        def member(number: int) -> aio.PushConsumer:
            return aio.PushConsumer(
                "aio-busy-hooks",
                nameservers,
                busy,
                concurrency=1,
                client_id=f"{number}",
                on_revoked=lambda queues: revoked.set(),
                config=FIRST,
            ).subscribe("AioBusyHooks")

        async with aio.Producer("p", nameservers) as producer:
            first = (await producer.queues("AioBusyHooks"))[0]
            await producer.send("AioBusyHooks", b"x", queue=first)
        async with member(1), asyncio.timeout(60):
            await began.wait()
            async with member(2):
                await revoked.wait()
                released.set()

    run(main())
