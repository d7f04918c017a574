"""One of two brokers of ours is killed and started again while Java's clients produce and consume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.test_kills import Brokers
from tests.peers.apache import Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import repeated_in_order, steps_of_java
from tests.waiting import until

pytestmark = pytest.mark.peer

KILLED = 2
EACH = 40


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    brokers.stop()


def test_a_broker_is_killed_twice(pair: Brokers, peer: Peer, name: str) -> None:
    """1. Consumers of three kinds read. 2. The broker is killed, and sends go to the other one. 3. It comes back.

    Nothing that was acknowledged is lost, and each orderly listener gets its queues in order."""
    names = {f"broker-{node_id}": "" for node_id in (1, KILLED)}
    create_topic(Running("pair", pair.nameserver, names), peer, name)
    peer.ask("producer", f"{name}p", pair.nameserver, f"{name}pg")
    push, orderly, lite = (f"{name}{kind}" for kind in ("push", "orderly", "lite"))
    peer.ask("consumer", push, pair.nameserver, f"{push}g", name, "*")
    peer.ask("consumer", orderly, pair.nameserver, f"{orderly}g", name, "*", orderly=True)
    peer.ask("lite", lite, pair.nameserver, f"{lite}g", name, "*")
    polled: set[int] = set()
    sent = 0

    def send() -> set[str]:
        """Send some messages; the names of the brokers that have them."""
        nonlocal sent
        results = peer.ask("send", f"{name}p", name, "s", sent, EACH, 60)["results"]
        sent += EACH
        return {result["broker"] for result in results}

    def is_read() -> bool:
        messages = peer.ask("poll", lite, 100)["messages"]
        polled.update(int(message["properties"]["number"]) for message in messages)
        return polled == {*peer.numbers(push)} == {*peer.numbers(orderly)} == {*range(sent)}

    for _ in range(2):
        until(lambda: send() == {*names}, "both brokers get messages")
        pair.kill(KILLED)
        assert send() == {"broker-1"}
        pair.start(KILLED)
        until(is_read, "all that was acknowledged")
    until(lambda: send() == {*names}, "both brokers get messages")
    until(is_read, "all that was acknowledged")
    for client in (push, orderly, lite, f"{name}p"):
        peer.ask("stop", client)
    repeated_in_order(steps_of_java(peer, orderly))
