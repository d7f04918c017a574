"""What only the asyncio `KafkaConsumer` has: cancellation, and hooks that are coroutine functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.api.kafka import KafkaServers
from tests.api.test_kafka_consumer import QUICK, read, values
from tests.waiting import until_async

from steelyard import ConsumerRecord, TopicPartition
from steelyard.aio import KafkaConsumer
from steelyard.driver.loops import run


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("kafka"), brokers=1)
    yield servers
    servers.stop()


def test_a_poll_that_is_cancelled_loses_nothing(kafka: KafkaServers) -> None:
    """Polls are cancelled at any moment, also between the answer and its delivery; every record comes once."""

    async def main() -> None:
        topic = kafka.topic("cancelled")
        found: list[ConsumerRecord] = []
        async with KafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap, group_id="cancelled", config=QUICK
        ) as consumer:
            for start in range(0, 400, 20):
                await asyncio.to_thread(kafka.fill, topic, range(start, start + 20))
                for passes in range(6):
                    poll = asyncio.create_task(consumer.poll(1_000))
                    for _ in range(passes * 3):
                        await asyncio.sleep(0)
                    poll.cancel()
                    await asyncio.wait([poll])
                    if not poll.cancelled():
                        found += poll.result()
            found += await read(consumer, 400 - len(found))
        assert values(found) == list(range(400))

    run(main())


def test_hooks_may_be_coroutine_functions(kafka: KafkaServers) -> None:
    async def main() -> None:
        topic = kafka.topic("coroutines")
        kafka.fill(topic, range(8))
        told: list[str] = []

        async def on_assigned(partitions: tuple[TopicPartition, ...]) -> None:
            for partition in partitions:
                await consumer.seek(partition, 1)
            told.append("assigned")

        async def on_revoked(partitions: tuple[TopicPartition, ...]) -> None:
            await consumer.commit()
            told.append("revoked")
            raise LookupError("it is logged, and all goes on")

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=kafka.bootstrap,
            group_id="coroutines",
            config=QUICK,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        async with consumer:
            assert values(await read(consumer, 4)) == [4, 5, 6, 7]
        assert told == ["assigned", "revoked"]

    run(main())


def test_an_iteration_ends_with_the_consumer(kafka: KafkaServers) -> None:
    async def main() -> None:
        topic = kafka.topic("iteration")
        kafka.fill(topic, range(4))
        seen = []
        consumer = KafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap, group_id="iteration", config=QUICK
        )

        async def iterate() -> None:
            async for record in consumer:
                seen.append(record)  # noqa: PERF401  # others look at it meanwhile

        task = asyncio.create_task(iterate())
        await until_async(lambda: len(seen) == 4)
        await consumer.close()
        await task
        assert values(seen) == [0, 1, 2, 3]

    run(main())
