"""The set-up of a consumer before its start, shared by blocking and asyncio consumers."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from steelyard.allocate.plan import Strategy
from steelyard.config import ConsumerConfig
from steelyard.errors import ConfigError
from steelyard.types import ExpressionType, Subscription

C = TypeVar("C", bound=ConsumerConfig)


def wish(topic: str, expression: str, sql: str | None) -> Subscription:
    """Build a subscription to a topic by tags or by a condition. Raises ConfigError."""
    if not topic:
        raise ConfigError("the topic name is empty")
    if sql is None:
        return Subscription(topic, expression)
    if expression != "*":
        raise ConfigError("give either tags or sql, not both")
    return Subscription(topic, sql, ExpressionType.SQL92)


def subscribed(config: C, wanted: Subscription) -> C:
    """Return the configuration with this subscription, replacing one for the same topic."""
    kept = tuple(other for other in config.subscriptions if other.topic != wanted.topic)
    return replace(config, subscriptions=(*kept, wanted))


def check_strategy(allocate: Strategy | None) -> None:
    """Raise ConfigError unless this can be a strategy."""
    if allocate is not None and not callable(allocate):
        raise ConfigError(
            f"allocate is {allocate!r}; it must be a strategy, a function (claims, queues) -> Plan;"
            " the name of a strategy goes into config.strategy"
        )
