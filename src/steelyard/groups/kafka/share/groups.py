"""The effects of heartbeats, and of their absence, on share groups (KIP-932).

A heartbeat first adds or changes its member; a cause for another assignment increases the group's
epoch. Then the target assignment is computed if it is outdated, unless the last one is too recent
(share.assignment.interval.ms). Its member takes its part of it at once. A member that waits for the
next target is told when to come again. (Apache Kafka has it wait for a whole interval, and gives a
newcomer nothing before its second heartbeat, because it first writes the state of each partition.)

A member is removed when it leaves, or is silent for the session timeout.
Source: GroupMetadataManager.shareGroupHeartbeat, shareGroupLeave; GroupCoordinatorService.java.
"""

from __future__ import annotations

from msgspec.structs import replace

from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka.consumer.requests import CHARACTERS_MAX
from steelyard.groups.kafka.effects import Effects
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups, TopicsView, may_be_lost
from steelyard.groups.kafka.share.group import ASSIGNOR, ShareGroup
from steelyard.groups.kafka.share.member import LEAVE, ShareGroupMember
from steelyard.groups.kafka.share.records import ShareGroupRecords
from steelyard.groups.kafka.timers import SESSION, Timers
from steelyard.groups.kafka.times import GroupTimes
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table
from steelyard.types import LogLine, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    Assignment,
    DescribedAssignment,
    DescribedTopicPartitions,
    TopicPartitions,
)
from steelyard.wire.kafka.messages.share_groups import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

MEMBER_ID_MAX = 36
"""Most characters of a member's id: those of a UUID. Source: KafkaApis.isMemberIdValid."""


class ShareRefused(Exception):  # noqa: N818  # an outcome of a request, no error of the program
    """Raised and caught within this package, to refuse a request; `text` is for people."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ShareGroups:
    """All share groups of a coordinator. `table`: where they are stored. Call `load` first."""

    def __init__(
        self,
        config: KafkaConfig,
        topics: TopicsView,
        groups: CoordinatedGroups,
        table: Table,
        times: GroupTimes,
        clock: SessionClock | None = None,
    ) -> None:
        self._members_max = config.group_share_max_size
        self._topics = topics
        self._groups = groups
        self._records = ShareGroupRecords(table)
        self._times = times
        self._timers = Timers(clock)

    def load(self, now: int) -> None:
        """Restore the stored groups; each member has a whole session timeout to return."""
        for group_id, stored in self._records.restored().items():
            group = self._new(group_id)
            group.restore(stored)
            group.assigned_at = min(group.assigned_at, now)  # the clock may have been set back
            self._groups.add(group)
            for member in group.each():
                self._hear(group, member.member_id, now)

    # -- requests --------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, asker: Asker, now: int, effects: Effects
    ) -> ShareGroupHeartbeatResponse:
        """Handle a ShareGroupHeartbeat.

        Raises StorageError if a change could not be stored; it is effective, and stored with the
        next one.
        """
        try:
            _check(request)
            if request.member_epoch == LEAVE:
                return self._leave(request, effects)
            return self._beat(request, asker, now)
        except ShareRefused as refusal:
            return ShareGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.text)

    def describe(self, group_id: str) -> DescribedShareGroup:
        """Return one group of a ShareGroupDescribe."""
        try:
            group = self.get(group_id)
        except ShareRefused as refusal:
            return DescribedShareGroup(refusal.code, refusal.text, group_id)
        members = [_described(group, member) for member in group.each()]
        return DescribedShareGroup(
            0,
            None,
            group_id,
            group.state,
            group.epoch,
            group.assignment_epoch,
            ASSIGNOR,
            members,
        )

    def get(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises ShareRefused."""
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        what = "not found" if group is None else "is not a share group"
        text = (
            f"Share group {group_id} not found." if group is None else f"Group {group_id} {what}."
        )
        raise ShareRefused(ErrorCode.GROUP_ID_NOT_FOUND, text)

    def get_or_new(self, group_id: str) -> ShareGroup:
        """Return a share group, a new one if there is no group of this name.

        Raises ShareRefused, StorageError.
        """
        if self._groups.get(group_id) is not None:
            return self.get(group_id)
        if self._groups.is_full:
            raise ShareRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are too many groups.")
        group = self._new(group_id)
        group.bump()
        group.save()
        self._groups.add(group)
        return group

    def _new(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._topics, self._records, self._timers)

    # -- heartbeats ------------------------------------------------------------------------------

    def _beat(
        self, request: ShareGroupHeartbeatRequest, asker: Asker, now: int
    ) -> ShareGroupHeartbeatResponse:
        joins = request.member_epoch == 0
        if not joins and may_be_lost(self._groups.get(request.group_id)):
            raise _unknown_member(request.group_id, request.member_id)
        group = self.get_or_new(request.group_id) if joins else self.get(request.group_id)
        before = self._admit(group, request)
        topics = request.subscribed_topic_names
        member = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=asker.client_id,
            host=asker.host,
            topics=before.topics if topics is None else tuple(sorted(set(topics))),
        )
        is_new = group.member(member.member_id) is None
        resubscribed = is_new or member.topics != before.topics
        group.put(member)
        if group.look_at_topics(anew=resubscribed) or resubscribed:
            group.bump()
        due_at = self._due_at(group)
        if group.assignment_epoch < group.epoch and due_at <= now:
            group.retarget(now)
        after = group.reconcile(member)
        self._hear(group, after.member_id, now)
        group.save()
        tells = joins or topics is not None or after.epoch != before.epoch
        interval_ms = self._times.heartbeat_interval_ms(group.group_id)
        if group.assignment_epoch < group.epoch:
            interval_ms = min(interval_ms, max(due_at - now, 1))
        return ShareGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=_assignment(group, after) if tells else None,
        )

    def _due_at(self, group: ShareGroup) -> int:
        """Return from when on a group may get its next target."""
        return group.assigned_at + self._times.assignment_interval_ms(group.group_id)

    def _admit(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareGroupMember:
        """Return the member that sends a heartbeat, as it is. Raises ShareRefused."""
        member_id, epoch = request.member_id, request.member_epoch
        member = group.member(member_id)
        if member is None:
            if epoch != 0:
                raise _unknown_member(group.group_id, member_id)
            if len(group) >= self._members_max:
                raise ShareRefused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    "The share group has reached its maximum capacity of"
                    f" {self._members_max} members.",
                )
            return ShareGroupMember(member_id)
        if epoch not in (0, member.epoch, member.previous_epoch):
            size = "greater" if epoch > member.epoch else "smaller"
            raise ShareRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a {size} member epoch ({epoch}) than the one known by"
                f" the group coordinator ({member.epoch}). The member must abandon all its"
                " partitions and rejoin.",
            )
        return member

    def _leave(
        self, request: ShareGroupHeartbeatRequest, effects: Effects
    ) -> ShareGroupHeartbeatResponse:
        group = self.get(request.group_id)
        if group.member(request.member_id) is None:
            raise _unknown_member(group.group_id, request.member_id)
        group.remove(request.member_id)
        effects.append(_told(group, request.member_id, "left"))
        group.save()
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def _hear(self, group: ShareGroup, member_id: str, now: int) -> None:
        """Begin a member's session anew."""
        ends_at = now + self._times.session_timeout_ms(group.group_id)
        self._timers.set((group.group_id, SESSION, member_id), ends_at)

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        return self._timers.next_at

    def due(self, now: int, effects: Effects) -> None:
        """Remove the members whose sessions are over."""
        for group_id, _, member_id in self._timers.due(now):
            group = self._groups.get(group_id)
            if not isinstance(group, ShareGroup) or group.member(member_id) is None:
                continue
            waited_ms = self._times.session_timeout_ms(group_id)
            group.remove(member_id)
            effects.append(_told(group, member_id, f"sent no heartbeat for {waited_ms} ms"))
            try:
                group.save()
            except StorageError as error:
                text = f"group {group_id}: {member_id} was removed: {error}"
                effects.append(LogLine("ERROR", text))

    def check(self) -> None:
        self._timers.check()
        for group in self._groups:
            if isinstance(group, ShareGroup):
                group.check()


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise ShareRefused if no group could accept this."""
    text = _fault(request)
    if text is not None:
        raise ShareRefused(ErrorCode.INVALID_REQUEST, text)


def _fault(request: ShareGroupHeartbeatRequest) -> str | None:
    topics = request.subscribed_topic_names
    if not request.member_id or len(request.member_id) > MEMBER_ID_MAX:
        return "Invalid member id in the request."
    for value, field in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            return f"{field} can't be empty."
    told = (request.group_id, request.rack_id or "", *(topics or ()))
    if sum(map(len, told)) > CHARACTERS_MAX:
        return f"The request is longer than {CHARACTERS_MAX} characters."
    if request.member_epoch == 0:
        return None if topics else "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < LEAVE else None


def _unknown_member(group_id: str, member_id: str) -> ShareRefused:
    text = f"Member {member_id} is not a member of group {group_id}."
    return ShareRefused(ErrorCode.UNKNOWN_MEMBER_ID, text)


def _told(group: ShareGroup, member_id: str, what: str) -> LogLine:
    return LogLine("INFO", f"share group {group.group_id}: {member_id} {what}")


def _assignment(group: ShareGroup, member: ShareGroupMember) -> Assignment:
    return Assignment(
        [
            TopicPartitions(group.topic_ids[topic], numbers)
            for topic, numbers in numbers_by_topic(sorted(member.assigned)).items()
        ]
    )


def _described(group: ShareGroup, member: ShareGroupMember) -> DescribedShareMember:
    assigned = [
        DescribedTopicPartitions(group.topic_ids[topic], topic, numbers)
        for topic, numbers in numbers_by_topic(sorted(member.assigned)).items()
    ]
    return DescribedShareMember(
        member.member_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.host,
        member.topics,
        DescribedAssignment(assigned),
    )
