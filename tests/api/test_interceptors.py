"""Interceptors of both shells: what they are told of each message, and that their faults have no effect."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec
import pytest
from tests.api.kafka import KafkaServers
from tests.api.twins import Twins
from tests.waiting import until_async

import steelyard
from steelyard import (
    ConfigError,
    ConsumeContext,
    ConsumeFrom,
    ConsumeStatus,
    Interceptor,
    Message,
    MessageError,
    MessageView,
    ReceiveContext,
    SendContext,
    SendKind,
    SendResult,
)
from steelyard.client import interceptors
from steelyard.driver.loops import run

FIRST = ConsumeFrom.FIRST_OFFSET


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


class Recorder(Interceptor):
    """Notes what it is told, with its name, in a list that several may share."""

    def __init__(self, name: str = "", told: list[tuple[str, Any]] | None = None) -> None:
        self.name = name
        self.told: list[tuple[str, Any]] = [] if told is None else told

    def before_send(self, context: SendContext) -> None:
        assert (context.result, context.error) == (None, None)
        context.notes[self] = len(self.told)
        self.told.append((f"before{self.name}", context))

    def after_send(self, context: SendContext) -> None:
        assert self.told[context.notes[self]] == (f"before{self.name}", context)
        self.told.append((f"after{self.name}", context))

    def after_receive(self, context: ReceiveContext) -> None:
        self.told.append((f"received{self.name}", context))

    def before_consume(self, context: ConsumeContext) -> None:
        context.notes[self] = threading.current_thread()
        self.told.append((f"consuming{self.name}", context))

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.notes[self] is threading.current_thread()
        self.told.append((f"consumed{self.name}", context))

    def contexts(self, what: str) -> list[Any]:
        return [context for told, context in self.told if told == what]


class Marking(Interceptor):
    """Puts a property into every message."""

    def before_send(self, context: SendContext) -> None:
        context.messages = tuple(
            msgspec.structs.replace(each, properties={**each.properties, "mark": "x"})
            for each in context.messages
        )


def test_every_kind_of_send(nameservers: str, twins: Twins) -> None:
    topic = f"Intercepted-{twins.kind}"

    async def main() -> None:
        recorder = Recorder()
        made = twins.make(
            "Producer", f"p-{twins.kind}", nameservers, interceptors=[recorder, Marking()]
        )
        async with twins.wrap(made) as producer:
            first = await producer.send(topic, b"1", properties={"own": "y"})
            batch = await producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
            await producer.send_oneway(topic, b"4")
            future = await producer.send_async(topic, b"5")
            later = await (future if twins.kind == "aio" else asyncio.wrap_future(future))
            done = await producer.send_in_transaction(topic, b"6", execute=lambda message: True)
            with pytest.raises(MessageError):
                await producer.send(topic, b"x" * 5_000_000)
            with pytest.raises(steelyard.CallTimeoutError):
                await producer.request(topic, b"7", timeout_ms=50)
            await until_async(lambda: len(recorder.told) == 14)
        ended = recorder.contexts("after")
        kinds = [SendKind.NORMAL, SendKind.NORMAL, SendKind.ONEWAY, SendKind.NORMAL]
        kinds += [SendKind.TRANSACTION, SendKind.NORMAL, SendKind.REQUEST]
        assert [each.kind for each in ended] == kinds
        results = [first, batch, None, later, done.send_result, None, None]
        assert [each.result for each in ended] == results
        errors = [type(each.error) for each in ended]
        none = type(None)
        assert errors == [*[none] * 5, MessageError, steelyard.CallTimeoutError]
        for each in ended:
            assert (each.group, each.client_id) == (made.config.group, made.config.client_id)
            assert all(message.properties["mark"] == "x" for message in each.messages)
        assert ended[0].messages[0].properties == {"own": "y", "mark": "x"}
        assert [message.body for message in ended[1].messages] == [b"2", b"3"]

    run(main())


def test_a_listener_and_polls_of_rocketmq(nameservers: str, twins: Twins) -> None:
    """1. A listener fails once, and then succeeds: two deliveries, the second from the retry topic. 2. A poll returns
    what another group reads."""
    topic = f"Listened-{twins.kind}"

    async def main() -> None:
        recorder, mark = Recorder(), Recorder("2")
        mark.told = recorder.told
        failing = [True]

        def listen(message: MessageView) -> bool | None:
            if failing.pop() if failing else False:
                raise ValueError("not yet")
            return message.body == b"1" or None

        async with twins.wrap(twins.make("Producer", "p", nameservers)) as producer:
            await producer.send(topic, b"1")
        group = f"listening-{twins.kind}"
        made = twins.make(
            "PushConsumer",
            group,
            nameservers,
            listen,
            interceptors=(recorder, mark),
            consume_from=FIRST,
        )
        async with twins.wrap(made.subscribe(topic)):
            await until_async(lambda: recorder.contexts("consumed"))
        order = [told for told, _ in recorder.told][:4]
        assert order == ["consuming", "consuming2", "consumed2", "consumed"]
        failed = recorder.contexts("consumed")[0]
        assert failed.status is ConsumeStatus.RECONSUME_LATER
        assert str(failed.error) == "not yet"
        (message,) = failed.messages
        assert (message.body, message.topic) == (b"1", topic)
        assert (failed.queue.topic, failed.queue.queue_id) == (topic, message.queue_id)
        assert (failed.group, failed.client_id) == (group, made.config.client_id)
        recorder.told.clear()
        made = twins.make(
            "LitePullConsumer",
            f"polling-{twins.kind}",
            nameservers,
            interceptors=[recorder],
            consume_from=FIRST,
        )
        async with twins.wrap(made.subscribe(topic)) as consumer:
            polled: list[MessageView] = []
            while not polled:
                polled = await consumer.poll(200)
            ((told, received),) = recorder.told
            assert told == "received"
            assert list(received.messages) == polled
            assert received.group == made.config.group
            assert polled[0].store_timestamp * 1_000_000 > 0
            assert await consumer.poll(10) == []
            assert len(recorder.told) == 1

    run(main())


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Any:
    servers = KafkaServers(tmp_path_factory.mktemp("brokers"), 1)
    yield servers
    servers.stop()


def test_polls_of_kafka(kafka: KafkaServers, twins: Twins) -> None:
    topic = kafka.topic(f"polled-{twins.kind}", 1)
    kafka.fill(topic, range(3), partitions=1)

    async def main() -> None:
        recorder = Recorder()
        made = twins.make(
            "KafkaConsumer",
            topic,
            bootstrap_servers=kafka.bootstrap,
            group_id=f"g-{twins.kind}",
            auto_offset_reset="earliest",
            interceptors=[recorder],
        )
        async with twins.wrap(made) as consumer:
            records: list[Any] = []
            while len(records) < 3:
                records += await consumer.poll(200)
        received = recorder.contexts("received")
        assert [record for each in received for record in each.messages] == records
        assert {each.group for each in received} == {f"g-{twins.kind}"}

    run(main())


def test_an_interceptor_that_fails_changes_nothing(
    nameservers: str, twins: Twins, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Interceptor):
        def before_send(self, context: SendContext) -> None:
            raise ValueError("before")

        def after_send(self, context: SendContext) -> None:
            raise ValueError("after")

    class Dropping(Interceptor):
        def before_send(self, context: SendContext) -> None:
            context.messages = ()

    async def main() -> SendResult:
        given = [Failing(), Dropping()]
        made = twins.make("Producer", "p", nameservers, interceptors=given)
        async with twins.wrap(made) as producer:
            result: SendResult = await producer.send("Intercepted", b"x")
            return result

    with caplog.at_level(logging.ERROR, "steelyard.interceptors"):
        assert run(main()).status is steelyard.SendStatus.SEND_OK
    said = [record.getMessage() for record in caplog.records]
    assert "Failing.before_send failed" in said[0]
    assert "changed the number of messages; its change is ignored" in said[1]
    assert "Failing.after_send failed" in said[2]


@pytest.mark.parametrize(
    "client", ["Producer", "PushConsumer", "LitePullConsumer", "KafkaConsumer"]
)
def test_what_is_no_interceptor(client: str, twins: Twins) -> None:
    with pytest.raises(ConfigError, match="interceptors"):
        twins.make(client, "x", interceptors=[object()])


def test_registered_ones_come_first_and_only_to_later_clients(nameservers: str) -> None:
    told: list[tuple[str, Any]] = []
    everywhere, own = Recorder("everywhere", told), Recorder("own", told)
    with steelyard.Producer("p", nameservers) as before:
        interceptors.register(everywhere)
        try:
            with steelyard.Producer("p", nameservers, interceptors=[own]) as producer:
                before.send("Intercepted", b"x")
                producer.send("Intercepted", b"x")
        finally:
            interceptors.unregister(everywhere)
            interceptors.unregister(everywhere)
    with steelyard.Producer("p", nameservers) as after:
        after.send("Intercepted", b"x")
    order = [name for name, _ in told]
    assert order == ["beforeeverywhere", "beforeown", "afterown", "aftereverywhere"]
