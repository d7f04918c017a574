"""What a consumer is set up with before it starts: the part that blocking and asyncio consumers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self, TypeVar

from steelyard.allocate.plan import Strategy
from steelyard.client.settings import client_config
from steelyard.config import ConsumerConfig
from steelyard.errors import ConfigError
from steelyard.types import ExpressionType, Subscription

C = TypeVar("C", bound=ConsumerConfig)

HANDED_PER_LISTENER = 4
"""Batches handed over per listener: one to work on and some to go on with, so that a quick listener does
not wait for the event loop after each message. What waits is consumed even if its queue is given up."""


def wish(topic: str, expression: str, sql: str | None) -> Subscription:
    """What a user wants of a topic, by tags or by a condition. Raises ConfigError."""
    if not topic:
        raise ConfigError("the topic has no name")
    if sql is None:
        return Subscription(topic, expression)
    if expression != "*":
        raise ConfigError("give either tags or sql, not both")
    return Subscription(topic, sql, ExpressionType.SQL92)


def subscribed(config: C, wanted: Subscription) -> C:
    """The configuration with this subscription, in place of one for the same topic."""
    kept = tuple(other for other in config.subscriptions if other.topic != wanted.topic)
    return replace(config, subscriptions=(*kept, wanted))


def check_strategy(allocate: Strategy | None) -> None:
    """Raise ConfigError unless it can be one."""
    if allocate is not None and not callable(allocate):
        raise ConfigError(
            f"allocate is {allocate!r}; it must be a strategy, a function (claims, queues) -> Plan;"
            " the name of a strategy goes into config.strategy"
        )


class Subscriptions:
    """What a consumer is set up with before it starts; the part that both twins share.

    `config`: the settings in use; `started`: whether `start` was called.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None,
        client_id: str | None,
        config: ConsumerConfig | None,
        listeners: int,
    ) -> None:
        template = replace(
            config or ConsumerConfig(),
            consume_threads=listeners,
            handed_max=HANDED_PER_LISTENER * listeners,
        )
        self.config = client_config(template, group, nameservers, client_id)
        self.started = False

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Receive messages of `topic` whose tag is in `expression`: `*`, or tags joined by `||`.

        `sql` instead: those whose properties fulfil an SQL92 condition, such as `price > 10 AND TAGS = 'a'`.

        A second call for a topic replaces the first. All members of a group must subscribe to the same.
        """
        if self.started:
            raise ConfigError("subscribe before the consumer starts")
        self.config = subscribed(self.config, wish(topic, expression, sql))
        return self

    def ready(self, listener: object) -> None:
        """Raise ConfigError where something is missing for a start."""
        if listener is None:
            raise ConfigError("no listener; give listener=... or batch_listener=...")
        if not self.config.subscriptions:
            raise ConfigError("no subscription; call subscribe(topic) before the start")
