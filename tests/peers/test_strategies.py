"""Allocation strategies: the same plans as Java's classes, and groups in which both kinds of members follow them."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

import pytest
from tests.peers.apache import NEW, OLD, Peer, eventually
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member

from steelyard.allocate.plan import Claim, Strategy
from steelyard.allocate.registry import strategy
from steelyard.allocate.rooms import machine_room
from steelyard.types import MessageQueue

pytestmark = pytest.mark.peer

SHARED = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG"]
"""What both sides know by name; Peer.java gives MACHINE_ROOM its two rooms."""
ROUNDS = 60


def ours(name: str) -> Strategy:
    return machine_room({"room1", "room2"}) if name == "MACHINE_ROOM" else strategy(name)


def plan_of(
    allocate: Strategy, clients: list[str], queues: list[MessageQueue]
) -> dict[str, list[str]]:
    plan = allocate([Claim(client) for client in sorted(clients)], sorted(queues))
    return {
        client: [f"{queue.broker_name}:{queue.queue_id}" for queue in plan.share(client)]
        for client in sorted(clients)
    }


@pytest.mark.parametrize("name", [*SHARED, "MACHINE_ROOM"])
def test_plans_are_javas(peer: Peer, name: str) -> None:
    """Groups of all sizes, in rooms and out of them."""
    random = Random(name)
    brokers = ["room1@a", "room1@b", "room2@a", "room3@a", "other"]
    if name.startswith("MACHINE_ROOM_NEARBY"):
        brokers = ["room1-a", "room1-b", "room2-a", "room4-a"]
    for _ in range(ROUNDS):
        queues = [
            MessageQueue("Topic", broker, queue)
            for broker in random.sample(brokers, random.randint(1, len(brokers)))
            for queue in range(random.choice((1, 2, 4, 8)))
        ]
        clients = [
            f"room{random.randint(1, 3)}-10.0.0.{number}@{random.randint(1, 9999)}"
            for number in range(random.randint(1, 9))
        ]
        places = ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
        javas = peer.ask("allocate", name, ",".join(clients), places)["plan"]
        assert plan_of(ours(name), clients, queues) == javas


@pytest.mark.parametrize("strategy_name", SHARED)
def test_members_of_both_kinds_agree(
    apache_cluster: Running, peers: dict[str, Peer], name: str, strategy_name: str
) -> None:
    """Java 4.9.8 and 5.3.3 and two of ours hold what the strategy plans for the four, then for three."""
    old, new = peers[OLD], peers[NEW]
    create_topic(apache_cluster, new, name, queues=10)
    queues = [MessageQueue(name, "broker-a", queue) for queue in range(10)]
    words = (apache_cluster.nameserver, f"{name}g", name, "*")
    java = {
        peer.ask("consumer", f"{name}{place}", *words, strategy=strategy_name)["client_id"]: (
            peer,
            f"{name}{place}",
        )
        for place, peer in enumerate((old, new))
    }
    config = Member.config(strategy=strategy_name)
    with ExitStack() as stack:
        mine = {
            client_id: stack.enter_context(Member(*words, config=config, client_id=client_id))
            for client_id in (f"10.9.8.7@{name}", f"room1-10.0.0.1@{name}")
        }
        seen: dict[str, object] = {}

        def is_planned() -> bool:
            plan = plan_of(strategy(strategy_name), [*java, *mine], queues)
            held = {
                client_id: peer.held(consumer, name) for client_id, (peer, consumer) in java.items()
            } | {client_id: member.held() for client_id, member in mine.items()}
            seen.update(plan=plan, held=held)
            return {
                client_id: sorted(f"{broker}:{queue}" for broker, queue in places)
                for client_id, places in held.items()
            } == {client_id: sorted(places) for client_id, places in plan.items()}

        eventually(is_planned, seen)
        mine.pop(f"10.9.8.7@{name}").consumer.stop()
        eventually(is_planned, seen)
        for peer, consumer in java.values():
            peer.ask("stop", consumer)
