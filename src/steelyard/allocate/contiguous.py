"""AVG: each member reads one run of neighbouring queues; the first members get one more.

With n queues and m members, the first `n mod m` members get `n div m + 1`, the others `n div m`.
Kafka's range assignor does the same per topic. Laws: complete, disjoint, sizes differ by at most one.
What it costs: the remainder of every topic goes to the same members, those that sort first.
Source: client/consumer/rebalance/AllocateMessageQueueAveragely.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.allocate.plan import Claim, Plan, Q


def allocate(claims: Sequence[Claim[Q]], queues: Sequence[Q]) -> Plan[Q]:
    """The plan of AVG; no claims give a plan without shares."""
    members = tuple(claim.member for claim in claims)
    shares: list[tuple[Q, ...]] = []
    if members:
        size, longer = divmod(len(queues), len(members))
        start = 0
        for position in range(len(members)):
            end = start + size + (position < longer)
            shares.append(tuple(queues[start:end]))
            start = end
    return Plan(members, tuple(shares))
