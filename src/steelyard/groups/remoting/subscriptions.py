"""The messages of a topic that a consumer wants, by tags or by an SQL92 condition on properties.

Tags: `*`, nothing, or tags joined by `||`. Like RocketMQ's, the broker compares Java hash codes
only. Two tags may share a code, so clients check the tags themselves once more. A condition is
evaluated by the broker alone.
Source: remoting/protocol/filter/FilterAPI.java, store/DefaultMessageFilter (by ConsumeQueue tags
code), broker/filter/ConsumerFilterManager.java.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from steelyard.errors import ProtocolError
from steelyard.sql92 import parser
from steelyard.sql92.expressions import Condition, EvaluationError
from steelyard.wire.remoting.bodies import SubscriptionData
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.properties import decode_properties

TAG = "TAG"
SQL92 = "SQL92"

EXPRESSION_CHARACTERS_MAX = 64 * 1024
"""Longest expression accepted."""
_CHARACTERS_PER_EFFORT = 10
_CACHED_CHARACTERS_MAX = 256


class Filter(msgspec.Struct, frozen=True):
    """The messages that pass: those with one of the tag codes, or that meet the condition.

    All, if both are None.
    """

    codes: frozenset[int] | None = None
    condition: Condition | None = None
    effort: int = 0
    """The cost of evaluating one message: about microseconds on an ordinary core."""


ALL = Filter()


class TopicSubscription(msgspec.Struct, frozen=True):
    """A consumer's subscription to one topic.

    `fault`: why its expression cannot be used; pulls are then refused with it.
    """

    data: SubscriptionData
    filter: Filter = ALL
    fault: str = ""


def is_tag(expression_type: str | None) -> bool:
    """Return whether the expression consists of tags, which is the default."""
    return expression_type in (None, "", TAG)


def parse_tags(expression: str | None) -> frozenset[int] | None:
    """Return the tag codes of an expression, or None if it selects all messages.

    Raises ProtocolError if it is too long, or has no tag.
    """
    if expression is None or expression in ("", "*"):
        return None
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise ProtocolError(f"a tag expression of {len(expression)} characters is too long")
    if len(expression) <= _CACHED_CHARACTERS_MAX:
        return _short_tags(expression)
    return _tags(expression)


def _tags(expression: str) -> frozenset[int]:
    tags = {tag for part in expression.split("||") if (tag := part.strip())}
    if not tags:
        raise ProtocolError(f"no tag in the expression {expression!r}")
    return frozenset(tag_code(tag) for tag in tags)


_short_tags = lru_cache(maxsize=1_000)(_tags)
"""Heartbeats and pulls repeat the same expressions."""


def parse(expression: str | None, expression_type: str | None) -> Filter:
    """Return the filter of an expression.

    Raises ProtocolError if it is invalid, or of another type than TAG and SQL92.
    """
    if is_tag(expression_type):
        return Filter(codes=parse_tags(expression))
    if expression_type != SQL92:
        raise ProtocolError(f"expressions are of type {TAG} or {SQL92}, not {expression_type!r}")
    if not expression:
        raise ProtocolError("an SQL92 expression must not be empty")
    condition = parser.parse(expression)
    return Filter(condition=condition, effort=1 + len(expression) // _CHARACTERS_PER_EFFORT)


def matches(condition: Condition, properties: bytes) -> bool:
    """Return whether the condition is true; values that cannot be compared do not match."""
    try:
        return condition.evaluate(decode_properties(properties)) is True
    except EvaluationError:
        return False


def subscribe(data: SubscriptionData) -> TopicSubscription:
    """Return the meaning of a heartbeat's subscription.

    A class filter passes everything, because the client filters again. Raises ProtocolError for
    invalid tags. Other expressions are kept with their fault: RocketMQ accepts the heartbeat, so
    that the rest of the client works, and refuses the pulls.
    """
    if data.class_filter_mode:
        return TopicSubscription(data)
    try:
        return TopicSubscription(data, parse(data.sub_string, data.expression_type))
    except ProtocolError as error:
        if is_tag(data.expression_type):
            raise
        return TopicSubscription(data, fault=str(error))
