from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.nodes.consumer.remoting.conftest import queues

from steelyard.nodes.consumer.remoting.quota import Quota

POOL = queues("T", "a", *range(8))


def test_the_first_pass_tries_what_is_lacking_and_each_queue_once() -> None:
    quota = Quota("c1")
    quota.plan(3, POOL)
    passed = []
    while quota.wait() == 0:
        passed += quota.pick(3, POOL[:1])
    assert sorted(passed) == list(POOL[1:])


def test_after_it_everything_is_tried_after_a_wait_that_doubles() -> None:
    quota = Quota("c1")
    quota.plan(8, POOL)
    quota.pick(8, ())
    assert [quota.wait() for _ in range(8)] == [10, 20, 40, 80, 160, 320, 500, 500]
    assert sorted(quota.pick(1, POOL[:2])) == list(POOL[2:])


def test_a_plan_that_changes_nothing_only_ends_the_wait() -> None:
    quota = Quota("c1")
    quota.plan(8, POOL)
    quota.pick(8, ())
    quota.wait()
    quota.plan(8, POOL)
    assert quota.wait() == 10
    quota.plan(7, POOL)
    assert quota.wait() == 0


@given(st.text(max_size=8), st.text(max_size=8))
def test_members_try_in_an_order_of_their_own(one: str, other: str) -> None:
    orders = []
    for name in (one, other, one):
        quota = Quota(name)
        quota.plan(8, POOL)
        orders.append(quota.pick(8, ()))
    assert orders[0] == orders[2]
    assert sorted(orders[0]) == sorted(orders[1]) == list(POOL)


def test_the_orders_of_members_differ() -> None:
    firsts = set()
    for number in range(40):
        quota = Quota(f"c{number}")
        quota.plan(1, POOL)
        firsts.update(quota.pick(1, ()))
    assert firsts == set(POOL)
