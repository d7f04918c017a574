"""AVG: each member reads one run of neighbouring queues; the first members get one more.

With n queues and m members, the first `n mod m` members get `n div m + 1`, the others `n div m`.
Kafka's range assignor takes the same runs, topic by topic (`assignors.ranges`). Laws: complete,
disjoint, sizes differ by at most one. Drawback: the remainder of every topic goes to the same
members, those that sort first.
Source: client/consumer/rebalance/AllocateMessageQueueAveragely.java.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steelyard.allocate.even import quotas
from steelyard.allocate.plan import Claim, Plan, Q


def runs(member_count: int, queue_count: int) -> Iterator[range]:
    """Yield the positions of each member's queues, by its rank."""
    start = 0
    for size in quotas(member_count, queue_count):
        yield range(start, start + size)
        start += size


def allocate(claims: Sequence[Claim[Q]], queues: Sequence[Q]) -> Plan[Q]:
    """Compute the plan of AVG; without claims it has no shares."""
    members = tuple(claim.member for claim in claims)
    shares = tuple(tuple(queues[run.start : run.stop]) for run in runs(len(members), len(queues)))
    return Plan(members, shares)
