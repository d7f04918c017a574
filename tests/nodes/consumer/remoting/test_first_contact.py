"""What a consumer's start makes of a topic that no nameserver knows, in virtual time."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Broker, Nameserver, Rig, rng

from steelyard.config import ConsumerConfig
from steelyard.errors import RouteError
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.consumer.remoting.puller import PullerNode
from steelyard.nodes.seam import Node
from steelyard.nodes.starting import SILENCE_MS, Begin
from steelyard.types import Subscription
from steelyard.wire.remoting.names import DEFAULT_TOPIC, PERM_READ, PERM_WRITE

INHERITABLE = 7


class Start:
    """The start of a consumer of topic New, which is not there, on broker a. Nameservers: ns1, ns2, ..."""

    def __init__(self, kind: type[ConsumerNode | PullerNode] = ConsumerNode, nameservers: int = 1):
        self.broker = Broker("a", "a:1")
        self.nameservers = [Nameserver(f"ns{n}:9876") for n in range(1, nameservers + 1)]
        for nameserver in self.nameservers:
            nameserver.add("SELF_TEST_TOPIC", self.broker)
        addresses = tuple(nameserver.address for nameserver in self.nameservers)
        config = ConsumerConfig(
            nameservers=addresses,
            group="g",
            client_id="c1",
            subscriptions=(Subscription("New"),),
        )
        node: Node = kind(config, rng())
        self.rig = Rig(node, self.broker, *self.nameservers).start()

    def begin(self, timeout_ms: int | None = None) -> None:
        self.call = self.rig.ask(Begin(timeout_ms))

    @property
    def open(self) -> bool:
        return self.call not in self.rig.answers

    def rejected(self) -> bool:
        error = self.rig.answers.get(self.call)
        return isinstance(error, RouteError) and "no topic New" in str(error)

    def makes_topics(self, nameserver: Nameserver) -> None:
        """The nameserver hears that the broker makes topics by itself."""
        nameserver.add(DEFAULT_TOPIC, self.broker, perm=INHERITABLE)


@pytest.fixture(params=[ConsumerNode, PullerNode])
def start(request: pytest.FixtureRequest) -> Start:
    return Start(request.param)


def test_a_broker_that_registers_between_two_questions(start: Start) -> None:
    """1. The default topic is not known. 2. The broker registers. 3. SELF_TEST_TOPIC is known."""
    start.begin()
    assert start.open
    start.makes_topics(start.nameservers[0])
    start.rig.advance(SILENCE_MS)
    assert start.rig.answers[start.call] is None
    assert not start.rig.tells


def test_a_default_topic_that_a_nameserver_took_the_right_to_inherit_from(start: Start) -> None:
    """Allowing writes again does that (operateWritePermOfBroker); the broker creates topics as before."""
    start.nameservers[0].add(DEFAULT_TOPIC, start.broker, perm=PERM_READ | PERM_WRITE)
    start.begin()
    start.rig.advance(SILENCE_MS)
    assert start.rig.answers[start.call] is None


@pytest.mark.parametrize("timeout_ms", [None, 30_000])
def test_a_topic_that_is_not_there_again_and_again(start: Start, timeout_ms: int | None) -> None:
    start.begin(timeout_ms)
    assert start.open
    start.rig.advance(SILENCE_MS)
    assert start.rejected()
    assert not start.rig.tells


def test_a_topic_that_is_made_meanwhile(start: Start) -> None:
    start.begin()
    start.nameservers[0].add("New", start.broker)
    start.rig.advance(SILENCE_MS)
    assert start.rig.answers[start.call] is None


@pytest.mark.parametrize("informed", range(4))
def test_every_nameserver_is_asked(informed: int) -> None:
    start = Start(nameservers=4)
    start.makes_topics(start.nameservers[informed])
    start.begin(30_000)
    start.rig.advance(5_000)
    assert start.rig.answers[start.call] is None


def test_no_nameserver_of_several_knows_it() -> None:
    start = Start(nameservers=4)
    start.begin(30_000)
    start.rig.advance(5_000)
    assert start.rejected()
    assert all(nameserver.asked for nameserver in start.nameservers)


def test_a_time_that_is_over_meanwhile() -> None:
    start = Start()
    start.begin(100)
    start.rig.advance(100)
    assert "no topic New" in str(start.rig.answers[start.call])


def test_who_waits_no_longer_reads_it_in_the_log() -> None:
    """1. The nameserver is away; the start goes on without it. 2. It is back, and knows no such topic."""
    start = Start()
    start.rig.crash(start.nameservers[0])
    start.begin()
    assert start.rig.answers[start.call] is None
    start.nameservers[0].up = True
    start.rig.advance(60_000)
    assert sum("no topic New" in line.text for line in start.rig.tells) == 1
