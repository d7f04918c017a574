"""Reconciliation: a member moves to its target assignment, heartbeat by heartbeat.

STABLE            it has what the target of its epoch gives it.
    a newer target -> the next assignment, see below
UNREVOKED_TASKS   it was told to release tasks, and keeps its epoch until it reports that it does
                  not own them any more. If that takes longer than its rebalance timeout, it is
                  removed from the group.
    it owns none of them any more -> the next assignment
UNRELEASED_TASKS  it is in the epoch of the target, but others have not yet released all tasks that
                  it should get.
    any heartbeat -> the next assignment: it gets what has become free

The next assignment: tasks that the target does not have are revoked; while the member still owns
some of them, it is UNREVOKED_TASKS. Otherwise it gets what is free, enters the epoch of the target,
and is UNRELEASED_TASKS while something is missing, or STABLE.

An active task is free if no other member has it, and no other one of the same process has its
standby: threads of a process share a directory. A standby is free if no other member of the process
has the task. A member whose standby becomes active releases the standby first.

Source: streams/CurrentAssignmentBuilder.java.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.groups.kafka.streams.member import (
    NO_TASKS,
    TASK_RECONCILIATION,
    HeldTasks,
    Move,
    StreamsGroupMember,
    StreamsMemberState,
)


class FreeTasks(msgspec.Struct, frozen=True):
    """Which tasks a member can get, judged by what the others have. See the module docstring."""

    active: Callable[[TaskId], bool]
    standby: Callable[[TaskId], bool]


def reconcile(
    member: StreamsGroupMember,
    target: TaskShare,
    target_epoch: int,
    owned: TaskShare | None,
    free: FreeTasks,
) -> StreamsGroupMember:
    """Return the member after a heartbeat; the same object if nothing changes.

    `owned`: the tasks that it may run by its report, None if it does not report.
    """
    match member.state:
        case StreamsMemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _next(member, member.epoch, target, target_epoch, owned, free)
        case StreamsMemberState.UNREVOKED_TASKS:
            if _owns(owned, member.revoking):
                return member
            return _next(member, member.epoch + 1, target, target_epoch, owned, free)
        case StreamsMemberState.UNRELEASED_TASKS:
            return _next(member, member.epoch, target, target_epoch, owned, free)


def _owns(owned: TaskShare | None, revoking: HeldTasks) -> bool:
    """Return whether it still owns tasks that it has to release, as far as is known."""
    return owned is None or not (
        owned.active.isdisjoint(revoking.active) and owned.standby.isdisjoint(revoking.standby)
    )


def _next(
    member: StreamsGroupMember,
    epoch: int,
    target: TaskShare,
    target_epoch: int,
    owned: TaskShare | None,
    free: FreeTasks,
) -> StreamsGroupMember:
    """Return the member's next step. `epoch`: the one it has while it has tasks to release."""
    held = member.assigned
    active = {task: since for task, since in held.active.items() if task in target.active}
    revoking = HeldTasks(
        {task: since for task, since in held.active.items() if task not in target.active},
        held.standby - target.standby,
    )
    standby = held.standby & target.standby
    if revoking and _owns(owned, revoking):
        assigned = HeldTasks(active, standby)
        return _moved(member, StreamsMemberState.UNREVOKED_TASKS, epoch, assigned, revoking)
    missing = sorted(target.active - active.keys())
    active |= dict.fromkeys(filter(free.active, missing), target_epoch)
    standby |= frozenset(filter(free.standby, target.standby - standby))
    is_complete = active.keys() == target.active and standby == target.standby
    state = StreamsMemberState.STABLE if is_complete else StreamsMemberState.UNRELEASED_TASKS
    return _moved(member, state, target_epoch, HeldTasks(active, standby), NO_TASKS)


def _moved(
    member: StreamsGroupMember,
    to: StreamsMemberState,
    epoch: int,
    assigned: HeldTasks,
    revoking: HeldTasks,
) -> StreamsGroupMember:
    """Return the moved member, whose previous epoch is that before, even if it is the same."""
    return msgspec.structs.replace(
        member,
        state=TASK_RECONCILIATION.move(member.state, Move.RECONCILED, to),
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
    )
