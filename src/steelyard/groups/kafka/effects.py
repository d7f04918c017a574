"""The results of the coordinator as data: responses, and reports for people and the ledger."""

from __future__ import annotations

import msgspec

from steelyard.groups.kafka.groups import CoordinatedMember
from steelyard.types import LogLine
from steelyard.wire.kafka.schema import ApiMessage

Handle = object
"""Stands for a request that waits for its response; the coordinator only returns it."""


class Cause(msgspec.Struct, frozen=True):
    """Why a rebalance began.

    `trigger`: one of the words below, for programs; `text`: for people.
    """

    trigger: str
    text: str


JOINED = "joined"
LEFT = "left"
EXPIRED = "expired"
"""A member's session expired, or it did not send SyncGroup or rejoin in time."""
SUBSCRIPTION = "subscription"
"""A member has other topics, or other protocols."""
REVOKED = "revoked"
"""A member reports other partitions: the second round of a cooperative rebalance.

Its subscription is unchanged.
"""
LEADER = "leader"
"""The leader rejoined without changes, because topics or their partitions have changed."""
STATIC = "static"
"""A static member returned with other protocols, or in the middle of a rebalance.

Also: the leader returned after a topic has grown.
"""
SIZE = "size"
"""A restored group is larger than allowed."""
TOPICS = "topics"
"""Topics that the group reads were created, deleted or extended."""
STORAGE = "storage"
"""The assignment could not be stored."""


BEGUN_MAX = 10
"""Rebalances of a classic group whose causes are kept."""
BUMPS_MAX = 100
"""The same of other groups, in which every change of a member is one."""


class Begun(msgspec.Struct, frozen=True):
    """The beginning of a rebalance, in ms since the epoch, and its cause.

    `generation`: the one that ended, 0 for none; of a consumer group its new epoch.
    """

    generation: int
    at: int
    cause: Cause


class Effect(msgspec.Struct, frozen=True):
    """Base class of the effects."""


class Replied(Effect, frozen=True):
    """The response to the request behind `handle`."""

    handle: Handle
    message: ApiMessage


class Joined(Effect, frozen=True):
    """A member joined the group, or changed its topics (`cause` subscription).

    `members`: all after it, sorted.
    """

    group_id: str
    member: CoordinatedMember
    cause: str
    members: tuple[str, ...]
    topics: tuple[str, ...]


class Left(Effect, frozen=True):
    """A member left the group. `cause`: left | expired | replaced (static)."""

    group_id: str
    member_id: str
    cause: str
    members: tuple[str, ...]
    heard_at: int | None = None
    """When a member that expired sent its last request, in ms; None if unknown, or not expired."""


class Began(Effect, frozen=True):
    """A rebalance began."""

    group_id: str
    generation: int
    """The generation that it ends, 0 for none; of a consumer group its old epoch."""
    cause: Cause
    members: tuple[str, ...]


class Ended(Effect, frozen=True):
    """A rebalance ended: every member can get its assignment, or no member is left."""

    group_id: str
    generation: int
    protocol: str
    began_at: int
    members: tuple[str, ...]


class Moved(Effect, frozen=True):
    """Committed offsets (topic, partition, offset) of one member; `member_id` "" for none."""

    group_id: str
    member_id: str
    offsets: tuple[tuple[str, int, int], ...]


Effects = list[Effect | LogLine]
