"""Serializers and deserializers of RocketMQ's clients, both kinds: objects come as they were sent, and a message
that cannot be deserialized is neither lost nor skipped."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any, assert_type

import msgspec
import pytest
from tests.api.test_interceptors import Recorder
from tests.api.twins import Twins
from tests.waiting import until_async

from steelyard import (
    ArgumentError,
    ConfigError,
    ConsumeFrom,
    ConsumeStatus,
    DeserializationError,
    LitePullConsumer,
    Message,
    MessageError,
    MessageQueue,
    MessageView,
    Producer,
    PullConsumer,
    PushConsumer,
    SerializationError,
    aio,
)
from steelyard.driver.loops import run

FIRST = ConsumeFrom.FIRST_OFFSET


class Order(msgspec.Struct, frozen=True):
    number: int
    what: str = "apple"


DECODE = msgspec.json.Decoder(Order).decode


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


async def filled(nameservers: str, topic: str, *bodies: bytes) -> MessageQueue:
    """These messages in one queue of a new topic; which one."""
    async with aio.Producer("p", nameservers) as producer:
        queue = (await producer.send(topic, bodies[0])).queue
        for body in bodies[1:]:
            await producer.send(topic, body, queue=queue)
    return queue


async def polled(consumer: Any) -> list[Any]:
    """The values of the first poll that returns anything."""
    while True:
        messages: list[MessageView[Any]] = await consumer.poll(1_000)
        if messages:
            return [message.value for message in messages]


def test_every_send_serializes_and_listeners_get_objects(nameservers: str, twins: Twins) -> None:
    """Of each way to send a topic and a body; a Message has its bytes already, and interceptors see bytes."""
    topic = f"Serialized-{twins.kind}"

    async def main() -> None:
        recorder, values = Recorder(), []

        def listen(message: MessageView[Order]) -> None:
            values.append((message.value, message.body == msgspec.json.encode(message.value)))

        producer = twins.wrap(
            twins.make(
                "Producer",
                topic,
                nameservers,
                serializer=msgspec.json.encode,
                interceptors=[recorder],
            )
        )
        consumer = twins.make(
            "PushConsumer", topic, nameservers, listen, deserializer=DECODE, consume_from=FIRST
        )
        async with producer:
            await producer.send(topic, Order(0))
            await producer.send_async(topic, Order(1))
            await producer.send_oneway(topic, Order(2))
            await producer.send_in_transaction(topic, Order(3), execute=lambda message: True)
            await producer.send(Message(topic, b'{"number":4}'))
            async with twins.wrap(consumer.subscribe(topic)):
                await until_async(lambda: len(values) == 5)
        assert sorted(value.number for value, _ in values) == [0, 1, 2, 3, 4]
        assert [same for value, same in values if value.number < 4] == [True] * 4
        first = recorder.contexts("before")[0].messages[0]
        assert first.body == b'{"number":0,"what":"apple"}'

    run(main())


def test_an_object_is_told_topic_and_properties(nameservers: str, twins: Twins) -> None:
    topic = f"Told-{twins.kind}"

    class Json:
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            return json.dumps([topic, headers["unit"], data]).encode()

        def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
            return topic, headers["unit"], json.loads(data)

    async def main() -> None:
        producer = twins.wrap(twins.make("Producer", topic, nameservers, serializer=Json()))
        async with producer:
            sent = await producer.send(topic, {"n": 1}, properties={"unit": "kg"})
        consumer = twins.make("PullConsumer", topic, nameservers, deserializer=Json())
        async with twins.wrap(consumer) as pulling:
            result = await pulling.pull(sent.queue, 0)
        assert [m.value for m in result.messages] == [(topic, "kg", [topic, "kg", {"n": 1}])]

    run(main())


def test_a_serializer_that_fails_sends_nothing(nameservers: str, twins: Twins) -> None:
    topic = f"Unserializable-{twins.kind}"

    async def main() -> None:
        recorder = Recorder()
        more = {"serializer": json.dumps, "interceptors": [recorder]}
        async with twins.wrap(twins.make("Producer", topic, nameservers, **more)) as producer:
            with pytest.raises(SerializationError, match="TypeError: Object of type set") as caught:
                await producer.send(topic, {1})
            assert isinstance(caught.value.__cause__, TypeError)
            with pytest.raises(SerializationError, match="it must return bytes"):  # json's are str
                await producer.send_oneway(topic, [1])
            with pytest.raises(MessageError, match="a topic and a body"):
                await producer.send(topic)
        assert not recorder.told

    run(main())


def test_a_listener_never_gets_what_cannot_be_deserialized(
    nameservers: str, twins: Twins, caplog: pytest.LogCaptureFixture
) -> None:
    """1. Of three messages one cannot be deserialized: the listener gets the two others. 2. The third is tried again
    once, and goes to the dead-letter topic as it was sent. Each try is one warning that names it."""
    topic = f"Unreadable-{twins.kind}"

    async def main() -> None:
        group, values, recorder = f"unreadable-{twins.kind}", [], Recorder()

        def listen(message: MessageView[Order]) -> None:
            values.append(message.value.number)

        await filled(nameservers, topic, b'{"number":0}', b'{"number":"one"}', b'{"number":2}')
        consumer = twins.make(
            "PushConsumer",
            group,
            nameservers,
            listen,
            deserializer=DECODE,
            interceptors=[recorder],
            consume_from=FIRST,
            retry_max=0,
        )
        async with twins.wrap(consumer.subscribe(topic)):
            letters = twins.make(
                "LitePullConsumer", f"dead-{group}", nameservers, consume_from=FIRST
            )
            async with twins.wrap(letters.subscribe(f"%DLQ%{group}")) as reading:
                while not (dead := await reading.poll(500)):
                    pass
        assert [message.body for message in dead] == [b'{"number":"one"}']
        assert sorted(values) == [0, 2]
        (failed,) = [each for each in recorder.contexts("consumed") if each.error is not None]
        assert isinstance(failed.error, DeserializationError)
        assert (failed.status, failed.error.offset) == (ConsumeStatus.RECONSUME_LATER, 1)

    with caplog.at_level(logging.INFO, "steelyard"):
        run(main())
    warnings = [each for each in caplog.records if "deserializer failed" in each.getMessage()]
    assert [each.levelname for each in warnings] == ["WARNING"]
    assert "at offset 1 of MessageQueue" in warnings[0].getMessage()
    assert warnings[0].getMessage().endswith("it will be delivered again")


def test_of_a_batch_only_what_fails_comes_again(
    nameservers: str, twins: Twins, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"Batched-{twins.kind}"

    async def main() -> None:
        group = f"batched-{twins.kind}"
        batches: list[list[int]] = []
        recorder = Recorder()

        def listen(messages: list[MessageView[int]]) -> None:
            batches.append([message.value for message in messages])

        await filled(nameservers, topic, b"0", b"one", b"2", b"3")
        consumer = twins.make(
            "PushConsumer",
            group,
            nameservers,
            batch_listener=listen,
            deserializer=int,
            interceptors=[recorder],
            consume_from=FIRST,
            consume_batch=8,
            retry_max=0,
        )
        async with twins.wrap(consumer.subscribe(topic)):
            letters = twins.make(
                "LitePullConsumer", f"dead-{group}", nameservers, consume_from=FIRST
            )
            async with twins.wrap(letters.subscribe(f"%DLQ%{group}")) as reading:
                while not (dead := await reading.poll(500)):
                    pass
        assert [message.body for message in dead] == [b"one"]
        assert batches == [[0, 2, 3]]
        assert recorder.contexts("consumed")[0].status is ConsumeStatus.RECONSUME_LATER

    with caplog.at_level(logging.INFO, "steelyard"):
        run(main())
    assert ["deserializer failed" in each.getMessage() for each in caplog.records].count(True) == 1


def test_an_orderly_queue_waits_for_what_fails(nameservers: str, twins: Twins) -> None:
    topic = f"Orderly-{twins.kind}"

    async def main() -> None:
        broken = threading.Event()
        values: list[int] = []

        def repaired(data: bytes) -> int:
            if data == b"one" and not broken.is_set():
                broken.set()
                raise ValueError(data)
            return 1 if data == b"one" else int(data)

        await filled(nameservers, topic, b"0", b"one", b"2")
        consumer = twins.make(
            "PushConsumer",
            topic,
            nameservers,
            lambda message: values.append(message.value),
            deserializer=repaired,
            orderly=True,
            consume_from=FIRST,
            suspend_ms=10,
        )
        async with twins.wrap(consumer.subscribe(topic)):
            await until_async(lambda: len(values) == 3)
        assert values == [0, 1, 2]
        assert broken.is_set()

    run(main())


@pytest.mark.parametrize("auto_commit", [True, False])
def test_polls_stop_at_a_message_until_a_seek(
    nameservers: str, twins: Twins, *, auto_commit: bool
) -> None:
    """1. A poll returns what comes before; a commit does not pass the message. 2. Further polls fail, and so do those
    of a consumer that comes after. 3. After a seek the rest is read and committed."""
    topic = f"Polled-{twins.kind}-{auto_commit}"

    async def main() -> None:
        queue = await filled(nameservers, topic, b"0", b"1", b"two", b"3")
        settings = {"deserializer": int, "consume_from": FIRST, "auto_commit": auto_commit}

        def consumer(**more: Any) -> Any:
            made = twins.make("LitePullConsumer", topic, nameservers, **settings, **more)
            return twins.wrap(made.subscribe(topic))

        recorder = Recorder()
        async with consumer(interceptors=[recorder]) as first:
            assert await polled(first) == [0, 1]
            await first.commit()
            for _ in range(2):
                with pytest.raises(DeserializationError) as caught:
                    await polled(first)
                error = caught.value
                assert (error.queue, error.offset, error.data) == (queue, 2, b"two")
                assert str(error).endswith("; to continue without it, seek to offset 3")
            await first.commit()
            assert await first.committed(queue) == 2
        assert [len(each.messages) for each in recorder.contexts("received")] == [2]
        async with consumer() as second:
            with pytest.raises(DeserializationError) as caught:
                await polled(second)
            await second.seek(caught.value.queue, caught.value.offset + 1)
            assert await polled(second) == [3]
            await second.commit()
            assert await second.committed(queue) == 4

    run(main())


def test_pulls_stop_at_a_message_and_say_where_to_go_on(nameservers: str, twins: Twins) -> None:
    topic = f"Pulled-{twins.kind}"

    async def main() -> None:
        queue = await filled(nameservers, topic, b"0", b"one", b"2")
        recorder = Recorder()
        made = twins.make(
            "PullConsumer", topic, nameservers, deserializer=int, interceptors=[recorder]
        )
        async with twins.wrap(made) as consumer:
            result = await consumer.pull(queue, 0)
            assert [message.value for message in result.messages] == [0]
            assert result.next_begin_offset == 1
            with pytest.raises(DeserializationError, match="pull from offset 2") as caught:
                await consumer.pull(queue, result.next_begin_offset)
            result = await consumer.pull(queue, caught.value.offset + 1)
            assert [message.value for message in result.messages] == [2]
        told = [[m.body for m in each.messages] for each in recorder.contexts("received")]
        assert told == [[b"0"], [b"2"]]
        assert all(each.group == topic for each in recorder.contexts("received"))

    run(main())


def test_what_is_neither_function_nor_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="serializer is 5; it must be"):
        Producer("g", serializer=5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match="deserializer is 5; it must be"):
        PullConsumer("g", deserializer=5)  # type: ignore[arg-type]  # wrong on purpose


def test_without_a_serializer_bodies_are_bytes_or_text(nameservers: str) -> None:
    with Producer("g", nameservers) as producer, pytest.raises(ArgumentError, match="body is 5"):
        producer.send("T", 5)  # type: ignore[arg-type]  # wrong on purpose


def test_types_follow_the_functions() -> None:
    """Checked by mypy: with wrong types in the clients, it does not accept this module."""
    if TYPE_CHECKING:
        producer = Producer("g", serializer=msgspec.json.Encoder().encode)
        producer.send("T", Order(1))
        assert_type(Producer("g"), Producer[bytes | str])
        polling = LitePullConsumer("g", deserializer=DECODE)
        assert_type(polling.poll()[0].value, Order)
        plain = LitePullConsumer("g")
        assert_type(plain.poll()[0].value, None)
        pulling = PullConsumer("g", deserializer=float)
        assert_type(pulling.pull(MessageQueue("T", "b", 0), 0).messages[0].value, float)

        def listen(message: MessageView[int]) -> None: ...

        PushConsumer("g", None, listen, deserializer=int)
