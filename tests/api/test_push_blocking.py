"""`steelyard.PushConsumer` beyond the plain listener: order, hooks, pauses, sizes, coroutines; against real brokers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.waiting import PATIENCE_S, until

from steelyard import (
    ClosedError,
    ConfigError,
    ConsumeFrom,
    ConsumeOrderlyStatus,
    ConsumerConfig,
    ConsumeStatus,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
)
from steelyard.allocate import circle

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=10)


class Journal:
    """What a group of listeners saw, queue by queue, in the order they saw it."""

    def __init__(self) -> None:
        self.numbers: dict[MessageQueue, list[int]] = defaultdict(list)
        self._busy: set[MessageQueue] = set()
        self._lock = threading.Lock()

    def __call__(self, message: MessageView) -> None:
        with self._lock:
            assert message.queue not in self._busy, "two listeners on one queue"
            self._busy.add(message.queue)
        with self._lock:
            self.numbers[message.queue].append(int(message.body))
            self._busy.discard(message.queue)

    @property
    def count(self) -> int:
        return sum(len(numbers) for numbers in self.numbers.values())


def fill(nameservers: str, topic: str, rounds: range) -> None:
    """In each round one message for every queue, with the round's number in it."""
    with Producer("p", nameservers) as producer:
        for queue in producer.queues(topic):
            producer.send(topic, f"{rounds.start}", queue=queue)
        queues = producer.queues(topic)
        futures = [
            producer.send_async(topic, f"{number}", queue=queue)
            for queue in queues
            for number in rounds[1:]
        ]
        for future in futures:
            future.result(60)


# -- order ---------------------------------------------------------------------------------------------


def test_the_order_of_each_queue_survives_members_that_come_and_go(nameservers: str) -> None:
    """Nothing is lost, nothing comes twice, nothing comes before its forerunner."""
    journal = Journal()

    def member() -> PushConsumer:
        consumer = PushConsumer("ordered", nameservers, journal, orderly=True, config=FIRST)
        return consumer.subscribe("Ordered").start()

    fill(nameservers, "Ordered", range(50))
    first = member()
    until(lambda: journal.count >= 20)
    second = member()
    fill(nameservers, "Ordered", range(50, 100))
    until(lambda: len(second.state().held) >= 4)
    fill(nameservers, "Ordered", range(100, 150))
    first.stop()
    fill(nameservers, "Ordered", range(150, 200))
    queues = len(journal.numbers)
    until(lambda: journal.count >= 200 * queues)
    second.stop()
    assert queues == 8
    assert all(numbers == list(range(200)) for numbers in journal.numbers.values())


def test_a_failed_message_holds_its_queue_up(nameservers: str) -> None:
    seen: list[tuple[bytes, int]] = []
    verdicts: list[ConsumeOrderlyStatus | bool | None] = [
        False,
        ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
        None,
        True,
    ]

    def listener(message: MessageView) -> ConsumeOrderlyStatus | bool | None:
        seen.append((message.body, message.reconsume_times))
        if len(seen) == 3:
            raise ValueError("no")
        return verdicts[min(len(seen), 4) - 1]

    with Producer("p", nameservers) as producer:
        queue = producer.queues("HeldUp")[0]
        for number in range(3):
            producer.send("HeldUp", b"%d" % number, queue=queue)
    with PushConsumer("held-up", nameservers, listener, orderly=True, config=FIRST).subscribe(
        "HeldUp"
    ):
        until(lambda: len(seen) == 6)
    assert seen == [(b"0", 0), (b"0", 1), (b"0", 2), (b"0", 3), (b"1", 0), (b"2", 0)]


def test_a_message_that_fails_too_often_goes_to_the_dead_letters(nameservers: str) -> None:
    seen: list[bytes] = []
    dead: list[MessageView] = []

    def listener(message: MessageView) -> bool:
        seen.append(message.body)
        return message.body != b"bad"

    with Producer("p", nameservers) as producer:
        queue = producer.queues("Deadly")[0]
        for body in (b"bad", b"good"):
            producer.send("Deadly", body, queue=queue, tags="red")
    config = replace(FIRST, retry_max=1)
    with PushConsumer("deadly", nameservers, listener, orderly=True, config=config).subscribe(
        "Deadly"
    ):
        until(lambda: b"good" in seen)
    assert seen == [b"bad", b"bad", b"good"]
    with PushConsumer("undertaker", nameservers, dead.append, config=FIRST).subscribe(
        "%DLQ%deadly"
    ):
        until(lambda: dead)
    (message,) = dead
    assert (message.body, message.tags) == (b"bad", "red")
    assert message.property_of("RETRY_TOPIC") == "Deadly"


def test_batches_in_order(nameservers: str) -> None:
    numbers: dict[MessageQueue, list[int]] = defaultdict(list)

    def listener(messages: Sequence[MessageView]) -> None:
        numbers[messages[0].queue] += [int(message.body) for message in messages]

    fill(nameservers, "OrderedBatches", range(40))
    config = replace(FIRST, consume_batch=7)
    with PushConsumer(
        "ordered-batches", nameservers, batch_listener=listener, orderly=True, config=config
    ).subscribe("OrderedBatches"):
        until(lambda: sum(len(part) for part in numbers.values()) >= 320)
    assert list(numbers.values()) == [list(range(40))] * 8


# -- hooks ---------------------------------------------------------------------------------------------


def test_hooks_tell_which_queues_come_and_go(nameservers: str) -> None:
    told: list[tuple[str, tuple[MessageQueue, ...]]] = []
    seen: list[MessageQueue] = []

    def of_topic(word: str) -> set[MessageQueue]:
        return {q for kind, queues in told if kind == word for q in queues if q.topic == "Hooked"}

    def listener(message: MessageView) -> None:
        assert message.queue in of_topic("assigned")
        seen.append(message.queue)

    fill(nameservers, "Hooked", range(2))
    consumer = PushConsumer(
        "hooked",
        nameservers,
        listener,
        on_assigned=lambda queues: told.append(("assigned", queues)),
        on_revoked=lambda queues: told.append(("revoked", queues)),
        on_lost=lambda queues: told.append(("lost", queues)),
        config=FIRST,
    )
    with consumer.subscribe("Hooked"):
        until(lambda: len(seen) == 16)
        with PushConsumer("hooked", nameservers, listener, config=FIRST).subscribe("Hooked"):
            until(lambda: len(of_topic("revoked")) == 4)
    assert len(of_topic("assigned")) == len(of_topic("revoked")) == 8
    assert not of_topic("lost")


def test_a_hook_that_fails_is_logged_and_does_no_harm(
    nameservers: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []

    def hook(queues: tuple[MessageQueue, ...]) -> None:
        raise ValueError("no")

    fill(nameservers, "BadHook", range(1))
    with (
        caplog.at_level(logging.ERROR, "steelyard"),
        PushConsumer(
            "bad-hook",
            nameservers,
            lambda message: seen.append(message.body),
            on_assigned=hook,
            on_revoked=hook,
            config=FIRST,
        ).subscribe("BadHook"),
    ):
        until(lambda: len(seen) == 8)
    texts = {record.message for record in caplog.records}
    assert {"the hook for Assigned failed", "the hook for Revoked failed"} <= texts


# -- sizes and pauses ----------------------------------------------------------------------------------


def test_a_pause_stops_the_pulling_and_resume_goes_on(nameservers: str) -> None:
    seen: list[tuple[MessageQueue, bytes]] = []

    def listener(message: MessageView) -> None:
        seen.append((message.queue, message.body))

    def reached(number: bytes) -> int:
        return len({queue for queue, body in seen if body == number})

    with PushConsumer("paused", nameservers, listener, config=FIRST).subscribe(
        "Paused"
    ) as consumer:
        fill(nameservers, "Paused", range(1))
        until(lambda: reached(b"0") == 8)
        consumer.pause()
        assert consumer.state().paused
        # The pull that a broker holds for each queue brings what comes next; there is no other after it.
        fill(nameservers, "Paused", range(1, 2))
        until(lambda: reached(b"1") == 8)
        fill(nameservers, "Paused", range(2, 4))
        assert len(seen) == 16
        consumer.resume()
        until(lambda: len(seen) == 32)
        assert not consumer.state().paused


def test_more_and_fewer_threads(nameservers: str) -> None:
    together = threading.Barrier(6)
    names: list[str] = []

    def listener(message: MessageView) -> None:
        if message.body == b"0":
            together.wait(60)
        names.append(threading.current_thread().name)

    with PushConsumer("resized", nameservers, listener, consume_threads=1, config=FIRST).subscribe(
        "Resized"
    ) as consumer:
        consumer.resize(6)
        with Producer("p", nameservers) as producer:
            for _ in range(6):
                producer.send("Resized", b"0")
        until(lambda: len(names) == 6)
        assert len(set(names)) == 6
        consumer.resize(1)
        with Producer("p", nameservers) as producer:
            for _ in range(6):
                producer.send("Resized", b"1")
        until(lambda: len(names) == 12)
        with pytest.raises(ConfigError, match="32767"):
            consumer.resize(0)
    assert not together.broken


def test_a_listener_that_hangs_does_not_hold_its_queue_up_for_ever(nameservers: str) -> None:
    end = threading.Event()
    seen: list[bytes] = []

    def listener(message: MessageView) -> None:
        seen.append(message.body)
        if message.body == b"hangs":
            end.wait(60)

    with Producer("p", nameservers) as producer:
        queue = producer.queues("Hanging")[0]
        for body in (b"hangs", b"next"):
            producer.send("Hanging", body, queue=queue)
    config = replace(FIRST, consume_timeout_ms=1_000)
    with PushConsumer("hanging", nameservers, listener, config=config).subscribe(
        "Hanging"
    ) as consumer:
        until(lambda: consumer.state().offsets.get(queue) == 2)
        assert seen[:2] == [b"hangs", b"next"]
        end.set()


def test_rates_are_shown(nameservers: str) -> None:
    seen: list[bytes] = []

    def listener(message: MessageView) -> bool:
        seen.append(message.body)
        return message.body != b"bad"

    with PushConsumer("rates", nameservers, listener, config=FIRST).subscribe("Rates") as consumer:
        with Producer("p", nameservers) as producer:
            for body in (b"good", b"good", b"bad"):
                producer.send("Rates", body)
        until(lambda: consumer.state().statistics["Rates"].failed_in_hour == 1)
        rates = consumer.state().statistics["Rates"]
        assert rates.consumed_per_second > rates.failed_per_second > 0


# -- functions of all kinds ----------------------------------------------------------------------------


def test_a_listener_may_be_a_coroutine_function(nameservers: str) -> None:
    seen: list[bytes] = []
    told: list[int] = []

    async def listener(message: MessageView) -> ConsumeStatus:
        await asyncio.sleep(0)
        seen.append(message.body)
        return ConsumeStatus.CONSUME_SUCCESS

    async def on_assigned(queues: tuple[MessageQueue, ...]) -> None:
        await asyncio.sleep(0)
        told.append(len(queues))

    fill(nameservers, "Coroutines", range(3))
    with PushConsumer(
        "coroutines", nameservers, listener, on_assigned=on_assigned, config=FIRST
    ).subscribe("Coroutines"):
        until(lambda: len(seen) == 24)
    assert sum(told) >= 8


def test_a_strategy_of_ones_own(nameservers: str) -> None:
    def held(consumer: PushConsumer) -> list[int]:
        queues = [queue for queue in consumer.state().held if queue.topic == "Circled"]
        return [queue.queue_id for queue in sorted(queues) if queue.broker_name == "broker-a"]

    def member(client_id: str) -> PushConsumer:
        return PushConsumer(
            "circled", nameservers, print, allocate=circle.allocate, client_id=client_id
        ).subscribe("Circled")

    fill(nameservers, "Circled", range(1))
    with member("one") as one, member("two") as two:
        until(lambda: held(one) == [0, 2] and held(two) == [1, 3])


def test_wrong_arguments_are_told_with_what_is_right(nameservers: str) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"on_assigned": "print"}, "on_assigned is 'print'; it must be a function"),
        ({"listener": 5}, "listener is 5; it must be a function"),
        ({"allocate": "AVG"}, r"allocate is 'AVG'; .* config\.strategy"),
        (
            {"consume_threads": 2.5},
            "consume_threads is 2.5; it must be an int of 1 to 32767 or None, not a float",
        ),
        ({"consume_threads": 100_000}, "32767"),
        ({"tls": "yes"}, "tls is 'yes'; it must be True, None or an ssl.SSLContext"),
    ]
    for arguments, text in wrong:
        given: dict[str, object] = {"listener": print} | arguments
        with pytest.raises(ConfigError, match=text):
            PushConsumer("g", nameservers, **given)  # type: ignore[arg-type]
    consumer = PushConsumer("g", nameservers, print).subscribe("T")
    for call in (consumer.pause, consumer.resume, lambda: consumer.resize(3)):
        with pytest.raises(ClosedError, match="not running"):
            call()


def test_a_queue_is_not_given_up_before_the_hook_even_if_all_listeners_are_busy(
    nameservers: str,
) -> None:
    began, released, revoked = threading.Event(), threading.Event(), threading.Event()

    def busy(message: MessageView) -> None:
        began.set()
        released.wait()

    with Producer("p", nameservers) as producer:
        first = producer.queues("BusyHooks")[0]
        producer.send("BusyHooks", b"x", queue=first)
    config = replace(FIRST, consume_threads=1)
    here = PushConsumer(
        "busy-hooks",
        nameservers,
        busy,
        client_id="1",
        on_revoked=lambda queues: revoked.set(),
        config=config,
    )
    there = PushConsumer("busy-hooks", nameservers, busy, client_id="2", config=config)
    with here.subscribe("BusyHooks"):
        assert began.wait(PATIENCE_S)
        with there.subscribe("BusyHooks"):
            try:
                assert revoked.wait(30), "the listener is busy with a queue that stays here"
            finally:
                released.set()


def test_a_coroutine_listener_that_ends_the_program_fails_like_any_other(nameservers: str) -> None:
    tries: list[int] = []

    async def listener(message: MessageView) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            raise SystemExit(3)

    with Producer("p", nameservers) as producer:
        producer.send("Leaving", b"x")
        with PushConsumer("leaving", nameservers, listener, orderly=True, config=FIRST).subscribe(
            "Leaving"
        ):
            until(lambda: tries == [0, 1])
