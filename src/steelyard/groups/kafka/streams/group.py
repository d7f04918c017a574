"""A streams group (KIP-1071): its members, epochs, topology and target assignment.

There are three epochs. The group's increases with every cause for a rebalance. That of the target
assignment is the group's epoch for which it was computed. A member's is that of its target
assignment, or of an earlier one until it has released the tasks that it must.

Empty        no members; the epochs and the topology stay
NotReady     topics that the topology requires are missing, or do not fit
Assigning    the group is ahead of its target, which waits for its interval or for more members
Reconciling  a member does not have its part of the target yet (see `reconciliation`)
Stable       all members have it

`StreamsGroup` holds the state and keeps it consistent; `groups` decides what a heartbeat does.
Source: streams/StreamsGroup.java.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from enum import StrEnum

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskRunner, TaskShare, assign
from steelyard.groups.kafka.effects import BUMPS_MAX, Began, Begun, Cause, Effects, Ended
from steelyard.groups.kafka.groups import Reader, TopicsView
from steelyard.groups.kafka.member_epochs import commit_fault, fetch_fault
from steelyard.groups.kafka.streams.configuration import ConfiguredTopology, configured
from steelyard.groups.kafka.streams.member import StreamsGroupMember
from steelyard.groups.kafka.streams.reconciliation import FreeTasks
from steelyard.groups.kafka.streams.records import (
    SeenTopic,
    StoredStreamsGroup,
    StreamsGroupRow,
    StreamsRecords,
    numbers_of,
    share_of,
)
from steelyard.groups.kafka.streams.telling import ToldTasks
from steelyard.groups.kafka.streams.topology import StreamsTopology
from steelyard.groups.kafka.timers import Timers
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

ASSIGNOR = "sticky"
"""The only assignor of Kafka 4.3."""

FIRST_EPOCH = 1
"""The epoch of a new group and of its target, which is empty: members of it have joined."""

SESSION, REBALANCE = "session", "rebalance"
"""Purposes of a member's timers."""

TARGET, INITIAL = "target", "initial"
"""Purposes of a group's timers: its next target, its first one may be computed."""


class StreamsGroupState(StrEnum):
    """The state of a group; it follows from epochs, topics and members, and is never set."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsGroup:
    """A streams group; a `groups.kafka.groups.Group`."""

    kind = "streams"
    protocol_type = "streams"

    def __init__(
        self,
        group_id: str,
        topology: StreamsTopology,
        topics: TopicsView,
        records: StreamsRecords,
        timers: Timers,
    ) -> None:
        """Call `look_at_topics` next."""
        self.group_id = group_id
        self.topology = topology
        self._topics = topics
        self._records = records
        self._timers = timers
        self._topics_version: int | None = None
        self.seen: dict[str, SeenTopic] = {}
        """The required topics that exist, as last looked up."""
        self.topics_changed: str | None = None
        """What the topics are to the group since they changed; None once a rebalance has begun."""
        self.configured = ConfiguredTopology(topology.epoch, None)
        self.epoch = self.assignment_epoch = FIRST_EPOCH
        self.assigned_at = 0
        """When the target was computed, in ms since the epoch; 0 if the next one need not wait."""
        self.validated_epoch = -1
        """Epoch of the topology if all its topics were there at the latest heartbeat; or -1."""
        self.standby_replicas = 0
        """The setting that applied in the group's epoch."""
        self.shutdown_by: str | None = None
        """The member that asked for the end of the application; forgotten with the last member."""
        self.endpoint_epoch = 0
        """Increases when the tasks of a member with an endpoint change."""
        self.bumps: deque[Begun] = deque(maxlen=BUMPS_MAX)
        self.began_at: int | None = None
        """When the rebalance in progress began; None if there is none."""
        self._members: dict[str, StreamsGroupMember] = {}
        self._targets: dict[str, TaskShare] = {}
        self.told = ToldTasks()
        self._owners: dict[TaskId, str] = {}
        """The members that may run an active task, or have not released it yet."""
        self._standbys: Counter[tuple[str, TaskId]] = Counter()
        """Standbys by process."""
        self.stirred = False
        """Whether there may be news for its members since this was last reset."""
        self._unsaved: set[str] = set()
        self._is_unsaved = False

    # -- what it is ------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        if not self._members:
            return StreamsGroupState.EMPTY
        if self.validated_epoch != self.topology.epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        done = all(one.is_reconciled(self.assignment_epoch) for one in self._members.values())
        return StreamsGroupState.STABLE if done else StreamsGroupState.RECONCILING

    @property
    def ready_epoch(self) -> int:
        """Return the epoch of the topology if all its topics are there now; otherwise -1."""
        return self.topology.epoch if self.configured.is_ready else -1

    @property
    def is_empty(self) -> bool:
        return not self._members

    def __len__(self) -> int:
        return len(self._members)

    def member_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def member(self, member_id: str) -> StreamsGroupMember | None:
        return self._members.get(member_id)

    def each(self) -> list[StreamsGroupMember]:
        """Return all members, in the order of their ids."""
        return [self._members[member_id] for member_id in sorted(self._members)]

    def target(self, member_id: str) -> TaskShare:
        return self._targets.get(member_id, TaskShare())

    def awaits_target(self, member_id: str) -> bool:
        """Return whether a member came after the target was computed."""
        return member_id not in self._targets

    def revoke_deadline(self, member: StreamsGroupMember) -> int | None:
        """Return when a member must have released tasks, in ms; None if it need not."""
        return self._timers.at((self.group_id, REBALANCE, member.member_id))

    def free_for(self, member: StreamsGroupMember) -> FreeTasks:
        """Return which tasks a member can get, judged by what the others have."""

        def has_standby(task: TaskId) -> bool:
            own = task in member.standby
            return self._standbys[member.process_id, task] > own

        def is_free(task: TaskId) -> bool:
            return self._owners.get(task, member.member_id) == member.member_id

        def runs_here(task: TaskId) -> bool:
            owner = self._members.get(self._owners.get(task, ""), member)
            return owner is not member and owner.process_id == member.process_id

        return FreeTasks(
            lambda task: is_free(task) and not has_standby(task),
            lambda task: not runs_here(task) and not has_standby(task),
        )

    # -- partitions ------------------------------------------------------------------------------

    def partitions_of(self, tasks: Iterable[TaskId]) -> list[TopicPartition]:
        """Return the partitions that these tasks read, sorted."""
        return sorted(
            TopicPartition(topic, task.partition)
            for task in tasks
            for topic in self.topology.sources.get(task.subtopology_id, ())
            if task.partition < self._topics.partitions(topic)
        )

    def _task_of(self, partition: TopicPartition) -> TaskId | None:
        subtopology_id = self.topology.readers.get(partition.topic)
        return None if subtopology_id is None else TaskId(subtopology_id, partition.partition)

    def owner_of(self, partition: TopicPartition) -> str | None:
        task = self._task_of(partition)
        return None if task is None else self._owners.get(task)

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        owner = self._members.get(self.owner_of(partition) or "")
        if owner is None or (owner.client_id, owner.host) != (client_id, host):
            return None
        return owner.member_id

    def readers(self) -> list[Reader]:
        return [
            Reader(one.member_id, one.client_id, one.host, tuple(self.partitions_of(one.active)))
            for one in self.each()
            if one.active
        ]

    def subscribes_to(self, topic: str) -> bool:
        return bool(self._members) and topic in self.topology.readers

    def expires_from(self, committed_at: int) -> int | None:
        return committed_at

    # -- commits ---------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        transactional: bool,
        now: int,
    ) -> ErrorCode:
        """Implement `Group.check_commit`; `check_commit_partition` judges an older epoch."""
        return commit_fault(
            self._members,
            member_id,
            instance_id,
            generation,
            version=version,
            transactional=transactional,
        )

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if the member has had the task since this epoch or longer."""
        member = self._members.get(member_id)
        if member is None or generation == member.epoch:
            return ErrorCode.NONE
        task = self._task_of(partition)
        since = None if task is None else member.epoch_of(task)
        if since is None or generation < since:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Implement `Group.check_fetch`."""
        return fetch_fault(self._members, member_id, member_epoch)

    # -- changes ---------------------------------------------------------------------------------

    def put(self, member: StreamsGroupMember) -> None:
        """Add or change a member."""
        before = self._members.get(member.member_id)
        if before == member:
            return
        if before is not None:
            self._release(before)
        self._members[member.member_id] = member
        for task in member.active:
            assert task not in self._owners, f"{task} runs twice"
            self._owners[task] = member.member_id
        self._standbys.update((member.process_id, task) for task in member.standby)
        self._unsaved.add(member.member_id)
        self.stirred = True

    def remove(self, member_id: str) -> StreamsGroupMember:
        """Remove a member with its target and its timers; its tasks become free."""
        member = self._members.pop(member_id)
        self._release(member)
        self._targets.pop(member_id, None)
        self.told.forget(member_id)
        self._unsaved.add(member_id)
        self._is_unsaved = self.stirred = True
        for what in (SESSION, REBALANCE):
            self._timers.drop((self.group_id, what, member_id))
        if not self._members:
            self.shutdown_by = None
        return member

    def shut_down(self, member_id: str) -> None:
        """Note that a member asks for the end of the application, unless another one has."""
        if self.shutdown_by is None:
            self.shutdown_by = member_id
            self.stirred = True

    def endpoints_changed(self) -> None:
        """Have all members told the endpoints of the others again."""
        self.endpoint_epoch += 1
        self.stirred = True

    def _release(self, member: StreamsGroupMember) -> None:
        for task in member.active:
            del self._owners[task]
        for task in member.standby:
            place = member.process_id, task
            self._standbys[place] -= 1
            if not self._standbys[place]:
                del self._standbys[place]

    def look_at_topics(self) -> None:
        """Look up the topics if any has changed. Raises InvalidTopology."""
        if self._topics.version == self._topics_version:
            return
        found = {
            topic: SeenTopic(count, self._topics.id_of(topic).hex())
            for topic in sorted(self.topology.required_topics)
            if (count := self._topics.partitions(topic))
        }
        self.configured = configured(self.topology, self._topics.partitions)
        self._topics_version = self._topics.version
        if found != self.seen:
            self.seen = found
            self._is_unsaved = True
            status = self.configured.status
            self.topics_changed = "its topics are there" if status is None else status.status_detail

    def bump(self, cause: Cause, now: int, effects: Effects) -> None:
        """Increase the group's epoch for this reason, so that a rebalance follows."""
        effects.append(Began(self.group_id, self.epoch, cause, self.member_ids()))
        self.epoch += 1
        self.topics_changed = None
        self.bumps.append(Begun(self.epoch, now, cause))
        self.began_at = now if self.began_at is None else self.began_at
        self._is_unsaved = self.stirred = True

    def retarget(self, now: int) -> None:
        """Compute the target assignment of the group's epoch."""
        runners = [
            TaskRunner(one.member_id, one.process_id, self.target(one.member_id))
            for one in self._members.values()
        ]
        stateful = self.topology.stateful
        self._targets = assign(runners, self.configured.tasks, stateful, self.standby_replicas)
        self.assignment_epoch = self.epoch
        self.assigned_at = now
        self._is_unsaved = self.stirred = True

    def settle(self, effects: Effects) -> None:
        """Report the end of the rebalance in progress, if it has ended."""
        if self.began_at is None or self.state not in (
            StreamsGroupState.STABLE,
            StreamsGroupState.EMPTY,
        ):
            return
        ended = Ended(self.group_id, self.epoch, ASSIGNOR, self.began_at, self.member_ids())
        effects.append(ended)
        self.began_at = None

    # -- storage ---------------------------------------------------------------------------------

    def save(self) -> None:
        """Store what has changed. Raises StorageError; then the next call tries again."""
        if not self._unsaved and not self._is_unsaved:
            return
        changed = {one: self._members.get(one) for one in sorted(self._unsaved)}
        self._records.write(self.group_id, self._row() if self._is_unsaved else None, changed)
        self._unsaved.clear()
        self._is_unsaved = False

    def _row(self) -> StreamsGroupRow:
        return StreamsGroupRow(
            self.epoch,
            self.assignment_epoch,
            self.assigned_at,
            self.topology.message,
            self.validated_epoch,
            self.standby_replicas,
            self.seen,
            {member_id: numbers_of(share) for member_id, share in self._targets.items()},
        )

    def restore(self, row: StreamsGroupRow, stored: StoredStreamsGroup) -> None:
        """Restore the stored state, in a new group."""
        self.epoch, self.assignment_epoch = row.epoch, row.assignment_epoch
        self.assigned_at = row.assigned_at
        self.validated_epoch, self.standby_replicas = row.validated_epoch, row.standby_replicas
        self.seen = row.topics
        for member in stored.members.values():
            # If the disk was full while a task moved, two rows claim it. The second member must
            # rejoin.
            if self._owners.keys().isdisjoint(member.active):
                self.put(member)
        self._targets = {
            one: share_of(row.targets[one]) for one in self._members if one in row.targets
        }
        self._unsaved = stored.members.keys() - self._members.keys()
        newest = max((member.epoch for member in self._members.values()), default=0)
        if newest > self.assignment_epoch:  # the group's row is older than its members'
            self.assignment_epoch = newest
            self.epoch = max(self.epoch, newest + 1)
        elif row.targets.keys() - self._members.keys():
            # Members without a row, or that must rejoin, may never come: others get their tasks.
            self.epoch = max(self.epoch, self.assignment_epoch + 1)

    def forget(self) -> None:
        self._records.erase(self.group_id, self._members)
        for what in (TARGET, INITIAL):
            self._timers.drop((self.group_id, what, ""))
        for member_id in self._members:
            for what in (SESSION, REBALANCE):
                self._timers.drop((self.group_id, what, member_id))

    def check(self) -> None:
        self.told.check(self._members)
        held = [(task, one) for one, member in self._members.items() for task in member.active]
        assert dict(held) == self._owners, "the owners do not agree with the members"
        assert len(held) == len(self._owners), "an active task has two members"
        standbys = Counter(
            (member.process_id, task)
            for member in self._members.values()
            for task in member.standby
        )
        assert standbys == self._standbys, "the standbys do not agree with the members"
        given = [task for share in self._targets.values() for task in share.active]
        assert len(given) == len(set(given)), "the target gives an active task to two"
        assert self._targets.keys() <= self._members.keys()
        assert self.assignment_epoch <= self.epoch
        for member_id, member in self._members.items():
            assert member_id == member.member_id
            assert member.epoch <= self.assignment_epoch
            assert bool(member.revoking) <= (member.state.name == "UNREVOKED_TASKS")
