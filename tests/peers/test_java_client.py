"""The Java client, 4.9.8 and 5.3.3, unmodified, on `steelyard up`; the same tests run on Apache's servers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.peers.apache import NEW, OLD, Peer
from tests.peers.conftest import Running, create_topic, run_steelyard
from tests.peers.series import expected, seen_by_java, seen_by_steelyard
from tests.waiting import until

from steelyard import ConsumeFrom, ConsumerConfig, MessageView, PushConsumer

pytestmark = pytest.mark.peer


def wait_for(peer: Peer, consumer: str, number: int) -> list[dict[str, Any]]:
    """The messages of a consumer once it has `number` of them, by place in the queues; it is stopped, so no more come."""
    until(
        lambda: len(peer.received(consumer)) >= number,
        f"{number} messages at {consumer}; {len(peer.received(consumer))} came",
    )
    peer.ask("stop", consumer)
    return sorted(peer.received(consumer), key=place)


def place(event: dict[str, Any]) -> tuple[str, int, int]:
    return event["broker"], event["queue"], event["offset"]


def test_all_that_is_sent_arrives_once_and_equal(cluster: Running, peer: Peer, name: str) -> None:
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    results = peer.ask("send", f"{name}p", name, "s", 0, 12, 100)["results"]
    results += peer.ask("send", f"{name}p", name, "s", 12, 3, 20_000)[
        "results"
    ]  # compressed: over 4 KiB
    batches = peer.ask("batch", f"{name}p", name, "s", 15, 8, 300)["results"]
    peer.ask("oneway", f"{name}p", name, "s", 23, 5, 50)
    callbacks = peer.ask("async", f"{name}p", name, "s", 28, 4, 50)["results"]

    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    events = wait_for(peer, f"{name}c", 32)

    sizes = {range(12): 100, range(12, 15): 20_000, range(15, 23): 300, range(23, 32): 50}
    assert sorted(seen_by_java(event) for event in events) == expected(name, "s", sizes)
    assert len({place(event) for event in events}) == 32
    assert {result["status"] for result in results + batches + callbacks} == {"SEND_OK"}
    by_number = {int(event["properties"]["number"]): event for event in events}
    for number, result in enumerate(results):
        assert by_number[number]["id"] == result["id"]
        assert place(by_number[number]) == place(result)
    # By place alone: in a batch from 5.x Apache's broker gives all messages the id of the batch.
    broker, queue, offset = place(batches[0])
    assert [place(by_number[15 + step]) for step in range(8)] == [
        (broker, queue, offset + step) for step in range(8)
    ]
    peer.ask("stop", f"{name}p")


def test_tags_select_messages(cluster: Running, peer: Peer, name: str) -> None:
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 12, 60)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "tag0||tag2")
    events = wait_for(peer, f"{name}c", 8)
    assert sorted(int(event["properties"]["number"]) for event in events) == [
        0,
        2,
        3,
        5,
        6,
        8,
        9,
        11,
    ]
    peer.ask("stop", f"{name}p")


def test_a_group_goes_on_where_it_stopped(cluster: Running, peer: Peer, name: str) -> None:
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 10, 60)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    wait_for(peer, f"{name}c", 10)
    peer.ask("send", f"{name}p", name, "s", 10, 10, 60)
    peer.ask("consumer", f"{name}d", cluster.nameserver, f"{name}g", name, "*")

    until(lambda: set(peer.numbers(f"{name}d")) >= set(range(10, 20)), "what was sent meanwhile")
    peer.ask("stop", f"{name}d")
    # Java's stop does not wait for its four threads to note what the listener is just done with.
    assert len([number for number in peer.numbers(f"{name}d") if number < 10]) <= 4
    peer.ask("stop", f"{name}p")


def test_a_waiting_consumer_gets_messages_at_once(cluster: Running, peer: Peer, name: str) -> None:
    """A held pull is answered by the arrival, not by its time-out of 15 s."""
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 8, 60)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    until(lambda: len(peer.received(f"{name}c")) == 8, "the first messages")
    peer.ask("send", f"{name}p", name, "s", 8, 8, 60)
    until(lambda: len(peer.received(f"{name}c")) == 16, "the messages after a wait", seconds=10)
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")


def test_a_failed_message_comes_again(cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """By way of the broker, ten seconds later; the group's other messages do not wait."""
    peer = peers[NEW]
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 3, 60)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*", answer="once")
    until(lambda: len(peer.received(f"{name}c")) == 6, "each message twice")
    events = peer.received(f"{name}c")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    assert sorted((event["times"], event["keys"]) for event in events) == [
        (times, f"s-key-{index}") for times in (0, 1) for index in range(3)
    ]
    assert sorted({seen_by_java(event) for event in events}) == expected(name, "s", {range(3): 60})


@pytest.mark.parametrize("compression", ["LZ4", "ZSTD"])
def test_the_binary_header_and_other_compressions(
    cluster: Running, tmp_path: Path, name: str, compression: str
) -> None:
    """A 5.x client that writes its headers as ROCKETMQ does instead of JSON, and compresses otherwise than by zlib."""
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drocketmq.serialize.type=ROCKETMQ")
    compress = f"-Drocketmq.message.compressType={compression}"
    with Peer(NEW, tmp_path, java_options=(*options, compress)) as java:
        java.ask("producer", "p", cluster.nameserver, f"{name}pg")
        java.ask("send", "p", name, "s", 0, 4, 100)
        java.ask("send", "p", name, "s", 4, 4, 20_000)
        java.ask("batch", "p", name, "s", 8, 4, 100)
        java.ask("consumer", "c", cluster.nameserver, f"{name}g", name, "*")
        events = wait_for(java, "c", 12)
    views: list[MessageView] = []
    config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    ours = PushConsumer(f"{name}h", cluster.nameserver, views.append, config=config)
    with ours.subscribe(name):
        until(lambda: len(views) >= 12, "12 messages at the Steelyard client")
    sizes = {range(4): 100, range(4, 8): 20_000, range(8, 12): 100}
    assert sorted(map(seen_by_java, events)) == expected(name, "s", sizes)
    assert sorted(map(seen_by_steelyard, views)) == expected(name, "s", sizes)


def test_versions_share_a_topic_and_a_group(
    cluster: Running, peers: dict[str, Peer], name: str
) -> None:
    """What one version sends the other receives; in one group they hold every queue once."""
    create_topic(cluster, peers[OLD], name)
    for version, peer in peers.items():
        peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg{version[0]}")
        peer.ask("send", f"{name}p", name, version[0], 0, 10, 60)
    for version, peer in peers.items():
        peer.ask("consumer", f"{name}c{version[0]}", cluster.nameserver, f"{name}g", name, "*")
    names = {version: f"{name}c{version[0]}" for version in peers}
    queues = len(cluster.brokers) * 4

    held: dict[str, list[tuple[str, int]]] = {}

    def is_split() -> bool:
        held.update({version: peer.held(names[version], name) for version, peer in peers.items()})
        every = [queue for queues in held.values() for queue in queues]
        return len(held[OLD]) == len(held[NEW]) == queues / 2 and len(set(every)) == queues

    until(is_split, held)
    until(
        lambda: len(received_keys(peers, names)) == 20,
        "all 20 messages at one or the other",
    )
    for version, peer in peers.items():
        peer.ask("stop", names[version])
        peer.ask("stop", f"{name}p")


def received_keys(peers: dict[str, Peer], names: dict[str, str]) -> set[str]:
    return {
        event["keys"] for version, peer in peers.items() for event in peer.received(names[version])
    }


def test_updated_topic_takes_messages_on_every_queue(
    cluster: Running, peer: Peer, name: str
) -> None:
    words = ["updateTopic", "-n", cluster.nameserver, "-c", "DefaultCluster", "-t", name]
    text = peer.mqadmin(*words, "-r", 3, "-w", 3)
    for address in cluster.brokers.values():
        assert f"create topic to {address} success." in text
    assert f"TopicConfig [topicName={name}, readQueueNums=3, writeQueueNums=3, perm=RW-" in text

    queues = {(broker, queue) for broker in cluster.brokers for queue in range(3)}
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    results = peer.ask("send", f"{name}p", name, "s", 0, 12, 60)["results"]
    assert {(result["broker"], result["queue"]) for result in results} == queues
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    until(lambda: set(peer.held(f"{name}c", name)) == queues, "the consumer holds all queues")
    wait_for(peer, f"{name}c", 12)
    peer.ask("stop", f"{name}p")


def test_a_broker_on_all_addresses_knows_its_clients_by_ipv4(
    peer: Peer, name: str, tmp_path: Path
) -> None:
    """A socket of both kinds has IPv4 clients as ::ffff:127.0.0.1; they appear as they know themselves."""
    options = ("--host", "::", "--advertise", "127.0.0.1")
    with run_steelyard(tmp_path / "up", *options) as running:
        nameserver = f"127.0.0.1:{running.nameserver.rpartition(':')[2]}"
        peer.ask("producer", f"{name}p", nameserver, f"{name}pg")
        peer.ask("send", f"{name}p", name, "s", 0, 4, 60)
        peer.ask("consumer", f"{name}c", nameserver, f"{name}g", name, "*")
        until(lambda: len(peer.received(f"{name}c")) >= 4, "all of them")
        connections = peer.mqadmin("consumerConnection", "-n", nameserver, "-g", f"{name}g")
        peer.ask("stop", f"{name}c")
        peer.ask("stop", f"{name}p")
    assert {event["born_host"] for event in peer.received(f"{name}c")} == {"127.0.0.1"}
    assert re.search(r"^\S+ +127\.0\.0\.1:\d+ ", connections, re.MULTILINE), connections
