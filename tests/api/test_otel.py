"""OpenTelemetry: spans of both shells as an exporter gets them, and traces that go on from client to client and from
protocol to protocol. The other end of a trace is in some tests a library of somebody else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.api.kafka import KafkaServers
from tests.api.twins import Twins
from tests.waiting import until, until_async

import steelyard
from steelyard import (
    ConsumeFrom,
    ConsumerRecord,
    Message,
    MessageQueue,
    MessageView,
    ReceiveContext,
    SendContext,
    SendKind,
    SendResult,
    SendStatus,
)
from steelyard.driver.loops import run
from steelyard.otel import (
    LINKS_MAX,
    SteelyardInstrumentor,
    TracingInterceptor,
    context_of,
    processing,
)

FIRST = ConsumeFrom.FIRST_OFFSET


class Spans:
    """What was exported, in the order of the spans' ends."""

    def __init__(self, limits: SpanLimits | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(span_limits=limits)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    """With the clients of this process instrumented."""
    spans = Spans()
    SteelyardInstrumentor().instrument(tracer_provider=spans.provider)
    yield spans
    SteelyardInstrumentor().uninstrument()


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("brokers"), 1)
    yield servers
    servers.stop()


def place(span: ReadableSpan | trace.Span) -> tuple[int, int]:
    """A span's trace and its own id."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_message_and_its_listener_are_in_one_trace(
    servers: KafkaServers, twins: Twins, spans: Spans
) -> None:
    """1. The message is sent in a span of the application. 2. Its listener makes a span, too, and fails at first."""
    topic = f"Traced-{twins.kind}"
    failing = [True]

    def work() -> None:
        with spans.tracer.start_as_current_span("work"):
            if failing:
                raise ValueError(failing.pop())

    async def listen(message: MessageView) -> None:
        await asyncio.sleep(0)
        work()

    async def main() -> None:
        async with twins.wrap(twins.make("Producer", "p", servers.nameservers)) as producer:
            with spans.tracer.start_as_current_span("request"):
                await producer.send(topic, b"apple", tags="fruit", keys=["k1", "k2"])
        group = f"tracing-{twins.kind}"
        made = twins.make("PushConsumer", group, servers.nameservers, listen, consume_from=FIRST)
        async with twins.wrap(made.subscribe(topic)):
            await until_async(lambda: spans.named(f"process {topic}"))
        (asked,) = spans.named("request")
        (sent,) = spans.named(f"send {topic}")
        consumed = spans.named(f"process {topic}")[0]
        worked = spans.named("work")[0]
        assert (sent.kind, consumed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert parent(sent) == place(asked)
        assert parent(consumed) == place(sent)
        assert parent(worked) == place(consumed)
        assert consumed.status.status_code is StatusCode.ERROR
        assert [event.name for event in consumed.events] == ["exception"]
        common = {
            "messaging.system": "rocketmq",
            "messaging.destination.name": topic,
            "messaging.message.body.size": 5,
            "messaging.rocketmq.message.tag": "fruit",
            "messaging.rocketmq.message.keys": ("k1", "k2"),
        }
        own = dict(sent.attributes or {})
        message_id = own.pop("messaging.message.id")
        queue_id = own.pop("messaging.destination.partition.id")
        assert own.pop("messaging.client.id")
        assert own == common | {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.rocketmq.message.type": "normal",
        }
        assert dict(consumed.attributes or {}) == common | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            "messaging.client.id": made.config.client_id,
            "messaging.message.id": message_id,
            "messaging.destination.partition.id": queue_id,
            "messaging.rocketmq.message.offset": 0,
            "messaging.rocketmq.consumption_model": "clustering",
            "error.type": "ValueError",
        }
        assert trace.get_current_span() is trace.INVALID_SPAN

    run(main())


def test_batches_and_polls_link_to_what_was_sent(
    servers: KafkaServers, twins: Twins, spans: Spans
) -> None:
    topic = f"Batched-{twins.kind}"

    async def main() -> None:
        async with twins.wrap(twins.make("Producer", "p", servers.nameservers)) as producer:
            queue = (await producer.queues(topic))[0]
            await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")], queue=queue)
            future = await producer.send_async(topic, b"3", queue=queue)
            await (future if twins.kind == "aio" else asyncio.wrap_future(future))
            await until_async(lambda: len(spans.named(f"send {topic}")) == 2)
        batch, single = spans.named(f"send {topic}")
        assert (batch.attributes or {})["messaging.batch.message_count"] == 2
        assert "messaging.message.id" not in (batch.attributes or {})
        wanted = [place(batch), place(batch), place(single)]
        made = twins.make(
            "LitePullConsumer", f"b-{twins.kind}", servers.nameservers, consume_from=FIRST
        )
        async with twins.wrap(made.subscribe(topic)) as consumer:
            polled: list[MessageView] = []
            while len(polled) < 3:
                polled += await consumer.poll(200)
        found = spans.named(f"poll {topic}")
        assert [link for span in found for link in links(span)] == wanted
        assert {span.kind for span in found} == {SpanKind.CLIENT}
        counts = [(span.attributes or {})["messaging.batch.message_count"] for span in found]
        assert sum(map(int, counts)) == 3  # type: ignore[arg-type]
        for span in found:
            attributes = span.attributes or {}
            assert attributes["messaging.operation.type"] == "receive"
            assert attributes["messaging.consumer.group.name"] == f"b-{twins.kind}"
            assert (span.start_time or 0) < (span.end_time or 0)
        with processing(polled[2], "own", tracer_provider=spans.provider) as own:
            assert trace.get_current_span() is own
        (processed,) = spans.named(f"process {topic}")
        assert parent(processed) == place(single)
        with pytest.raises(KeyError), processing(polled[2], tracer_provider=spans.provider):
            raise KeyError
        failed = spans.named(f"process {topic}")[1]
        assert failed.status.status_code is StatusCode.ERROR
        assert (failed.attributes or {})["error.type"] == "KeyError"

    run(main())


def test_a_batch_listener(servers: KafkaServers, spans: Spans) -> None:
    topic = "BatchListened"
    with steelyard.Producer("p", servers.nameservers) as producer:
        queue = producer.queues(topic)[0]
        producer.send_batch([Message(topic, b"%d" % number) for number in range(3)], queue=queue)
    consumer = steelyard.PushConsumer(
        "batches",
        servers.nameservers,
        batch_listener=lambda messages: len(messages) < 3,
        consume_batch=3,
        consume_from=FIRST,
    )
    with consumer.subscribe(topic):
        until(lambda: spans.named(f"process {topic}"))
    (sent,) = spans.named(f"send {topic}")
    consumed = spans.named(f"process {topic}")[0]
    assert consumed.parent is None
    assert links(consumed) == [place(sent)] * 3
    attributes = consumed.attributes or {}
    assert attributes["messaging.batch.message_count"] == 3
    assert attributes["error.type"] == "RECONSUME_LATER"
    assert consumed.status.status_code is StatusCode.ERROR


def test_failed_sends(servers: KafkaServers, spans: Spans) -> None:
    with steelyard.Producer("p", servers.nameservers) as producer:
        with pytest.raises(steelyard.MessageError):
            producer.send("Traced", b"x" * 5_000_000)
        producer.send_oneway("Traced", b"x")
    failed, oneway = spans.named("send Traced")
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "MessageError"
    assert oneway.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"delay_level": 1}, "delay"), ({"sharding_key": "a"}, "fifo"), ({}, "normal")],
)
def test_types_of_messages(
    servers: KafkaServers, spans: Spans, fields: dict[str, Any], kind: str
) -> None:
    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send("Typed", b"x", **fields)
        producer.send_in_transaction("Typed", b"x", execute=lambda message: True)
    single, half = spans.named("send Typed")
    assert (single.attributes or {})["messaging.rocketmq.message.type"] == kind
    assert (half.attributes or {})["messaging.rocketmq.message.type"] == "transaction"


def test_from_rocketmq_to_kafka(servers: KafkaServers, twins: Twins, spans: Spans) -> None:
    """The trace goes on in a Kafka consumer of ours, and in the headers that any other client gets."""
    topic = servers.topic(f"to-kafka-{twins.kind}", 1)

    async def main() -> None:
        async with twins.wrap(twins.make("Producer", "p", servers.nameservers)) as producer:
            await producer.send(topic, b"x")
        made = twins.make(
            "KafkaConsumer",
            topic,
            bootstrap_servers=servers.bootstrap,
            group_id=f"k-{twins.kind}",
            auto_offset_reset="earliest",
        )
        async with twins.wrap(made) as consumer:
            records: list[Any] = []
            while not records:
                records = await consumer.poll(200)
        (sent,) = spans.named(f"send {topic}")
        (polled,) = spans.named(f"poll {topic}")
        assert links(polled) == [place(sent)]
        assert (polled.attributes or {})["messaging.system"] == "kafka"
        with processing(records[0], f"k-{twins.kind}", tracer_provider=spans.provider):
            pass
        (processed,) = spans.named(f"process {topic}")
        assert parent(processed) == place(sent)
        attributes = dict(processed.attributes or {})
        assert attributes["messaging.kafka.offset"] == records[0].offset
        assert attributes["messaging.destination.partition.id"] == "0"
        trace_id, span_id = place(sent)
        header = dict(records[0].headers)["traceparent"]
        version, *ids, _ = header.decode().split("-")
        assert (version, ids) == ("00", [f"{trace_id:032x}", f"{span_id:016x}"])

    run(main())


def test_from_another_library_to_ours(servers: KafkaServers, spans: Spans) -> None:
    """The producer is confluent-kafka's, with OpenTelemetry's own instrumentation; the consumers are of both protocols."""
    topic = servers.topic("from-another", 1)
    producer: Any = ConfluentKafkaInstrumentor().instrument_producer(
        confluent_kafka.Producer({"bootstrap.servers": servers.bootstrap}),
        tracer_provider=spans.provider,
    )
    producer.produce(topic, b"x", key=b"k")
    assert producer.flush(60) == 0
    (sent,) = spans.named(f"{topic} send")
    consumer = steelyard.PushConsumer(
        "pushed", servers.nameservers, lambda message: None, consume_from=FIRST
    )
    with consumer.subscribe(topic):
        until(lambda: spans.named(f"process {topic}"))
    (consumed,) = spans.named(f"process {topic}")
    assert parent(consumed) == place(sent)
    with steelyard.KafkaConsumer(
        topic,
        bootstrap_servers=servers.bootstrap,
        group_id="read",
        auto_offset_reset="earliest",
    ) as reader:
        record = next(iter(reader))
    (polled,) = spans.named(f"poll {topic}")
    assert links(polled) == [place(sent)]
    found = trace.get_current_span(context_of(record)).get_span_context()
    assert (found.trace_id, found.span_id) == place(sent)


def test_from_ours_to_another_library(servers: KafkaServers, spans: Spans) -> None:
    topic = servers.topic("to-another", 1)
    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send(topic, b"x")
    consumer: Any = ConfluentKafkaInstrumentor().instrument_consumer(
        confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers.bootstrap,
                "group.id": "another",
                "auto.offset.reset": "earliest",
            }
        ),
        tracer_provider=spans.provider,
    )
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1))
    consumer.close()
    (sent,) = spans.named(f"send {topic}")
    processed = [
        span for span in spans.exporter.get_finished_spans() if span.name == f"{topic} process"
    ]
    assert links(processed[0]) == [place(sent)]


def test_a_message_without_a_trace_or_with_a_wrong_one(servers: KafkaServers, spans: Spans) -> None:
    """The spans of what was not traced have no parent: not even the one that the listener's thread may have."""
    SteelyardInstrumentor().uninstrument()
    topic = servers.topic("untraced", 1)
    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send(topic, b"x")
        producer.send(topic, b"x", properties={"traceparent": "nonsense"})
    SteelyardInstrumentor().instrument(tracer_provider=spans.provider)
    consumer = steelyard.PushConsumer(
        "untraced", servers.nameservers, lambda message: None, consume_from=FIRST
    )
    with consumer.subscribe(topic):
        until(lambda: len(spans.named(f"process {topic}")) == 2)
    for span in spans.named(f"process {topic}"):
        assert (span.parent, span.links) == (None, ())


def test_no_more_links_than_the_limit() -> None:
    spans = Spans(SpanLimits(max_links=1_000))
    header = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    record = ConsumerRecord("linked", 0, 0, 0, 0, None, b"x", (header,))
    for count in (LINKS_MAX, LINKS_MAX + 10):
        TracingInterceptor(spans.provider).after_receive(
            ReceiveContext(group="", client_id="c", messages=[record] * count, began_at_ns=1)
        )
    assert [len(span.links) for span in spans.named("poll linked")] == [LINKS_MAX, LINKS_MAX]


def test_a_closed_consumer_ends_the_span_of_a_cancelled_listener(
    servers: KafkaServers, spans: Spans
) -> None:
    topic = servers.topic("cancelled", 1)
    listening = threading.Event()

    async def listen(message: MessageView) -> None:
        listening.set()
        await asyncio.Event().wait()

    async def main() -> None:
        consumer = steelyard.aio.PushConsumer(
            "cancelled", servers.nameservers, listen, consume_from=FIRST, stop_timeout_ms=100
        )
        await consumer.subscribe(topic).start()
        await until_async(listening.is_set)
        await consumer.close()

    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send(topic, b"x")
    run(main())
    (consumed,) = spans.named(f"process {topic}")
    assert (consumed.attributes or {})["error.type"] == "cancelled"


def test_instrumented_once_and_not_any_more(servers: KafkaServers, spans: Spans) -> None:
    SteelyardInstrumentor().instrument(tracer_provider=spans.provider)
    assert SteelyardInstrumentor().instrumentation_dependencies() == ()
    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send("Once", b"x")
    assert len(spans.named("send Once")) == 1
    SteelyardInstrumentor().uninstrument()
    SteelyardInstrumentor().uninstrument()
    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send("Once", b"x")
    assert len(spans.named("send Once")) == 1


def test_what_opentelemetry_instrument_loads(servers: KafkaServers) -> None:
    """It calls the class that the package names, and then this method, with options of its own."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    group = "opentelemetry_instrumentor"
    ((name, value),) = project["entry-points"][group].items()
    entry = EntryPoint(name, value, group)
    spans = Spans()
    instrumentor = entry.load()()
    instrumentor.instrument(skip_dep_check=True, tracer_provider=spans.provider)
    with steelyard.Producer("p", servers.nameservers) as producer:
        producer.send("Loaded", b"x")
    instrumentor.uninstrument()
    assert len(spans.named("send Loaded")) == 1


def test_clients_load_nothing_of_it_by_themselves() -> None:
    program = """
import json, sys
from steelyard import Producer, KafkaConsumer, PushConsumer, LitePullConsumer, aio
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_a_tombstone() -> None:
    spans = Spans()
    record = ConsumerRecord("deleted", 3, 7, 0, 0, b"k\xff", None)
    with processing(record, "g", tracer_provider=spans.provider):
        pass
    (span,) = spans.named("process deleted")
    attributes = dict(span.attributes or {})
    assert attributes["messaging.kafka.message.tombstone"] is True
    assert attributes["messaging.kafka.message.key"] == "k\ufffd"
    assert attributes["messaging.kafka.offset"] == 7
    assert "messaging.message.body.size" not in attributes


def test_a_message_that_only_the_master_has() -> None:
    """Its send succeeded, with less safety than was asked for: the span says so."""
    spans = Spans()
    interceptor = TracingInterceptor(spans.provider)
    context = SendContext(
        kind=SendKind.NORMAL,
        group="g",
        client_id="c",
        messages=(Message("stored", b"x", sharding_key="order-1"),),
    )
    interceptor.before_send(context)
    context.result = SendResult(
        SendStatus.SLAVE_NOT_AVAILABLE, "id", "offset-id", MessageQueue("stored", "broker-a", 2), 5
    )
    interceptor.after_send(context)
    interceptor.after_send(context)  # a second time: its span has ended
    (span,) = spans.named("send stored")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "SLAVE_NOT_AVAILABLE"
    assert (span.attributes or {})["messaging.destination.partition.id"] == "2"
