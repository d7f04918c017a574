"""One of two Apache brokers dies and comes back: producers go round it, consumers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from threading import Thread

import pytest
from tests.peers.apache import NEW_SERVER, OLD, OLD_SERVER, Cluster, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member
from tests.peers.series import message
from tests.waiting import until

from steelyard import Producer, ProducerConfig

pytestmark = pytest.mark.peer

FAULTS = {
    "off": ProducerConfig(latency_faults="off", route_poll_ms=1_000),
    "4.x": ProducerConfig(latency_faults="4.x", route_poll_ms=1_000),
    "5.x": ProducerConfig(latency_faults="5.x", route_poll_ms=1_000, detect=True),
}
EACH = 8


@pytest.fixture(params=[OLD_SERVER, NEW_SERVER])
def pair(
    request: pytest.FixtureRequest, maven: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    names = ("broker-a", "broker-b")
    cluster = Cluster(tmp_path_factory.mktemp("pair"), request.param, names=names)
    try:
        yield cluster.start().wait_ready()
    finally:
        cluster.stop()


def test_a_broker_stops_and_comes_back(pair: Cluster, peers: dict[str, Peer], name: str) -> None:
    """Every send succeeds throughout, whatever the latency faults; in the end all is consumed."""
    create_topic(Running("pair", pair.nameserver, pair.brokers), peers[OLD], name)
    sent = 0

    def uses_both(faults: str) -> bool:
        return "broker-b" in send(producers[faults])

    def send(producer: Producer) -> set[str]:
        """Send eight messages; the names of the brokers that have them."""
        nonlocal sent
        brokers = set()
        for _ in range(EACH):
            result = producer.send(message(name, "s", sent, 60))
            brokers.add(result.queue.broker_name)
            sent += 1
        return brokers

    producers: dict[str, Producer] = {}
    with ExitStack() as stack:
        producers |= {
            faults: stack.enter_context(
                Producer(f"{name}pg{faults[0]}", pair.nameserver, config=config)
            )
            for faults, config in FAULTS.items()
        }
        for producer in producers.values():
            assert send(producer) == {"broker-a", "broker-b"}
        config = Member.config(route_poll_ms=1_000)
        member = stack.enter_context(Member(pair.nameserver, f"{name}g", name, config=config))
        until(lambda: {*member.numbers()} == {*range(sent)}, "what was sent before")

        # Who is to stay away must have met the dead broker, before the route says that it is gone.
        dying = Thread(target=pair.stop_broker, args=("broker-b",))
        dying.start()
        while dying.is_alive():
            send(producers["4.x"])
        for producer in producers.values():
            assert send(producer) == {"broker-a"}
        pair.start_broker("broker-b")
        pair.wait_ready()

        # With the table of 4.x a producer stays away from a broker that failed for ten minutes.
        for faults in ("off", "5.x"):
            until(partial(uses_both, faults), f"{faults}: both brokers again")
        assert send(producers["4.x"]) == {"broker-a"}
        until(lambda: {*member.numbers()} == {*range(sent)}, "all that was sent")
