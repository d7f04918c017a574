"""EVEN: balances all topics of a group together, with few moves when members join and leave.

This strategy is Steelyard's own. It has two halves, which can be used separately:

- `quotas` returns how many queues each member reads, by its rank only: of n queues and m members,
  the first `n mod m` members get `n div m + 1`, the others `n div m`. Whoever knows the members and
  the number of queues knows all quotas.
- `keep` returns the queues that a member keeps: the first ones that it holds, up to its quota.

`allocate` combines both for a caller that knows what all members hold. Laws: complete, disjoint,
sizes differ by at most one over all topics together, deterministic, and nothing moves if neither
members nor queues change.

**Moves.** From a plan of these quotas, a leave moves the fewest queues that any even plan could
move, and a join at most one more. Let h be what a member holds and t its new quota; with q = n div
m, r = n mod m and q', r' after the change, the moved queues are those above their holder's t, and
those of the member that left.

- A leave. The leaver's queues move in any plan. No other member loses one: either q' > q, so that
  t >= q + 1 >= h; or q' = q, then r' = r + q >= r, and a rank can only decrease, so that a member
  that had one more still has.
- A join. An even plan gives the newcomer at least q' queues, which all have to move. If q' < q no
  member is below its new quota (h >= q >= q' + 1 >= t), so that exactly the newcomer's queues move:
  q' or q' + 1. If q' = q then r' = r - q. Ranks after the newcomer increase by one, so that of the
  r members with one more those with a rank below r' keep it: r' of them, or r' - 1 if the newcomer
  is among the first r'. So q or q + 1 queues move.

Giving the longer shares to members that hold more already would save that one move; but then a
member that does not see the others' queues could not compute its own quota.

**Without knowledge of what is held** no strategy can do this. By Ramsey's theorem any rule that
computes an even plan from the set of members alone depends, for some sufficiently large set of
names, only on their order; and then a join, at any place in the order, shifts the ranks of others,
so that on average about a quarter of all queues moves, however large the group is, instead of one
in m + 1.

The queues that members hold are the state that is needed. In a RocketMQ group no member sees all of
it, but each queue's lock at its broker shows whether the queue is free: members that keep queues up
to their quota, give up the rest and lock free queues up to their quota arrive at such a plan
without communicating.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from steelyard.allocate.plan import Claim, Plan, Q


def quotas(member_count: int, queue_count: int) -> tuple[int, ...]:
    """Return the number of queues per member, by rank: the first `n mod m` members get one more."""
    if not member_count:
        return ()
    size, longer = divmod(queue_count, member_count)
    return (size + 1,) * longer + (size,) * (member_count - longer)


def keep(held: Sequence[Q], quota: int) -> tuple[Q, ...]:
    """Return the queues that a member keeps of those it holds, given in its order of preference."""
    return tuple(held[:quota])


def allocate(claims: Sequence[Claim[Q]], queues: Sequence[Q]) -> Plan[Q]:
    """Compute the even plan of the whole group; `queues` are those of all its topics.

    `Claim.held` is what each member holds, preferred ones first; if two claim to hold a queue, the
    first does. Other queues are assigned one by one, in the order of `queues`, to the members with
    room. Takes O(members + queues).
    """
    sizes = quotas(len(claims), len(queues))
    unkept = set(queues)
    owner_of: dict[Q, int] = {}
    room: deque[tuple[int, int]] = deque()
    for position, (claim, size) in enumerate(zip(claims, sizes, strict=True)):
        kept = keep([queue for queue in dict.fromkeys(claim.held) if queue in unkept], size)
        unkept.difference_update(kept)
        owner_of.update(dict.fromkeys(kept, position))
        if len(kept) < size:
            room.append((position, size - len(kept)))
    for queue in queues:
        if room and queue in unkept:
            position, free = room.popleft()
            owner_of[queue] = position
            if free > 1:
                room.append((position, free - 1))
    shares: list[list[Q]] = [[] for _ in claims]
    for queue in queues:
        if queue in owner_of:
            shares[owner_of[queue]].append(queue)
    return Plan(tuple(claim.member for claim in claims), tuple(map(tuple, shares)))
