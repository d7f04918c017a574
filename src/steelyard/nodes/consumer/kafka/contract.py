"""The calls of an application to a Kafka consumer, their results, and what it delivers.

Every call may be answered with a SteelyardError. A call that needs an assigned partition is
answered with a ConfigError for any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Generic, NamedTuple

import msgspec

from steelyard.nodes.seam import Call
from steelyard.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key = TypeVar("Key", default=bytes)
    Value = TypeVar("Value", default=bytes)
else:  # Python 3.11 has no defaults of type variables
    from typing import TypeVar

    Key = TypeVar("Key")
    Value = TypeVar("Value")

Partitions = tuple[TopicPartition, ...]


class ConsumerRecord(msgspec.Struct, Generic[Key, Value], frozen=True, gc=False):
    """A record as read, `key` and `value`, at `offset` of `partition` of `topic`.

    They are bytes, or what the consumer's deserializers made of them; None: there is none.
    `timestamp`: ms since the epoch, -1 if there is none; `timestamp_type`: 0 the producer's time
    (CreateTime), 1 the broker's (LogAppendTime). `headers`: names may repeat. `leader_epoch`: None
    if the broker does not send it. Source: ConsumerRecord.java.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Key | None
    value: Value | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None


class OffsetAndMetadata(NamedTuple):
    """An offset to resume from, and metadata from its committer."""

    offset: int
    metadata: str = ""
    leader_epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at a time or later: its offset, and its own time in ms since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class MemberState(NamedTuple):
    """This consumer's membership of its group.

    Outside of one `generation` is -1. With `group_protocol='consumer'` it is the member's epoch,
    `member_id` is there from the beginning, and nobody leads or knows the assignor.
    """

    state: str
    member_id: str
    generation: int
    protocol: str
    """The assignor chosen by the members of a classic group."""
    leads: bool
    coordinator: str
    """Its address, empty while unknown."""


class Subscribe(Call[None], frozen=True):
    """Read a share, assigned by the group, of these topics or all that fully match `pattern`.

    Answered at once. With neither, leave the group; answered when that is done.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""


class Assign(Call[None], frozen=True):
    """Read these partitions, without a group."""

    partitions: Partitions


class Poll(Call[tuple[ConsumerRecord, ...]], frozen=True):
    """Return records as soon as there are some, none after `timeout_ms`.

    Only one poll at a time; `number` is unique.
    """

    records_max: int
    timeout_ms: int
    number: int


class GiveBack(Call[None], frozen=True):
    """Note that the records of that poll reached nobody and must be returned again."""

    number: int


class Commit(Call[None], frozen=True):
    """Commit `offsets`, or those of all that polls returned.

    `unread`: the offsets among these that the application has not yet seen. Answered when the
    coordinator has stored the commit.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    unread: Mapping[TopicPartition, int] = {}


class FetchCommitted(Call[dict[TopicPartition, OffsetAndMetadata]], frozen=True):
    """Return the committed offset of each partition, omitting those without one."""

    partitions: Partitions


class Position(Call[int], frozen=True):
    """Return the offset of the next record that a poll returns from an assigned partition."""

    partition: TopicPartition


class Seek(Call[None], frozen=True):
    """Resume from an offset of an assigned partition; no record need exist there."""

    partition: TopicPartition
    offset: int


class SeekToEnd(Call[None], frozen=True):
    """Resume from an end (EARLIEST or LATEST) of assigned partitions, by default of all."""

    partitions: Partitions
    timestamp: int


class ListOffsets(Call[dict[TopicPartition, OffsetAndTimestamp]], frozen=True):
    """Return a dict of `OffsetAndTimestamp`; for EARLIEST and LATEST the offset of that end.

    Partitions without a record at that time or later are omitted.
    """

    timestamps: Mapping[TopicPartition, int]


class Pause(Call[None], frozen=True):
    """Return no records of these assigned partitions until `Resume`."""

    partitions: Partitions


class Resume(Call[None], frozen=True):
    """Return records of these partitions again."""

    partitions: Partitions


class Paused(Call[Partitions], frozen=True):
    """Return the paused partitions, sorted."""


class Assignment(Call[Partitions], frozen=True):
    """Return the assigned partitions, sorted."""


class PartitionsFor(Call[Partitions], frozen=True):
    """Return the partitions of a topic, sorted; none for an unknown topic."""

    topic: str


class Describe(Call[MemberState], frozen=True):
    """Return a `MemberState`."""


class Rejoin(Call[None], frozen=True):
    """Make the group rebalance (Consumer.enforceRebalance). Answered at once."""

    reason: str


class Stop(Call[None], frozen=True):
    """Commit, if that is automatic, leave the group and stop. `unread`: as for `Commit`.

    `returned`: whether what the last poll returned counts as consumed. Answered when done.
    """

    unread: Mapping[TopicPartition, int] = {}
    returned: bool = True


class Assigned(msgspec.Struct, frozen=True):
    """Delivered to the application: newly assigned partitions, read once it has handled this."""

    partitions: Partitions


class Revoked(msgspec.Struct, frozen=True):
    """Delivered to the application: partitions that are revoked once it has handled this."""

    partitions: Partitions


class Lost(msgspec.Struct, frozen=True):
    """Delivered to the application: partitions that other members may already own."""

    partitions: Partitions
