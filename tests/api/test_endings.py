"""How clients end, and that nothing is lost by it: close, Ctrl-C, and what an iteration has not yielded yet."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.api.kafka import KafkaServers
from tests.waiting import until

import steelyard
from steelyard import (
    BrokerError,
    ClosedError,
    ConsumeFrom,
    ConsumerConfig,
    KafkaConsumer,
    KafkaConsumerConfig,
    KafkaError,
    MessageView,
    TopicPartition,
    aio,
)
from steelyard.driver.loops import run
from steelyard.errors import DamageError, SteelyardError

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=10)
EARLIEST = KafkaConsumerConfig(auto_offset_reset="earliest", fetch_max_wait_ms=100)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("kafka"), 1)
    yield servers
    servers.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: KafkaServers) -> str:
    """A topic of one partition with the values 0 to 29."""
    name = kafka.topic(request.node.name, 1)
    kafka.fill(name, range(30))
    return name


def reader(kafka: KafkaServers, *topics: str, **more: Any) -> KafkaConsumer[Any, Any]:
    more = {"group_id": topics[0], "bootstrap_servers": kafka.bootstrap, **more}
    return KafkaConsumer(*topics, config=EARLIEST, **more)


def committed(kafka: KafkaServers, topic: str) -> int | None:
    with reader(kafka, topic) as consumer:
        found = consumer.committed(TopicPartition(topic, 0))
    return None if found is None else found.offset


# -- records that a KafkaConsumer has fetched and the program has not seen -------------------------


def test_unsubscribe_commits_what_was_yielded(kafka: KafkaServers, topic: str) -> None:
    with reader(kafka, topic) as consumer:
        assert next(consumer).offset == 0
        consumer.unsubscribe()
    assert committed(kafka, topic) == 1


def test_assign_ends_the_iteration_over_other_partitions(kafka: KafkaServers, topic: str) -> None:
    other = kafka.topic(f"{topic}-other", 1)
    kafka.fill(other, range(1))
    with KafkaConsumer(config=EARLIEST, bootstrap_servers=kafka.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert next(consumer).topic == topic
        consumer.assign([TopicPartition(other, 0)])
        assert next(consumer).topic == other


def test_a_paused_partition_yields_nothing(kafka: KafkaServers, topic: str) -> None:
    other = kafka.topic(f"{topic}-other", 1)
    first, second = TopicPartition(topic, 0), TopicPartition(other, 0)
    with KafkaConsumer(config=EARLIEST, bootstrap_servers=kafka.bootstrap) as consumer:
        consumer.assign([first, second])
        assert next(consumer).topic == topic
        consumer.pause(first)
        kafka.fill(other, range(1))
        assert next(consumer).topic == other
        consumer.resume(first)
        assert next(consumer).offset == 1


def test_a_poll_that_is_interrupted_loses_nothing(kafka: KafkaServers, topic: str) -> None:
    """Ctrl-C while a record is deserialized."""
    interrupted: list[bytes] = []

    def interrupt(data: bytes) -> bytes:
        if not interrupted:
            interrupted.append(data)
            raise KeyboardInterrupt
        return data

    with reader(kafka, topic, value_deserializer=interrupt) as consumer:
        with pytest.raises(KeyboardInterrupt):
            until(lambda: consumer.poll(200))
        found = consumer.poll(60_000)
        assert found[0].offset == 0
    assert committed(kafka, topic) == found[-1].offset + 1


def test_a_close_after_an_interrupted_poll_commits_nothing_of_it(
    kafka: KafkaServers, topic: str
) -> None:
    def interrupt(data: bytes) -> bytes:
        raise KeyboardInterrupt

    consumer = reader(kafka, topic, value_deserializer=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        until(lambda: consumer.poll(200))
    consumer.close()
    assert committed(kafka, topic) == 0


def test_an_iteration_goes_on_after_a_time_out(kafka: KafkaServers, topic: str) -> None:
    empty = kafka.topic(f"{topic}-empty", 1)

    async def main() -> None:
        async with aio.KafkaConsumer(
            empty, group_id=empty, config=EARLIEST, bootstrap_servers=kafka.bootstrap
        ) as consumer:
            records = aiter(consumer)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.2)
            await asyncio.to_thread(kafka.fill, empty, range(1))
            assert (await anext(records)).value == b"0"

    run(main())


def test_a_subscription_that_is_refused_leaves_no_thread(kafka: KafkaServers) -> None:
    for _ in range(3):
        consumer = KafkaConsumer("T", bootstrap_servers=kafka.bootstrap)
        with pytest.raises(steelyard.ConfigError, match="group"):
            consumer.poll(0)
        consumer.close()
    until(lambda: not any("kafka-consumer" in each.name for each in threading.enumerate()))


# -- close -----------------------------------------------------------------------------------------


async def consumed(nameservers: str, group: str, topic: str) -> bool:
    """Whether a group has committed all of a topic's messages."""
    async with aio.PullConsumer(group, nameservers) as pull:
        for queue in await pull.queues(topic):
            if (await pull.committed(queue) or 0) < await pull.max_offset(queue):
                return False
    return True


def test_a_listener_closes_its_consumer(nameservers: str) -> None:
    """Its message is consumed, and whoever closes the consumer elsewhere waits for the same end."""

    async def main() -> None:
        async with aio.Producer("p", nameservers) as producer:
            await producer.send("CloseInListener", "x")
        closed = asyncio.Event()

        async def listener(message: MessageView) -> None:
            await consumer.close()
            closed.set()

        consumer = aio.PushConsumer("close-aio", nameservers, listener, config=FIRST)
        async with consumer.subscribe("CloseInListener"):
            async with asyncio.timeout(60):
                await closed.wait()
        assert await consumed(nameservers, "close-aio", "CloseInListener")

    run(main())
    closed = threading.Event()

    def listener(message: MessageView) -> None:
        consumer.close()
        closed.set()

    consumer = steelyard.PushConsumer("close-blocking", nameservers, listener, config=FIRST)
    with consumer.subscribe("CloseInListener"):
        assert closed.wait(60)
    assert run(consumed(nameservers, "close-blocking", "CloseInListener"))


def test_who_closes_second_waits_for_the_end(nameservers: str) -> None:
    """A listener is still at work: its message is consumed before either close returns."""

    async def main() -> None:
        async with aio.Producer("p", nameservers) as producer:
            await producer.send("CloseTwice", "x")
        begun, finished = asyncio.Event(), []

        async def listener(message: MessageView) -> None:
            begun.set()
            await asyncio.sleep(0.3)
            finished.append(message)

        consumer = aio.PushConsumer("twice-aio", nameservers, listener, config=FIRST)
        await consumer.subscribe("CloseTwice").start()
        await begun.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await consumer.close()
        assert not finished
        await consumer.close()
        assert finished
        assert await consumed(nameservers, "twice-aio", "CloseTwice")

    run(main())
    begun, goes_on, finished = threading.Event(), threading.Event(), []

    def listener(message: MessageView) -> None:
        begun.set()
        goes_on.wait(60)
        finished.append(message)

    consumer = steelyard.PushConsumer("twice-blocking", nameservers, listener, config=FIRST)
    consumer.subscribe("CloseTwice").start()
    assert begun.wait(60)
    threads = [threading.Thread(target=consumer.close) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
    goes_on.set()
    for thread in threads:
        thread.join(60)
    assert finished
    assert run(consumed(nameservers, "twice-blocking", "CloseTwice"))


def test_a_hook_closes_its_consumer(kafka: KafkaServers, topic: str) -> None:
    revoked: list[object] = []
    consumer: KafkaConsumer[Any, Any]

    def commit(partitions: object) -> None:
        revoked.append(partitions)
        consumer.commit()

    consumer = reader(kafka, topic, on_assigned=lambda _: consumer.close(), on_revoked=commit)
    with consumer, pytest.raises(ClosedError):
        until(lambda: consumer.poll(200))
    assert revoked == [(TopicPartition(topic, 0),)]


def test_what_a_function_raises_ends_no_task(kafka: KafkaServers, topic: str) -> None:
    """`pytest.fail`, for instance, raises no Exception."""

    async def main() -> None:
        async with aio.KafkaConsumer(
            topic,
            group_id=topic,
            on_assigned=lambda partitions: pytest.fail("wrong partitions"),
            config=EARLIEST,
            bootstrap_servers=kafka.bootstrap,
        ) as consumer:
            async with asyncio.timeout(60):
                while not await consumer.poll(200):
                    pass

    run(main())


def test_a_client_belongs_to_its_event_loop(nameservers: str) -> None:
    """Nothing is sent from another one."""
    with asyncio.Runner() as first, asyncio.Runner() as second:
        producer = first.run(aio.Producer("p", nameservers).start())
        first.run(producer.send("LoopOfItsOwn", "x"))
        with pytest.raises(ClosedError, match="the producer was started on another event loop"):
            second.run(producer.send("LoopOfItsOwn", "y"))
        with pytest.raises(ClosedError, match="the producer was started on another event loop"):
            second.run(producer.close())
        first.run(producer.send("LoopOfItsOwn", "z"))
        first.run(producer.close())


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        BrokerError(17, "no topic", "127.0.0.1:10911"),
        KafkaError(3, "no such partition", retriable=True),
        DamageError("a table is damaged", ("topics.table",)),
        ClosedError("closed"),
    ],
)
def test_errors_are_pickled_and_copied(error: SteelyardError) -> None:
    """Process pools send them to the process that waits."""
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is type(error)
        assert (str(made), vars(made)) == (str(error), vars(error))
