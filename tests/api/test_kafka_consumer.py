"""`KafkaConsumer` of both kinds against our own brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.api.kafka import KafkaServers
from tests.waiting import PATIENCE_S, until_async

import steelyard
from steelyard import (
    CallTimeoutError,
    ClosedError,
    CommitFailedError,
    ConfigError,
    ConsumerRecord,
    KafkaConsumer,
    KafkaConsumerConfig,
    NoOffsetError,
    OffsetAndMetadata,
    TopicPartition,
    aio,
)
from steelyard.driver.loops import run

QUICK = KafkaConsumerConfig(
    auto_offset_reset="earliest",
    heartbeat_interval_ms=100,
    session_timeout_ms=60_000,  # nobody is expelled while this process is held up
    auto_commit_interval_ms=100,
    metadata_max_age_ms=500,
    fetch_max_wait_ms=100,
)

CONSUMER_PROTOCOL = KafkaConsumerConfig(
    group_protocol="consumer",
    auto_offset_reset="earliest",
    auto_commit_interval_ms=100,
    metadata_max_age_ms=500,
    fetch_max_wait_ms=100,
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("kafka"))
    yield servers
    servers.stop()


class Blocking:
    """A blocking consumer whose methods are awaited; each call runs in a thread."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.consumer, name)

        async def call(*args: Any, **more: Any) -> Any:
            return await asyncio.to_thread(method, *args, **more)

        return call

    async def __aenter__(self) -> Blocking:
        await self.start()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.consumer.__exit__, *error)


Make = Callable[..., Any]


@pytest.fixture(params=["blocking", "aio"])
def make(request: pytest.FixtureRequest, kafka: KafkaServers) -> Make:
    """A consumer of one kind; its group is named after the test unless it says otherwise."""
    kind = request.param
    name = f"{request.node.originalname}-{kind}"

    def make_consumer(*topics: str, group: str | None = name, **more: Any) -> Any:
        more = {"config": QUICK, "bootstrap_servers": kafka.bootstrap, **more}
        if kind == "aio":
            return aio.KafkaConsumer(*topics, group_id=group, **more)
        return Blocking(steelyard.KafkaConsumer(*topics, group_id=group, **more))

    return make_consumer


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: KafkaServers, make: Make) -> str:
    return kafka.topic(request.node.name.replace("[", "-").rstrip("]"))


async def read(consumer: Any, count: int) -> list[ConsumerRecord]:
    """Poll until so many records are there."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await consumer.poll(200)
    assert len(found) == count
    return found


def values(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def test_what_polls_returned_is_committed_by_the_close(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    async def main() -> None:
        kafka.fill(topic, range(100))
        async with make(topic) as consumer:
            records = await read(consumer, 100)
            assert values(records) == list(range(100))
            for partition in range(4):
                offsets = [r.offset for r in records if r.partition == partition]
                assert offsets == list(range(25))
            assert (records[0].topic, records[0].key, records[0].headers) == (topic, b"k", ())
            assert records[0].timestamp > 0
        kafka.fill(topic, range(100, 104))
        async with make(topic) as consumer:
            assert values(await read(consumer, 4)) == [100, 101, 102, 103]

    run(main())


def test_after_an_error_the_last_poll_counts_for_nothing(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    async def main() -> None:
        kafka.fill(topic, range(8))
        last: list[ConsumerRecord] = []

        async def fail() -> None:
            async with make(topic) as consumer:
                seen = 0
                while seen < 8:
                    last[:] = await consumer.poll(200)
                    seen += len(last)
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        async with make(topic) as consumer:
            assert values(await read(consumer, len(last))) == values(last)

    run(main())


@pytest.mark.parametrize("config", [QUICK, CONSUMER_PROTOCOL], ids=["classic", "KIP-848"])
def test_members_share_and_hand_over(
    kafka: KafkaServers, make: Make, topic: str, config: KafkaConsumerConfig
) -> None:
    """1. One has all. 2. A second comes: two each. 3. The first leaves: the second has all, and reads on where it was left."""
    group = f"{topic} group"
    is_classic = config.group_protocol == "classic"

    async def main() -> None:
        kafka.fill(topic, range(40))
        told: list[tuple[str, int]] = []
        first = make(
            topic,
            group=group,
            config=config,
            on_assigned=lambda parts: told.append(("assigned", len(parts))),
            on_revoked=lambda parts: told.append(("revoked", len(parts))),
        )
        async with first:
            await read(first, 40)
            async with make(topic, group=group, config=config) as second:
                polls = [
                    asyncio.create_task(first.poll(100)),
                    asyncio.create_task(second.poll(100)),
                ]

                async def shared() -> bool:
                    for position, poll in enumerate(polls):
                        if poll.done():
                            assert poll.result() == []
                            polls[position] = asyncio.create_task(
                                [first, second][position].poll(50)
                            )
                    return [len(await one.assignment()) for one in (first, second)] == [2, 2]

                await until_async(shared)
                await asyncio.gather(*polls)
                if is_classic:  # members of the other protocol go from epoch to epoch on their own
                    assert (await first.member()).generation == (await second.member()).generation
                await first.close()
                kafka.fill(topic, range(40, 60))
                assert values(await read(second, 20)) == list(range(40, 60))
                assert len(await second.assignment()) == 4
        taken = [("revoked", 4), ("assigned", 2)] if is_classic else [("revoked", 2)]
        assert told == [("assigned", 4), *taken, ("revoked", 2)]

    run(main())


def test_a_group_with_members_of_the_other_protocol(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    """1. A group has a classic member. 2. One of the consumer protocol joins: they share. 3. The first leaves."""
    group = f"{topic} group"

    async def main() -> None:
        kafka.fill(topic, range(4))
        early = make(topic, group=group)
        async with early:
            await read(early, 4)
            async with make(topic, group=group, config=CONSUMER_PROTOCOL) as late:

                async def are_equal() -> bool:
                    held = []
                    for one in (early, late):
                        await one.poll(50)
                        held.append(len(await one.assignment()))
                    return held == [2, 2]

                await until_async(are_equal)
                await early.close()
                kafka.fill(topic, range(4, 8))
                assert values(await read(late, 4)) == [4, 5, 6, 7]

    run(main())


def test_a_rebalance_that_the_application_wants(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    """The group gets a new generation, its coordinator the reason, and nothing is read twice."""
    group = f"{topic} group"

    async def main() -> None:
        kafka.fill(topic, range(20))
        async with make(topic, group=group) as consumer:
            assert values(await read(consumer, 20)) == list(range(20))
            before = (await consumer.member()).generation
            await consumer.enforce_rebalance("weights have changed")

            async def rejoined() -> bool:
                assert await consumer.poll(20) == []
                return bool((await consumer.member()).generation > before)

            await until_async(rejoined)
            kafka.fill(topic, range(20, 40))
            assert values(await read(consumer, 20)) == list(range(20, 40))
            async with aio.Admin(kafka.nameservers) as admin:
                report = await admin.kafka_group(group)
        assert any("weights have changed" in each.cause for each in report.rebalances)

    run(main())


def test_a_hook_may_seek_and_commit(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(8))

        def on_assigned(partitions: tuple[TopicPartition, ...]) -> Any:
            if isinstance(consumer, Blocking):
                for partition in partitions:
                    consumer.consumer.seek(partition, 1)
                return None
            return asyncio.gather(*(consumer.seek(partition, 1) for partition in partitions))

        consumer = make(topic, on_assigned=on_assigned)
        async with consumer:
            assert values(await read(consumer, 4)) == [4, 5, 6, 7]

    run(main())


def test_commits_by_hand(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(8))
        partition = TopicPartition(topic, 0)
        more = {"enable_auto_commit": False}
        async with make(topic, **more) as consumer:
            await read(consumer, 8)
            assert await consumer.committed(partition) is None
            await consumer.commit({partition: OffsetAndMetadata(1, "half")})
            assert (await consumer.committed(partition))[:2] == (1, "half")
            ended: list[object] = []
            await consumer.commit_async(callback=ended.append)

            async def called() -> bool:
                return bool(ended)

            await until_async(called)
            assert ended == [None]
            assert (await consumer.committed(partition)).offset == 2
            await consumer.commit({partition: 1})
        async with make(topic, **more) as consumer:
            (record,) = await read(consumer, 1)
            assert (record.partition, record.offset) == (0, 1)

    run(main())


def test_an_automatic_commit_lags_one_poll(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(4))
        async with make(topic) as consumer:
            await read(consumer, 4)
            await consumer.poll(0)
            partition = TopicPartition(topic, 3)

            async def committed() -> bool:
                return bool(await consumer.committed(partition) == OffsetAndMetadata(1, "", 0))

            await until_async(committed)

    run(main())


def test_assigned_partitions_without_a_group(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(40))
        async with make(group=None, allow_auto_create_topics=False) as consumer:
            every = await consumer.partitions_for_topic(topic)
            assert every == tuple(TopicPartition(topic, number) for number in range(4))
            assert await consumer.partitions_for_topic(f"{topic}-none") == ()
            await consumer.assign(every[:2])
            assert await consumer.assignment() == every[:2]
            assert len(await read(consumer, 20)) == 20
            assert await consumer.position(every[0]) == 10
            await consumer.seek(every[0], 8)
            assert [record.offset for record in await read(consumer, 2)] == [8, 9]
            await consumer.seek_to_beginning(every[1])
            assert [record.offset for record in await read(consumer, 10)] == list(range(10))
            await consumer.seek_to_end()
            assert await consumer.position(every[0]) == 10
            assert await consumer.beginning_offsets(every) == dict.fromkeys(every, 0)
            assert await consumer.end_offsets(every) == dict.fromkeys(every, 10)
            await consumer.pause(every[0])
            assert await consumer.paused() == (every[0],)
            kafka.fill(topic, range(40, 44))
            assert values(await read(consumer, 1)) == [41]
            await consumer.resume(every[0])
            assert values(await read(consumer, 1)) == [40]
            with pytest.raises(ConfigError, match="group"):
                await consumer.commit()
            with pytest.raises(ConfigError, match="not assigned"):
                await consumer.seek(every[3], 0)
            with pytest.raises(ConfigError, match="group"):
                await consumer.subscribe(topic)

    run(main())


def test_offsets_by_time(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(12))
        partition = TopicPartition(topic, 0)
        async with make(group=None) as consumer:
            await consumer.assign([partition])
            records = await read(consumer, 3)
            found = await consumer.offsets_for_times({partition: records[0].timestamp})
            assert found[partition][:2] == (0, records[0].timestamp)
            far = {partition: records[-1].timestamp + 10_000_000}
            assert await consumer.offsets_for_times(far) == {partition: None}

    run(main())


def test_without_an_offset_and_without_a_reset(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        async with make(topic, config=replace(QUICK, auto_offset_reset="none")) as consumer:
            with pytest.raises(NoOffsetError):
                await read(consumer, 1)

    run(main())


def test_an_offset_out_of_range_is_reset(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(4))
        partition = TopicPartition(topic, 0)
        async with make(group=None) as consumer:
            await consumer.assign([partition])
            await consumer.seek(partition, 1000)
            assert values(await read(consumer, 1)) == [0]

    run(main())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(kafka: KafkaServers, make: Make, topic: str, codec: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(200), codec=codec)
        async with make(topic) as consumer:
            assert values(await read(consumer, 200)) == list(range(200))

    run(main())


def test_read_committed_returns_no_aborted_record(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    async def main() -> None:
        kafka.transactions(topic, {1: True, 2: False, 3: True, 4: False, 5: True})
        partition = TopicPartition(topic, 0)
        async with make(group=None, isolation_level="read_committed") as consumer:
            await consumer.assign([partition])
            assert values(await read(consumer, 3)) == [1, 3, 5]
            end = (await consumer.end_offsets([partition]))[partition]

            async def at_end() -> bool:
                await consumer.poll(50)
                return bool(await consumer.position(partition) == end)

            await until_async(at_end)  # also past the markers, which are not records
        async with make(group=None) as consumer:
            await consumer.assign([partition])
            assert values(await read(consumer, 5)) == [1, 2, 3, 4, 5]

    run(main())


def test_a_pattern_finds_topics_that_come_later(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    async def main() -> None:
        kafka.fill(topic, range(4))
        async with make() as consumer:
            await consumer.subscribe(pattern=rf"{topic}(\.more)?")
            assert len(await read(consumer, 4)) == 4
            kafka.topic(f"{topic}.more", 2)
            kafka.fill(f"{topic}.more", range(4, 8), partitions=2)
            assert values(await read(consumer, 4)) == [4, 5, 6, 7]
            assert len(await consumer.assignment()) == 6

    run(main())


def test_partitions_that_come_later_are_read(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(4))
        async with make(topic) as consumer:
            await read(consumer, 4)
            kafka.more_partitions(topic, 6)
            kafka.fill(topic, range(4, 10), partitions=6)
            assert values(await read(consumer, 6)) == list(range(4, 10))

    run(main())


def test_who_does_not_poll_loses_its_partitions(
    kafka: KafkaServers, make: Make, topic: str
) -> None:
    """1. No poll for max_poll_interval_ms: the member leaves. 2. A commit is refused. 3. The next poll says what is lost and joins again."""

    async def main() -> None:
        kafka.fill(topic, range(4))
        lost: list[object] = []
        more = {"max_poll_interval_ms": 300, "enable_auto_commit": False}

        async def read_all() -> None:
            """Some come again when this process is held up between two polls."""
            seen: set[int] = set()
            async with asyncio.timeout(PATIENCE_S):
                while seen != set(range(4)):
                    seen |= set(values(await consumer.poll(200)))

        async with make(topic, on_lost=lost.append, **more) as consumer:
            await read_all()
            held = await consumer.assignment()
            assert len(held) == 4

            async def out() -> bool:
                return bool((await consumer.member()).generation == -1)

            await until_async(out)
            earlier = list(lost)
            with pytest.raises(CommitFailedError):
                await consumer.commit()
            assert lost == earlier
            await read_all()
            assert lost[len(earlier)] == held

    run(main())


def test_an_iteration_counts_what_it_passed_on(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(40))
        consumer = make(topic)
        seen = []
        async with consumer:
            if isinstance(consumer, Blocking):

                def some() -> None:
                    for record in consumer.consumer:
                        seen.append(record)
                        if len(seen) == 7:
                            break

                await asyncio.to_thread(some)
            else:
                async for record in consumer:
                    seen.append(record)
                    if len(seen) == 7:
                        break
            place = TopicPartition(topic, seen[-1].partition)
            assert await consumer.position(place) == seen[-1].offset + 1
        async with make(topic) as consumer:
            rest = await read(consumer, 33)
            assert values([*seen, *rest]) == list(range(40))

    run(main())


def test_a_broker_that_stops_comes_back(kafka: KafkaServers, make: Make, topic: str) -> None:
    """1. Half of the partitions have no leader. 2. The others are read. 3. The broker returns: nothing is missing."""

    async def main() -> None:
        kafka.fill(topic, range(40))
        async with make(topic) as consumer:
            await read(consumer, 40)
            ports = await asyncio.to_thread(kafka.stop_broker, "broker-1")
            assert await consumer.poll(300) == []
            await asyncio.to_thread(kafka.start_broker, "broker-1", *ports)
            kafka.fill(topic, range(40, 80))
            assert values(await read(consumer, 40)) == list(range(40, 80))

    run(main())


def test_unsubscribe_and_subscribe_again(kafka: KafkaServers, make: Make, topic: str) -> None:
    async def main() -> None:
        kafka.fill(topic, range(4))
        async with make(topic) as consumer:
            await read(consumer, 4)
            await consumer.unsubscribe()
            assert await consumer.assignment() == ()
            with pytest.raises(ConfigError, match="nothing to read"):
                await consumer.poll(0)
            await consumer.subscribe([topic])
            kafka.fill(topic, range(4, 8))
            assert values(await read(consumer, 4)) == [4, 5, 6, 7]
            with pytest.raises(ConfigError, match="unsubscribe"):
                await consumer.assign([TopicPartition(topic, 0)])

    run(main())


def test_nobody_there(make: Make) -> None:
    async def main() -> None:
        nobody = {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 300}
        async with make("t", **nobody) as consumer:
            assert await consumer.poll(100) == []
            with pytest.raises(CallTimeoutError):
                await consumer.committed(TopicPartition("t", 0))
            with pytest.raises(CommitFailedError):
                await consumer.commit()

    run(main())


def test_a_closed_consumer_is_closed(make: Make, topic: str) -> None:
    async def main() -> None:
        consumer = make(topic)
        async with consumer:
            await consumer.poll(0)
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.poll(0)

    run(main())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"auto_offset_reset": "first"}, "auto_offset_reset"),
        ({"isolation_level": "serializable"}, "isolation_level"),
        ({"assignors": ["best"]}, "best"),
        ({"assignors": []}, "assignors"),
        ({"bootstrap_servers": "host"}, "host:port"),
        ({"heartbeat_interval_ms": 50_000}, "heartbeat_interval_ms"),
        ({"max_poll_records": 0}, "max_poll_records"),
        ({"group_protocol": "share"}, "group_protocol"),
        ({"group_remote_assignor": "range"}, "group_remote_assignor requires group_protocol"),
        (
            {"group_protocol": "consumer", "assignors": ["range"], "session_timeout_ms": 10_000},
            "assignors, session_timeout_ms do not apply with group_protocol='consumer'",
        ),
        (
            {"group_protocol": "consumer", "heartbeat_interval_ms": 50_000},
            "heartbeat_interval_ms does not apply with group_protocol='consumer'",
        ),
        ({"on_lost": 3}, "on_lost"),
        ({"fetch_bytes": 3}, "fetch_bytes"),
        ({"config": 3}, "KafkaConsumerConfig"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], text: str) -> None:
    for kind in (steelyard.KafkaConsumer, aio.KafkaConsumer):
        with pytest.raises(ConfigError, match=text):
            kind("t", group_id="g", **arguments)
