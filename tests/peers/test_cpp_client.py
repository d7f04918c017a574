"""The C++ client, by its Python binding: producer, concurrent and orderly consumer, alone and in one group with ours.

Its heartbeat has enumerations as ordinals and numbers as texts, its headers have numbers where Java's have texts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.peers.apache import Missing, has_route
from tests.peers.conftest import Running
from tests.peers.cpp import client
from tests.peers.cpp.client import Program
from tests.peers.ours import Member
from tests.waiting import until

from steelyard import Admin

pytestmark = pytest.mark.peer

QUEUES = 4
"""On each broker."""


@pytest.fixture(autouse=True)
def installed() -> None:
    try:
        client.library()
    except Missing as reason:
        pytest.skip(f"no C++ client: {reason}")


@pytest.fixture
def topic(cluster: Running, name: str) -> str:
    with Admin(cluster.nameserver) as admin:
        admin.create_topic(name, queues=QUEUES, cluster="DefaultCluster")
    until(lambda: has_route(cluster.nameserver, name), f"a route of {name}")
    return name


def produced(cluster: Running, topic: str, home: Path, first: int, count: int) -> None:
    with Program(home, "produce", cluster.nameserver, topic, first, count) as producer:
        sent = producer.finish()
    assert [event["number"] for event in sent] == list(range(first, first + count))
    assert {event["status"] for event in sent} == {0}


def test_producer_and_concurrent_consumer(cluster: Running, topic: str, tmp_path: Path) -> None:
    """All messages come, whole; the first one failed, and comes again as a copy."""
    with Program(tmp_path, "concurrent", cluster.nameserver, topic, f"{topic}g", "one") as member:
        until(lambda: member.events, "the consumer's start")
        produced(cluster, topic, tmp_path, 0, 40)

        def complete() -> bool:
            got = member.received()
            again = {event["number"] for event in got if event["times"] == 1}
            return {event["number"] for event in got} == set(range(40)) and again == {0}

        until(complete, member.events)
        assert {event["body"] for event in member.received()} == {f"body {n} €" for n in range(40)}


def test_one_group_with_ours(cluster: Running, topic: str, tmp_path: Path) -> None:
    """A member of ours joins and gets half of the queues; when it leaves, the C++ member has all again."""
    total, group = QUEUES * len(cluster.brokers), f"{topic}g"
    with Program(tmp_path, "concurrent", cluster.nameserver, topic, group, "one") as member:
        until(lambda: member.events, "the consumer's start")
        produced(cluster, topic, tmp_path, 1, 20)
        until(lambda: numbers(member) == set(range(1, 21)), member.events)
        with Member(cluster.nameserver, group, topic) as ours:
            until(lambda: len(ours.held()) == total // 2, ours.held)
            produced(cluster, topic, tmp_path, 21, 40)
            wanted = set(range(21, 61))
            until(lambda: wanted <= numbers(member) | set(ours.numbers()), member.events)
            assert wanted & numbers(member)
            assert wanted & set(ours.numbers())
        produced(cluster, topic, tmp_path, 61, 20)
        until(lambda: set(range(61, 81)) <= numbers(member), member.events)


def test_orderly_consumer(cluster: Running, topic: str, tmp_path: Path) -> None:
    """It locks its queues; each shard's messages come in their order, once."""
    with Program(tmp_path, "orderly", cluster.nameserver, topic, f"{topic}g", "one") as member:
        until(lambda: member.events, "the consumer's start")
        with Program(tmp_path, "shard", cluster.nameserver, topic, 60, 4) as producer:
            assert {event["status"] for event in producer.finish()} == {0}
        until(lambda: len(member.received()) >= 60, member.events)
        for shard in range(4):
            got = [event["number"] for event in member.received() if event["shard"] == shard]
            assert got == list(range(shard, 60, 4))


def numbers(member: Program) -> set[int]:
    return {event["number"] for event in member.received()}
