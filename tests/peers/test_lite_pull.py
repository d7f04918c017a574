"""Lite pull: the application asks for messages, of queues that the group shares out or that it chose."""

from __future__ import annotations

from typing import Any

import pytest
from tests.peers.apache import NEW, OLD, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.series import message, numbers
from tests.waiting import until

from steelyard import LitePullConsumer, MessageView, Producer, PullConsumer
from steelyard.config import LitePullConfig
from steelyard.types import ConsumeFrom

pytestmark = pytest.mark.peer

MANUAL = LitePullConfig(auto_commit=False, consume_from=ConsumeFrom.FIRST_OFFSET)


def poll(peer: Peer, puller: str, number: int) -> list[dict[str, Any]]:
    """Poll until `number` messages came."""
    messages: list[dict[str, Any]] = []

    def enough() -> bool:
        messages.extend(peer.ask("poll", puller, 1000)["messages"])
        return len(messages) >= number

    until(enough, f"{number} messages of {puller}")
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
    until(
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
    until(all_came, "what was sent to both")
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
    until(
        lambda: peer.ask("committed", f"{name}c", topic, place)["offset"] == 30, "30 is committed"
    )
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")


# -- ours ------------------------------------------------------------------------------------------


def poll_ours(puller: LitePullConsumer, number: int) -> list[MessageView]:
    views: list[MessageView] = []

    def enough() -> bool:
        views.extend(puller.poll(timeout_ms=1000))
        return len(views) >= number

    until(enough, f"{number} messages")
    return views


def test_we_share_with_java(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Ours reads all and commits; Java joins the group, and gets what comes then in its half of the queues."""
    java = peers[OLD]  # 5.x asks brokers of 4.x by a code that they do not know
    create_topic(any_cluster, java, name)
    every = len(any_cluster.brokers) * 4
    told: list[tuple[int, int]] = []
    puller = LitePullConsumer(
        f"{name}g",
        any_cluster.nameserver,
        on_queues_changed=lambda topic, all, mine: told.append((len(all), len(mine))),
        config=MANUAL,
    )
    with (
        Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
        puller.subscribe(name),
    ):
        for index in range(20):
            producer.send(message(name, "s", index, 60))
        assert sorted(numbers(poll_ours(puller, 20))) == list(range(20))
        puller.commit()
        words = (f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")
        java.ask("lite", *words, manual=True)
        until(
            lambda: len(puller.assignment()) == len(java.held(f"{name}c", name)) == every // 2,
            "each holds half of the queues",
        )
        for index in range(20, 40):
            producer.send(message(name, "s", index, 60))
        got: list[int] = []

        def all_came() -> bool:
            got.extend(numbers(puller.poll(timeout_ms=200)))
            got.extend(series_numbers(java.ask("poll", f"{name}c", 200)["messages"]))
            return len(got) >= 20

        until(all_came, got)
        assert sorted(got) == list(range(20, 40))
        java.ask("stop", f"{name}c")
        until(lambda: len(puller.assignment()) == every, "all queues again")
        puller.commit()
    assert (every, every) in told
    assert (every, every // 2) in told


def test_we_assign_and_seek(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    create_topic(any_cluster, peers[OLD], name)
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        queue = producer.queues(name)[0]
        for index in range(30):
            producer.send(message(name, "s", index, 60), queue=queue)
    puller = LitePullConsumer(f"{name}g", any_cluster.nameserver, config=MANUAL)
    puller.assign([queue])
    with puller:
        assert len(puller.queues(name)) == len(any_cluster.brokers) * 4
        assert numbers(poll_ours(puller, 30)) == list(range(30))
        puller.seek(queue, 20)
        assert numbers(poll_ours(puller, 10)) == list(range(20, 30))
        puller.seek_to_begin(queue)
        assert numbers(poll_ours(puller, 30)) == list(range(30))
        puller.commit()
        assert puller.committed(queue) == 30
        puller.pause([queue])
        puller.seek(queue, 0)
        assert puller.poll(timeout_ms=300) == []
        puller.resume([queue])
        assert numbers(poll_ours(puller, 30)) == list(range(30))
        assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 30)
        assert puller.offset_for_timestamp(queue, 0) == 0


def test_single_pulls(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    create_topic(any_cluster, peers[OLD], name)
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        queue = producer.queues(name)[0]
        for index in range(12):
            producer.send(message(name, "s", index, 60), queue=queue)
    with PullConsumer(f"{name}g", any_cluster.nameserver) as puller:
        result = puller.pull(queue, 0)
        assert numbers(result.messages) == list(range(12))
        assert result.next_begin_offset == 12
        assert numbers(puller.pull(queue, 0, "tag1").messages) == [1, 4, 7, 10]
        assert numbers(puller.pull(queue, 0, sql="number > 9").messages) == [10, 11]
        assert numbers(puller.pull(queue, 5, max_messages=2).messages) == [5, 6]
        assert puller.pull(queue, 12).messages == ()
        puller.commit(queue, 7)
        assert puller.committed(queue) == 7
        assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 12)
