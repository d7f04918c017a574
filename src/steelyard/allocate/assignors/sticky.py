"""sticky and cooperative-sticky: as balanced as it can be, and moving as little as that allows.

Both make the plan of `constrained` where all members subscribe to the same topics, else that of `general`.

- sticky is for eager groups: members give up all before they join, so each tells in its user data what it had.
- cooperative-sticky is for groups whose members keep what they hold while they join. What is to move stays out of
  the first assignment; its holder gives it up and joins again, and then all are given their part of the same plan.

Laws: complete (cooperative-sticky: once nobody holds what another shall have), disjoint, only to subscribers, sizes
differ by at most one where all subscribe alike, deterministic whatever the order of subscribers.
Kafka's own also look at racks (KIP-881), which these do not.
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
