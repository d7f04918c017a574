"""The sticky assignor of Kafka Streams groups: which member runs which task.

Members are threads; those of one process share its memory and its state directory. A task is active
at one member, and a stateful one has standbys: copies of its state in other processes.

- An active task stays with the member that had it, otherwise goes to one that had its standby, as
  long as that member has fewer tasks than its share. The remaining ones go to the process with the
  fewest tasks for each of its members, and there to the member with the fewest.
- A standby goes to the member that had the task, as active or as standby, under the same condition;
  otherwise to the least loaded process that does not have the task. If every process has it, there
  is one standby less.

Laws: every task is active once; a process has a task once; the same input gives the same result.
Ties are decided by the order of processes and members by id; Kafka leaves them to its hash maps.
Racks and client tags do not matter, and there are no warm-up tasks: neither has been written in
Kafka 4.3. Source: streams/assignor/StickyTaskAssignor.java, ProcessState.java.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class TaskId(NamedTuple):
    """A task: it reads partition `partition` of the topics of its subtopology."""

    subtopology_id: str
    partition: int


class TaskShare(NamedTuple):
    """The tasks of a member."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()


class TaskRunner(NamedTuple):
    """A member. `before`: its share of the previous assignment."""

    member_id: str
    process_id: str
    before: TaskShare = TaskShare()


class _Process:
    """A process, its members, and what they have got so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self.active: dict[str, set[TaskId]] = {}
        self.standby: dict[str, set[TaskId]] = {}
        self._total = 0

    @property
    def load(self) -> float:
        """Return the number of its tasks for each of its members."""
        return self._total / len(self.counts)

    def __lt__(self, other: _Process) -> bool:
        return (self.load, self.number) < (other.load, other.number)

    def join(self, member_id: str) -> None:
        self.counts[member_id] = 0
        self.active[member_id] = set()
        self.standby[member_id] = set()

    def add(self, member_id: str, task: TaskId, *, active: bool) -> int:
        """Give a member a task, and return the number of its tasks."""
        self.tasks.add(task)
        (self.active if active else self.standby)[member_id].add(task)
        self._total += 1
        self.counts[member_id] += 1
        return self.counts[member_id]

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


class _Quota:
    """How many tasks each member may have so that all have about the same number."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.most = -(-tasks // members)

    def counted(self, count: int) -> None:
        """Note that a member has so many tasks now: one with its share takes part no longer."""
        if count == self.most:
            self._members -= 1
            self._tasks -= count
            self.most = -(-self._tasks // self._members) if self._members else 0


def assign(
    runners: Iterable[TaskRunner],
    partitions: Mapping[str, int],
    stateful: Collection[str],
    standby_replicas: int,
) -> dict[str, TaskShare]:
    """Return the share of each member.

    `partitions`: the number of tasks of each subtopology; `stateful`: the subtopologies with state;
    `standby_replicas`: the number of standbys of each of their tasks.
    """
    members = sorted(runners)
    if not members:
        return {}
    return _Assignment(members, partitions, stateful, standby_replicas).shares()


class _Assignment:
    """The computation of one assignment."""

    def __init__(
        self,
        members: Sequence[TaskRunner],
        partitions: Mapping[str, int],
        stateful: Collection[str],
        standby_replicas: int,
    ) -> None:
        self._replicas = standby_replicas
        self._members = members
        ids = sorted({member.process_id for member in members})
        self._processes = {name: _Process(number) for number, name in enumerate(ids)}
        self._had_active: dict[TaskId, TaskRunner] = {}
        self._had_standby: dict[TaskId, list[TaskRunner]] = {}
        for member in members:
            self._processes[member.process_id].join(member.member_id)
            self._had_active.update(dict.fromkeys(member.before.active, member))
            for task in member.before.standby:
                self._had_standby.setdefault(task, []).append(member)
        self._tasks = [
            TaskId(one, number) for one in partitions for number in range(partitions[one])
        ]
        self._stateful = [task for task in self._tasks if task.subtopology_id in stateful]
        self._active_quota = _Quota(len(self._tasks), len(members))
        total = len(self._tasks) + len(self._stateful) * standby_replicas
        self._quota = _Quota(total, len(members))

    def shares(self) -> dict[str, TaskShare]:
        self._assign_active()
        if self._replicas:
            self._assign_standby()
        return {
            member.member_id: TaskShare(
                frozenset(self._processes[member.process_id].active[member.member_id]),
                frozenset(self._processes[member.process_id].standby[member.member_id]),
            )
            for member in self._members
        }

    # -- active tasks ----------------------------------------------------------------------------

    def _assign_active(self) -> None:
        # The first assignment gave ranges of tasks; by partition, each member keeps some of each.
        left = [
            task
            for task in sorted(self._tasks, key=_by_partition)
            if not self._keep_active(task, self._had_active.get(task))
        ]
        left = [
            task
            for task in left
            if not self._keep_active(task, self._least_loaded(self._had_standby.get(task, ())))
        ]
        queue = sorted(self._processes.values())
        for task in sorted(left):
            process = queue[0]
            self._count_active(process.add(process.least_loaded(), task, active=True))
            heapq.heapreplace(queue, process)

    def _keep_active(self, task: TaskId, member: TaskRunner | None) -> bool:
        """Give a task to a member that knows it, if there is one with less than its share."""
        if member is None:
            return False
        process = self._processes[member.process_id]
        if process.counts[member.member_id] >= self._active_quota.most:
            return False
        self._count_active(process.add(member.member_id, task, active=True))
        return True

    def _count_active(self, count: int) -> None:
        self._active_quota.counted(count)
        self._quota.counted(count)

    def _least_loaded(
        self, members: Iterable[TaskRunner], without: TaskId | None = None
    ) -> TaskRunner | None:
        """Return the least loaded of some members. `without`: in a process without this task."""
        found: TaskRunner | None = None
        least = (0.0, 0)
        for member in members:
            process = self._processes[member.process_id]
            if without in process.tasks:
                continue
            load = process.load, process.counts[member.member_id]
            if found is None or (load[0] < least[0] and load[1] < least[1]):
                found, least = member, load
        return found

    # -- standbys --------------------------------------------------------------------------------

    def _assign_standby(self) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            kept = 0
            while kept < self._replicas and self._keep_standby(task):
                kept += 1
            if kept < self._replicas:
                left.append((task, self._replicas - kept))
        queue = sorted(self._processes.values())
        for task, replicas in sorted(left, reverse=True):
            for _ in range(replicas):
                if not self._to_least_loaded(queue, task):
                    break  # every process has it

    def _keep_standby(self, task: TaskId) -> bool:
        """Give a standby to a member that had the task, if one has less than its share."""
        before = self._had_active.get(task)
        candidates = [] if before is None else [before]
        standby = self._least_loaded(self._had_standby.get(task, ()), without=task)
        candidates += [] if standby is None else [standby]
        for member in candidates:
            process = self._processes[member.process_id]
            if task in process.tasks or process.counts[member.member_id] >= self._quota.most:
                continue
            self._quota.counted(process.add(member.member_id, task, active=False))
            return True
        return False

    def _to_least_loaded(self, queue: list[_Process], task: TaskId) -> bool:
        """Give a standby to the least loaded process without the task; False if there is none."""
        passed: list[_Process] = []
        found = False
        while queue and not found:
            process = heapq.heappop(queue)
            passed.append(process)
            if task not in process.tasks:
                self._quota.counted(process.add(process.least_loaded(), task, active=False))
                found = True
        for process in passed:
            heapq.heappush(queue, process)
        return found


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id
