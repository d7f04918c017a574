"""RocketMQ's own clients at a queue with a damaged message: they get no damaged one, wait, and go on after the repair."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.clients.damaged import DAMAGED, MARK, RECORDS, SOUND, Cluster
from tests.peers.apache import NEW, SEND_TIMEOUT_MS, Missing, Peer
from tests.peers.cpp.client import Program, library
from tests.waiting import until

from steelyard import Admin, Message, MessageQueue, Producer

pytestmark = pytest.mark.peer

Read = Callable[[], list[int]]
"""The numbers of the messages that a client has so far: offsets in queue 0, and from 100 on in queue 1."""

OTHERS = [100 + number for number in range(RECORDS)]


def produce(nameserver: str, topic: str) -> None:
    """Two queues, queue 0 with MARK in it."""
    with (
        Admin(nameserver) as admin,
        Producer(f"{topic}pg", nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer,
    ):
        admin.create_topic(topic, queues=2, cluster="DefaultCluster")
        for number in range(RECORDS):
            for queue in (0, 1):
                body = MARK if (queue, number) == (0, DAMAGED) else b"%d of %d" % (number, queue)
                properties = {"number": str(100 * queue + number + 1), "shard": "0"}
                message = Message(topic, body, properties=properties)
                producer.send(message, queue=MessageQueue(topic, "broker-a", queue))


def pushing(java: Peer, nameserver: str, topic: str, *, orderly: bool) -> Read:
    name = f"{topic}{'orderly' if orderly else 'push'}"
    options = {"orderly": True} if orderly else {}
    java.ask("consumer", name, nameserver, f"{name}{java.version[0]}", topic, "*", **options)
    return lambda: [number - 1 for number in java.numbers(name)]


def pulling(java: Peer, nameserver: str, topic: str) -> Read:
    name = f"{topic}lite"
    java.ask("lite", name, nameserver, f"{name}{java.version[0]}", topic, "*")
    got: list[int] = []

    def read() -> list[int]:
        events = java.ask("poll", name, 100)["messages"]
        got.extend(int(event["properties"]["number"]) - 1 for event in events)
        return got

    return read


def test_a_damaged_message(peers: dict[str, Peer], tmp_path: Path, name: str) -> None:
    """1. A message is damaged. 2. Each client gets what is before it, and the other queue. 3. They wait without haste. 4. After
    a repair each gets what is behind it."""
    try:
        library()
        has_cpp = True
    except Missing:
        has_cpp = False
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path))
        nameserver = cluster.running.nameserver
        produce(nameserver, name)
        cluster.damage()
        reads: dict[str, Read] = {}
        for version, java in peers.items():
            reads[f"{version} push"] = pushing(java, nameserver, name, orderly=False)
            reads[f"{version} lite pull"] = pulling(java, nameserver, name)
        reads[f"{NEW} orderly"] = pushing(peers[NEW], nameserver, name, orderly=True)
        if has_cpp:
            words = ("concurrent", nameserver, name, f"{name}cpp", "one")
            program = stack.enter_context(Program(tmp_path, *words))
            reads["C++"] = lambda: [event["number"] - 1 for event in program.received()]
        got: dict[str, list[int]] = {}

        def have(wanted: list[int]) -> bool:
            got.update({client: sorted(set(read())) for client, read in reads.items()})
            return all(each == wanted for each in got.values())

        until(lambda: have([*range(DAMAGED), *OTHERS]), got)
        cluster.wait_refused(len(reads))
        assert have([*range(DAMAGED), *OTHERS])
        cluster.repair()
        until(lambda: have([*SOUND, *OTHERS]), got)
        for java in peers.values():
            java.ask("stop", f"{name}push")
            java.ask("stop", f"{name}lite")
        peers[NEW].ask("stop", f"{name}orderly")
