"""Every strategy gives each member what Apache's own class gives it."""

from __future__ import annotations

from random import Random

import pytest
from tests.peers import apache

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


@pytest.mark.parametrize(("name", "allocate"), sorted(ALL.items()))
def test_plans_are_apaches(peer: apache.Peer, name: str, allocate: Strategy) -> None:
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
        claims: list[Claim[MessageQueue]] = [Claim(client) for client in clients]
        plan = allocate(claims, queues)
        ours = {
            client: [f"{queue.broker_name}:{queue.queue_id}" for queue in plan.share(client)]
            for client in clients
        }
        places = ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)
        answer = peer.ask("allocate", name, ",".join(clients), places)
        theirs = {client: answer["plan"][client] for client in clients}
        assert ours == theirs
