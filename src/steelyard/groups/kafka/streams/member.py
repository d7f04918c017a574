"""A member of a streams group, which is a thread of an application: its tasks and its state.

Members are immutable values; a change creates another one. Source: streams/StreamsGroupMember.java,
MemberState.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.machine import Machine
from steelyard.wire.kafka.messages.streams_groups import Endpoint

LEAVE = -1
"""The epoch with which a member leaves."""


class StreamsMemberState(StrEnum):
    """The states of a member, which `reconciliation` describes."""

    STABLE = "stable"
    UNREVOKED_TASKS = "unrevoked"
    UNRELEASED_TASKS = "unreleased"


class Move(StrEnum):
    JOINED = "joined"
    RESTORED = "restored from disk"
    RECONCILED = "the next assignment"


_ALL = tuple(StreamsMemberState)

TASK_RECONCILIATION: Machine[StreamsMemberState, Move] = Machine(
    "Member of a streams group (KIP-1071) at its coordinator",
    {
        None: {Move.JOINED: (StreamsMemberState.STABLE,), Move.RESTORED: _ALL},
        StreamsMemberState.STABLE: {Move.RECONCILED: _ALL},
        StreamsMemberState.UNREVOKED_TASKS: {Move.RECONCILED: _ALL},
        StreamsMemberState.UNRELEASED_TASKS: {Move.RECONCILED: _ALL},
    },
)


class HeldTasks(msgspec.Struct, frozen=True):
    """Tasks of a member. `active`: each with the epoch in which the member got it (KIP-1251)."""

    active: Mapping[TaskId, int] = {}
    standby: frozenset[TaskId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.active or self.standby)

    @property
    def share(self) -> TaskShare:
        """Return the tasks without their epochs."""
        return TaskShare(frozenset(self.active), self.standby)


NO_TASKS = HeldTasks()


class StreamsGroupMember(msgspec.Struct, frozen=True):
    """A member.

    `process_id`: of the application's instance, whose threads share a state directory; `endpoint`:
    where it answers interactive queries, None if it does not; `epoch`: that of its target
    assignment, or an earlier one until it has released what it must; `assigned`: what it may run;
    `revoking`: what it has to release, and holds until it reports otherwise. An active task is in
    one of the two, at one member. Static members do not exist in Kafka 4.3.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = {}
    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = msgspec.field(
        default_factory=lambda: TASK_RECONCILIATION.move(None, Move.JOINED)
    )
    assigned: HeldTasks = NO_TASKS
    revoking: HeldTasks = NO_TASKS

    instance_id = None

    def is_reconciled(self, assignment_epoch: int) -> bool:
        """Return whether it has exactly what the target assignment of this epoch gives it."""
        return self.state is StreamsMemberState.STABLE and self.epoch == assignment_epoch

    @property
    def active(self) -> tuple[TaskId, ...]:
        """Return the active tasks that it may still run, sorted."""
        return tuple(sorted((*self.assigned.active, *self.revoking.active)))

    @property
    def standby(self) -> frozenset[TaskId]:
        """Return the tasks of which it may still have a standby."""
        return self.assigned.standby | self.revoking.standby

    def epoch_of(self, task: TaskId) -> int | None:
        """Return the epoch in which it got an active task; None if it does not have it."""
        return self.assigned.active.get(task, self.revoking.active.get(task))

    @property
    def name(self) -> str:
        """Return the member's name for people."""
        return f"{self.member_id} ({self.client_id}{self.host})"
