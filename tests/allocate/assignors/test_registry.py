"""Assignors by name, and the laws of all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.allocate.assignors.groups import check_shares, counts, groups, readable
from tests.allocate.assignors.groups import given as given_by
from tests.examples import examples

from steelyard.allocate.assignors.plan import RebalanceProtocol, Subscriber
from steelyard.allocate.assignors.registry import ASSIGNORS, assignor
from steelyard.errors import ConfigError

every_assignor = pytest.mark.parametrize("name", list(ASSIGNORS))


def test_names_and_protocols() -> None:
    assert {name: one.rebalance_protocol.name for name, one in ASSIGNORS.items()} == {
        "range": "EAGER",
        "roundrobin": "EAGER",
        "sticky": "EAGER",
        "cooperative-sticky": "COOPERATIVE",
        "even": "COOPERATIVE",
    }
    assert all(assignor(name).name == name for name in ASSIGNORS)


def test_only_those_that_remember_send_user_data() -> None:
    assert {name: one.user_data([], 3) for name, one in ASSIGNORS.items()} == {
        "range": None,
        "roundrobin": None,
        "sticky": bytes(4) + b"\0\0\0\3",
        "cooperative-sticky": b"\0\0\0\3",
        "even": b"\0\0\0\3",
    }


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match="unknown assignor 'uniform'; expected one of: range, roundrobin, "
    ):
        assignor("uniform")


def test_a_group_uses_the_highest_protocol_that_all_know() -> None:
    assert min(RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER) is RebalanceProtocol.EAGER


@every_assignor
@settings(max_examples=examples(50))
@given(subscribers=groups, partitions=counts)
def test_disjoint_only_to_subscribers_and_the_same_in_any_order(
    name: str, subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    plan = assignor(name).assign(subscribers, partitions)
    check_shares(plan, subscribers)
    assert given_by(plan) <= readable(subscribers, partitions)
    assert plan == assignor(name).assign(subscribers[::-1], partitions)
