"""Deserializers of `KafkaConsumer`, both kinds: objects in records, no object for None, and a record that
fails holds its partition up until a seek."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, assert_type

import pytest
from confluent_kafka import Producer
from tests.api.kafka import KafkaServers
from tests.api.test_interceptors import Recorder
from tests.api.twins import Twins
from tests.waiting import PATIENCE_S

from steelyard import (
    ConfigError,
    ConsumerRecord,
    DeserializationError,
    KafkaConsumer,
    TopicPartition,
)
from steelyard.driver.loops import run

SETTINGS = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "metadata_max_age_ms": 500}


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("kafka"), brokers=1)
    yield servers
    servers.stop()


def filled(
    kafka: KafkaServers, topic: str, *records: tuple[bytes | None, bytes | None]
) -> TopicPartition:
    """A new topic of one partition with these keys and values."""
    kafka.topic(topic, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key, 0, headers=[("kind", b"number")])
    assert producer.flush(PATIENCE_S) == 0
    return TopicPartition(topic, 0)


def consumer_of(kafka: KafkaServers, twins: Twins, topic: str, **more: Any) -> Any:
    given = {"bootstrap_servers": kafka.bootstrap, "group_id": topic, **SETTINGS, **more}
    return twins.wrap(twins.make("KafkaConsumer", topic, **given))


async def polled(consumer: Any) -> list[ConsumerRecord[Any, Any]]:
    """What the first poll returns that returns anything."""
    while True:
        records: list[ConsumerRecord[Any, Any]] = await consumer.poll(1_000)
        if records:
            return records


def test_records_have_objects_and_none_is_passed_to_nobody(
    kafka: KafkaServers, twins: Twins
) -> None:
    async def main() -> None:
        topic = f"Objects-{twins.kind}"
        filled(kafka, topic, (b"a", b'{"n": 1}'), (b"b", None), (None, b"2"), (b"", b"3"))
        seen: list[bytes] = []
        recorder = Recorder()

        class Value:
            def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
                seen.append(data)
                return topic, dict(headers)["kind"], json.loads(data)

        more = {"key_deserializer": bytes.decode, "value_deserializer": Value()}
        async with consumer_of(kafka, twins, topic, interceptors=[recorder], **more) as consumer:
            records = await polled(consumer)
        assert [record.key for record in records] == ["a", "b", None, ""]
        kind = (topic, b"number")
        values = [(*kind, {"n": 1}), None, (*kind, 2), (*kind, 3)]
        assert [record.value for record in records] == values
        assert seen == [b'{"n": 1}', b"2", b"3"]
        (context,) = recorder.contexts("received")
        assert [each.key for each in context.messages] == [b"a", b"b", None, b""]

    run(main())


def test_a_record_that_fails_holds_its_partition_up_until_a_seek(
    kafka: KafkaServers, twins: Twins
) -> None:
    """1. The records before it are returned; commits and positions do not pass it. 2. Polls fail, again and again,
    and so does a consumer that comes after. 3. A seek passes it, and the rest is read."""

    async def main() -> None:
        topic = f"Failing-{twins.kind}"
        partition = filled(kafka, topic, (b"k", b"0"), (b"k", b"1"), (b"k", b"two"), (b"k", b"3"))
        recorder = Recorder()
        more = {"value_deserializer": int, "interceptors": [recorder]}
        async with consumer_of(kafka, twins, topic, **more) as consumer:
            assert [record.value for record in await polled(consumer)] == [0, 1]
            assert await consumer.position(partition) == 2
            await consumer.commit()
            for _ in range(2):
                with pytest.raises(DeserializationError, match="invalid literal") as caught:
                    await polled(consumer)
                assert str(caught.value).startswith(
                    "value_deserializer failed on the record at offset 2 of partition 0 of topic"
                    f" '{topic}': ValueError: "
                )
                assert str(caught.value).endswith("to continue without it, seek to offset 3")
                error = caught.value
                assert (error.queue, error.offset, error.data) == (partition, 2, b"two")
                assert isinstance(error.__cause__, ValueError)
        assert [len(each.messages) for each in recorder.contexts("received")] == [2]
        async with consumer_of(kafka, twins, topic, value_deserializer=int) as consumer:
            assert (await consumer.committed(partition)).offset == 2
            with pytest.raises(DeserializationError) as caught:
                await polled(consumer)
            await consumer.seek(caught.value.queue, caught.value.offset + 1)
            assert [record.value for record in await polled(consumer)] == [3]
        async with consumer_of(kafka, twins, topic) as consumer:
            assert (await consumer.committed(partition)).offset == 4

    run(main())


def test_an_iteration_fails_at_the_record_and_continues_after_a_seek(
    kafka: KafkaServers, twins: Twins
) -> None:
    async def main() -> None:
        topic = f"Iterated-{twins.kind}"
        filled(kafka, topic, (b"0", b"a"), (b"x", b"b"), (b"2", b"c"))
        given = {"bootstrap_servers": kafka.bootstrap, "group_id": topic, **SETTINGS}
        consumer = twins.make("KafkaConsumer", topic, key_deserializer=int, **given)
        found: list[Any] = []

        async def iterate() -> None:
            if twins.kind == "aio":
                async for record in consumer:
                    found.append((record.key, record.value))
                    if record.key == 2:
                        return
            else:
                for record in consumer:
                    found.append((record.key, record.value))
                    if record.key == 2:
                        return

        wrapped = twins.wrap(consumer)
        async with wrapped:
            for _ in range(2):
                with pytest.raises(DeserializationError, match="key_deserializer failed") as caught:
                    await iterate()
                assert caught.value.offset == 1
            await wrapped.seek(caught.value.queue, 2)
            await iterate()
        assert found == [(0, b"a"), (2, b"c")]

    run(main())


def test_what_is_no_deserializer_is_refused() -> None:
    with pytest.raises(ConfigError, match="value_deserializer is 5; it must be"):
        KafkaConsumer("T", value_deserializer=5)  # type: ignore[arg-type]


def test_types_follow_the_deserializers() -> None:
    """Checked by mypy: with wrong types in `KafkaConsumer`, it does not accept this module."""
    plain: KafkaConsumer[bytes, bytes] = KafkaConsumer("T")
    typed: KafkaConsumer[str, float] = KafkaConsumer(
        "T", key_deserializer=bytes.decode, value_deserializer=float
    )
    if TYPE_CHECKING:
        assert_type(typed.poll()[0].key, str | None)
        assert_type(next(iter(plain)).value, bytes | None)
    assert isinstance(plain, KafkaConsumer)
