"""The events and effects of the members of both protocols, as plain data.

`turn` numbers what the member waits for. A response to an earlier turn is ignored, because the
member has moved on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.types import LogLine, TopicPartition
from steelyard.wire.kafka.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from steelyard.wire.kafka.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

Partitions = tuple[TopicPartition, ...]
"""Partitions, sorted."""

Response = (
    JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | ConsumerGroupHeartbeatResponse
)
"""The responses of a coordinator that a member waits for."""


class MemberEvent(msgspec.Struct, frozen=True):
    """Base class of the events."""


class Subscribed(MemberEvent, frozen=True):
    """The topics to read, sorted; from the application, or because those of its pattern changed."""

    topics: tuple[str, ...]
    reason: str = "the subscription has changed"


class CoordinatorFound(MemberEvent, frozen=True):
    """The coordinator is known, and requests can be sent."""


class CoordinatorLost(MemberEvent, frozen=True):
    """The coordinator is unknown until `CoordinatorFound`."""

    reason: str


class Prepared(MemberEvent, frozen=True):
    """`Prepare` is done: these partitions are no longer held."""

    released: Partitions


class TopicsKnown(MemberEvent, frozen=True):
    """The numbers of partitions of the topics in `NeedTopics`, without unknown topics."""

    partitions: Mapping[str, int]


class TopicsChanged(MemberEvent, frozen=True):
    """The numbers of partitions of topics after a new look at the cluster (classic groups)."""

    partitions: Mapping[str, int]


class TopicsNamed(MemberEvent, frozen=True):
    """The names of topics by their ids, after a new look at the cluster (KIP-848)."""

    names: Mapping[bytes, str]


class Answered(MemberEvent, frozen=True):
    """The coordinator responded to an `Ask`."""

    turn: int
    response: Response


class Unanswered(MemberEvent, frozen=True):
    """An `Ask` got no response: the connection was closed, or the time was over.

    `code`: of the error if it cannot be sent to this broker, otherwise 0.
    """

    turn: int
    reason: str
    code: int = 0


class Adopted(MemberEvent, frozen=True):
    """`Adopt` is done: these partitions are held now."""

    owned: Partitions


class Retried(MemberEvent, frozen=True):
    """The application was told of a `Fail`, and polls again."""


class PollBegan(MemberEvent, frozen=True):
    """The application polls, and so has finished with the records of the last poll."""


class PollEnded(MemberEvent, frozen=True):
    """The application received records, or none: the poll has ended."""


class CommitRefused(MemberEvent, frozen=True):
    """The coordinator refused a commit with a code about the membership."""

    code: int


class RejoinWanted(MemberEvent, frozen=True):
    """The application wants a rebalance (Consumer.enforceRebalance); of classic groups only."""

    reason: str


class TimePassed(MemberEvent, frozen=True):
    """The time is `due` of the member or later."""


class Closing(MemberEvent, frozen=True):
    """The consumer closes: leave, unless the member is static."""

    reason: str


Event = (
    Subscribed
    | CoordinatorFound
    | CoordinatorLost
    | Prepared
    | TopicsKnown
    | TopicsChanged
    | TopicsNamed
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
    """Base class of the effects."""


class Ask(MemberEffect, frozen=True):
    """Send this to the coordinator.

    `Answered` or `Unanswered` follows, except in turn 0: a member that leaves needs no response.
    """

    turn: int
    message: ApiMessage
    timeout_ms: int


class FindCoordinator(MemberEffect, frozen=True):
    """Find the coordinator; `CoordinatorFound` follows at some time."""

    reason: str


class Prepare(MemberEffect, frozen=True):
    """Prepare to join the group; then `Prepared`.

    Commit what is consumed, if `commit`. Give up `revoked`, and tell the application of them, or
    that `lost` already belong to another member.
    """

    revoked: Partitions
    lost: Partitions
    commit: bool


class NeedTopics(MemberEffect, frozen=True):
    """Look up these topics, for the leader of the group; `TopicsKnown` follows."""

    topics: tuple[str, ...]


class RefreshTopics(MemberEffect, frozen=True):
    """Look at the cluster again, for the names of assigned topics; `TopicsNamed` follows."""


class Adopt(MemberEffect, frozen=True):
    """Give up `revoked`, take `assigned`, and tell the application; then `Adopted`."""

    revoked: Partitions
    assigned: Partitions


class Fail(MemberEffect, frozen=True):
    """Tell the application that the group refuses the member, for a reason that time does not mend.

    Then `Retried`, except for FENCED_INSTANCE_ID, which is final.
    """

    code: int
    text: str


Effect = Ask | FindCoordinator | Prepare | NeedTopics | RefreshTopics | Adopt | Fail | LogLine
