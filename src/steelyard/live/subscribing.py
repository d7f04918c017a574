"""What a consumer is set up with before it starts: the part that blocking and asyncio consumers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from steelyard.config import ConsumerConfig
from steelyard.errors import ConfigError
from steelyard.live.settings import client_config
from steelyard.types import ExpressionType, Subscription

HANDED_PER_LISTENER = 4
"""Batches handed over per listener: one to work on and some to go on with, so that a quick listener does
not wait for the event loop after each message. What waits is consumed even if its queue is given up."""


class Subscriptions:
    """What a consumer is set up with before it starts; the part that both twins share."""

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None,
        client_id: str | None,
        config: ConsumerConfig | None,
        listeners: int,
    ) -> None:
        template = replace(config or ConsumerConfig(), handed_max=HANDED_PER_LISTENER * listeners)
        self.config = client_config(template, group, nameservers, client_id)
        self.started = False

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> Self:
        """Receive messages of `topic` whose tag is in `expression`: `*`, or tags joined by `||`.

        `sql` instead: those whose properties fulfil an SQL92 condition, such as `price > 10 AND TAGS = 'a'`.

        A second call for a topic replaces the first. All members of a group must subscribe to the same.
        """
        if self.started:
            raise ConfigError("subscribe before the consumer starts")
        if not topic:
            raise ConfigError("the topic has no name")
        if sql is None:
            wanted = Subscription(topic, expression)
        elif expression == "*":
            wanted = Subscription(topic, sql, ExpressionType.SQL92)
        else:
            raise ConfigError("give either tags or sql, not both")
        kept = tuple(other for other in self.config.subscriptions if other.topic != topic)
        self.config = replace(self.config, subscriptions=(*kept, wanted))
        return self

    def check_listeners(self, listener: object, batch_listener: object) -> None:
        """Raise ConfigError unless at most one of them is given, and it fits `consume_batch`."""
        if listener is not None and batch_listener is not None:
            raise ConfigError("give either listener or batch_listener, not both")
        if listener is not None and self.config.consume_batch != 1:
            raise ConfigError("consume_batch needs a batch_listener")

    def ready(self, listener: object) -> None:
        """Raise ConfigError where something is missing for a start."""
        if listener is None:
            raise ConfigError("no listener; give listener=... or batch_listener=...")
        if not self.config.subscriptions:
            raise ConfigError("no subscription; call subscribe(topic) before the start")
