"""Answers to Heartbeat and SyncGroup of a stable classic group that wait for its next rebalance.

- **Heartbeat** in a stable group: REBALANCE_IN_PROGRESS as soon as a rebalance begins, so that its
  member rejoins at once instead of an interval later.
- **SyncGroup** of a member that got nothing new while others have yet to give partitions up
  (cooperative assignors): the same; it goes on reading what it has. Otherwise the member would
  learn of the second round with its first heartbeat, an interval later, and everybody waits for it
  in that round. Not
  of librdkafka's: they send their first heartbeat at once, and after such an answer to SyncGroup
  rejoin only a second after they last joined.

**Heartbeats of franz-go** end their waits together. Its client sends the next one an interval after
the answer, and cannot be told of a rebalance before. Another request, such as a commit, releases
one heartbeat, while the others would go on waiting. But a rebalance takes until its last member has
been told: if each has its gaps at its own time, there is mostly one in a gap. So the others are
answered TOGETHER_MS later. (On Kafka's brokers heartbeats that began together stay together.) If
the other request came before a LeaveGroup, the rebalance has begun by then.

Whoever leaves, expires or is fenced meanwhile is told so. What else ends a wait, and when nobody
waits, is in `groups.kafka.waiting`.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.members import ClassicGroupMember, subscription_of
from steelyard.groups.kafka.classic.state import ClassicGroupState
from steelyard.groups.kafka.effects import Effects, Handle, Replied
from steelyard.groups.kafka.groups import Asker
from steelyard.groups.kafka.waiting import FRANZ_GO, LateReplies, Waiter, may_wait
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import TopicPartitions, read_assignment
from steelyard.wire.kafka.messages.groups import HeartbeatResponse, SyncGroupResponse

TOGETHER_MS = 250
"""Time after which the heartbeats of franz-go's members follow one that another request released.

It is longer than the time in which members that leave are collected (`rebalances.LEAVES_MS`).
"""


class LateAnswers(LateReplies):
    """The answers that wait, for at most `wait_max_ms`. `enabled`: otherwise nobody waits."""

    def __init__(self, wait_max_ms: int, *, enabled: bool) -> None:
        super().__init__()
        self.enabled = enabled
        self._wait_max_ms = wait_max_ms if enabled else 0

    def beat(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        asker: Asker,
        version: int,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> None:
        """Answer a valid Heartbeat, whose member need not rejoin, now or later."""
        answer = HeartbeatResponse()
        if group.state is not ClassicGroupState.STABLE or not may_wait(asker, version):
            effects.append(Replied(handle, answer))
        else:
            self._await_rebalance(
                group, member, asker.link, handle, answer, now, effects, asker.software
            )

    def synced(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        handle: Handle,
        answer: SyncGroupResponse,
        now: int,
        effects: Effects,
    ) -> None:
        """Answer a member's last SyncGroup, now or later."""
        link, is_valid = member.syncing_link, answer.error_code == ErrorCode.NONE
        if link is not None and is_valid and member.member_id in group.expecting:
            self._await_rebalance(group, member, link, handle, answer, now, effects)
        else:
            effects.append(Replied(handle, answer))

    def _await_rebalance(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        link: int,
        handle: Handle,
        answer: HeartbeatResponse | SyncGroupResponse,
        now: int,
        effects: Effects,
        software: str = "",
    ) -> None:
        group_id, member_id = group.group_id, member.member_id
        self.superseded(group_id, member_id, now, effects)
        self.released(link, now, effects)
        most_ms, session_ms = self._wait_max_ms, member.session_timeout_ms
        if not self._await(
            group_id, member_id, link, handle, answer, most_ms, session_ms, now, software
        ):
            effects.append(Replied(handle, answer))

    def released(self, link: int, now: int, effects: Effects) -> None:
        waiter = self._waiting.of_link(link)
        super().released(link, now, effects)
        if waiter is not None and _is_franz(waiter):
            for other in self._waiting.of_group(waiter.group_id):
                if _is_franz(other):
                    self._waiting.hasten(other, now + TOGETHER_MS)

    def all_wait(self, group: ClassicGroup) -> bool:
        """Return whether all members wait that ever do, so that all would rejoin at once."""
        return all(
            self._waiting.of_member(group.group_id, member.member_id) is not None
            for member in group.members.values()
            if member.waits
        )

    def begun(self, group: ClassicGroup, effects: Effects) -> None:
        """Have all members of a group rejoin."""
        self.refused(group.group_id, ErrorCode.REBALANCE_IN_PROGRESS, effects)

    def check(self, groups: Iterable[ClassicGroup]) -> None:
        """Assert that only members of stable groups wait, and that no session ends before."""
        self._waiting.check()
        known = {group.group_id: group for group in groups}
        for group_id in self._waiting.groups():
            group = known[group_id]
            assert group.state is ClassicGroupState.STABLE
            for waiter in self._waiting.of_group(group_id):
                ends = group.session_ends(group.members[waiter.member_id])
                assert ends is not None
                assert waiter.due_at < ends


def _is_franz(waiter: Waiter) -> bool:
    """Return whether a request is a heartbeat of franz-go's."""
    return waiter.software == FRANZ_GO


def expecting(group: ClassicGroup) -> frozenset[str]:
    """Return the members that got nothing new, if others must give up partitions and rejoin.

    Members report what they own only to assignors that let them keep it (KIP-429).
    """
    shares = {one.member_id: _share(one) for one in group.members.values()}
    owned = {one.member_id: _owned(group, one) for one in group.members.values()}
    if all(owned[member_id] <= share for member_id, share in shares.items()):
        return frozenset()
    return frozenset(member_id for member_id, share in shares.items() if share == owned[member_id])


def _share(member: ClassicGroupMember) -> set[TopicPartition]:
    """Return the partitions that the leader has assigned; none if they cannot be read."""
    try:
        return _flat(read_assignment(member.assignment).assigned_partitions)
    except ProtocolError:
        return set()


def _owned(group: ClassicGroup, member: ClassicGroupMember) -> set[TopicPartition]:
    """Return the partitions that a member had when it joined."""
    metadata = member.protocols.get(group.protocol or "", b"")
    subscription = subscription_of(group.protocol_type, metadata)
    return set() if subscription is None else _flat(subscription.owned_partitions)


def _flat(topics: Iterable[TopicPartitions]) -> set[TopicPartition]:
    return {TopicPartition(one.topic, number) for one in topics for number in one.partitions}
