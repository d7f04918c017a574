"""Tag expressions: the subscription sent to brokers, and the client's own filter.

A broker filters by the hash of the tag, and two tags may share a hash: the client compares the tags
themselves. Source: common/filter/FilterAPI.java, client/impl/consumer/PullAPIWrapper.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.errors import ConfigError
from steelyard.types import ExpressionType, Subscription
from steelyard.wire.remoting.bodies import SubscriptionData
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.message import MessageView

ALL = "*"
_OR = "||"


def subscription(wanted: Subscription, version: int) -> SubscriptionData:
    """Build the subscription sent to brokers; an empty tag expression means all.

    `version` increases with each change of a client's subscriptions. Raises ConfigError.
    """
    topic, expression, expression_type = wanted
    if expression_type is ExpressionType.SQL92:
        if not expression.strip():
            raise ConfigError(f"subscription of {topic}: the SQL92 condition is empty")
        return SubscriptionData(
            topic, expression, (), (), version, expression_type=expression_type.value
        )
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, (), (), version)
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split(_OR) if tag.strip()))
    if not tags:
        raise ConfigError(f"subscription of {topic}: no tag in {expression!r}")
    codes = tuple(sorted({tag_code(tag) for tag in tags}))
    return SubscriptionData(topic, expression, tags, codes, version)


def wanted(messages: Sequence[MessageView], tags: frozenset[str]) -> Sequence[MessageView]:
    """Return the messages whose tag is in `tags`; all of them if `tags` is empty."""
    if not tags:
        return messages
    return [message for message in messages if message.tags in tags]
