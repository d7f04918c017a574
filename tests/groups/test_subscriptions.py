"""Tag expressions."""

from __future__ import annotations

import pytest

from steelyard.errors import ProtocolError
from steelyard.groups.subscriptions import EXPRESSION_CHARACTERS_MAX, parse_tags, subscribe
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


def test_class_filters_and_other_languages_pass_everything() -> None:
    for data in (
        SubscriptionData("t", "some.Class", class_filter_mode=True),
        SubscriptionData("t", "a > 1", expression_type="SQL92"),
    ):
        assert subscribe(data).codes is None
    assert subscribe(SubscriptionData("t", "TagA")).codes == frozenset((TAG_A,))
