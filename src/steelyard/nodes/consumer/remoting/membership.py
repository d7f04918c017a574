"""Which brokers know this member of the group: heartbeats to all of them, and unregistering (35) at the end.

A broker forgets a member when its link closes, so the first thing said on a new link is a heartbeat. Nobody unregisters while a
heartbeat is under way: Apache's brokers take each from a queue of its own, and one that is taken last leaves a member that
nobody is any more in the group, with a share of the queues, for two minutes (BrokerController.registerProcessor).
Source: client/impl/factory/MQClientInstance.java `sendHeartbeatToAllBroker`, `unregisterClient`.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.config import ConsumerConfig
from steelyard.consume.subscription import subscription
from steelyard.errors import ConfigError, RemotingError
from steelyard.nodes.consumer.remoting.peers import (
    ConditionAsked,
    HeartbeatSent,
    Peers,
    Unregistered,
)
from steelyard.nodes.seam import Address, Effect
from steelyard.nodes.starting import Troubles
from steelyard.types import ExpressionType, LogLine, Subscription
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command


def subscriptions_of(
    config: ConsumerConfig, retry_topic: str, version: int
) -> dict[str, SubscriptionData]:
    """All subscriptions by topic, with the one of the retry topic, where there is one."""
    found = {wanted.topic: subscription(wanted, version) for wanted in config.subscriptions}
    if retry_topic:
        found[retry_topic] = subscription(Subscription(retry_topic), version)
    return found


CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
"""ConsumeType.java: messages are pushed to a listener, or pulled by the application."""


class Membership:
    """See the module's text."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._command: Command | None = None
        self._known: dict[Address, None] = {}
        self._pending: dict[Address, None] = {}
        self._leaving: dict[Address, None] = {}
        self._troubles = Troubles("broker")
        self._checking = 0
        """Questions about subscriptions that are not answered yet."""
        self._conditions: dict[str, SubscriptionData] = {}
        """Subscriptions by more than tags, by topic, that no broker was asked about yet."""

    def begin(
        self, subscriptions: Iterable[SubscriptionData], consume_type: str = CONSUME_PASSIVELY
    ) -> None:
        """What heartbeats will say."""
        config = self._peers.config
        subscribed = tuple(subscriptions)
        consumer = ConsumerData(
            config.group,
            consume_type,
            config.message_model.value,
            consume_from_where=config.consume_from.value,
            subscription_data_set=subscribed,
        )
        tags = ExpressionType.TAG.value
        self._conditions = {s.topic: s for s in subscribed if s.expression_type != tags}
        body = HeartbeatData(config.client_id, consumer_data_set=(consumer,))
        self._command = Command(code=RequestCode.HEART_BEAT, body=fastjson.write(body))

    def ask_condition(self, topic: str, now: int, effects: list[Effect]) -> None:
        """The topic's route is known: ask one of its brokers, once, whether it can filter as subscribed.

        Java asks before the first heartbeat as well, and does not start when the answer is no; here people are
        told, and the pulls are tried all the same (MQClientInstance.checkClientInBroker).
        """
        route = self._peers.routes.route(topic)
        if topic not in self._conditions or route is None or not route.readers:
            return
        address = route.readers[min(route.readers)]
        config = self._peers.config
        body = CheckClientBody(self._conditions.pop(topic), config.client_id, config.group)
        command = Command(code=RequestCode.CHECK_CLIENT_CONFIG, body=fastjson.write(body))
        self._checking += 1
        self._peers.call(address, command, ConditionAsked(topic, address), now, effects)

    def condition_answered(
        self, asked: ConditionAsked, reply: Command | RemotingError
    ) -> ConfigError | None:
        """Why the broker cannot filter as subscribed; None where it can, or knows no such question."""
        self._checking -= 1
        if isinstance(reply, RemotingError) or reply.code == ResponseCode.SUCCESS:
            return None
        why = f"code {reply.code}: {reply.remark}"
        return ConfigError(
            f"{asked.address} cannot filter topic {asked.topic} as subscribed: {why}"
        )

    def register(self, addresses: Iterable[Address], now: int, effects: list[Effect]) -> None:
        """Heartbeats to the brokers that none is on the way to."""
        assert self._command is not None
        for address in addresses:
            if address not in self._pending:
                self._pending[address] = None
                self._peers.call(address, self._command, HeartbeatSent(address), now, effects)

    def registered(
        self, address: Address, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> bool:
        """The outcome of a heartbeat. True: the broker did not know this member before."""
        self._pending.pop(address, None)
        if address in self._leaving:
            if isinstance(reply, RemotingError):
                self.left(address)
            else:
                self._unregister(address, now, effects)
            return False
        if isinstance(reply, RemotingError):
            self._known.pop(address, None)
            effects += self._troubles.ill(address, f"broker {address}: {reply}", now)
            return False
        if reply.code != ResponseCode.SUCCESS:
            self._known.pop(address, None)
            text = f"heartbeat refused by {address}: code {reply.code}: {reply.remark}"
            effects.append(LogLine("WARNING", text))
            return False
        fresh = address not in self._known
        self._known[address] = None
        effects += self._troubles.well(address)
        return fresh

    def lost(self, address: Address) -> None:
        """The link is gone: the broker has forgotten this member, or will."""
        self._known.pop(address, None)

    def strangers(self, addresses: Iterable[Address]) -> list[Address]:
        """Those that do not know this member, and have not just been told."""
        return [a for a in addresses if a not in self._known and a not in self._pending]

    @property
    def pending(self) -> bool:
        """Some heartbeat is not answered yet."""
        return bool(self._pending)

    @property
    def checking(self) -> bool:
        """Some question about a subscription is not answered yet."""
        return self._checking > 0

    def reaches(self, addresses: Iterable[Address]) -> bool:
        """One of these brokers knows this member."""
        return any(address in self._known for address in addresses)

    def leave(self, now: int, effects: list[Effect]) -> None:
        """Unregister from every broker that knows this member, or is about to."""
        self._leaving = self._known | self._pending
        self._known = {}
        for address in self._leaving:
            if address not in self._pending:
                self._unregister(address, now, effects)

    def _unregister(self, address: Address, now: int, effects: list[Effect]) -> None:
        config = self._peers.config
        header = headers.UnregisterClientRequestHeader(
            client_id=config.client_id, consumer_group=config.group
        )
        purpose = Unregistered(address)
        self._peers.ask(address, RequestCode.UNREGISTER_CLIENT, header, purpose, now, effects)

    def left(self, address: Address) -> None:
        """The broker has forgotten this member, or will never say so."""
        self._leaving.pop(address, None)

    @property
    def leaving(self) -> bool:
        return bool(self._leaving)
