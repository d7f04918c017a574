"""A subscription by a condition is shown to a broker once, before the first heartbeat (46)."""

from __future__ import annotations

import pytest
from tests.nodes.consumer.remoting.conftest import Group, reply

from steelyard.types import ExpressionType, Subscription
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import CheckClientBody, SubscriptionData

BY_PRICE = Subscription("T", "price > 10", ExpressionType.SQL92)


def test_a_condition_is_shown_to_one_broker_before_the_heartbeat() -> None:
    group = Group(subscriptions=(BY_PRICE,))
    group.a.script[46] = lambda command: reply()
    rig = group.start()
    rig.advance(60_000)
    (asked,) = rig.to(group.a, 46)
    assert fastjson.read(CheckClientBody, asked.body) == CheckClientBody(
        SubscriptionData("T", "price > 10", (), (), rig.now - 60_000, "SQL92"), "c1", "g"
    )
    assert [c.code for c in rig.to(group.a, 46, 34)][:2] == [46, 34]
    assert not rig.to(group.b, 46)
    assert not [tell for tell in rig.tells if tell.level == "ERROR"]


def test_tags_need_no_question() -> None:
    group = Group(subscriptions=(Subscription("T", "a||b"),))
    rig = group.start()
    assert not rig.to(group.a, 46)
    assert not rig.to(group.b, 46)


@pytest.mark.parametrize(
    ("code", "remark"), [(1, "The broker does not support SQL92"), (23, "no such thing")]
)
def test_a_broker_that_cannot_is_told_to_people_and_pulled_from_all_the_same(
    code: int, remark: str
) -> None:
    group = Group(1, subscriptions=(BY_PRICE,))
    group.a.script[46] = lambda command: reply(code, remark)
    rig = group.start()
    (told,) = [tell.text for tell in rig.tells if tell.level == "ERROR"]
    assert told == f"a:1 cannot filter topic T as subscribed: code {code}: {remark}"
    assert group.pulls(group.a)


def test_a_broker_that_cannot_be_reached_is_not_accused() -> None:
    group = Group(1, subscriptions=(BY_PRICE,))
    group.a.up = False
    rig = group.start()
    assert not [tell for tell in rig.tells if tell.level == "ERROR"]
