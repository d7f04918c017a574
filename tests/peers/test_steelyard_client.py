"""The Steelyard client on Apache RocketMQ 4.9.7 and 5.3.3 and on `steelyard up`, by itself and beside the Java client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.peers.apache import NEW, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running
from tests.peers.series import expected, message, seen_by_java, seen_by_steelyard
from tests.waiting import PATIENCE_S, until, until_async

import steelyard.aio
from steelyard import (
    ConsumeFrom,
    ConsumerConfig,
    MessageView,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    SendResult,
    SendStatus,
)
from steelyard.config import Compression

pytestmark = pytest.mark.peer

FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
SIZES = {range(12): 100, range(12, 15): 20_000, range(15, 23): 300, range(23, 40): 50}
"""Singles, compressed ones, a batch, one-way ones and many at once."""


@contextmanager
def consuming(
    any_cluster: Running, group: str, topic: str, tags: str = "*"
) -> Iterator[list[MessageView]]:
    """A consumer is a member of the group; gives the list that its messages are added to."""
    views: list[MessageView] = []
    consumer = PushConsumer(group, any_cluster.nameserver, views.append, config=FROM_FIRST)
    with consumer.subscribe(topic, tags):
        yield views


def wait_for(views: list[MessageView], count: int, deadline_s: float = PATIENCE_S) -> None:
    until(lambda: len(views) >= count, f"{count} messages", deadline_s)


def send_all_ways(producer: Producer, topic: str) -> tuple[list[SendResult], SendResult]:
    results = [producer.send(message(topic, "s", index, 100)) for index in range(12)]
    results += [producer.send(message(topic, "s", index, 20_000)) for index in range(12, 15)]
    batch = producer.send_batch([message(topic, "s", index, 300) for index in range(15, 23)])
    for index in range(23, 28):
        producer.send_oneway(message(topic, "s", index, 50))
    futures = [producer.send_async(message(topic, "s", index, 50)) for index in range(28, 40)]
    assert {future.result().status for future in futures} == {SendStatus.SEND_OK}
    return results, batch


def place(view: MessageView) -> tuple[str, int, int]:
    return view.queue.broker_name, view.queue.queue_id, view.queue_offset


def place_sent(result: SendResult) -> tuple[str, int, int]:
    return result.queue.broker_name, result.queue.queue_id, result.queue_offset


def test_all_that_is_sent_arrives_once_and_equal(any_cluster: Running, name: str) -> None:
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        results, batch = send_all_ways(producer, name)
        with consuming(any_cluster, f"{name}g", name) as views:
            wait_for(views, 40)

    assert sorted(seen_by_steelyard(view) for view in views) == expected(name, "s", SIZES)
    assert {result.status for result in [*results, batch]} == {SendStatus.SEND_OK}
    by_number = {int(view.properties["number"]): view for view in views}
    for number, result in enumerate(results):
        assert by_number[number].message_id == result.message_id
        assert by_number[number].offset_message_id == result.offset_message_id
        assert place(by_number[number]) == place_sent(result)
    broker, queue, offset = place_sent(batch)
    assert [place(by_number[15 + step]) for step in range(8)] == [
        (broker, queue, offset + step) for step in range(8)
    ]
    assert [by_number[15 + step].message_id for step in range(8)] == batch.message_id.split(",")


def test_java_receives_what_steelyard_sends(any_cluster: Running, peer: Peer, name: str) -> None:
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        results, _ = send_all_ways(producer, name)
    peer.ask("consumer", f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")

    def events() -> list[dict[str, object]]:
        return [event for event in peer.messages if event["consumer"] == f"{name}c"]

    until(lambda: len(events()) >= 40, "40 messages at the Java client")
    peer.ask("stop", f"{name}c")
    assert sorted(map(seen_by_java, events())) == expected(name, "s", SIZES)
    assert {result.message_id for result in results} <= {event["id"] for event in events()}


def test_java_receives_what_was_gathered(any_cluster: Running, peer: Peer, name: str) -> None:
    """`auto_batch`: brokers get batches, and each send its own message's id and place."""
    with Producer(
        f"{name}pg",
        any_cluster.nameserver,
        send_timeout_ms=SEND_TIMEOUT_MS,
        auto_batch=True,
        batch_max_delay_ms=200,
    ) as producer:
        producer.send(message(name, "s", 0, 100))  # makes the topic
        futures = [producer.send_async(message(name, "s", index, 100)) for index in range(1, 40)]
        results = [future.result() for future in futures]
    assert len({place_sent(result) for result in results}) == 39
    assert len({result.queue for result in results}) == 1  # one batch
    peer.ask("consumer", f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")

    def events() -> list[dict[str, object]]:
        return [event for event in peer.messages if event["consumer"] == f"{name}c"]

    until(lambda: len(events()) >= 40, "40 messages at the Java client")
    peer.ask("stop", f"{name}c")
    assert sorted(map(seen_by_java, events())) == expected(name, "s", {range(40): 100})
    assert {result.message_id for result in results} <= {event["id"] for event in events()}


@pytest.mark.parametrize("compress_type", ["lz4", "zstd"])
def test_java_reads_other_compressions(
    cluster: Running, peers: dict[str, Peer], name: str, compress_type: Compression
) -> None:
    """Those that clients of 4.x do not know."""
    config = ProducerConfig(compress_type=compress_type)
    with Producer(f"{name}pg", cluster.nameserver, config=config) as producer:
        for index in range(4):
            producer.send(message(name, "s", index, 20_000))
    java = peers[NEW]
    java.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    until(lambda: len(java.received(f"{name}c")) >= 4, "all at Java's")
    java.ask("stop", f"{name}c")
    seen = sorted(map(seen_by_java, java.received(f"{name}c")))
    assert seen == expected(name, "s", {range(4): 20_000})


def test_steelyard_receives_what_java_sends(any_cluster: Running, peer: Peer, name: str) -> None:
    peer.ask("producer", f"{name}p", any_cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 12, 100)
    peer.ask("send", f"{name}p", name, "s", 12, 3, 20_000)
    peer.ask("batch", f"{name}p", name, "s", 15, 8, 300)
    peer.ask("oneway", f"{name}p", name, "s", 23, 5, 50)
    peer.ask("async", f"{name}p", name, "s", 28, 12, 50)
    peer.ask("stop", f"{name}p")
    with consuming(any_cluster, f"{name}g", name) as views:
        wait_for(views, 40)
    assert sorted(seen_by_steelyard(view) for view in views) == expected(name, "s", SIZES)
    assert {view.born_host.rpartition(":")[0] for view in views} == {"127.0.0.1"}


def test_tags_select_messages(any_cluster: Running, name: str) -> None:
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for index in range(12):
            producer.send(message(name, "s", index, 60))
        with consuming(any_cluster, f"{name}g", name, "tag0 || tag2") as views:
            wait_for(views, 8)
    numbers = sorted(int(view.properties["number"]) for view in views)
    assert numbers == [0, 2, 3, 5, 6, 8, 9, 11]


def test_a_group_goes_on_where_it_stopped(any_cluster: Running, name: str) -> None:
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for first in (0, 10):
            for index in range(first, first + 10):
                producer.send(message(name, "s", index, 60))
            with consuming(any_cluster, f"{name}g", name) as views:
                wait_for(views, 10)
            numbers = sorted(int(view.properties["number"]) for view in views)
            assert numbers == list(range(first, first + 10))


def test_a_waiting_consumer_gets_messages_at_once(any_cluster: Running, name: str) -> None:
    with (
        Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
        consuming(any_cluster, f"{name}g", name) as views,
    ):
        for first in (0, 8):
            for index in range(first, first + 8):
                producer.send(message(name, "s", index, 60))
            wait_for(views, first + 8, deadline_s=10 if first else PATIENCE_S)


def test_who_leaves_right_after_it_joined_keeps_no_queue_from_the_next(
    any_cluster: Running, name: str
) -> None:
    """A group's first heartbeat takes a broker longest: unregistering must not overtake it."""
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        queues = {producer.send(message(name, "s", index, 60)).queue for index in range(16)}
    for number in range(6):
        group = f"{name}g{number}"
        with PullConsumer(group, any_cluster.nameserver) as hasty:
            hasty.pull(min(queues), 0)
        with consuming(any_cluster, group, name) as views:
            wait_for(views, 16)


def test_a_failed_message_comes_again(any_cluster: Running, name: str) -> None:
    seen: list[tuple[int, str]] = []

    def fail_once(view: MessageView) -> bool:
        seen.append((view.reconsume_times, view.keys))
        return view.reconsume_times > 0

    consumer = PushConsumer(f"{name}g", any_cluster.nameserver, fail_once, config=FROM_FIRST)
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for index in range(3):
            producer.send(message(name, "s", index, 60))
    with consumer.subscribe(name):
        until(lambda: len(seen) == 6, seen)
    assert sorted(seen) == [(times, f"s-key-{index}") for times in (0, 1) for index in range(3)]


def test_asyncio_twins(any_cluster: Running, name: str) -> None:
    views: list[MessageView] = []

    async def run() -> None:
        async with steelyard.aio.Producer(
            f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS
        ) as producer:
            for index in range(10):
                await producer.send(message(name, "s", index, 100))

        async def listen(view: MessageView) -> None:
            views.append(view)

        consumer = steelyard.aio.PushConsumer(
            f"{name}g", any_cluster.nameserver, listen, config=FROM_FIRST
        )
        async with consumer.subscribe(name):
            await until_async(lambda: len(views) >= 10)

    asyncio.run(run())
    assert sorted(map(seen_by_steelyard, views)) == expected(name, "s", {range(10): 100})
