"""Java and Steelyard members in one group agree, without talking to each other, who reads what."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.peers.apache import NEW, OLD, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running
from tests.peers.series import message
from tests.waiting import until

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, Producer, PushConsumer

pytestmark = pytest.mark.peer

FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
QUEUES = 16


class MixedGroup:
    """Members of both kinds in one group, by client id, and what they saw."""

    def __init__(self, cluster: Running, name: str, peers: dict[str, Peer]) -> None:
        self.cluster, self.name, self.peers = cluster, name, peers
        self.java: dict[str, tuple[Peer, str]] = {}
        self.python: dict[str, PushConsumer] = {}
        self.views: list[MessageView] = []

    def join_java(self, version: str, instance: str) -> str:
        peer, consumer = self.peers[version], f"{self.name}{instance}"
        words = (consumer, self.cluster.nameserver, f"{self.name}g", self.name, "*")
        client_id: str = peer.ask("consumer", *words)["client_id"]
        self.java[client_id] = (peer, consumer)
        return client_id

    def join_python(self, client_id: str) -> None:
        consumer = PushConsumer(
            f"{self.name}g",
            self.cluster.nameserver,
            self.views.append,
            client_id=client_id,
            config=FROM_FIRST,
        )
        self.python[client_id] = consumer.subscribe(self.name).start()

    def leave(self, client_id: str) -> None:
        if client_id in self.python:
            self.python.pop(client_id).stop()
        else:
            peer, consumer = self.java.pop(client_id)
            peer.ask("stop", consumer)

    def leave_all(self) -> None:
        for client_id in [*self.python, *self.java]:
            self.leave(client_id)

    def held(self) -> dict[str, list[tuple[str, int]]]:
        """What every member holds now, by its own word."""
        held = {i: peer.held(consumer, self.name) for i, (peer, consumer) in self.java.items()}
        for client_id, consumer in self.python.items():
            held[client_id] = sorted(
                (queue.broker_name, queue.queue_id)
                for queue in consumer.state().held
                if queue.topic == self.name
            )
        return held

    def wait_until_shared(self) -> None:
        """Every member holds what AVG over the sorted client ids gives it, so every queue is held once."""
        plan = averagely(sorted([*self.java, *self.python]), sorted(self.queues()))
        seen: dict[str, object] = {"plan": plan}

        def is_shared() -> bool:
            seen["held"] = self.held()
            return seen["held"] == plan

        until(is_shared, seen)

    def queues(self) -> list[tuple[str, int]]:
        each = QUEUES // len(self.cluster.brokers)
        return [(broker, queue) for broker in self.cluster.brokers for queue in range(each)]

    def numbers_seen(self) -> set[int]:
        """Of all messages that a member of either kind got; more than once is allowed while queues move."""
        java = [
            event["properties"]["number"]
            for peer in self.peers.values()
            for event in peer.messages
            if event["topic"] == self.name
        ]
        return set(map(int, java + [view.properties["number"] for view in self.views]))


def averagely(
    clients: list[str], queues: list[tuple[str, int]]
) -> dict[str, list[tuple[str, int]]]:
    """AllocateMessageQueueAveragely, said in its own way: shares in order, the first ones one larger."""
    plan, rest = {}, list(queues)
    for number, client in enumerate(clients):
        share = len(queues) // len(clients) + (number < len(queues) % len(clients))
        plan[client], rest = rest[:share], rest[share:]
    return plan


def test_members_of_both_kinds_share_the_queues(
    any_cluster: Running, peers: dict[str, Peer], name: str
) -> None:
    """Java 4.9.8 and Steelyard share a group; Steelyard, then Java 5.3.3 joins; one of each leaves."""
    each = QUEUES // len(any_cluster.brokers)
    words = ("updateTopic", "-n", any_cluster.nameserver, "-c", "DefaultCluster", "-t", name)
    peers[OLD].mqadmin(*words, "-r", each, "-w", each)
    group = MixedGroup(any_cluster, name, peers)
    with ExitStack() as stack:
        producer = stack.enter_context(
            Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS)
        )
        stack.callback(group.leave_all)
        sent = 0

        def send(count: int) -> None:
            nonlocal sent
            for index in range(sent, sent + count):
                producer.send(message(name, "s", index, 60))
            sent += count

        first = group.join_java(OLD, "m1")
        group.join_python(f"{first}a")  # sorts right after the first Java member
        group.wait_until_shared()
        send(40)
        group.join_python(f"{first.rpartition('@')[0]}@{name}a")  # sorts before both
        group.wait_until_shared()
        send(40)
        group.join_java(NEW, "m2")
        group.wait_until_shared()
        send(40)
        group.leave(f"{first}a")
        group.wait_until_shared()
        group.leave(first)
        group.wait_until_shared()
        send(40)
        until(lambda: group.numbers_seen() == set(range(sent)), f"all {sent} messages")
