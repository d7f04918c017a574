"""The cost of a change of plan, and its lower bound."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.allocate.plan import Plan, Q


def spread(plan: Plan[Q]) -> int:
    """Return the largest share minus the smallest; 0 without members. 0 or 1 is optimal."""
    sizes = [len(share) for share in plan.shares]
    return max(sizes) - min(sizes) if sizes else 0


def moves(before: Plan[Q], after: Plan[Q]) -> int:
    """Count queues that change their member; new and removed queues do not count."""
    owner_of = owners(after)
    return sum(owner_of.get(queue, owner) != owner for queue, owner in owners(before).items())


def moves_min(before: Plan[Q], members: Sequence[str], queues: Sequence[Q]) -> int:
    """Return the fewest moves from `before` to a complete, even plan of `members` and `queues`.

    Such a plan leaves each member at most `n div m` of its queues, and one more to `n mod m` of
    those that hold more.
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
    """Return the member that reads each queue."""
    return {
        queue: member
        for member, share in zip(plan.members, plan.shares, strict=True)
        for queue in share
    }
