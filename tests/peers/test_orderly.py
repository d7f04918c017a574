"""Orderly consumption: the messages of a queue one after the other, whoever of the group holds it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.peers.apache import NEW, OLD, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import (
    FROM_FIRST,
    Member,
    by_queue,
    repeated_after,
    repeated_in_order,
    steps_of_java,
)
from tests.peers.series import message
from tests.waiting import until

from steelyard import MessageView, Producer
from steelyard.types import ConsumeOrderlyStatus

pytestmark = pytest.mark.peer

KEYS = 7


def is_ordered(numbers: list[int]) -> bool:
    """Whether the messages of each key came in the order in which they were sent, but for repetitions."""
    keys = [[number for number in numbers if number % KEYS == key] for key in range(KEYS)]
    return all(list(dict.fromkeys(one)) == sorted(set(one)) for one in keys)


def test_java_orderly(cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Java 4.9.8 reads alone, 5.3.3 joins, 4.9.8 leaves; no queue is ever read by two at once."""
    old, new = peers[OLD], peers[NEW]
    create_topic(cluster, old, name)
    old.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    sent = old.ask("send", f"{name}p", name, "s", 0, 60, 60, keys=KEYS)["results"]
    places = [(result["broker"], result["queue"]) for result in sent]
    assert all(places[number] == places[number % KEYS] for number in range(60))

    words = (cluster.nameserver, f"{name}g", name, "*")
    old.ask("consumer", f"{name}c", *words, orderly=True, work=10)
    until(lambda: len(old.numbers(f"{name}c")) >= 20, "the first member reads")
    new.ask("consumer", f"{name}d", *words, orderly=True, work=10)
    old.ask("send", f"{name}p", name, "s", 60, 60, 60, keys=KEYS)

    def numbers() -> set[int]:
        return {*old.numbers(f"{name}c"), *new.numbers(f"{name}d")}

    until(
        lambda: new.held(f"{name}d", name) and numbers() == {*range(120)}, "both members read all"
    )
    old.ask("stop", f"{name}c")
    old.ask("send", f"{name}p", name, "s", 120, 30, 60, keys=KEYS)
    until(lambda: numbers() == {*range(150)}, "the second reads on")
    new.ask("stop", f"{name}d")
    old.ask("stop", f"{name}p")
    steps = steps_of_java(old, f"{name}c") + steps_of_java(new, f"{name}d")
    assert all(is_ordered([step.number for step in one]) for one in by_queue(steps))
    # Java unlocks its queues before it commits when it stops: what it just read may come again.
    assert repeated_in_order(steps) <= 4 * len(set(places))


def test_a_java_listener_suspends_its_queue(cluster: Running, peer: Peer, name: str) -> None:
    """What an orderly listener does not want yet comes again before all else of the queue."""
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 12, 60, keys=3)
    words = (f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    peer.ask("consumer", *words, orderly=True, answer="once", suspend=50)
    until(lambda: len(peer.received(f"{name}c")) >= 24, "each message twice")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    for one in by_queue(steps_of_java(peer, f"{name}c")):
        assert [(step.offset, step.times) for step in one] == [
            (offset, times) for offset in range(len(one) // 2) for times in (0, 1)
        ]


# -- ours ------------------------------------------------------------------------------------------


def send(producer: Producer, topic: str, first: int, count: int) -> None:
    for index in range(first, first + count):
        sent = message(topic, "s", index, 60)
        producer.send(
            sent.topic,
            sent.body,
            tags=sent.tags,
            keys=sent.keys,
            properties=sent.properties,
            sharding_key=f"order-{index % KEYS}",
        )


def test_our_hash_is_javas(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Messages of one key go to one queue, whichever client sends them."""
    java = peers[NEW]
    create_topic(any_cluster, java, name)
    java.ask("producer", f"{name}p", any_cluster.nameserver, f"{name}pg")
    results = java.ask("send", f"{name}p", name, "s", 0, KEYS, 60, keys=KEYS)["results"]
    java.ask("stop", f"{name}p")
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        queues = [
            producer.send(name, b"x", sharding_key=f"order-{key}").queue for key in range(KEYS)
        ]
    assert [(queue.broker_name, queue.queue_id) for queue in queues] == [
        (result["broker"], result["queue"]) for result in results
    ]


def test_our_listener_suspends_its_queue(any_cluster: Running, name: str) -> None:
    def once(view: MessageView) -> ConsumeOrderlyStatus:
        if view.reconsume_times == 0:
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeOrderlyStatus.SUCCESS

    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        send(producer, name, 0, 12)
    config = replace(FROM_FIRST, suspend_ms=50)
    member = Member(
        any_cluster.nameserver, f"{name}g", name, answer=once, orderly=True, config=config
    )
    with member:
        until(lambda: len(member.steps) >= 24, member.steps)
    for one in by_queue(member.steps):
        assert [(step.offset, step.times) for step in one] == [
            (offset, times) for offset in range(len(one) // 2) for times in (0, 1)
        ]


def test_our_members_hand_over(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """A member joins, and the first one leaves: every message comes once, in order."""
    create_topic(any_cluster, peers[NEW], name)
    group = (any_cluster.nameserver, f"{name}g", name)
    first = Member(*group, orderly=True, work_s=0.01, client_id=f"{name}@1")
    second = Member(*group, orderly=True, work_s=0.01, client_id=f"{name}@2")
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        send(producer, name, 0, 100)
        with second:
            with first:
                until(lambda: len(first.held()) == len(second.held()) > 0, "both hold queues")
                send(producer, name, 100, 100)
                until(
                    lambda: {*first.numbers(), *second.numbers()} >= {*range(150)}, "most is read"
                )
            send(producer, name, 200, 50)
            until(lambda: {*first.numbers(), *second.numbers()} == {*range(250)}, "all is read")
    steps = first.steps + second.steps
    assert repeated_in_order(steps) == 0
    assert all(is_ordered([step.number for step in one]) for one in by_queue(steps))


def test_locks_are_respected(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Java 4.9.8 and Steelyard share a group; Java 5.3.3 joins; Steelyard leaves. No queue has two readers."""
    old, new = peers[OLD], peers[NEW]
    create_topic(any_cluster, old, name)
    words = (any_cluster.nameserver, f"{name}g", name, "*")
    member = Member(any_cluster.nameserver, f"{name}g", name, orderly=True, work_s=0.01)

    def numbers() -> set[int]:
        return {*member.numbers(), *old.numbers(f"{name}c"), *new.numbers(f"{name}d")}

    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        send(producer, name, 0, 60)
        old.ask("consumer", f"{name}c", *words, orderly=True, work=10)
        with member:
            until(lambda: member.held() and old.held(f"{name}c", name), "both hold queues")
            send(producer, name, 60, 60)
            new.ask("consumer", f"{name}d", *words, orderly=True, work=10)
            until(lambda: new.held(f"{name}d", name), "the third holds queues")
            send(producer, name, 120, 60)
            until(lambda: numbers() == {*range(180)}, "the three read all")
        send(producer, name, 180, 60)
        until(lambda: numbers() == {*range(240)}, "the two read on")
    old.ask("stop", f"{name}c")
    new.ask("stop", f"{name}d")
    java = steps_of_java(old, f"{name}c") + steps_of_java(new, f"{name}d")
    assert all(is_ordered([step.number for step in one]) for one in by_queue(member.steps + java))
    # Java commits a queue that it loses before its listener is done: one message of each may come again.
    assert repeated_in_order(member.steps + java) <= 4 * len(any_cluster.brokers)
    assert repeated_after(member.steps, java) == []
