"""What all RocketMQ clients share: routes, heartbeats, unregistering; against scripted peers."""

from __future__ import annotations

import random

import pytest
from tests.effects import effects_of
from tests.nodes.consumer.remoting.conftest import START, reply

from steelyard.config import ClientConfig
from steelyard.errors import RemotingError
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.client_instance import (
    HEARTBEAT_TIMER,
    ROUTE_TIMER,
    ClientInstance,
    HeartbeatSent,
    Unregistered,
)
from steelyard.nodes.route_cache import POLL_SOON_MS, RouteAsked, RouteCache
from steelyard.nodes.seam import Closed, Dial, Effect, Opened, Send, SetTimer
from steelyard.wire.remoting.bodies import BrokerData, HeartbeatData, QueueData, TopicRouteData
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command
from steelyard.wire.remoting.headers import UnregisterClientRequestHeader

NS, A, B = "ns:9876", "a:1", "b:1"
TAKEN = reply()
LOST = RemotingError("connection closed")


class Client:
    """A client of topic T, whose broker a has a master at a:1, and broker b only a replica, at b:1."""

    def __init__(self, *, replicas: bool = True) -> None:
        config = ClientConfig(nameservers=(NS,), group="g", client_id="c")
        self.calls: Calls[RouteAsked | HeartbeatSent | Unregistered] = Calls()
        self.routes = RouteCache((NS,), random.Random(1))
        unregister = UnregisterClientRequestHeader(client_id="c", consumer_group="g")
        self.node = ClientInstance(config, self.calls, self.routes, unregister, replicas=replicas)
        self.began = effects_of(self.node.start, HeartbeatData("c"), START)
        queues = tuple(QueueData(name, 1, 1, 6) for name in "ab")
        brokers = (BrokerData("c", "a", {0: A}), BrokerData("c", "b", {1: B}))
        (asked,) = self.routes.want("T")
        answer = reply(body=TopicRouteData(queues, brokers))
        assert self.node.route_answered(asked, answer, START, []).changed

    def link(self, number: int, address: str) -> list[Effect]:
        """A link that was dialed is there. What goes out."""
        return effects_of(self.node.opened, Opened(number, address, dialed=True), START)

    def registered(self, address: str, answer: Command | RemotingError = TAKEN) -> list[Effect]:
        return effects_of(self.node.registered, address, answer, START)

    def greet_both(self) -> None:
        effects_of(self.node.register_at_strangers, self.node.brokers(), START)
        self.link(1, A), self.link(2, B)
        self.registered(A), self.registered(B)


def codes(effects: list[Effect]) -> list[tuple[int, int]]:
    """Link and request code of each message that goes out."""
    sent = [(e.link, e.message) for e in effects if isinstance(e, Send)]
    return [(link, message.code) for link, message in sent if isinstance(message, Command)]


def test_both_timers_run_from_the_start() -> None:
    client = Client()
    assert client.began == [
        SetTimer(ROUTE_TIMER, START + 30_000),
        SetTimer(HEARTBEAT_TIMER, START + 30_000),
    ]
    effects = effects_of(client.node.due, ROUTE_TIMER, START + 30_000)
    assert effects[:2] == [SetTimer(ROUTE_TIMER, START + 60_000), Dial(NS)]
    with pytest.raises(AssertionError, match="not ours"):
        client.node.due("another", START, [])


def test_a_producer_talks_to_masters_only() -> None:
    assert Client().node.brokers() == [A, B]
    assert Client(replicas=False).node.brokers() == [A]


def test_the_heartbeat_is_the_first_thing_on_a_new_link() -> None:
    client = Client()
    client.calls.tell(A, Command(code=RequestCode.UPDATE_CONSUMER_OFFSET), [])
    assert codes(client.link(1, A)) == [(1, RequestCode.HEART_BEAT), (1, 15)]


def test_one_heartbeat_at_a_time_and_none_to_those_who_know() -> None:
    client = Client()
    assert codes(client.link(1, A)) == [(1, RequestCode.HEART_BEAT)]
    assert client.node.pending
    assert codes(effects_of(client.node.register, [A], START)) == []
    client.registered(A)
    assert not client.node.pending
    assert client.node.is_known()
    assert codes(effects_of(client.node.register_at_strangers, [A], START)) == []
    due = effects_of(client.node.due, HEARTBEAT_TIMER, START)
    assert codes(due) == [(1, RequestCode.HEART_BEAT)]


@pytest.mark.parametrize("answer", [LOST, reply(1, "no")])
def test_a_broker_that_did_not_take_a_heartbeat_is_a_stranger(
    answer: Command | RemotingError,
) -> None:
    client = Client()
    client.link(1, A)
    assert not client.node.registered(A, answer, START, [])
    assert not client.node.is_known()
    assert codes(effects_of(client.node.register_at_strangers, [A], START)) == [(1, 34)]
    assert client.node.registered(A, reply(), START, []), "it did not know this client"
    client.node.register([A], START, [])
    assert not client.node.registered(A, reply(), START, []), "it did"


def test_a_broker_forgets_a_client_with_its_link() -> None:
    client = Client()
    client.greet_both()
    assert client.node.lost(1) == A
    client.calls.closed(Closed(1, "reset"))
    assert client.node.lost(99) is None
    assert codes(client.link(3, A)) == [(3, RequestCode.HEART_BEAT)]


def test_routes_are_asked_for_soon_when_a_broker_may_have_stopped() -> None:
    client = Client()
    assert effects_of(client.node.doubt, None, START) == []
    assert effects_of(client.node.doubt, NS, START) == []
    soon = [SetTimer(ROUTE_TIMER, START + POLL_SOON_MS)]
    assert effects_of(client.node.doubt, A, START) == soon
    assert effects_of(client.node.doubt, A, START) == [], "planned already"


def test_who_closes_looks_for_nobody_any_more() -> None:
    client = Client()
    client.node.close()
    assert effects_of(client.node.doubt, A, START) == []
    assert codes(client.link(1, A)) == []


def test_unregistering_waits_for_the_heartbeat_under_way() -> None:
    """A broker that takes the heartbeat after the unregistering would keep the client."""
    client = Client()
    client.greet_both()
    effects_of(client.node.register, [B], START)
    client.node.close()
    assert codes(effects_of(client.node.leave, START)) == [(1, RequestCode.UNREGISTER_CLIENT)]
    assert codes(client.registered(B)) == [(2, RequestCode.UNREGISTER_CLIENT)]
    client.node.left(A)
    assert client.node.leaving
    client.node.left(B)
    assert not client.node.leaving


def test_a_broker_whose_heartbeat_fails_need_not_be_told_of_the_end() -> None:
    client = Client()
    client.link(1, A)
    client.node.leave(START, [])
    assert client.node.leaving
    assert client.registered(A, LOST) == []
    assert not client.node.leaving


def test_a_request_that_the_client_does_not_know_is_refused() -> None:
    client = Client()
    (answer,) = effects_of(client.node.refuse, 1, Command(code=999, opaque=7))
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Command)
    assert (answer.link, answer.message.code, answer.message.opaque) == (1, 3, 7)
    assert effects_of(client.node.refuse, 1, Command(code=999, flag=ONEWAY_FLAG)) == []
