"""Which messages of a topic a consumer wants: tag expressions, by the hash codes of the tags.

`*`, nothing, or tags joined by `||`. The broker compares Java hash codes only, as RocketMQ's does: two tags
may share a code, so clients look at the tags themselves once more.
Source: remoting/protocol/filter/FilterAPI.java, store/DefaultMessageFilter (by ConsumeQueue tags code).
"""

from __future__ import annotations

import msgspec

from steelyard.errors import ProtocolError
from steelyard.wire.remoting.bodies import SubscriptionData
from steelyard.wire.remoting.flags import tag_code

TAG = "TAG"
"""The only expression type served; SQL92 and class filters are refused."""

EXPRESSION_CHARACTERS_MAX = 64 * 1024
"""Longest tag expression taken."""


class Subscription(msgspec.Struct, frozen=True):
    """One topic of one consumer. `codes` None: all messages."""

    data: SubscriptionData
    codes: frozenset[int] | None


def parse_tags(expression: str | None) -> frozenset[int] | None:
    """The tag codes of an expression, None where it means all. Raises ProtocolError where it is too long."""
    if expression is None or expression in ("", "*"):
        return None
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise ProtocolError(f"a tag expression of {len(expression)} characters is too long")
    tags = {tag for part in expression.split("||") if (tag := part.strip())}
    if not tags:
        raise ProtocolError(f"no tag in the expression {expression!r}")
    return frozenset(tag_code(tag) for tag in tags)


def subscribe(data: SubscriptionData) -> Subscription:
    """What a heartbeat's subscription means. Class filters pass everything: the client filters again."""
    if data.class_filter_mode or data.expression_type not in (TAG, "", None):
        return Subscription(data, None)
    return Subscription(data, parse_tags(data.sub_string))
