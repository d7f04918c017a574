"""What a member of a group is told, and what it orders: plain data on both sides of `machine.GroupMember`.

`turn` numbers what the member waits for. A response to an earlier turn is ignored, because the
member has moved on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.types import LogLine, TopicPartition
from steelyard.wire.kafka.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

Partitions = tuple[TopicPartition, ...]
"""Partitions, sorted."""


class MemberEvent(msgspec.Struct, frozen=True):
    """Root of the events."""


class Subscribed(MemberEvent, frozen=True):
    """The topics to read, sorted; from the application, or because the topics that match its pattern changed."""

    topics: tuple[str, ...]
    reason: str = "the subscription has changed"


class CoordinatorFound(MemberEvent, frozen=True):
    """Requests can be sent."""


class CoordinatorLost(MemberEvent, frozen=True):
    """Nobody takes requests until `CoordinatorFound`."""

    reason: str


class Prepared(MemberEvent, frozen=True):
    """`Prepare` is done: these partitions are not held any more."""

    released: Partitions


class TopicsKnown(MemberEvent, frozen=True):
    """How many partitions the topics have that `NeedTopics` named; unknown topics are left out."""

    partitions: Mapping[str, int]


class TopicsChanged(MemberEvent, frozen=True):
    """The cluster was looked at again: how many partitions topics have."""

    partitions: Mapping[str, int]


class Answered(MemberEvent, frozen=True):
    """The coordinator answered an `Ask`."""

    turn: int
    response: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse


class Unanswered(MemberEvent, frozen=True):
    """An `Ask` got no answer: the connection closed, or the time was over."""

    turn: int
    reason: str


class Adopted(MemberEvent, frozen=True):
    """`Adopt` is done: these partitions are held now."""

    owned: Partitions


class Retried(MemberEvent, frozen=True):
    """The application has heard of a `Fail`, and polls again."""


class PollBegan(MemberEvent, frozen=True):
    """The application asks for records, and so is done with those it had."""


class PollEnded(MemberEvent, frozen=True):
    """The application got its records."""


class CommitRefused(MemberEvent, frozen=True):
    """The coordinator refused a commit with this code, which says something of the membership."""

    code: int


class RejoinWanted(MemberEvent, frozen=True):
    """The application wants a rebalance (Consumer.enforceRebalance)."""

    reason: str


class TimePassed(MemberEvent, frozen=True):
    """It is `Member.due` or later."""


class Closing(MemberEvent, frozen=True):
    """The consumer closes: leave, unless the member is a static one."""

    reason: str


Event = (
    Subscribed
    | CoordinatorFound
    | CoordinatorLost
    | Prepared
    | TopicsKnown
    | TopicsChanged
    | Answered
    | Unanswered
    | Adopted
    | Retried
    | PollBegan
    | PollEnded
    | CommitRefused
    | RejoinWanted
    | TimePassed
    | Closing
)


class MemberEffect(msgspec.Struct, frozen=True):
    """Root of the effects."""


class Ask(MemberEffect, frozen=True):
    """Send this to the coordinator. Answered by `Answered` or `Unanswered`, but for a LeaveGroup, which needs no answer."""

    turn: int
    message: ApiMessage
    timeout_ms: int


class FindCoordinator(MemberEffect, frozen=True):
    """Ask who the coordinator is; answered by `CoordinatorFound`, some time."""

    reason: str


class Prepare(MemberEffect, frozen=True):
    """Before the group is joined: commit what is consumed, where `commit`; give up `revoked`; tell the application of
    them, or that `lost` are another member's already. Then `Prepared`."""

    revoked: Partitions
    lost: Partitions
    commit: bool


class NeedTopics(MemberEffect, frozen=True):
    """This member leads: look up these topics; answered by `TopicsKnown`."""

    topics: tuple[str, ...]


class Adopt(MemberEffect, frozen=True):
    """Give up `revoked`, take `assigned`, and tell the application; then `Adopted`."""

    revoked: Partitions
    assigned: Partitions


class Fail(MemberEffect, frozen=True):
    """The group refuses the member for a reason that is no matter of time; the application must know. Then `Retried`,
    but for FENCED_INSTANCE_ID, which is for good."""

    code: int
    text: str


Effect = Ask | FindCoordinator | Prepare | NeedTopics | Adopt | Fail | LogLine
