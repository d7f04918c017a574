"""What the coordinator has done for it, as data: answers to requests, and what people and the ledger are told."""

from __future__ import annotations

import msgspec

from steelyard.types import LogLine
from steelyard.wire.kafka.schema import ApiMessage

Handle = object
"""Stands for a request that waits for its answer; the coordinator only hands it back."""


class Cause(msgspec.Struct, frozen=True):
    """Why a rebalance began. `trigger`: one of the words below, for programs; `text`: for people."""

    trigger: str
    text: str


JOINED = "joined"
LEFT = "left"
EXPIRED = "expired"
"""A member's session, its pending SyncGroup, or its time to rejoin ran out."""
SUBSCRIPTION = "subscription"
"""A member wants other topics, or other protocols."""
REVOKED = "revoked"
"""A member wants the same and says that it holds something else: the second round of a cooperative rebalance."""
LEADER = "leader"
"""The leader joined again with nothing changed: it saw topics or partitions come or go."""
STATIC = "static"
"""A static member came back with other protocols, or in the middle of a rebalance."""
SIZE = "size"
"""A restored group is larger than allowed."""
STORAGE = "storage"
"""The assignment could not be stored."""


BEGUN_MAX = 10
"""Rebalances of a classic group whose causes are kept."""


class Begun(msgspec.Struct, frozen=True):
    """A rebalance: the generation that it ended (0: none; of a consumer group its new epoch), when it began (ms), and why."""

    generation: int
    at: int
    cause: Cause


class Effect(msgspec.Struct, frozen=True):
    """Root of what follows."""


class Replied(Effect, frozen=True):
    """The answer to the request behind `handle`."""

    handle: Handle
    message: ApiMessage


class Joined(Effect, frozen=True):
    """A member is in the group, or wants other topics (`cause` subscription). `members`: all, sorted, afterwards."""

    group_id: str
    member_id: str
    cause: str
    members: tuple[str, ...]
    topics: tuple[str, ...]


class Left(Effect, frozen=True):
    """A member is out of the group. `cause`: left | expired | replaced (static)."""

    group_id: str
    member_id: str
    cause: str
    members: tuple[str, ...]


class Began(Effect, frozen=True):
    """A rebalance began."""

    group_id: str
    generation: int
    """The generation that it ends, 0 for none."""
    cause: Cause
    members: tuple[str, ...]


class Ended(Effect, frozen=True):
    """A rebalance came to its end: every member can know what to read, or nobody is left."""

    group_id: str
    generation: int
    protocol: str
    began_at: int
    members: tuple[str, ...]


class Moved(Effect, frozen=True):
    """Committed offsets: (topic, partition, offset), by one member (`` for none)."""

    group_id: str
    member_id: str
    offsets: tuple[tuple[str, int, int], ...]


Effects = list[Effect | LogLine]
