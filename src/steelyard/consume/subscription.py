"""Tag expressions: what a broker is told of a subscription, and the client's own second look.

A broker filters by the hash of the tag, and two tags may share a hash: the client compares the tags
themselves. Source: common/filter/FilterAPI.java, client/impl/consumer/PullAPIWrapper.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.errors import ConfigError
from steelyard.wire.remoting.bodies import SubscriptionData
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.message import MessageView

ALL = "*"
_OR = "||"


def subscription(topic: str, expression: str, version: int) -> SubscriptionData:
    """The subscription to `topic` of messages with one of the tags in `expression`; `*` or "" for all.

    `version` grows with each change of the subscriptions of a client. Raises ConfigError.
    """
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, (), (), version)
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split(_OR) if tag.strip()))
    if not tags:
        raise ConfigError(f"subscription of {topic}: no tag in {expression!r}")
    codes = tuple(sorted({tag_code(tag) for tag in tags}))
    return SubscriptionData(topic, expression, tags, codes, version)


def wanted(messages: Sequence[MessageView], tags: frozenset[str]) -> Sequence[MessageView]:
    """The messages whose tag is one of `tags`; all of them where `tags` is empty."""
    if not tags:
        return messages
    return [message for message in messages if message.tags in tags]
