"""Where a new group begins, and a consumer that is paused."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from tests.peers.apache import NEW, OLD_SERVER, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member, now_ms
from tests.peers.series import message
from tests.waiting import until

from steelyard import ConsumeFrom, Producer

pytestmark = pytest.mark.peer


def test_a_new_group_begins(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """At the first message, at a time, or after the last one; where the broker lets it, ours begin where Java's do.

    A broker has a group begin at the first message of a queue that it still has in memory. The one of 4.x is made to
    think that it has none there; nothing makes one of 5.x.
    """
    java, nameserver = peers[NEW], any_cluster.nameserver
    create_topic(any_cluster, java, name)
    with (
        Producer(f"{name}pg", nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
        ExitStack() as stack,
    ):

        def send(first: int, count: int) -> None:
            for index in range(first, first + count):
                producer.send(message(name, "s", index, 60))

        send(0, 16)
        # Apache 4.x begins at the message *nearest* to the time: so the time is far after the first, just before the next.
        second = now_ms() // 1000 + 6
        until(lambda: now_ms() > second * 1000 + 100, "a second that comes")
        send(16, 16)
        starts = {
            "FIRST_OFFSET": Member.config(),
            "LAST_OFFSET": Member.config(consume_from=ConsumeFrom.LAST_OFFSET),
            datetime.fromtimestamp(second, UTC).strftime("%Y%m%d%H%M%S"): Member.config(
                consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp=second * 1000
            ),
        }
        ours: dict[str, Member] = {}
        for start, config in starts.items():
            words = (f"{name}c{start}", nameserver, f"{name}j{start}", name, "*")
            java.ask("consumer", *words, **{"from": start})
            member = Member(nameserver, f"{name}g{start}", name, config=config)
            ours[start] = stack.enter_context(member)
        every = len(any_cluster.brokers) * 4
        until(
            lambda: (
                all(len(member.consumer.state().offsets) >= every for member in ours.values())
                and all(len(java.held(f"{name}c{start}", name)) == every for start in starts)
            ),
            "all know where they begin",
        )
        seen: dict[str, object] = {}

        def all_came(last: range) -> bool:
            for start, member in ours.items():
                mine, theirs = {*member.numbers()}, {*java.numbers(f"{name}c{start}")}
                seen[start] = (sorted(mine), sorted(theirs))
                if not mine == theirs >= {*last}:
                    return False
            return True

        # Java's members may not have asked where to begin yet: what comes now tells when they have.
        send(32, 64)
        until(lambda: all_came(range(80, 96)), seen)
        begins = [min(member.numbers()) for member in ours.values()]
        if any_cluster.kind == f"apache-{OLD_SERVER}":
            assert begins == [0, 32, 16]
        for start in starts:
            java.ask("stop", f"{name}c{start}")


def test_a_pause(any_cluster: Running, name: str) -> None:
    """A paused consumer keeps its queues, and gets what was sent meanwhile when it goes on."""
    with (
        Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
        Member(any_cluster.nameserver, f"{name}g", name) as member,
    ):
        producer.send(message(name, "s", 0, 60))
        until(lambda: member.numbers() == [0], member.steps)
        held = member.held()
        member.consumer.pause()
        assert member.consumer.state().paused
        member.consumer.resize(2)
        for index in range(1, 9):
            producer.send(message(name, "s", index, 60))
        member.consumer.resume()
        until(lambda: {*member.numbers()} == {*range(9)}, member.steps)
        assert set(held) <= set(member.held())
