"""Assignors: the plans of Apache's own classes, of the last 3.x client and of the newest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest
from tests.allocate.assignors.groups import again, check_as_good, given, readable
from tests.peers.apache import Missing
from tests.peers.kafka import builds
from tests.peers.kafka.assignors import NAMES, Assignors, cases

from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.allocate.assignors.registry import assignor

pytestmark = pytest.mark.peer

GROUPS = 150
ROUNDS_MAX = 5


@pytest.fixture(scope="module", params=[builds.OLD, builds.NEW])
def java(request: pytest.FixtureRequest) -> Iterator[Assignors]:
    try:
        with Assignors(request.param) as running:
            yield running
    except Missing as reason:
        pytest.skip(f"no Apache assignors: {reason}")


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_plans_without_memory_are_apaches(java: Assignors, name: str) -> None:
    for number in range(GROUPS):
        for subscribers, partitions, answer in cases(java, Random(f"peer {number}"), name):
            plan = assignor(name).assign(subscribers, partitions)
            assert {member: sorted(share) for member, share in plan.items()} == answer.plan


def test_sticky_plans_are_apaches_or_better(java: Assignors) -> None:
    for number in range(GROUPS):
        for subscribers, partitions, answer in cases(java, Random(f"peer {number}"), "sticky"):
            plan = assignor("sticky").assign(subscribers, partitions)
            check_as_good(subscribers, partitions, plan, answer.plan)


def last_plan(
    assign: Callable[[Sequence[Subscriber], dict[str, int]], Assignment],
    subscribers: Sequence[Subscriber],
    partitions: dict[str, int],
) -> tuple[Assignment, int]:
    """What cooperative members come to, and in how many rounds."""
    everything = readable(subscribers, partitions)
    for rounds in range(1, ROUNDS_MAX):
        plan = assign(subscribers, partitions)
        if given(plan) == everything:
            return plan, rounds
        generation = 100 + rounds
        subscribers = again(assignor("cooperative-sticky"), subscribers, plan, generation)
    raise AssertionError(f"not within {ROUNDS_MAX} rounds")


def test_cooperative_members_come_to_apaches_plan_or_a_better_one(java: Assignors) -> None:
    """In two rounds at most; Apache's need a third one now and then."""
    name = "cooperative-sticky"
    for number in range(GROUPS):
        for subscribers, partitions, _ in cases(java, Random(f"peer {number}"), name):
            ours, rounds = last_plan(assignor(name).assign, subscribers, partitions)
            theirs, _ = last_plan(
                lambda *group: java.assign(name, *group).plan, subscribers, partitions
            )
            assert rounds <= 2
            check_as_good(subscribers, partitions, ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_user_data_is_apaches(java: Assignors, name: str) -> None:
    """Byte for byte but for the order of topics, which Apache's sticky leaves to a hash map."""
    for subscribers, _, answer in cases(java, Random(f"peer of {name}"), name):
        for one in subscribers:
            ours = assignor(name).user_data(one.owned, one.generation) or b""
            theirs = answer.user_data[one.member]
            assert (len(ours), sorted(ours)) == (len(theirs), sorted(theirs))
