"""Even: all topics of a group together, spread at most one, and few moves when members come and go.

This strategy is Steelyard's own. It has two halves, which can be used apart:

- `quotas` says how many queues each member reads, by its rank alone: of n queues and m members, the
  first `n mod m` members get `n div m + 1`, the others `n div m`. Everybody who knows the members
  and the number of queues knows all quotas.
- `keep` says which ones a member stays with: the first ones that it holds, as far as its quota goes.

`allocate` puts both together for a caller that knows what everybody holds. Laws: complete, disjoint,
sizes differ by at most one over all topics together, deterministic, and nothing moves if neither
members nor queues change.

**Moves.** From a plan of these quotas, a leave moves the fewest queues that any even plan could move, and
a join at most one more. Let h be what a member holds and t its new quota; with q = n div m, r = n mod m
and q', r' after the change, the moved queues are those above their holder's t, and those of who left.

- A leave. The leaver's queues move in any plan. Nobody else loses one: either q' > q, so that t >= q + 1
  >= h; or q' = q, then r' = r + q >= r, and a rank only falls, so that who had one more still has.
- A join. An even plan gives the newcomer at least q' queues, which all have to move. If q' < q nobody is
  below its new quota (h >= q >= q' + 1 >= t), so that what moves is what the newcomer gets: q' or q' + 1.
  If q' = q then r' = r - q. The ranks behind the newcomer rise by one, so that of the r members with one
  more those with a rank under r' keep it: r' of them, or r' - 1 if the newcomer is among the first r'.
  So q move, or q + 1.

Giving the longer shares to those who hold more already would save that one move; but a member that sees
nobody else's queues could not work out its own quota then.

**Without knowledge of what is held** no strategy can do this. By Ramsey's theorem any rule that makes an
even plan from the set of members alone depends, within some large enough choice of names, on nothing but their order;
and then a join, wherever in the order it comes, shifts the ranks of others, so that on the average over
those places about a quarter of all queues moves, however large the group is, instead of one in m + 1.

What the members hold is the memory that is needed. In a RocketMQ group nobody sees it as a whole, but each
queue's lock at its broker says whether the queue is free: members that keep up to their quota, give up
the rest and take what is free up to their quota come to such a plan without a word to each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from steelyard.allocate.plan import Claim, Plan, Q


def quotas(member_count: int, queue_count: int) -> tuple[int, ...]:
    """How many queues each member reads, by rank: the first `n mod m` members one more than the others."""
    if not member_count:
        return ()
    size, longer = divmod(queue_count, member_count)
    return (size + 1,) * longer + (size,) * (member_count - longer)


def keep(held: Sequence[Q], quota: int) -> tuple[Q, ...]:
    """What a member stays with of the queues that it holds, in the order in which it prefers them."""
    return tuple(held[:quota])


def allocate(claims: Sequence[Claim[Q]], queues: Sequence[Q]) -> Plan[Q]:
    """The even plan of the whole group; `queues` are those of all its topics.

    `Claim.held` tells what each member holds, those it would rather stay with first; where two claim to
    hold a queue the first one does. What nobody keeps is dealt out one by one, in the order of `queues`,
    to the members that have room; so is everything if nobody holds anything. Takes O(members + queues).
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
