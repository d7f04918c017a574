"""CONSISTENT_HASH: each queue goes to the next member on a ring of hashes.

A member stands on the ring several times, at the hashes of `client id-0`, `client id-1`, …; a queue
belongs to whoever stands at its own hash or next after it, and after the last comes the first again.
The hash is the first four bytes of an MD5 (UTF-8), big endian; a queue's is that of the text which
Java's `MessageQueue.toString` makes. Laws: complete, disjoint, and when a member comes or goes only
queues of its own move, unless two members stand at one hash. Not fair: with ten places a member, one
may read several times as much as another, and one nothing.

Two processes under one client id share one member's places: the second gets the numbers after those
of the first, and both read all queues of both. The first of their shares holds them.
Source: rebalance/AllocateMessageQueueConsistentHash.java, common/consistenthash/ConsistentHashRouter.java.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import md5

from steelyard.allocate.plan import Claim, Plan, Strategy
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue

VIRTUAL_NODES = 10
"""Places of a member on the ring (`virtualNodeCnt`)."""


def md5_hash(text: str) -> int:
    """0 .. 2^32 - 1."""
    # Java writes `?` for half a surrogate pair, and so does "replace".
    digest = md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def consistent_hash(
    virtual_nodes: int = VIRTUAL_NODES, hash_of: Callable[[str], int] = md5_hash
) -> Strategy:
    """CONSISTENT_HASH with so many places a member and that hash; all members of a group need the same."""
    if virtual_nodes < 1:
        raise ConfigError(f"virtual_nodes is {virtual_nodes}; it must be 1 or more")
    return partial(allocate, virtual_nodes=virtual_nodes, hash_of=hash_of)


def allocate(
    claims: Sequence[Claim[MessageQueue]],
    queues: Sequence[MessageQueue],
    virtual_nodes: int = VIRTUAL_NODES,
    hash_of: Callable[[str], int] = md5_hash,
) -> Plan[MessageQueue]:
    """The plan of CONSISTENT_HASH; no claims give a plan without shares."""
    members = tuple(claim.member for claim in claims)
    ring = _ring(members, virtual_nodes, hash_of)
    places = sorted(ring)
    share_of: dict[str, list[MessageQueue]] = {member: [] for member in members}
    if places:
        for queue in queues:
            following = bisect_left(places, hash_of(_java_text(queue)))
            share_of[ring[places[following % len(places)]]].append(queue)
    return Plan(members, tuple(tuple(share_of.pop(member, ())) for member in members))


def _ring(
    members: Sequence[str], virtual_nodes: int, hash_of: Callable[[str], int]
) -> dict[int, str]:
    """Who stands at which hash. A later member takes a place over; what a namesake lost so is not counted."""
    ring: dict[int, str] = {}
    standing: Counter[str] = Counter()
    for member in members:
        first = standing[member]
        for number in range(first, first + virtual_nodes):
            place = hash_of(f"{member}-{number}")
            if place in ring:
                standing[ring[place]] -= 1
            ring[place] = member
            standing[member] += 1
    return ring


def _java_text(queue: MessageQueue) -> str:
    """common/message/MessageQueue.java `toString`."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
