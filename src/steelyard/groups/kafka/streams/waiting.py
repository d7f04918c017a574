"""Heartbeats of streams groups (KIP-1071) that wait for news of their members.

- A heartbeat without news waits, and is answered as soon as there is some (`has_news`): other
  tasks, another epoch, a status of the group, or endpoints of other members.
- A member that has yet to release tasks, or to report those that it was told, is answered at once,
  and so is one that reports.
- Only clients wait that are known to count an interval from the answer: the next heartbeat after a
  short one comes soon, and waits. The Java client is the only one there is for these groups. It
  sends a heartbeat while another waits only to leave.
- A status of the group is told with the usual interval. Java's StreamThread gives missing source
  topics twice the interval that it was told with them, and then fails.

What else ends a wait, and when nobody waits, is in `groups.kafka.waiting`.
Source: the client's StreamsGroupHeartbeatRequestManager.java; StreamThread.java
handleMissingSourceTopicsWithTimeout.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.config import KafkaConfig
from steelyard.groups.kafka.effects import Handle
from steelyard.groups.kafka.groups import Asker
from steelyard.groups.kafka.streams.group import SESSION, StreamsGroup
from steelyard.groups.kafka.streams.member import StreamsGroupMember, StreamsMemberState
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.times import StreamsGroupSettings
from steelyard.groups.kafka.waiting import COUNTING_FROM_ANSWERS, LateReplies, Waiter, wait_ms
from steelyard.wire.kafka.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


class StreamsWaiter(Waiter, frozen=True, kw_only=True):
    """A heartbeat that waits. `request`: what it said."""

    request: StreamsGroupHeartbeatRequest


class LateStreamsHeartbeats(LateReplies):
    """The heartbeats that wait. `enabled`: otherwise nobody waits."""

    def __init__(
        self, config: KafkaConfig, settings: StreamsGroupSettings, *, enabled: bool
    ) -> None:
        super().__init__()
        self._enabled = enabled
        self._settings = settings
        self._wait_max_ms = config.group_heartbeat_wait_max_ms

    def wait_ms(self, group_id: str, member_id: str, asker: Asker) -> int:
        """Return how long a heartbeat without news would wait; 0 if it would not."""
        if not self._enabled or asker.software not in COUNTING_FROM_ANSWERS:
            return 0
        most_ms = self._limits.limited(group_id, member_id, self._wait_max_ms)
        return wait_ms(most_ms, self._settings.session_timeout_ms(group_id))

    def wait(
        self,
        request: StreamsGroupHeartbeatRequest,
        response: StreamsGroupHeartbeatResponse,
        asker: Asker,
        handle: Handle,
        now: int,
    ) -> None:
        """Let a heartbeat wait, for `wait_ms`. Those of its link must have been answered."""
        group_id, member_id = request.group_id, request.member_id
        due_at = now + self.wait_ms(group_id, member_id, asker)
        self._waiting.add(
            StreamsWaiter(
                *(group_id, member_id, handle, asker.link, response, now, due_at), request=request
            )
        )

    def check(self, groups: Mapping[str, StreamsGroup], timers: Timers) -> None:
        """Assert that those who wait have nothing to release, and that no session ends before."""
        self._waiting.check()
        for group_id in self.groups():
            for waiter in self.of_group(group_id):
                member = groups[group_id].member(waiter.member_id)
                assert member is not None
                assert member.state is not StreamsMemberState.UNREVOKED_TASKS
                ends = timers.at((group_id, SESSION, waiter.member_id))
                assert ends is not None
                assert waiter.due_at < ends


def has_news(
    member: StreamsGroupMember,
    request: StreamsGroupHeartbeatRequest,
    response: StreamsGroupHeartbeatResponse,
) -> bool:
    """Return whether an answer tells its member something, or the heartbeat told something."""
    return (
        member.epoch != request.member_epoch
        or member.state is StreamsMemberState.UNREVOKED_TASKS
        or request.active_tasks is not None
        or request.shutdown_application
        or bool(response.status)
        or response.active_tasks is not None
        or response.partitions_by_user_endpoint is not None
    )
