"""`steelyard.aio`: the same names, with coroutines."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.waiting import until_async

from steelyard import (
    ClosedError,
    ConfigError,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    MessageError,
    MessageView,
    aio,
)
from steelyard.driver.loops import run

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def test_send_and_receive(nameservers: str) -> None:
    async def main() -> None:
        received: list[bytes] = []

        async def listener(message: MessageView) -> None:
            await asyncio.sleep(0)
            received.append(message.body)

        async with aio.Producer("p", nameservers) as producer:
            results = await asyncio.gather(
                *(producer.send("Aio", b"%d" % number) for number in range(200))
            )
            assert len({(result.queue, result.queue_offset) for result in results}) == 200
            await producer.send_batch([Message("Aio", b"batch")] * 10)
            await producer.send_oneway("Aio", b"one way")
            assert len(await producer.queues("Aio")) == 8
            consumer = aio.PushConsumer("aio", nameservers, listener, config=FIRST)
            async with consumer.subscribe("Aio"):
                await until_async(lambda: len(received) == 211)
                state = await consumer.state()
                assert len([queue for queue in state.held if queue.topic == "Aio"]) == 8
        expected = Counter(
            [b"%d" % number for number in range(200)] + [b"batch"] * 10 + [b"one way"]
        )
        assert Counter(received) == expected

    run(main())


def test_listeners_run_together_up_to_the_limit(nameservers: str) -> None:
    async def main() -> None:
        running = most = finished = 0

        async def listener(message: MessageView) -> None:
            nonlocal running, most, finished
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            finished += 1

        async with aio.Producer("p", nameservers) as producer:
            for _ in range(4):
                await producer.send_batch([Message("Together", b"x")] * 10)
        consumer = aio.PushConsumer(
            "together", nameservers, listener, concurrency=7, config=FIRST
        ).subscribe("Together")
        async with consumer:
            await until_async(lambda: finished == 40)
        assert most == 7

    run(main())


def test_a_failing_listener_is_logged_and_others_go_on(
    nameservers: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def listener(messages: Sequence[MessageView]) -> bool:
            seen.extend(message.body for message in messages)
            if messages[0].body == b"bad":
                raise ValueError("bad indeed")
            return True

        async with aio.Producer("p", nameservers) as producer:
            for body in (b"bad", b"good", b"fine"):
                await producer.send("Mixed", body)
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, consume_batch=8)
        async with aio.PushConsumer(
            "mixed", nameservers, batch_listener=listener, config=config
        ).subscribe("Mixed"):
            await until_async(lambda: len(seen) >= 3)

    with caplog.at_level(logging.ERROR, "steelyard"):
        run(main())
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_cancelled_listener_does_not_take_its_runner_along(
    nameservers: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        async def listener(message: MessageView) -> None:
            seen.append(message.body)
            if message.body == b"cancelled":
                raise asyncio.CancelledError

        async with aio.Producer("p", nameservers) as producer:
            queue = (await producer.send("Runner", b"cancelled")).queue
            await producer.send("Runner", b"next", queue=queue)
        consumer = aio.PushConsumer("runner", nameservers, listener, concurrency=1, config=FIRST)
        async with consumer.subscribe("Runner"):
            await until_async(lambda: seen == [b"cancelled", b"next"])

    with caplog.at_level(logging.WARNING, "steelyard"):
        run(main())
    assert ["was cancelled on" in record.message for record in caplog.records] == [True]


def test_wrong_use(nameservers: str) -> None:
    async def main() -> None:
        producer = aio.Producer("p", nameservers)
        with pytest.raises(ClosedError):
            await producer.send("T", b"x")
        async with producer:
            with pytest.raises(MessageError):
                await producer.send("", b"x")
            with pytest.raises(MessageError):
                await producer.send("T")
        with pytest.raises(ClosedError):
            await producer.start()
        with pytest.raises(ConfigError, match="concurrency"):
            aio.PushConsumer("g", nameservers, concurrency=0)
        with pytest.raises(ConfigError, match="listener"):
            await aio.PushConsumer("g", nameservers).subscribe("T").start()

    run(main())
