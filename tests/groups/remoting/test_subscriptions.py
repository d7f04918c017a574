"""Tag expressions, SQL92 conditions, and what a heartbeat with a wrong one is."""

from __future__ import annotations

import pytest

from steelyard.errors import ProtocolError
from steelyard.groups.remoting.subscriptions import (
    ALL,
    EXPRESSION_CHARACTERS_MAX,
    Filter,
    TopicSubscription,
    parse,
    parse_tags,
    subscribe,
)
from steelyard.sql92 import parser
from steelyard.wire.remoting.bodies import SubscriptionData

TAG_A, TAG_B = 2598919, 2598920
"""Java's hash codes of TagA and TagB, as RocketMQ's own heartbeat prints them."""


@pytest.mark.parametrize(
    ("expression", "codes"),
    [
        (None, None),
        ("", None),
        ("*", None),
        ("TagA", {TAG_A}),
        ("TagA||TagB", {TAG_A, TAG_B}),
        (" TagA || TagB ||", {TAG_A, TAG_B}),
        ("*||TagA", {42, TAG_A}),
    ],
)
def test_expressions(expression: str | None, codes: set[int] | None) -> None:
    assert parse_tags(expression) == (None if codes is None else frozenset(codes))


@pytest.mark.parametrize("expression", ["||", " ", "x" * (EXPRESSION_CHARACTERS_MAX + 1)])
def test_bad_expressions(expression: str) -> None:
    with pytest.raises(ProtocolError):
        parse_tags(expression)


@pytest.mark.parametrize(
    ("expression", "kind", "passes"),
    [
        (None, None, ALL),
        ("*", "TAG", ALL),
        ("TagA", "", Filter(codes=frozenset((TAG_A,)))),
        ("a > 1", "SQL92", Filter(condition=parser.parse("a > 1"), effort=1)),
    ],
)
def test_what_passes(expression: str | None, kind: str | None, passes: Filter) -> None:
    assert parse(expression, kind) == passes


@pytest.mark.parametrize(
    ("expression", "kind", "why"),
    [
        ("a >", "SQL92", "SQL92: expected a property, a text"),
        ("", "SQL92", "must not be empty"),
        (None, "SQL92", "must not be empty"),
        ("a > 1", "SQL93", "TAG or SQL92, not 'SQL93'"),
    ],
)
def test_what_cannot_be_read(expression: str | None, kind: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        parse(expression, kind)
    data = SubscriptionData("t", expression or "", expression_type=kind)
    assert why in subscribe(data).fault


def test_class_filters_pass_everything() -> None:
    data = SubscriptionData("t", "some.Class", class_filter_mode=True)
    assert subscribe(data) == TopicSubscription(data, ALL)


def test_wrong_tags_are_refused_with_the_heartbeat() -> None:
    with pytest.raises(ProtocolError):
        subscribe(SubscriptionData("t", "||"))
