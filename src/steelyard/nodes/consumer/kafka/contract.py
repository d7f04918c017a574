"""What an application asks of a Kafka consumer, and what it gets: the calls, their results, and what is handed to it.

Every call may be answered with a SteelyardError. A partition that is not held gives a ConfigError where a call needs one
that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from steelyard.nodes.seam import Call
from steelyard.types import TopicPartition

Partitions = tuple[TopicPartition, ...]


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as it was read, `key` and `value`, at `offset` of `partition` of `topic`. Source: ConsumerRecord.java.

    `timestamp`: ms since the epoch, -1 without one; `timestamp_type`: 0 the producer's time (CreateTime), 1 the
    broker's (LogAppendTime). `headers`: names may repeat. `leader_epoch`: None where the broker does not say.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None


class OffsetAndMetadata(NamedTuple):
    """An offset to go on at, and what its committer wrote beside it."""

    offset: int
    metadata: str = ""
    leader_epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at a time or later: where it is, and its own time in ms since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class MemberState(NamedTuple):
    """This consumer as a member of its group. `generation` -1 and `member_id` "": of none at the moment."""

    state: str
    member_id: str
    generation: int
    protocol: str
    """The assignor that the group agreed on."""
    leads: bool
    coordinator: str
    """Address, empty while it is not known."""


class Subscribe(Call[None], frozen=True):
    """Read a share of these topics, or of all whose whole name matches `pattern`, as the group agrees.

    Answered at once. Neither: leave the group; answered when that is done.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""


class Assign(Call[None], frozen=True):
    """Read these partitions, without a group's help."""

    partitions: Partitions


class Poll(Call[tuple[ConsumerRecord, ...]], frozen=True):
    """Records: as soon as there are some, none after `timeout_ms`. One at a time; `number` is unique."""

    records_max: int
    timeout_ms: int
    number: int


class GiveBack(Call[None], frozen=True):
    """The records of that poll reached nobody: they come again."""

    number: int


class Commit(Call[None], frozen=True):
    """Commit `offsets`, or all that polls returned. `unread`: of those, the offsets that the application has not seen yet.

    Answered when the coordinator has them.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    unread: Mapping[TopicPartition, int] = {}


class FetchCommitted(Call[dict[TopicPartition, OffsetAndMetadata]], frozen=True):
    """Of each partition; those without a committed offset are left out."""

    partitions: Partitions


class Position(Call[int], frozen=True):
    """Answered with the offset of the next record that a poll returns of a held partition."""

    partition: TopicPartition


class Seek(Call[None], frozen=True):
    """Go on at an offset of a held partition; there need not be such a record."""

    partition: TopicPartition
    offset: int


class SeekToEnd(Call[None], frozen=True):
    """Go on at an end (EARLIEST or LATEST) of held partitions, of all if there are none given."""

    partitions: Partitions
    timestamp: int


class ListOffsets(Call[dict[TopicPartition, OffsetAndTimestamp]], frozen=True):
    """Answered with a dict of `OffsetAndTimestamp`; for EARLIEST and LATEST the offset of that end.

    Partitions without a record at that time or later are left out.
    """

    timestamps: Mapping[TopicPartition, int]


class Pause(Call[None], frozen=True):
    """Return no records of these held partitions until `Resume`."""

    partitions: Partitions


class Resume(Call[None], frozen=True):
    """Go on with these."""

    partitions: Partitions


class Paused(Call[Partitions], frozen=True):
    """Answered with the partitions that are paused, sorted."""


class Assignment(Call[Partitions], frozen=True):
    """Answered with the partitions that are held, sorted."""


class PartitionsFor(Call[Partitions], frozen=True):
    """Answered with the partitions of a topic, sorted; none of an unknown one."""

    topic: str


class Describe(Call[MemberState], frozen=True):
    """Answered with a `MemberState`."""


class Rejoin(Call[None], frozen=True):
    """Have the group rebalance (Consumer.enforceRebalance). Answered at once."""

    reason: str


class Stop(Call[None], frozen=True):
    """Commit, where that is automatic, leave the group and end. `unread`: as of `Commit`.

    `returned`: what the last poll returned counts as consumed. Answered when done.
    """

    unread: Mapping[TopicPartition, int] = {}
    returned: bool = True


class Assigned(msgspec.Struct, frozen=True):
    """Handed to the application: partitions that are its own now; nothing of them is read before it is done with this."""

    partitions: Partitions


class Revoked(msgspec.Struct, frozen=True):
    """Handed to the application: partitions that go to others once it is done with this."""

    partitions: Partitions


class Lost(msgspec.Struct, frozen=True):
    """Handed to the application: partitions that others may have already."""

    partitions: Partitions
