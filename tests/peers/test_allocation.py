"""Allocation strategies: the plans of Apache's own classes, and groups in which members of both kinds follow them."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

import pytest
from tests.peers.apache import NEW, OLD, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member
from tests.waiting import until

from steelyard.allocate import rooms
from steelyard.allocate.plan import Claim, Strategy
from steelyard.allocate.registry import STRATEGIES
from steelyard.types import MessageQueue
from steelyard.wire.remoting.flags import java_string_key

pytestmark = pytest.mark.peer

ROUNDS = 60


NAMED = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG")
ALL: dict[str, Strategy] = {
    **{name: STRATEGIES[name] for name in NAMED},
    "MACHINE_ROOM": rooms.machine_room(["room1", "room2"]),  # as Strategies.java makes it
}


def sorted_as_java(names: set[str]) -> list[str]:
    return sorted(names, key=java_string_key)


def plan_of(
    allocate: Strategy, clients: list[str], queues: list[MessageQueue]
) -> dict[str, list[str]]:
    plan = allocate([Claim(client) for client in clients], queues)
    return {
        client: [f"{queue.broker_name}:{queue.queue_id}" for queue in plan.share(client)]
        for client in clients
    }


@pytest.mark.parametrize(("name", "allocate"), sorted(ALL.items()))
def test_plans_are_apaches(peer: Peer, name: str, allocate: Strategy) -> None:
    rng = Random(f"allocation of {name}")
    mark = "@" if name == "MACHINE_ROOM" else "-"
    for _ in range(ROUNDS):
        clients = sorted_as_java(
            {
                f"room{rng.randrange(4)}@10.0.{rng.randrange(9)}.1"
                for _ in range(rng.randrange(1, 9))
            }
        )
        brokers = sorted_as_java(
            {f"room{rng.randrange(4)}{mark}b{rng.randrange(9)}" for _ in range(rng.randrange(1, 5))}
        )
        queues = [
            MessageQueue("Topic", broker, number)
            for broker in brokers
            for number in range(rng.randrange(1, 9))
        ]
        ours = plan_of(allocate, clients, queues)
        places = ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
        assert ours == peer.ask("allocate", name, ",".join(clients), places)["plan"]


@pytest.mark.parametrize("strategy_name", NAMED)
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
            plan = plan_of(STRATEGIES[strategy_name], sorted([*java, *mine]), queues)
            held = {
                client_id: peer.held(consumer, name) for client_id, (peer, consumer) in java.items()
            } | {client_id: member.held() for client_id, member in mine.items()}
            seen.update(plan=plan, held=held)
            return {
                client_id: sorted(f"{broker}:{queue}" for broker, queue in places)
                for client_id, places in held.items()
            } == {client_id: sorted(places) for client_id, places in plan.items()}

        until(is_planned, seen)
        mine.pop(f"10.9.8.7@{name}").consumer.stop()
        until(is_planned, seen)
        for peer, consumer in java.values():
            peer.ask("stop", consumer)
