"""Who unregisters while a heartbeat is under way, in virtual time."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Broker, Nameserver, Rig, reply, rng

from steelyard.config import ConsumerConfig
from steelyard.nodes.consumer.remoting.contract import Stop
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.consumer.remoting.puller import PullerNode
from steelyard.types import Subscription
from steelyard.wire.remoting.codes import RequestCode

CALL_TIMEOUT_MS = 3_000


class Leaving:
    """A consumer whose first heartbeat broker a has not answered, and that was told to stop."""

    def __init__(self, kind: type[ConsumerNode | PullerNode]) -> None:
        self.broker, nameserver = Broker("a", "a:1"), Nameserver()
        nameserver.add("T", self.broker)
        self._heartbeat = self.broker.script.pop(RequestCode.HEART_BEAT)
        self.broker.script[RequestCode.HEART_BEAT] = lambda command: None
        config = ConsumerConfig(
            nameservers=(nameserver.address,),
            group="g",
            client_id="c1",
            subscriptions=(Subscription("T"),),
            call_timeout_ms=CALL_TIMEOUT_MS,
        )
        self.rig = Rig(kind(config, rng()), nameserver, self.broker).start()
        self.stop = self.rig.ask(Stop())

    def answer(self) -> None:
        """The broker answers the heartbeat."""
        (heartbeat,) = self.rig.to(self.broker, RequestCode.HEART_BEAT)
        self._heartbeat(heartbeat)
        self.rig.answer(self.broker, heartbeat, reply())

    @property
    def stopped(self) -> bool:
        return self.stop in self.rig.answers


@pytest.fixture(params=[ConsumerNode, PullerNode])
def leaving(request: pytest.FixtureRequest) -> Leaving:
    return Leaving(request.param)


def test_the_heartbeat_is_waited_for(leaving: Leaving) -> None:
    """A broker that takes the heartbeat after the unregistering would keep the member."""
    assert not leaving.stopped
    assert not leaving.rig.to(leaving.broker, RequestCode.UNREGISTER_CLIENT)
    leaving.answer()
    assert leaving.stopped
    assert not leaving.broker.members


def test_a_broker_that_never_answers_does_not_hold_it_up(leaving: Leaving) -> None:
    leaving.rig.advance(CALL_TIMEOUT_MS)
    assert leaving.stopped


def test_a_broker_that_is_gone_does_not_hold_it_up(leaving: Leaving) -> None:
    leaving.rig.crash(leaving.broker)
    assert leaving.stopped
