"""Later: delayed messages, those that come again, and those that nobody could consume."""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec
import pytest
from tests.peers.apache import NEW, OLD, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running
from tests.peers.ours import FROM_FIRST, Member
from tests.peers.series import message
from tests.waiting import until

from steelyard import MessageView, Producer

pytestmark = pytest.mark.peer

DELAYS_MS = {1: 1_000, 2: 5_000}
"""messageDelayLevel, its first two."""


def dead_letters(peer: Peer, cluster: Running, group: str) -> int:
    """How many messages lie in a group's dead letter topic; by mqadmin 4.9.8, for 5.x asks old brokers in vain."""
    answer = peer.ask("mqadmin", "topicStatus", "-n", cluster.nameserver, "-t", f"%DLQ%{group}")
    lines = [line.split() for line in answer["text"].splitlines() if line.startswith("broker-")]
    return sum(int(line[3]) - int(line[2]) for line in lines)


def test_java_delays(cluster: Running, peer: Peer, name: str) -> None:
    """A delayed message comes when it is due, not before; those without delay do not wait for it."""
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    for place, level in enumerate(DELAYS_MS):
        peer.ask("send", f"{name}p", name, "s", 2 * place, 2, 60, level=level)
    peer.ask("send", f"{name}p", name, "s", 4, 2, 60)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    until(lambda: len(peer.numbers(f"{name}c")) >= 6, "all of them")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    assert sorted(peer.numbers(f"{name}c")) == list(range(6))
    for event in peer.received(f"{name}c"):
        number = int(event["properties"]["number"])
        delay = [*DELAYS_MS.values(), 0][number // 2]
        assert event["began"] - event["born"] >= delay, (number, event["began"] - event["born"])


def test_java_delays_to_the_millisecond_and_recalls(
    cluster: Running, peers: dict[str, Peer], name: str
) -> None:
    """setDelayTimeMs, setDeliverTimeMs and recallMessage of 5.x. Apache's brokers round a time down to the second."""
    peer = peers[NEW]
    early_ms = 0 if cluster.kind == "steelyard" else 1_000
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 1, 60)
    for number, option in ((1, "delayMs"), (2, "deliverInMs"), (3, "delayMs")):
        (sent,) = peer.ask("send", f"{name}p", name, "s", number, 1, 60, **{option: 4_321})[
            "results"
        ]
    assert peer.ask("recall", f"{name}p", name, sent["recall"])["id"] == sent["id"]
    peer.ask("send", f"{name}p", name, "s", 4, 1, 60, delayMs=6_000)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    until(lambda: 4 in peer.numbers(f"{name}c"), "the last one")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    assert sorted(peer.numbers(f"{name}c")) == [0, 1, 2, 4]
    for event in peer.received(f"{name}c"):
        delay = (0, 4_321, 4_321, 0, 6_000)[int(event["properties"]["number"])]
        assert event["began"] - event["born"] >= delay - min(delay, early_ms)


def test_java_gives_up(cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """A message that is not wanted once more than the group allows lies with the dead letters."""
    peer = peers[OLD]
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 2, 60)
    words = (f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    peer.ask("consumer", *words, answer="never", retries=1)
    until(lambda: dead_letters(peer, cluster, f"{name}g") == 2, "two dead letters")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    times = sorted((event["keys"], event["times"]) for event in peer.received(f"{name}c"))
    assert times == [("s-key-0", 0), ("s-key-0", 1), ("s-key-1", 0), ("s-key-1", 1)]


def test_an_orderly_java_listener_gives_up(cluster: Running, peer: Peer, name: str) -> None:
    """The same for a queue in order: Java sends the message to the group's retry topic, and the broker sees that it was the last try."""
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("send", f"{name}p", name, "s", 0, 2, 60, keys=1)
    words = (f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    peer.ask("consumer", *words, orderly=True, answer="never", retries=1, suspend=50)
    until(lambda: dead_letters(peer, cluster, f"{name}g") == 2, "two dead letters")
    peer.ask("stop", f"{name}c")
    peer.ask("stop", f"{name}p")
    times = [(event["keys"], event["times"]) for event in peer.received(f"{name}c")]
    assert times == [("s-key-0", 0), ("s-key-0", 1), ("s-key-1", 0), ("s-key-1", 1)]


def test_we_delay(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """What we send for later, a Java consumer and one of ours get when it is due."""
    java = peers[NEW]
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for place, level in enumerate(DELAYS_MS):
            for index in (2 * place, 2 * place + 1):
                sent = message(name, "s", index, 60)
                producer.send(msgspec.structs.replace(sent, delay_level=level))
        for index in (4, 5):
            producer.send(message(name, "s", index, 60))
        java.ask("consumer", f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")
        with Member(any_cluster.nameserver, f"{name}h", name) as ours:
            until(lambda: len(ours.views) >= 6, "all at ours")
            until(lambda: len(java.numbers(f"{name}c")) >= 6, "all at Java's")
    java.ask("stop", f"{name}c")
    assert sorted(ours.numbers()) == sorted(java.numbers(f"{name}c")) == list(range(6))
    waited = {
        int(e["properties"]["number"]): e["began"] - e["born"] for e in java.received(f"{name}c")
    }
    ours_waited = {
        step.number: step.began - view.born_timestamp
        for step, view in zip(ours.steps, ours.views, strict=True)
    }
    for number in range(4):
        least = list(DELAYS_MS.values())[number // 2]
        assert min(waited[number], ours_waited[number]) >= least


def test_we_give_up(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Our listener refuses each message until the group's limit sends it to the dead letters."""
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for index in range(2):
            producer.send(message(name, "s", index, 60))
    config = replace(FROM_FIRST, retry_max=1)
    with Member(
        any_cluster.nameserver, f"{name}g", name, answer=lambda view: False, config=config
    ) as ours:
        until(lambda: len(ours.steps) >= 4, ours.steps)
        until(lambda: dead_letters(peers[OLD], any_cluster, f"{name}g") == 2, "two dead letters")
    seen = sorted((step.number, step.times) for step in ours.steps)
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_listener_that_takes_too_long(any_cluster: Running, name: str) -> None:
    """After the time-out the message comes again, while the first listener still has it."""
    release = threading.Event()

    def stall(view: MessageView) -> bool:
        if view.reconsume_times == 0:
            release.wait(60)
        return True

    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        producer.send(message(name, "s", 0, 60))
    config = replace(FROM_FIRST, consume_timeout_ms=1_000)
    member = Member(any_cluster.nameserver, f"{name}g", name, answer=stall, config=config)
    with member:
        until(lambda: member.steps, "it comes again", seconds=100)
        again = list(member.steps)
        release.set()
    assert [(step.number, step.times) for step in again] == [(0, 1)]
