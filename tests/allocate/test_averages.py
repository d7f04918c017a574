"""AVG and AVG_BY_CIRCLE: the tables of the seeds, the laws, and the original's formula beside ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.allocate import circle, contiguous
from steelyard.allocate.plan import Claim, Plan
from steelyard.types import MessageQueue


def claims_of(*members: str) -> list[Claim[MessageQueue]]:
    return [Claim(member) for member in members]


def numbered(count: int, topic: str = "topic_test", broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def ids(plan: Plan[MessageQueue], member: str) -> list[int]:
    return [queue.queue_id for queue in plan.share(member)]


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        # Printed in seed 003: one broker with 16 queues, a second and a third client joining.
        (16, ["consumer01"], [range(16)]),
        (16, ["consumer01", "consumer02"], [range(8), range(8, 16)]),
        (
            16,
            ["consumer01", "consumer02", "consumer03"],
            [range(6), range(6, 11), range(11, 16)],
        ),
        # Seeds 000 and 001: ten queues over c1, c2, c3 make 4, 3 and 3.
        (10, ["c1", "c2", "c3"], [range(4), range(4, 7), range(7, 10)]),
        # Fewer queues than members: the last ones get nothing.
        (2, ["c1", "c2", "c3"], [range(1), range(1, 2), range(0)]),
    ],
)
def test_contiguous_makes_the_tables_of_the_seeds(
    count: int, members: list[str], expected: list[range]
) -> None:
    plan = contiguous.allocate(claims_of(*members), numbered(count))
    assert [ids(plan, member) for member in members] == [list(part) for part in expected]


def test_two_topics_of_two_queues_leave_two_of_four_members_without_any() -> None:
    """Seeds 000 and 001: RocketMQ allocates topic by topic, so the first members get all four queues."""
    members = ["192.168.0.1", "192.168.0.2", "192.168.0.3", "192.168.0.4"]
    plans = [
        contiguous.allocate(claims_of(*members), numbered(2, topic))
        for topic in ("TopicX", "TopicY")
    ]
    held = {member: sum(len(plan.share(member)) for plan in plans) for member in members}
    assert held == {"192.168.0.1": 2, "192.168.0.2": 2, "192.168.0.3": 0, "192.168.0.4": 0}


def test_circle_deals_the_queues_out() -> None:
    plan = circle.allocate(claims_of("c1", "c2", "c3"), numbered(7))
    assert [ids(plan, member) for member in ("c1", "c2", "c3")] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_member_without_a_claim_gets_nothing_and_twins_share_the_first_share() -> None:
    plan = contiguous.allocate(claims_of("c1", "c1", "c2"), numbered(3))
    assert [ids(plan, member) for member in ("c1", "c2", "c3")] == [[0], [2], []]


def java_avg(index: int, members: int, queues: list[MessageQueue]) -> list[MessageQueue]:
    """AllocateMessageQueueAveragely as printed in seed 003."""
    mod = len(queues) % members
    if len(queues) <= members:
        average_size = 1
    elif mod > 0 and index < mod:
        average_size = len(queues) // members + 1
    else:
        average_size = len(queues) // members
    start = index * average_size if mod > 0 and index < mod else index * average_size + mod
    size = min(average_size, len(queues) - start)
    return [queues[(start + step) % len(queues)] for step in range(size)]


def java_circle(index: int, members: int, queues: list[MessageQueue]) -> list[MessageQueue]:
    """AllocateMessageQueueAveragelyByCircle."""
    return [
        queues[position] for position in range(index, len(queues)) if position % members == index
    ]


@given(count=st.integers(1, 70), members=st.integers(1, 30))
def test_plans_are_the_originals(count: int, members: int) -> None:
    queues = numbered(count)
    names = [f"c{number:02}" for number in range(members)]
    for ours, original in ((contiguous, java_avg), (circle, java_circle)):
        plan = ours.allocate(claims_of(*names), queues)
        for index, name in enumerate(names):
            assert list(plan.share(name)) == original(index, members, queues), (ours, name)
