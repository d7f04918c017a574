"""sticky and cooperative-sticky: as balanced as possible, with as few moves as that allows.

Both use the plan of `constrained` if all members subscribe to the same topics, otherwise that of
`general`.

- sticky is for eager groups: members revoke everything before they join, so each reports in its
  user data what it had.
- cooperative-sticky is for groups whose members keep their partitions while they join. Partitions
  to be moved are left out of the first assignment; their holders revoke them and rejoin, and then
  all members get their part of the same plan.

Laws: complete (cooperative-sticky: once no member holds what another is to have), disjoint, only to
subscribers, sizes differ by at most one if all subscriptions are equal, deterministic whatever the
order of subscribers. Unlike Kafka's, they ignore racks (KIP-881).
Source: clients/consumer/StickyAssignor.java, CooperativeStickyAssignor.java, KIP-54, KIP-429.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate.assignors import constrained, general
from steelyard.allocate.assignors.holdings import (
    CurrentAssignment,
    claim_of_cooperative,
    claim_of_eager,
    settle,
)
from steelyard.allocate.assignors.plan import Assignment, Assignor, RebalanceProtocol, Subscriber
from steelyard.allocate.assignors.user_data import write_generation, write_sticky


def assign_eager(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    return _plan(settle(subscribers, partitions, claim_of_eager))


def assign_cooperative(
    subscribers: Sequence[Subscriber], partitions: Mapping[str, int]
) -> Assignment:
    group = settle(subscribers, partitions, claim_of_cooperative)
    return group.without_moving(_plan(group))


def _plan(group: CurrentAssignment) -> Assignment:
    plan = constrained.assign(group) if group.all_read_the_same else general.assign(group)
    return {member: sorted(share) for member, share in plan.items()}


STICKY = Assignor("sticky", RebalanceProtocol.EAGER, assign_eager, write_sticky)
COOPERATIVE_STICKY = Assignor(
    "cooperative-sticky", RebalanceProtocol.COOPERATIVE, assign_cooperative, write_generation
)
