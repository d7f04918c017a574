"""`LitePullConsumer` of both kinds against real brokers."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.api.twins import Twins
from tests.waiting import PATIENCE_S, until, until_async

from steelyard import (
    ClosedError,
    ConfigError,
    ConsumeFrom,
    ConsumerConfig,
    LitePullConfig,
    LitePullConsumer,
    MessageQueue,
    MessageView,
    Producer,
    RouteError,
    aio,
)
from steelyard.client.blocking.running import Running
from steelyard.driver.loops import run

FIRST = LitePullConfig(
    consume_from=ConsumeFrom.FIRST_OFFSET,
    commit_interval_ms=200,
    route_poll_ms=500,  # a new topic comes to its two brokers one after the other
)
MANUAL = replace(FIRST, auto_commit=False)


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


async def fill(nameservers: str, topic: str, count: int) -> None:
    """Messages 0 to `count` in the queues of the topic, in turn."""
    async with aio.Producer("p", nameservers) as producer:
        await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(count)))


async def poll_all(consumer: Any, count: int) -> list[MessageView]:
    """Poll until so many messages are there."""
    found: list[MessageView] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await consumer.poll(500)
    return found


async def assigned(consumer: Any, count: int) -> tuple[MessageQueue, ...]:
    """Wait until the consumer holds so many queues."""
    queues: tuple[MessageQueue, ...] = ()

    async def is_assigned() -> bool:
        nonlocal queues
        queues = await consumer.assignment()
        return len(queues) == count

    await until_async(is_assigned)
    return queues


def test_what_a_poll_follows_is_not_read_again(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"LiteAuto-{twins.kind}"
        await fill(nameservers, topic, 100)
        client = twins.make("LitePullConsumer", topic, nameservers, config=FIRST)
        async with twins.wrap(client.subscribe(topic)) as consumer:
            found = await poll_all(consumer, 100)
            assert sorted(int(message.body) for message in found) == list(range(100))
            assert await consumer.poll(10) == []
        client = twins.make("LitePullConsumer", topic, nameservers, config=FIRST)
        async with twins.wrap(client.subscribe(topic)) as consumer:
            await fill(nameservers, topic, 1)
            (message,) = await poll_all(consumer, 1)
            assert await consumer.poll(10) == []
        # That last poll was followed by another, so the next member finds nothing.
        client = twins.make("LitePullConsumer", topic, nameservers, config=FIRST)
        async with twins.wrap(client.subscribe(topic)) as consumer:
            await assigned(consumer, 8)
            assert await consumer.poll(50) == []
            assert await consumer.committed(message.queue) == message.queue_offset + 1

    run(main())


def test_without_auto_commit_only_what_was_committed_is_done(
    nameservers: str, twins: Twins
) -> None:
    async def main() -> None:
        topic = f"LiteManual-{twins.kind}"
        await fill(nameservers, topic, 40)
        client = twins.make("LitePullConsumer", topic, nameservers, config=MANUAL)
        async with twins.wrap(client.subscribe(topic)) as consumer:
            first = await poll_all(consumer, 20)
            await consumer.commit()
            await poll_all(consumer, 40 - len(first))
        client = twins.make("LitePullConsumer", topic, nameservers, config=MANUAL)
        async with twins.wrap(client.subscribe(topic)) as consumer:
            rest = await poll_all(consumer, 40 - len(first))
            bodies = [int(message.body) for message in first + rest]
            assert sorted(bodies) == list(range(40))
            queue = rest[0].queue
            await consumer.commit({queue: 2})
            assert await consumer.committed(queue) == 2

    run(main())


def test_a_group_through_joins_and_leaves_reads_everything_once(
    nameservers: str, twins: Twins
) -> None:
    """1. one member reads alone; 2. a second and a third join; 3. the first leaves; 4. the third leaves."""

    async def main() -> None:
        topic = f"LiteShare-{twins.kind}"
        seen: Counter[int] = Counter()
        by_member: Counter[str] = Counter()

        async def member(name: str, leave: asyncio.Event) -> None:
            client = twins.make("LitePullConsumer", topic, nameservers, config=FIRST)
            async with twins.wrap(client.subscribe(topic)) as consumer:
                while not leave.is_set():
                    for message in await consumer.poll(100):
                        seen[int(message.body)] += 1
                        by_member[name] += 1
                await consumer.commit()

        async def produce(stop: asyncio.Event) -> int:
            number = 0
            async with aio.Producer("p", nameservers) as producer:
                while not stop.is_set():
                    for _ in range(8):
                        await producer.send(topic, b"%d" % number)
                        number += 1
                    await asyncio.sleep(0.01)
            return number

        await fill(nameservers, topic, 0)
        stop = asyncio.Event()
        leaves = {name: asyncio.Event() for name in ("one", "two", "three")}
        async with asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(produce(stop))
            tasks.create_task(member("one", leaves["one"]))
            await until_async(lambda: by_member["one"] > 50)
            tasks.create_task(member("two", leaves["two"]))
            tasks.create_task(member("three", leaves["three"]))
            await until_async(lambda: by_member["two"] > 50 and by_member["three"] > 50)
            leaves["one"].set()
            before = by_member["two"] + by_member["three"]
            await until_async(lambda: by_member["two"] + by_member["three"] > before + 200)
            leaves["three"].set()
            before = by_member["two"]
            await until_async(lambda: by_member["two"] > before + 200)
            stop.set()
            count = await producing
            await until_async(lambda: len(seen) == count)
            leaves["two"].set()
        assert seen == Counter(range(count))

    run(main())


def test_assigned_queues_and_where_to_read_them(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"LiteAssign-{twins.kind}"
        await fill(nameservers, topic, 80)
        consumer = twins.wrap(twins.make("LitePullConsumer", topic, nameservers, config=FIRST))
        async with consumer:
            queues = await consumer.queues(topic)
            assert len(queues) == 8
            one, other = queues[0], queues[-1]
            await consumer.assign([one, other])
            assert await assigned(consumer, 2) == (one, other)
            found = await poll_all(consumer, 20)
            assert {message.queue for message in found} == {one, other}
            assert await consumer.committed(queues[1]) is None
            await consumer.seek(one, 7)
            assert [(m.queue, m.queue_offset) for m in await poll_all(consumer, 3)] == [
                (one, 7),
                (one, 8),
                (one, 9),
            ]
            await consumer.pause([one])
            await consumer.seek_to_begin(one)
            await consumer.seek_to_end(other)
            await fill(nameservers, topic, 8)
            (message,) = await poll_all(consumer, 1)
            assert (message.queue, message.queue_offset) == (other, 10)
            await consumer.resume([one])
            assert [m.queue_offset for m in await poll_all(consumer, 11)] == list(range(11))
            stored = found[0].store_timestamp
            assert await consumer.offset_for_timestamp(found[0].queue, stored) <= 10
            assert await consumer.min_offset(one) == 0
            assert await consumer.max_offset(one) == 11
            await consumer.assign([other])
            assert await assigned(consumer, 1) == (other,)
            with pytest.raises(ConfigError, match="is not held"):
                await consumer.seek(one, 0)
            with pytest.raises(ConfigError, match="has no offset 99; it has 0 to 11"):
                await consumer.seek(other, 99)
            state = await consumer.state()
            assert (state.held, state.members) == ((other,), {})

    run(main())


def test_queues_may_be_assigned_before_the_start(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"LiteEarly-{twins.kind}"
        async with aio.Producer("p", nameservers) as producer:
            queue = (await producer.send(topic, b"a", tags="x")).queue
            await producer.send(topic, b"b", tags="y", queue=queue)
        consumer = twins.wrap(twins.make("LitePullConsumer", topic, nameservers, config=FIRST))
        await consumer.assign([queue], "y")
        async with consumer:
            assert [message.body for message in await poll_all(consumer, 1)] == [b"b"]
        consumer = twins.wrap(twins.make("LitePullConsumer", topic, nameservers))
        async with consumer:
            await consumer.assign([queue])
            await consumer.seek_to_begin(queue)
            assert [message.body for message in await poll_all(consumer, 2)] == [b"a", b"b"]

    run(main())


def test_the_application_is_told_of_its_queues(nameservers: str, twins: Twins) -> None:
    """A seek when they come, a commit when they go."""

    async def main() -> None:
        topic = f"LiteHooks-{twins.kind}"
        await fill(nameservers, topic, 80)
        loop = asyncio.get_running_loop()
        told: list[tuple[str, int]] = []
        changes: list[tuple[str, int, int]] = []

        async def on_assigned(queues: tuple[MessageQueue, ...]) -> None:
            told.append(("assigned", len(queues)))
            for queue in queues:
                await seek(queue, 9)

        async def seek(queue: MessageQueue, offset: int) -> None:
            if twins.kind == "aio":
                await consumer.seek(queue, offset)
            else:  # the hook runs on the loop that blocking clients share; calls go through the test's
                future = asyncio.run_coroutine_threadsafe(consumer.seek(queue, offset), loop)
                await asyncio.wrap_future(future)

        async def on_revoked(queues: tuple[MessageQueue, ...]) -> None:
            told.append(("revoked", len(queues)))

        def on_queues_changed(
            topic: str, every: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
        ) -> None:
            changes.append((topic, len(every), len(mine)))

        client = twins.make(
            "LitePullConsumer",
            topic,
            nameservers,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_queues_changed=on_queues_changed,
            config=FIRST,
        )
        consumer = twins.wrap(client.subscribe(topic))
        async with consumer:
            found = await poll_all(consumer, 8)
            assert [message.queue_offset for message in found] == [9] * 8
            second = twins.make("LitePullConsumer", topic, nameservers, config=FIRST)
            async with twins.wrap(second.subscribe(topic)) as other:
                async with asyncio.timeout(PATIENCE_S):
                    while ("revoked", 4) not in told:
                        await consumer.poll(20)
                await assigned(other, 4)
                assert await other.poll(50) == []
        assert sum(count for what, count in told if what == "assigned") >= 8
        assert changes[0] == (topic, 8, 8)
        assert (topic, 8, 4) in changes

    run(main())


def test_a_commit_when_queues_are_revoked_at_the_stop(nameservers: str) -> None:
    topic = "LiteLastCommit"
    run(fill(nameservers, topic, 16))
    told: list[str] = []

    def on_revoked(queues: tuple[MessageQueue, ...]) -> None:
        consumer.commit()
        told.append("committed")

    consumer = LitePullConsumer(topic, nameservers, on_revoked=on_revoked, config=MANUAL)
    with consumer.subscribe(topic):
        found = 0
        while found < 16:
            found += len(consumer.poll())
    assert told == ["committed"]
    with LitePullConsumer(topic, nameservers, config=MANUAL) as reader:
        assert [reader.committed(queue) for queue in reader.queues(topic)] == [2] * 8


def test_a_cancelled_poll_loses_nothing(nameservers: str) -> None:
    async def main() -> None:
        topic = "LiteCancelled"
        await fill(nameservers, topic, 0)
        client = aio.LitePullConsumer(topic, nameservers, config=FIRST).subscribe(topic)
        seen: list[int] = []
        async with client as consumer, aio.Producer("p", nameservers) as producer:
            for number in range(60):
                poll = asyncio.ensure_future(consumer.poll(1_000))
                await asyncio.sleep(0)
                await producer.send(topic, b"%d" % number)
                await asyncio.sleep(0.001 * (number % 5))
                poll.cancel()
                try:
                    seen += [int(message.body) for message in await poll]
                except asyncio.CancelledError:
                    continue
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < 60:
                    seen += [int(message.body) for message in await consumer.poll(100)]
        assert sorted(seen) == list(range(60))

    run(main())


def interrupt_call() -> None:
    """Ctrl-C for the main thread, as soon as it waits for a node's answer."""
    ident = threading.main_thread().ident
    assert ident is not None
    until(lambda: sys._current_frames()[ident].f_code is Running.ask.__code__)
    signal.pthread_kill(ident, signal.SIGINT)


def test_an_interrupted_poll_loses_nothing(nameservers: str) -> None:
    """Ctrl-C while a blocking poll waits: the next poll gets what came meanwhile."""
    topic = "LiteInterrupted"
    with Producer("p", nameservers) as producer:
        queue = producer.send(topic, b"first").queue
        consumer = LitePullConsumer(topic, nameservers, config=FIRST).subscribe(topic)
        with consumer:
            assert [message.body for message in consumer.poll(20_000)] == [b"first"]
            # Programs that a shell starts in the background ignore Ctrl-C: the tests may be one.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                interrupting = threading.Thread(target=interrupt_call, daemon=True)
                interrupting.start()
                with pytest.raises(KeyboardInterrupt):
                    consumer.poll(60_000)
                interrupting.join()
            finally:
                signal.signal(signal.SIGINT, before)
            producer.send(topic, b"second", queue=queue)
            assert [message.body for message in consumer.poll(20_000)] == [b"second"]


def test_wrong_use(nameservers: str, twins: Twins) -> None:
    async def main() -> None:
        topic = f"LiteWrong-{twins.kind}"
        await fill(nameservers, topic, 1)
        queue = MessageQueue(topic, "broker-a", 0)

        def fresh(**more: object) -> Any:
            return twins.make("LitePullConsumer", topic, nameservers, **more)

        with pytest.raises(ClosedError, match="not running"):
            await twins.wrap(fresh()).poll()
        with pytest.raises(ConfigError, match="LitePullConfig"):
            fresh(config=ConsumerConfig())
        with pytest.raises(ConfigError, match="on_lost"):
            fresh(on_lost="x")
        with pytest.raises(ConfigError, match="strategy"):
            fresh(allocate="AVG")
        with pytest.raises(ConfigError, match="either subscribe or assign"):
            await twins.wrap(fresh().subscribe(topic)).assign([queue])
        early = fresh()
        await twins.wrap(early).assign([queue])
        with pytest.raises(ConfigError, match="either subscribe or assign"):
            early.subscribe(topic)
        with pytest.raises(
            ConfigError,
            match=r"queues\[0\] is .*; it must be a MessageQueue\(topic, broker_name, queue_id\), not a str",
        ):
            await twins.wrap(fresh()).assign([topic])
        client = fresh(config=FIRST).subscribe(topic)
        consumer = twins.wrap(client)
        async with consumer:
            with pytest.raises(ConfigError, match="either subscribe or assign"):
                await consumer.assign([queue])
            with pytest.raises(ConfigError, match="before the consumer starts"):
                client.subscribe("Other")
            with pytest.raises(RouteError):
                await consumer.queues("NoSuchTopic")
            with pytest.raises(ConfigError, match="is not held"):
                await consumer.commit({MessageQueue("Other", "broker-a", 0): 1})
        with pytest.raises(ClosedError):
            await consumer.start()
        with pytest.raises(ClosedError):
            await consumer.poll()
        async with twins.wrap(fresh()) as idle:
            with pytest.raises(ConfigError, match="nothing to poll"):
                await idle.poll()

    run(main())
