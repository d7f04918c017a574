"""Subscriptions by SQL92 conditions, which the broker evaluates on the messages' properties."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from tests.peers.apache import SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running
from tests.peers.ours import Member
from tests.peers.series import message
from tests.waiting import until

from steelyard import Producer
from steelyard.errors import ConfigError

pytestmark = pytest.mark.peer

CONDITIONS = {
    "number > 5 AND number <= 9": [6, 7, 8, 9],
    "number BETWEEN 3 AND 6": [3, 4, 5, 6],
    "colour = 'grün-中-4'": [4],
    "TAGS IN ('tag0', 'tag2') AND NOT (number < 6)": [6, 8, 9, 11],
    "missing IS NULL AND number <> 2 AND (number = 2 OR number = 1)": [1],
    "missing > 3 OR number >= 10.5": [11],
}
"""Each with the numbers, of a series of twelve, that it holds for."""


def test_java_subscribes_by_conditions(cluster: Running, peer: Peer, name: str) -> None:
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 12, 60)
    consumers = {f"{name}c{place}": condition for place, condition in enumerate(CONDITIONS)}
    for consumer, condition in consumers.items():
        words = (consumer, cluster.nameserver, f"{consumer}g", name, condition)
        peer.ask("consumer", *words, sql=True)

    def got() -> dict[str, list[int]]:
        return {
            condition: sorted(peer.numbers(consumer)) for consumer, condition in consumers.items()
        }

    until(lambda: got() == CONDITIONS, "what each condition holds for")
    for word in (*consumers, f"{name}p"):
        peer.ask("stop", word)
    assert got() == CONDITIONS


def test_we_subscribe_by_conditions(any_cluster: Running, name: str) -> None:
    with (
        Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
        ExitStack() as stack,
    ):
        for index in range(12):
            producer.send(message(name, "s", index, 60))
        members = {
            condition: stack.enter_context(
                Member(any_cluster.nameserver, f"{name}g{place}", name, sql=condition)
            )
            for place, condition in enumerate(CONDITIONS)
        }

        def got() -> dict[str, list[int]]:
            return {condition: sorted(member.numbers()) for condition, member in members.items()}

        until(lambda: got() == CONDITIONS, "what each condition holds for")


def test_a_wrong_condition_ends_the_start(any_cluster: Running, name: str) -> None:
    """In the words of the broker, which is asked as soon as the consumer finds it."""
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        producer.send(name, b"so that the topic is there")
    text = f"cannot filter topic {name} as subscribed: code 23"
    member = Member(any_cluster.nameserver, f"{name}g", name, sql="number >")
    with pytest.raises(ConfigError, match=text):
        member.consumer.start()
