"""CONFIG: a configured mapping assigns the queues.

RocketMQ gives each member a list of its own regardless of the group, so that the group's retry
topic is not read unless it is on a list. Here one mapping has the lists of all members, and topics
that are on no list are allocated by another strategy. Laws: disjoint; complete only where the lists
are. A queue that does not exist at the moment is left out.
Source: rebalance/AllocateMessageQueueByConfig.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate import contiguous
from steelyard.allocate.plan import Claim, Plan, Strategy
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue


def pinned(
    lists: Mapping[str, Sequence[MessageQueue]], others: Strategy = contiguous.allocate
) -> Strategy:
    """Create a CONFIG strategy. `lists`: queues per client id, equal at all members of the group.

    `others`: the strategy for topics that are on no list, above all the group's retry topic. Raises
    ConfigError for a queue that is listed twice.
    """
    owner_of: dict[MessageQueue, str] = {}
    for member, queues_of_member in lists.items():
        for queue in queues_of_member:
            if queue in owner_of:
                raise ConfigError(
                    f"{queue} is listed for {owner_of[queue]!r} and for {member!r}; "
                    "only one member can read it"
                )
            owner_of[queue] = member
    topics = frozenset(queue.topic for queue in owner_of)

    def allocate(
        claims: Sequence[Claim[MessageQueue]], queues: Sequence[MessageQueue]
    ) -> Plan[MessageQueue]:
        members = tuple(claim.member for claim in claims)
        free = [queue for queue in queues if queue.topic not in topics]
        shares = [list(share) for share in others(claims, free).shares]
        there = frozenset(queues)
        for member, queues_of_member in lists.items():
            if member in members:
                listed = [queue for queue in queues_of_member if queue in there]
                shares[members.index(member)] += listed
        return Plan(members, tuple(map(tuple, shares)))

    return allocate
