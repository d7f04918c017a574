"""Lite pull: the application asks for messages, of queues that the group shares out or that it chose."""

from __future__ import annotations

from typing import Any

import pytest
from tests.peers.apache import NEW, OLD, Peer, eventually
from tests.peers.conftest import Running, create_topic

pytestmark = pytest.mark.peer


def poll(peer: Peer, puller: str, number: int) -> list[dict[str, Any]]:
    """Poll until `number` messages came."""
    messages: list[dict[str, Any]] = []

    def enough() -> bool:
        messages.extend(peer.ask("poll", puller, 1000)["messages"])
        return len(messages) >= number

    eventually(enough, f"{number} messages of {puller}")
    return messages


def series_numbers(events: list[dict[str, Any]]) -> list[int]:
    return sorted(int(event["properties"]["number"]) for event in events)


def test_java_subscribes(cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Two versions share the queues; their listeners are told; who comes later goes on at the commits."""
    old, new = peers[OLD], peers[NEW]
    create_topic(cluster, old, name)
    old.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    old.ask("send", f"{name}p", name, "s", 0, 20, 60)
    words = (cluster.nameserver, f"{name}g", name, "*")
    old.ask("lite", f"{name}c", *words, manual=True)
    assert series_numbers(poll(old, f"{name}c", 20)) == list(range(20))
    old.ask("commit", f"{name}c")
    new.ask("lite", f"{name}d", *words, manual=True)
    every = len(cluster.brokers) * 4
    eventually(
        lambda: len(old.held(f"{name}c", name)) == len(new.held(f"{name}d", name)) == every // 2,
        "each holds half of the queues",
    )
    old.ask("send", f"{name}p", name, "s", 20, 20, 60)
    got: list[dict[str, Any]] = []

    def all_came() -> bool:
        for peer, puller in ((old, "c"), (new, "d")):
            got.extend(peer.ask("poll", f"{name}{puller}", 200)["messages"])
        return set(series_numbers(got)) >= set(range(20, 40))

    # Java's commit reaches the broker within five seconds: some may come to the second once more.
    eventually(all_came, "what was sent to both")
    (told,) = [notice for notice in new.notices if notice.get("consumer") == f"{name}d"][-1:]
    assert (told["topic"], len(told["all"]), len(told["mine"])) == (name, every, every // 2)
    old.ask("stop", f"{name}c")
    new.ask("stop", f"{name}d")
    old.ask("stop", f"{name}p")


def test_java_assigns_and_seeks(cluster: Running, peer: Peer, name: str) -> None:
    create_topic(cluster, peer, name)
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    results = peer.ask("send", f"{name}p", name, "s", 0, 30, 60, keys=1)["results"]
    topic, broker, queue = results[0]["topic"], results[0]["broker"], results[0]["queue"]
    place = f"{broker}:{queue}"
    peer.ask(
        "lite", f"{name}c", cluster.nameserver, f"{name}g", name, "*", assigned=True, manual=True
    )
    assert len(peer.ask("fetch", f"{name}c", topic)["queues"]) == len(cluster.brokers) * 4
    peer.ask("assign", f"{name}c", topic, place)
    assert series_numbers(poll(peer, f"{name}c", 30)) == list(range(30))
    peer.ask("seek", f"{name}c", topic, place, 20)
    assert series_numbers(poll(peer, f"{name}c", 10)) == list(range(20, 30))
    peer.ask("seek", f"{name}c", topic, place, "begin")
    assert series_numbers(poll(peer, f"{name}c", 30)) == list(range(30))
    peer.ask("commit", f"{name}c")
    eventually(
        lambda: peer.ask("committed", f"{name}c", topic, place)["offset"] == 30, "30 is committed"
    )
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
