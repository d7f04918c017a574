"""roundrobin: Kafka's own examples, and fairness where all subscribe alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.allocate.assignors.groups import (
    counts,
    groups,
    readable,
    some_subscribers,
    spread,
)
from tests.allocate.assignors.groups import given as given_by

from steelyard.allocate.assignors import roundrobin
from steelyard.allocate.assignors.plan import Subscriber


@pytest.mark.parametrize(
    ("subscribers", "partitions", "expected"),
    [
        # RoundRobinAssignor.java: C0 and C1 read t0 and t1 of three; C0 t0, C1 t0 t1, C2 t0 t1 t2
        (
            [Subscriber("c0", ["t", "u"]), Subscriber("c1", ["t", "u"])],
            {"t": 3, "u": 3},
            {"c0": ["t0", "t2", "u1"], "c1": ["t1", "u0", "u2"]},
        ),
        (
            [
                Subscriber("c0", ["t"]),
                Subscriber("c1", ["t", "u"]),
                Subscriber("c2", ["t", "u", "v"]),
            ],
            {"t": 1, "u": 2, "v": 3},
            {"c0": ["t0"], "c1": ["u0"], "c2": ["u1", "v0", "v1", "v2"]},
        ),
        (
            [Subscriber("a", ["t"]), Subscriber("b", ["t"], instance="1")],
            {"t": 3},
            {"a": ["t1"], "b": ["t0", "t2"]},
        ),
        ([], {"t": 3}, {}),
    ],
)
def test_examples(
    subscribers: list[Subscriber], partitions: dict[str, int], expected: dict[str, list[str]]
) -> None:
    plan = roundrobin.assign(subscribers, partitions)
    texts = {
        member: [f"{topic}{number}" for topic, number in share] for member, share in plan.items()
    }
    assert texts == expected


@given(subscribers=groups, partitions=counts)
def test_all_that_is_read_is_dealt_out(
    subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    plan = roundrobin.assign(subscribers, partitions)
    assert given_by(plan) == readable(subscribers, partitions)


@given(subscribers=some_subscribers(alike=True), partitions=counts)
def test_fair_where_all_subscribe_alike(
    subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    assert spread(roundrobin.assign(subscribers, partitions)) <= 1
