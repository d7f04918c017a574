"""Groups that grow and shrink under a flow of messages, over real sockets: each message comes once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from itertools import count
from threading import Event, Thread

import pytest
from tests.waiting import until, until_async

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, Producer, PushConsumer, aio
from steelyard.driver.loops import run


def config(strategy: str) -> ConsumerConfig:
    return ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, strategy=strategy)


@pytest.mark.parametrize("strategy", ["AVG", "EVEN"])
def test_every_message_comes_once_while_members_come_and_go(
    nameservers: str, strategy: str
) -> None:
    topic, group = f"Scaling{strategy}", f"scaling-{strategy}"
    sent: list[bytes] = []
    received: list[tuple[str, bytes]] = []
    done = Event()

    def publish() -> None:
        with Producer("p", nameservers) as producer:
            for number in count():
                if done.is_set():
                    return
                body = b"%d" % number
                producer.send(topic, body)
                sent.append(body)

    def member(name: str) -> PushConsumer:
        def listen(message: MessageView) -> None:
            received.append((name, message.body))
            time.sleep(0.003)

        consumer = PushConsumer(
            group, nameservers, listen, client_id=name, config=config(strategy)
        ).subscribe(topic)
        consumer.start()
        return consumer

    def seen(name: str) -> int:
        return sum(who == name for who, _ in received)

    def seen_enough(name: str) -> bool:
        return seen(name) > 20

    with Producer("p", nameservers) as producer:
        producer.send(topic, b"first")
    members = {"b": member("b")}
    until(lambda: received)
    thread = Thread(target=publish)
    thread.start()
    try:
        for name in ("a", "c"):
            members[name] = member(name)
            until(partial(seen_enough, name))
        before = seen("a")
        members.pop("b").stop()
        until(lambda: seen("a") > before + 50)
        members["d"] = member("d")
        until(partial(seen_enough, "d"))
    finally:
        done.set()
        thread.join()
    until(lambda: len(received) >= len(sent) + 1)
    held = [members[name].state().held for name in sorted(members)]
    for consumer in members.values():
        consumer.stop()
    assert Counter(body for _, body in received) == Counter([b"first", *sent])
    assert max(map(len, held)) - min(map(len, held)) <= 3  # the retry topic has queues as well


def test_every_message_comes_once_with_asyncio(nameservers: str) -> None:
    async def main() -> None:
        sent: list[bytes] = []
        received: list[tuple[str, bytes]] = []
        done = asyncio.Event()

        async def publish() -> None:
            async with aio.Producer("p", nameservers) as producer:
                while not done.is_set():
                    body = b"%d" % len(sent)
                    await producer.send("ScalingAio", body)
                    sent.append(body)

        async def member(name: str) -> aio.PushConsumer:
            async def listen(message: MessageView) -> None:
                received.append((name, message.body))
                await asyncio.sleep(0.003)

            consumer = aio.PushConsumer(
                "scaling-aio", nameservers, listen, client_id=name, config=config("AVG")
            ).subscribe("ScalingAio")
            await consumer.start()
            return consumer

        def seen(name: str) -> int:
            return sum(who == name for who, _ in received)

        publishing = asyncio.create_task(publish())
        first = await member("b")
        await until_async(lambda: seen("b") > 20)
        second = await member("a")
        await until_async(lambda: seen("a") > 20)
        await first.stop()
        before = seen("a")
        await until_async(lambda: seen("a") > before + 50)
        done.set()
        await publishing
        await until_async(lambda: len(received) >= len(sent))
        await second.stop()
        assert Counter(body for _, body in received) == Counter(sent)

    run(main())
