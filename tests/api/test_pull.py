"""`PullConsumer` of both kinds against real brokers."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.api.conftest import Servers
from tests.api.twins import Twins
from tests.waiting import until_async

from steelyard import (
    BrokerError,
    ClosedError,
    ConfigError,
    ConsumerConfig,
    MessageModel,
    MessageQueue,
    PullStatus,
    RouteError,
    aio,
)
from steelyard.driver.loops import run


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


async def send(nameservers: str, topic: str, *tags: str) -> MessageQueue:
    """One message per tag, in one queue; which one. The topic gets the four queues of one broker."""
    async with aio.Producer("p", nameservers) as producer:
        queue = (await producer.send(topic, b"0", tags=tags[0])).queue
        for number, tag in enumerate(tags[1:], 1):
            await producer.send(topic, b"%d" % number, tags=tag, queue=queue)
    return queue


def test_pulls_and_offsets(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"Pull-{twins.kind}"
        before = int(time.time() * 1000)
        queue = await send(nameservers, topic, "a", "b", "a", "c")
        consumer = twins.wrap(twins.make("PullConsumer", topic, nameservers))
        async with consumer:
            queues = await consumer.queues(topic)
            assert queue in queues
            assert len(queues) == 4
            result = await consumer.pull(queue, 0)
            assert [message.body for message in result.messages] == [b"0", b"1", b"2", b"3"]
            assert (
                result.status,
                result.next_begin_offset,
                result.min_offset,
                result.max_offset,
            ) == (
                PullStatus.FOUND,
                4,
                0,
                4,
            )
            wanted = await consumer.pull(queue, 0, "a || c", max_messages=2)
            assert [message.tags for message in wanted.messages] == ["a", "a"]
            assert (await consumer.pull(queue, 0, "nothing")).status is PullStatus.NO_MATCHED_MSG
            assert (await consumer.pull(queue, 4)).status is PullStatus.NO_NEW_MSG
            beyond = await consumer.pull(queue, 100)
            assert (beyond.status, beyond.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 4)
            assert await consumer.committed(queue) is None
            await consumer.commit(queue, 3)
            assert await consumer.committed(queue) == 3
            assert await consumer.min_offset(queue) == 0
            assert await consumer.max_offset(queue) == 4
            assert await consumer.offset_for_timestamp(queue, before) == 0

    run(main())


def test_a_pull_that_is_held_ends_with_the_message(servers: Servers, twins: Twins) -> None:
    async def main() -> None:
        nameservers = servers.nameservers
        topic = f"PullHold-{twins.kind}"
        queue = await send(nameservers, topic, "a")
        consumer = twins.wrap(twins.make("PullConsumer", topic, nameservers))
        async with consumer, aio.Producer("p", nameservers) as producer:
            pulls = [
                asyncio.ensure_future(consumer.pull(queue, 1, hold_ms=15_000)) for _ in range(2)
            ]
            await until_async(lambda: servers.parked(queue) == 2)
            assert not any(pull.done() for pull in pulls)
            await producer.send(topic, b"new", queue=queue)
            for result in await asyncio.gather(*pulls):
                assert [message.body for message in result.messages] == [b"new"]

    run(main())


def test_a_message_sent_back_comes_to_the_retry_topic(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"PullBack-{twins.kind}"
        queue = await send(nameservers, topic, "a")
        consumer = twins.wrap(twins.make("PullConsumer", topic, nameservers))
        async with consumer:
            (message,) = (await consumer.pull(queue, 0)).messages
            await consumer.send_back(message, delay_level=1)
            retries: list[MessageQueue] = []

            async def is_there() -> bool:
                with suppress(RouteError):
                    retries.extend(await consumer.queues(f"%RETRY%{topic}"))
                return bool(retries)

            await until_async(is_there)
            result = await consumer.pull(retries[0], 0, hold_ms=15_000)
            assert [again.body for again in result.messages] == [message.body]
            assert result.messages[0].reconsume_times == 1

    run(main())


def test_the_share_of_a_registered_topic_follows_the_group(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"PullShare-{twins.kind}"
        await send(nameservers, topic, "a")
        changes: list[tuple[str, int, int]] = []

        def on_queues_changed(
            topic: str, every: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
        ) -> None:
            changes.append((topic, len(every), len(mine)))

        def member(**more: object) -> Any:
            client = twins.make("PullConsumer", topic, nameservers, **more)
            return twins.wrap(client.register(topic))

        async def shares(*members: Any) -> list[set[MessageQueue]]:
            return [set(await member.balanced(topic)) for member in members]

        async with member(on_queues_changed=on_queues_changed) as one:
            every = set(await one.queues(topic))
            assert await shares(one) == [every]
            async with member() as two:

                async def shared_out() -> bool:
                    return [len(share) for share in await shares(one, two)] == [2, 2]

                await until_async(shared_out)
                mine, others = await shares(one, two)
                assert mine | others == every
            await until_async(lambda: len(changes) == 3)
            assert await shares(one) == [every]
        assert changes == [(topic, 4, 4), (topic, 4, 2), (topic, 4, 4)]

    run(main())


def test_wrong_use(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"PullWrong-{twins.kind}"
        queue = await send(nameservers, topic, "a")

        def fresh(**more: object) -> Any:
            return twins.make("PullConsumer", topic, nameservers, **more)

        with pytest.raises(ClosedError, match="not running"):
            await twins.wrap(fresh()).pull(queue, 0)
        with pytest.raises(ConfigError, match="LitePullConsumer"):
            fresh(config=ConsumerConfig(message_model=MessageModel.BROADCASTING))
        with pytest.raises(ConfigError, match="on_queues_changed"):
            fresh(on_queues_changed=1)
        with pytest.raises(ConfigError, match="not both"):
            fresh().register(topic, "a", sql="b = 1")
        client = fresh()
        consumer = twins.wrap(client)
        async with consumer:
            with pytest.raises(ConfigError, match="before the consumer starts"):
                client.register(topic)
            with pytest.raises(ConfigError, match="not registered"):
                await consumer.balanced(topic)
            with pytest.raises(ConfigError, match="offset is -1"):
                await consumer.pull(queue, -1)
            with pytest.raises(ConfigError, match="max_messages is 0"):
                await consumer.pull(queue, 0, max_messages=0)
            with pytest.raises(RouteError):
                await consumer.queues("NoSuchTopic")
            with pytest.raises(RouteError, match="does not name the broker"):
                await consumer.pull(MessageQueue(topic, "broker-z", 0), 0)
            with pytest.raises(BrokerError):
                await consumer.pull(MessageQueue(topic, queue.broker_name, 99), 0)
        with pytest.raises(ClosedError):
            await consumer.start()

    run(main())


def test_a_stop_ends_a_pull_under_way(servers: Servers, twins: Twins) -> None:
    async def main() -> None:
        nameservers = servers.nameservers
        topic = f"PullStop-{twins.kind}"
        queue = await send(nameservers, topic, "a")
        consumer = twins.wrap(twins.make("PullConsumer", topic, nameservers))
        await consumer.start()
        pull = asyncio.ensure_future(consumer.pull(queue, 1, hold_ms=15_000))
        await until_async(lambda: servers.parked(queue) == 1)
        await consumer.stop()
        with pytest.raises(ClosedError):
            await pull

    run(main())
