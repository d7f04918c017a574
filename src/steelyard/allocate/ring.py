"""CONSISTENT_HASH: each queue goes to the next member on a ring of hashes.

A member has several virtual nodes on the ring, at the hashes of `client id-0`, `client id-1`, …; a
queue belongs to the node at its own hash or the next one after it, wrapping around. The hash is the
first four bytes of an MD5 (UTF-8), big endian; a queue's is that of Java's `MessageQueue.toString`.
Laws: complete, disjoint, and when a member joins or leaves only its own queues move, unless two
nodes share a hash. Not fair: with ten nodes per member, one may read several times as much as
another, or nothing.

Two processes with one client id count as one member: the second gets the node numbers after those
of the first, and both read all queues of both. The first of their shares holds them.
Source: rebalance/AllocateMessageQueueConsistentHash.java,
common/consistenthash/ConsistentHashRouter.java.
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
"""Virtual nodes of a member on the ring (`virtualNodeCnt`)."""


def md5_hash(text: str) -> int:
    """Return a hash from 0 to 2^32 - 1."""
    # Java writes `?` for half a surrogate pair; "replace" does the same.
    digest = md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def consistent_hash(
    virtual_nodes: int = VIRTUAL_NODES, hash_of: Callable[[str], int] = md5_hash
) -> Strategy:
    """Create CONSISTENT_HASH with other parameters, which must be equal in the whole group."""
    if virtual_nodes < 1:
        raise ConfigError(f"virtual_nodes is {virtual_nodes}; it must be 1 or more")
    return partial(allocate, virtual_nodes=virtual_nodes, hash_of=hash_of)


def allocate(
    claims: Sequence[Claim[MessageQueue]],
    queues: Sequence[MessageQueue],
    virtual_nodes: int = VIRTUAL_NODES,
    hash_of: Callable[[str], int] = md5_hash,
) -> Plan[MessageQueue]:
    """Compute the plan of CONSISTENT_HASH; without claims it has no shares."""
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
    """Return the member at each hash.

    A later member overrides a node; nodes that a member of the same name lost this way are not
    counted.
    """
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
    """Return Java's `toString` (common/message/MessageQueue.java)."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
