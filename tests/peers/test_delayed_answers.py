"""Delayed answers and Apache's Java clients, unmodified: what they read twice when a group grows, with the setting on and
off, and what becomes of a subscription that they did not tell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.peers.apache import NEW, Peer
from tests.peers.conftest import Running, create_topic, run_steelyard
from tests.peers.series import Sending
from tests.waiting import until

pytestmark = pytest.mark.peer

QUEUES_PER_BROKER = 8
ROUNDS = 3
IN_FLIGHT = ROUNDS * 10
"""What listeners have begun and not finished when they give queues up, of 20 queues in each round: no broker can spare that."""


def grow(cluster: Running, peer: Peer, admin: Peer, name: str) -> int:
    """Let a group grow from one member to two and to four under load; return the repeated deliveries."""
    create_topic(cluster, admin, name, queues=QUEUES_PER_BROKER)
    members = [f"{name}m{number}" for number in range(4)]
    load = Sending(cluster.nameserver, name, batch=5)

    def join(*joining: str) -> None:
        for member in joining:
            peer.ask("consumer", member, cluster.nameserver, f"{name}g", name, "*", work=2)
        running = members[: members.index(joining[-1]) + 1]

        def is_shared() -> bool:
            recent: dict[tuple[str, int], str] = {}
            for event in peer.messages[-2_000:]:
                if event["consumer"] in running:
                    recent[event["broker"], event["queue"]] = event["consumer"]
            share = 2 * QUEUES_PER_BROKER // len(running)
            return Counter(recent.values()) == dict.fromkeys(running, share)

        until(is_shared, f"all of {running} read")

    load.start()
    try:
        join(members[0])
        join(members[1])
        join(*members[2:])
    finally:
        sent = load.stop()
    numbers = {*range(sent)}
    got: list[int] = []

    def is_all() -> bool:
        got[:] = [int(e["properties"]["number"]) for m in members for e in peer.received(m)]
        return numbers <= set(got)

    until(is_all, f"{sent} messages")
    for member in members:
        peer.ask("stop", member)
    return len(got) - sent


def test_a_growing_group_reads_little_twice(
    peer: Peer, peers: dict[str, Peer], name: str, tmp_path: Path
) -> None:
    repeated = {"true": 0, "false": 0}
    with (
        run_steelyard(tmp_path / "on", "--set", "delayed_answers=true") as on,
        run_steelyard(tmp_path / "off", "--set", "delayed_answers=false") as off,
    ):
        for number in range(ROUNDS):
            repeated["true"] += grow(on, peer, peers[NEW], f"{name}x{number}")
            repeated["false"] += grow(off, peer, peers[NEW], f"{name}y{number}")
    print(peer.version, repeated)
    assert repeated["false"] > 0
    assert repeated["true"] <= max(repeated["false"] / 3, IN_FLIGHT)


def test_brokers_ask_for_a_subscription_that_a_client_did_not_tell(
    peer: Peer, peers: dict[str, Peer], name: str, tmp_path: Path
) -> None:
    with run_steelyard(tmp_path, "--set", "delayed_answers=true") as cluster:
        create_topic(cluster, peers[NEW], name)
        peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
        peer.ask(
            *("consumer", f"{name}c", cluster.nameserver, f"{name}g", name, "*"), heartbeat=600_000
        )

        def got(number: int) -> None:
            until(lambda: len(peer.received(f"{name}c")) >= number, f"{number} messages")

        peer.ask("send", f"{name}p", name, "s", 0, 8, 60)
        got(8)
        peer.ask("renew", f"{name}c", name)
        peer.ask("send", f"{name}p", name, "s", 8, 40, 60)
        got(48)
        peer.ask("stop", f"{name}c")
        peer.ask("stop", f"{name}p")
