"""Which tasks members of streams groups were told, and which of them they have reported.

A member changes to the tasks that it was told, one assignment after the other, and reports its
tasks when they differ from those that it reported last. A report may be about an earlier
assignment: the member sends it while it already changes to the next. So it is told an assignment
only when it has reached the one before, and until it reports that one, it may run tasks of both.
After an error it reports its tasks in any case; if they are not those that it was told last, it is
told those again, because the answer may have been lost.

Kafka 4.3 tells each change at once. There a task is given to somebody else while a member changes
to it, if it is taken back just before an earlier change is reported; and if an assignment is
changed back before its member has begun to change, the member has nothing to report: its
coordinator removes it after the rebalance timeout, though it runs its other tasks.
Source: the client's StreamsMembershipManager.java and StreamsGroupHeartbeatRequestManager.java;
GroupMetadataManager.streamsGroupHeartbeat, streams/CurrentAssignmentBuilder.java.
"""

from __future__ import annotations

from collections.abc import Collection

from steelyard.allocate.assignors.sticky_tasks import TaskShare


class ToldTasks:
    """What each member reported last, and what it was told since, if it has not reported that."""

    def __init__(self) -> None:
        self._reported: dict[str, TaskShare] = {}
        """Nothing of members from before the coordinator started, until they report."""
        self._unreported: dict[str, TaskShare] = {}

    def is_changing(self, member_id: str) -> bool:
        """Return whether a member was told tasks that it has not reported yet."""
        return member_id in self._unreported

    def joined(self, member_id: str) -> None:
        """Note that a member has joined, or joined again: it has no tasks."""
        self._reported[member_id] = TaskShare()
        self._unreported.pop(member_id, None)

    def report(self, member_id: str, owned: TaskShare, assigned: TaskShare) -> TaskShare:
        """Note a member's report; return all tasks that it may run, or begin to.

        `assigned`: what it has at the coordinator, and was told if nothing is known of it yet.
        """
        told = self._unreported.get(member_id)
        if member_id not in self._reported:
            told = assigned
        self._reported[member_id] = owned
        if told is None or told == owned:
            self._unreported.pop(member_id, None)
            return owned
        self._unreported[member_id] = told
        return TaskShare(owned.active | told.active, owned.standby | told.standby)

    def tell(
        self, member_id: str, assigned: TaskShare, before: TaskShare, *, reports: bool
    ) -> TaskShare | None:
        """Return the tasks to tell a member, which is told them; None for nothing.

        `before`: those that it had at the coordinator before; `reports`: it has just reported.
        """
        told = self._unreported.get(member_id)
        if told is not None:
            return told if reports else None
        if assigned == self._reported.get(member_id, before):
            return None
        self._unreported[member_id] = assigned
        return assigned

    def forget(self, member_id: str) -> None:
        """Forget a member that is none any more."""
        self._reported.pop(member_id, None)
        self._unreported.pop(member_id, None)

    def check(self, member_ids: Collection[str]) -> None:
        """Assert that nothing is known of others than these members."""
        assert self._reported.keys() <= set(member_ids)
        assert self._unreported.keys() <= set(member_ids)
