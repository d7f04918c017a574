"""One of two Apache brokers dies and comes back: producers go round it, consumers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.peers.apache import NEW_SERVER, OLD, OLD_SERVER, Cluster, Peer, eventually
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member
from tests.peers.series import message

from steelyard import Producer, ProducerConfig

pytestmark = pytest.mark.peer

FAULTS = {
    "off": ProducerConfig(latency_faults="off"),
    "4.x": ProducerConfig(latency_faults="4.x"),
    "5.x": ProducerConfig(latency_faults="5.x", detect=True),
}
EACH = 16


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

    def send(producer: Producer) -> set[str]:
        """Send sixteen messages; the names of the brokers that have them."""
        nonlocal sent
        brokers = set()
        for _ in range(EACH):
            result = producer.send(message(name, "s", sent, 60))
            brokers.add(result.queue.broker_name)
            sent += 1
        return brokers

    with ExitStack() as stack:
        producers = {
            faults: stack.enter_context(
                Producer(f"{name}pg{faults[0]}", pair.nameserver, config=config)
            )
            for faults, config in FAULTS.items()
        }
        both = {"broker-a", "broker-b"}
        assert {faults: send(producer) for faults, producer in producers.items()} == dict.fromkeys(
            FAULTS, both
        )
        member = stack.enter_context(Member(pair.nameserver, f"{name}g", name))
        eventually(lambda: {*member.numbers()} == {*range(sent)}, "what was sent before")

        pair.stop_broker("broker-b")
        assert {faults: send(producer) for faults, producer in producers.items()} == dict.fromkeys(
            FAULTS, {"broker-a"}
        )
        pair.start_broker("broker-b")
        pair.wait_ready()
        for faults, producer in producers.items():
            eventually(lambda p=producer: send(p) == both, f"{faults}: back at both brokers", 120)
        eventually(lambda: {*member.numbers()} == {*range(sent)}, "all that was sent", 120)
