"""Peers that answer anything at all: the nodes neither raise nor spin, and recover."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.consumer.remoting.conftest import (
    Broker,
    Group,
    Nameserver,
    Peer,
    Rig,
    pulled,
    reply,
    rng,
)

from steelyard.config import ProducerConfig
from steelyard.nodes.producer import ProducerNode, SendMessages
from steelyard.types import Message
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.ids import UniqueIds

TEXTS = st.sampled_from(["", "x", "-1", "0", "7", "1e3", "true", str(1 << 62), str(1 << 70)])
KEYS = ["offset", "nextBeginOffset", "minOffset", "maxOffset", "queueId", "queueOffset", "msgId"]
BODIES = st.sampled_from(
    [
        b"",
        b"{}",
        b"[",
        b"null",
        b'{"consumerIdList":["c1","c1",""]}',
        b'{"consumerIdList":[1]}',
        b"x" * 99,
    ]
)
NONSENSE = st.builds(
    lambda code, ext, body: Command(code=code, flag=1, ext=ext, body=body),
    st.sampled_from([0, 0, 0, 1, 2, 17, 19, 20, 21, 22, 24, 25, 99, -5]),
    st.dictionaries(st.sampled_from(KEYS), TEXTS),
    BODIES,
)
ANSWERS = st.lists(st.none() | NONSENSE, min_size=1, max_size=6)


def rave(peer: Peer, answers: list[Command | None]) -> None:
    """The peer gives these answers in turn, whatever it is asked; None: its own one."""
    original = dict(peer.script)
    turn = [0]

    def script(command: Command) -> Command | None:
        turn[0] += 1
        answer = answers[turn[0] % len(answers)]
        return original[command.code](command) if answer is None else answer

    peer.script = dict.fromkeys(original, script)


@settings(max_examples=examples(60))
@given(of_brokers=ANSWERS, of_nameserver=ANSWERS)
def test_a_consumer_stays_upright(
    of_brokers: list[Command | None], of_nameserver: list[Command | None]
) -> None:
    group = Group()
    group.a.fill("T", 0, 5)
    sane = {peer.address: dict(peer.script) for peer in (group.ns, group.a, group.b)}
    rave(group.ns, of_nameserver)
    rave(group.a, of_brokers)
    rave(group.b, of_brokers)
    rig = group.rig.start()
    rig.steps_max = 2_000
    rig.advance(20_000)
    assert len(rig.sent) < 20_000
    for peer in (group.ns, group.a, group.b):
        peer.script = sane[peer.address]
    rig.advance(65_000)
    assert len(group.state().offsets) == 4


@settings(max_examples=examples(60))
@given(of_brokers=ANSWERS, of_nameserver=ANSWERS)
def test_a_producer_answers_every_call(
    of_brokers: list[Command | None], of_nameserver: list[Command | None]
) -> None:
    a, ns = Broker("a", "a:1"), Nameserver()
    ns.add("T", a)
    rave(ns, of_nameserver)
    rave(a, of_brokers)
    config = ProducerConfig(nameservers=("ns:9876",), group="p", client_id="p")
    rig = Rig(ProducerNode(config, UniqueIds(b"\x7f\0\0\1", 1, 2), rng()), ns, a).start()
    calls = [rig.ask(SendMessages((Message("T", b"x"),))) for _ in range(4)]
    rig.advance(10_000)
    assert all(call in rig.answers for call in calls)


def test_a_flood_of_equal_answers_does_not_spin() -> None:
    group = Group(1)
    for broker in (group.a, group.b):
        broker.script[11] = lambda command: pulled([], 0)
    rig = group.start()
    rig.advance(10_000)
    assert len(group.pulls(group.a)) < 250
    rig.push(group.a, reply(opaque=0))
