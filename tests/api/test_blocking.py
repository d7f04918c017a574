"""`steelyard.Producer` and `steelyard.PushConsumer` against real brokers."""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.waiting import until

import steelyard
from steelyard import (
    ClosedError,
    ConfigError,
    ConnectError,
    ConsumeFrom,
    ConsumerConfig,
    ConsumeStatus,
    Message,
    MessageError,
    MessageQueue,
    MessageView,
    Producer,
    ProducerConfig,
    PushConsumer,
    SendStatus,
    SteelyardError,
)
from steelyard.types import Subscription

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def test_the_package_offers_its_names() -> None:
    for name in steelyard.__all__:
        assert getattr(steelyard, name).__name__ == name
    assert set(steelyard.__all__) <= set(dir(steelyard))
    with pytest.raises(AttributeError, match="nothing"):
        steelyard.nothing  # noqa: B018


def test_what_is_sent_is_received(nameservers: str) -> None:
    received: list[MessageView] = []
    with Producer("p", nameservers) as producer:
        sent = producer.send(
            "Whole", "grüße", tags="A", keys=["k1", "k2"], properties={"colour": "blue"}
        )
        assert sent.status is SendStatus.SEND_OK
    with PushConsumer("whole", nameservers, received.append, config=FIRST).subscribe("Whole"):
        until(lambda: received)
    (message,) = received
    assert message.body == "grüße".encode()
    assert message.topic == "Whole"
    assert message.tags == "A"
    assert message.keys == "k1 k2"
    assert message.properties["colour"] == "blue"
    assert message.message_id == sent.message_id
    assert message.queue == sent.queue
    assert message.queue_offset == sent.queue_offset
    assert message.reconsume_times == 0
    assert abs(message.store_timestamp - time.time() * 1000) < 60_000


def test_all_kinds_of_sending(nameservers: str) -> None:
    bodies: list[bytes] = []
    with PushConsumer(
        "kinds", nameservers, lambda message: bodies.append(message.body), config=FIRST
    ).subscribe("Kinds"):
        with Producer("p", nameservers) as producer:
            producer.send("Kinds", b"one")
            futures = [producer.send_async("Kinds", b"later %d" % number) for number in range(100)]
            offsets = [future.result(60).queue_offset for future in futures]
            assert len(offsets) == 100
            first = producer.send_batch([Message("Kinds", b"batch %d" % n) for n in range(50)])
            assert len(first.message_id.split(",")) == 50
            producer.send_oneway("Kinds", b"one way")
            queue = producer.queues("Kinds")[-1]
            assert producer.send("Kinds", b"there", queue=queue).queue == queue
        until(lambda: len(bodies) == 153)
    assert Counter(bodies) == Counter(
        [b"one", b"one way", b"there"]
        + [b"later %d" % number for number in range(100)]
        + [b"batch %d" % number for number in range(50)]
    )


def test_a_future_may_be_cancelled(nameservers: str) -> None:
    with Producer("p", nameservers) as producer:
        producer.send("Cancelled", b"x")
        futures = [producer.send_async("Cancelled", b"x") for _ in range(50)]
        for future in futures[::2]:
            future.cancel()
        assert all(future.result(60) for future in futures[1::2])
        assert producer.send("Cancelled", b"x").status is SendStatus.SEND_OK


def test_a_callback_that_would_block_the_loop_is_refused(nameservers: str) -> None:
    caught: list[BaseException] = []
    done = threading.Event()

    with Producer("p", nameservers) as producer:

        def send_again(_: object) -> None:
            try:
                producer.send("Callback", b"y")
            except SteelyardError as error:
                caught.append(error)
            done.set()

        producer.send_async("Callback", b"x").add_done_callback(send_again)
        assert done.wait(60)
    assert "steelyard.aio" in str(caught[0])


def test_tags_are_filtered(nameservers: str) -> None:
    bodies: list[bytes] = []
    with Producer("p", nameservers) as producer:
        for number in range(40):
            producer.send("Tagged", b"%d" % number, tags="ABCD"[number % 4])
    with PushConsumer(
        "tags", nameservers, lambda message: bodies.append(message.body), config=FIRST
    ).subscribe("Tagged", "A || C"):
        until(lambda: len(bodies) == 20)
    assert sorted(map(int, bodies)) == list(range(0, 40, 2))


def test_a_failed_message_comes_again(nameservers: str, caplog: pytest.LogCaptureFixture) -> None:
    """The listener fails in three ways on the first delivery; the second comes after the first delay, 10 s."""
    attempts: list[tuple[bytes, int]] = []

    def listener(message: MessageView) -> ConsumeStatus | bool | None:
        attempts.append((message.body, message.reconsume_times))
        if message.reconsume_times:
            return None
        if message.body == b"raises":
            raise RuntimeError("the listener does not like it")
        return False if message.body == b"false" else ConsumeStatus.RECONSUME_LATER

    # A group's first member makes its retry topic: the next one finds it at once, not after a poll of 30 s.
    with PushConsumer("again", nameservers, listener).subscribe("TBW102") as first:
        until(lambda: first.state().held)
    with Producer("p", nameservers) as producer:
        for body in (b"raises", b"false", b"later"):
            producer.send("Again", body)
    with (
        caplog.at_level(logging.ERROR, "steelyard"),
        PushConsumer("again", nameservers, listener, config=FIRST).subscribe("Again"),
    ):
        until(lambda: len(attempts) == 6)
    assert sorted(attempts) == [
        (body, times) for body in (b"false", b"later", b"raises") for times in (0, 1)
    ]
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == 1
    assert "does not like it" in str(logged[0].exc_info)


def test_a_listener_that_exits_does_not_take_its_thread_along(nameservers: str) -> None:
    seen: list[bytes] = []

    def listener(message: MessageView) -> None:
        seen.append(message.body)
        if message.body == b"exits":
            raise SystemExit

    with Producer("p", nameservers) as producer:
        queue = producer.send("Exits", b"exits").queue
        producer.send("Exits", b"next", queue=queue)
    consumer = PushConsumer("exits", nameservers, listener, consume_threads=1, config=FIRST)
    with consumer.subscribe("Exits"):
        until(lambda: seen == [b"exits", b"next"])


def test_batches_reach_a_batch_listener(nameservers: str) -> None:
    sizes: list[int] = []

    def listener(messages: Sequence[MessageView]) -> None:
        assert len({message.queue for message in messages}) == 1
        sizes.append(len(messages))

    with Producer("p", nameservers) as producer:
        for _ in range(5):
            producer.send_batch([Message("Batched", b"x")] * 64)
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, consume_batch=16)
    with PushConsumer("batched", nameservers, batch_listener=listener, config=config).subscribe(
        "Batched"
    ):
        until(lambda: sum(sizes) == 320)
    assert max(sizes) == 16


def test_two_members_share_the_queues_and_a_stop_commits(nameservers: str) -> None:
    received: list[bytes] = []

    def member() -> PushConsumer:
        return PushConsumer(
            "shared", nameservers, lambda message: received.append(message.body), config=FIRST
        ).subscribe("Shared")

    def held(consumer: PushConsumer) -> list[MessageQueue]:
        return [queue for queue in consumer.state().held if queue.topic == "Shared"]

    with Producer("p", nameservers) as producer:
        for number in range(100):
            producer.send("Shared", b"%d" % number)
        with member() as first:
            until(lambda: len(received) == 100)
            with member() as second:
                queues = producer.queues("Shared")
                until(lambda: held(second) and sorted(held(first) + held(second)) == sorted(queues))
                assert len(held(first)) == len(held(second))
                assert first.state().members["Shared"] == second.state().members["Shared"]
        received.clear()
        with member():
            producer.send("Shared", b"after")
            until(lambda: b"after" in received)
    assert received == [b"after"], "what was committed at the stop came again"


def test_listeners_run_in_many_threads(nameservers: str) -> None:
    together = threading.Barrier(5)
    threads: set[str] = set()

    def listener(message: MessageView) -> None:
        together.wait(60)
        threads.add(threading.current_thread().name)

    with Producer("p", nameservers) as producer:
        for _ in range(5):
            producer.send("Threads", b"x")
    with PushConsumer("threads", nameservers, listener, consume_threads=5, config=FIRST).subscribe(
        "Threads"
    ):
        until(lambda: len(threads) == 5)


def test_a_stop_waits_for_the_listener(nameservers: str) -> None:
    begun, finish, done = threading.Event(), threading.Event(), threading.Event()

    def listener(message: MessageView) -> None:
        begun.set()
        finish.wait(60)
        done.set()

    with Producer("p", nameservers) as producer:
        producer.send("Slow", b"x")
    consumer = PushConsumer("slow", nameservers, listener, config=FIRST).subscribe("Slow").start()
    assert begun.wait(60)
    stopping = threading.Thread(target=consumer.stop)
    stopping.start()
    finish.set()
    stopping.join(60)
    assert not stopping.is_alive()
    assert done.is_set()
    consumer.stop()


def test_a_broker_that_goes_and_comes_back(servers: object, nameservers: str) -> None:
    """1. broker-b stops. 2. Sends go on, all to broker-a. 3. It is back on its port: both are used again."""
    with Producer("p", nameservers) as producer:
        brokers = {producer.send("Gone", b"x").queue.broker_name for _ in range(16)}
        assert brokers == {"broker-a", "broker-b"}
        port = servers.stop_broker("broker-b")  # type: ignore[attr-defined]  # of the conftest
        for _ in range(8):
            assert producer.send("Gone", b"x").queue.broker_name == "broker-a"
        servers.start_broker("broker-b", port)  # type: ignore[attr-defined]
    with Producer("p", nameservers) as producer:
        until(lambda: producer.send("Gone", b"x").queue.broker_name == "broker-b")


# -- wrong use -------------------------------------------------------------------------------------


def test_nobody_listens() -> None:
    config = ProducerConfig(send_timeout_ms=300)
    with Producer("p", "127.0.0.1:1", config=config) as producer:
        begun = time.monotonic()
        with pytest.raises(SteelyardError) as caught:
            producer.send("T", b"x")
        assert time.monotonic() - begun < 5
        assert caught.value.retriable
        assert isinstance(caught.value, (ConnectError, steelyard.RouteError))


@pytest.mark.parametrize(
    "message",
    [
        Message("", b"x"),
        Message("with space", b"x"),
        Message("T", b""),
        Message("T", b"x" * (4 * 1024 * 1024 + 1)),
        Message("T", b"x", properties={"a": "b\x01"}),
        Message("T" * 128, b"x"),
    ],
    ids=["no topic", "topic", "empty", "large", "separator", "long topic"],
)
def test_wrong_messages_are_refused_before_they_leave(nameservers: str, message: Message) -> None:
    with Producer("p", nameservers) as producer:
        with pytest.raises(MessageError):
            producer.send(message)
        with pytest.raises(MessageError):
            producer.send_oneway(message)


def test_a_batch_has_one_topic(nameservers: str) -> None:
    with Producer("p", nameservers) as producer:
        with pytest.raises(MessageError):
            producer.send_batch([Message("A", b"x"), Message("B", b"x")])
        with pytest.raises(MessageError):
            producer.send_batch([])


def test_a_producer_is_used_while_it_runs(nameservers: str) -> None:
    producer = Producer("p", nameservers)
    with pytest.raises(ClosedError, match="not running"):
        producer.send("T", b"x")
    producer.start()
    producer.start()
    producer.stop()
    producer.stop()
    with pytest.raises(ClosedError):
        producer.start()


def test_a_consumer_needs_what_it_needs(nameservers: str) -> None:
    def listener(message: MessageView) -> None:
        """Not called."""

    with pytest.raises(ConfigError, match="subscription"):
        PushConsumer("g", nameservers, listener).start()
    with pytest.raises(ConfigError, match="listener"):
        PushConsumer("g", nameservers).subscribe("T").start()
    with pytest.raises(ConfigError, match="not both"):
        PushConsumer("g", nameservers, listener, batch_listener=lambda messages: None)
    with pytest.raises(ConfigError, match="consume_threads"):
        PushConsumer("g", nameservers, listener, consume_threads=0)
    with pytest.raises(ConfigError, match="batch_listener"):
        PushConsumer("g", nameservers, listener, config=ConsumerConfig(consume_batch=2))
    with pytest.raises(ConfigError, match="group"):
        PushConsumer("", nameservers, listener)
    with pytest.raises(ConfigError, match="host:port"):
        PushConsumer("g", "nonsense", listener)
    with pytest.raises(ClosedError):
        PushConsumer("g", nameservers, listener).state()
    with PushConsumer("g", nameservers, listener).subscribe("T") as consumer:
        with pytest.raises(ConfigError, match="before"):
            consumer.subscribe("U")
        with pytest.raises(ClosedError, match="once"):
            consumer.start()


def test_a_later_subscription_replaces_the_earlier(nameservers: str) -> None:
    consumer = PushConsumer("g", nameservers, print).subscribe("T", "A").subscribe("U")
    assert consumer.subscribe("T", "B").config.subscriptions == (
        Subscription("U"),
        Subscription("T", "B"),
    )


def test_unknown_queues_are_an_error(nameservers: str) -> None:
    with Producer("p", nameservers) as producer:
        producer.send("Known", b"x")
        with pytest.raises(SteelyardError):
            producer.send("Known", b"x", queue=MessageQueue("Known", "no-such-broker", 0))


def _send_in_child(producer: Producer, answer: multiprocessing.connection.Connection) -> None:
    try:
        producer.send("Forked", b"x")
    except SteelyardError as error:
        answer.send(str(error))
    else:
        answer.send("sent")


def test_a_client_says_that_it_does_not_survive_a_fork(nameservers: str) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with Producer("p", nameservers) as producer:
        child = context.Process(target=_send_in_child, args=(producer, theirs))
        child.start()
        assert ours.poll(10)
        assert "fork" in ours.recv()
        child.join(60)
