"""AVG_BY_CIRCLE: the queues are assigned in turn.

Member i of m reads the queues i, i + m, i + 2m, … Kafka's round-robin assignor does the same if all
members subscribe to the same topics. Laws: complete, disjoint, sizes differ by at most one.
Source: client/consumer/rebalance/AllocateMessageQueueAveragelyByCircle.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.allocate.plan import Claim, Plan, Q


def allocate(claims: Sequence[Claim[Q]], queues: Sequence[Q]) -> Plan[Q]:
    """Compute the plan of AVG_BY_CIRCLE; without claims it has no shares."""
    members = tuple(claim.member for claim in claims)
    shares = tuple(tuple(queues[position :: len(members)]) for position in range(len(members)))
    return Plan(members, shares)
