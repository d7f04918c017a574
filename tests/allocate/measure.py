"""What a change of plan costs, and what it would cost at least."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.allocate.plan import Plan, Q


def spread(plan: Plan[Q]) -> int:
    """The largest share less the smallest one; 0 without members. 1 or 0 is as even as it gets."""
    sizes = [len(share) for share in plan.shares]
    return max(sizes) - min(sizes) if sizes else 0


def moves(before: Plan[Q], after: Plan[Q]) -> int:
    """Queues that one member reads before and another one after. New ones, and ones that are gone, do not count."""
    owner_of = owners(after)
    return sum(owner_of.get(queue, owner) != owner for queue, owner in owners(before).items())


def moves_min(before: Plan[Q], members: Sequence[str], queues: Sequence[Q]) -> int:
    """The fewest moves from `before` to any plan of `members` and `queues` that is complete and even.

    Such a plan keeps at most `n div m` queues where they are for each member, and one more for `n mod m`
    of those who hold more.
    """
    size, longer = divmod(len(queues), len(members)) if members else (0, 0)
    there = frozenset(queues)
    staying = frozenset(members)
    held = [
        (member, sum(queue in there for queue in share))
        for member, share in zip(before.members, before.shares, strict=True)
    ]
    kept = sum(min(count, size) for member, count in held if member in staying)
    kept += min(longer, sum(count > size for member, count in held if member in staying))
    return (sum(count for _, count in held) - kept) if members else 0


def owners(plan: Plan[Q]) -> dict[Q, str]:
    """Who reads each queue."""
    return {
        queue: member
        for member, share in zip(plan.members, plan.shares, strict=True)
        for queue in share
    }
