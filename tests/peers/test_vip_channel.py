"""The Java client of 4.9 with its VIP channel on, which takes the port two below a broker's for sends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.peers import apache

import steelyard

pytestmark = pytest.mark.peer

PROPERTY = "-Dcom.rocketmq.sendMessageWithVIPChannel=true"


@pytest.fixture(scope="module")
def peer(maven: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.Peer]:
    with apache.Peer(apache.OLD, tmp_path_factory.mktemp("java"), java_options=[PROPERTY]) as peer:
        yield peer


def test_sends_go_to_the_second_port(peer: apache.Peer) -> None:
    with steelyard.Server(kafka=False, settings={"vip_channel": True}) as server:
        topic = server.create_topic("VipTopic", queues=1)
        peer.ask("producer", "p", server.nameserver, "vip")
        results = peer.ask("send", "p", topic, "s", 0, 5, 10)["results"]
        assert {result["status"] for result in results} == {"SEND_OK"}
        peer.ask("stop", "p")


def test_without_that_port_they_fail(peer: apache.Peer) -> None:
    """The control: this client takes no other port for sends."""
    with steelyard.Server(kafka=False) as server:
        topic = server.create_topic("VipTopic", queues=1)
        peer.ask("producer", "q", server.nameserver, "vip")
        with pytest.raises(
            AssertionError, match=r"still failed, .*BrokersSent: .broker-a, broker-a, broker-a"
        ):
            peer.ask("send", "q", topic, "s", 0, 1, 10)
        peer.ask("stop", "q")
