"""A consumer's membership of its group: its heartbeats, and news of other members (40).

It also asks brokers whether they can filter as subscribed (46). Which brokers know the consumer is
kept by `client_instance`.
Source: client/impl/factory/MQClientInstance.java `prepareHeartbeatData`, `checkClientInBroker`.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.config import ConsumerConfig
from steelyard.consume.subscription import subscription
from steelyard.errors import ConfigError, ProtocolError, RemotingError
from steelyard.nodes.consumer.remoting.peers import ConditionAsked, Peers
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
    """Return all subscriptions by topic, including that of the retry topic, if there is one."""
    found = {wanted.topic: subscription(wanted, version) for wanted in config.subscriptions}
    if retry_topic:
        found[retry_topic] = subscription(Subscription(retry_topic), version)
    return found


CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
"""ConsumeType.java: messages are pushed to a listener, or pulled by the application."""


class Membership:
    """The membership of one consumer."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._troubles = Troubles("broker")
        self._checking = 0
        """Pending requests about subscriptions."""
        self._conditions: dict[str, SubscriptionData] = {}
        """Subscriptions by more than tags, by topic, that no broker was asked about yet."""

    def begin(
        self,
        subscriptions: Iterable[SubscriptionData],
        consume_type: str,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Start to send heartbeats with this member and its subscriptions."""
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
        self._peers.client.start(body, now, effects)

    def ask_condition(self, topic: str, now: int, effects: list[Effect]) -> None:
        """Ask one broker of the topic, once, whether it can filter as subscribed.

        For a topic whose route is known. Java also asks before the first heartbeat, and does not
        start if the answer is no. Here the refusal is logged, and fails a start that is still
        waited for; pulls are tried all the same (MQClientInstance.checkClientInBroker).
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
        """Note whether the broker can filter as subscribed; return why not.

        None if it can, or did not answer. As in Java, a broker that does not know this request
        cannot.
        """
        self._checking -= 1
        if isinstance(reply, RemotingError) or reply.code == ResponseCode.SUCCESS:
            return None
        why = f"code {reply.code}: {reply.remark}"
        return ConfigError(
            f"{asked.address} cannot filter topic {asked.topic} as subscribed: {why}"
        )

    def registered(
        self, address: Address, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> bool:
        """Handle the outcome of a heartbeat, and log failures.

        Returns whether the broker did not know this member before.
        """
        client = self._peers.client
        if not client.leaving:
            if isinstance(reply, RemotingError):
                self._troubles.ill(address, f"broker {address}: {reply}", now, effects)
            elif reply.code != ResponseCode.SUCCESS:
                text = f"heartbeat refused by {address}: code {reply.code}: {reply.remark}"
                effects.append(LogLine("WARNING", text))
            else:
                self._troubles.well(address, effects)
        return client.registered(address, reply, now, effects)

    def notified(self, command: Command, effects: list[Effect]) -> bool:
        """Return whether a NOTIFY_CONSUMER_IDS_CHANGED (40) is about this group.

        It says that the group's members have changed.
        """
        try:
            header = headers.read(headers.ConsumerGroupHeader, command.ext)
        except ProtocolError as error:
            effects.append(LogLine("WARNING", f"notification without a group: {error}"))
            return False
        return header.consumer_group == self._peers.config.group

    @property
    def checking(self) -> bool:
        """Return whether a request about a subscription is pending."""
        return self._checking > 0
