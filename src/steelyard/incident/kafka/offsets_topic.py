"""What `__consumer_offsets` says, by group: commits as number series, other records as they came.

Records of one partition must come in the order of their offsets.
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

import msgspec

from steelyard.errors import ProtocolError
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.coordinator_records import (
    GROUP_TYPES,
    ConsumerGroupPartitionMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    RecordType,
    TransactionKey,
    Value,
    read_key,
    read_value,
    type_of,
)
from steelyard.wire.kafka.schema import NO_ID

_OFFSET = struct.Struct(">q")
_SIZE = struct.Struct(">H")

_OFFSET_AT = 2
_METADATA_AT = {0: 10, 1: 10, 2: 10, 3: 14}
"""Where the metadata begins, by version."""
_COMPACT, _COMPACT_AT = 4, 14
"""The version in which the metadata is a compact string, and where that begins."""


class CommitSeries:
    """The commits of a group for one partition: when, and which offset; two equally long series.

    Times in ms since the epoch, by the coordinator's clock. They may go back a little.
    """

    __slots__ = ("at", "offsets")

    def __init__(self) -> None:
        self.at = array("q")
        self.offsets = array("q")

    def add(self, value: bytes) -> None:
        """Add the value of a record. Raises ProtocolError."""
        try:
            version = value[0] << 8 | value[1]
            if version == _COMPACT and 0 < value[_COMPACT_AT] < 0x80:
                at = _COMPACT_AT + value[_COMPACT_AT]  # one byte, one more than the text has
            else:
                metadata = _METADATA_AT.get(version)
                if metadata is None:
                    self._add_slowly(value)
                    return
                at = metadata + 2 + value[metadata] * 256 + value[metadata + 1]
            self.at.append(_OFFSET.unpack_from(value, at)[0])
            self.offsets.append(_OFFSET.unpack_from(value, _OFFSET_AT)[0])
        except (IndexError, struct.error):
            raise ProtocolError(f"an offset of {len(value)} bytes ends too early") from None

    def _add_slowly(self, value: bytes) -> None:
        read = read_value(GROUP_TYPES[1], value)
        if isinstance(read, OffsetCommitValue):
            self.at.append(read.commit_timestamp)
            self.offsets.append(read.offset)


class _Ignored(CommitSeries):
    """Stands for the commits of groups that are not wanted."""

    def add(self, value: bytes) -> None:
        pass


_IGNORED = _Ignored()


class GroupRecord(NamedTuple):
    """A record about a group or a member, as it was written. `value`: None if it was deleted."""

    at: int
    type: int
    key: Key
    value: Value | None


class GroupHistory(msgspec.Struct):
    """All records of a group. Offsets that were deleted keep their earlier commits."""

    group: str
    commits: dict[TopicPartition, CommitSeries] = {}
    records: list[GroupRecord] = []


class OffsetsTopic:
    """Collects records; see the module docstring.

    `unknown`: how many records had a type or a version that is not known here, by type; share and
    streams groups are such. `unreadable`: how many were damaged. `topics`: names of topics by id.
    """

    def __init__(self, group: str | None = None) -> None:
        """`group`: the only one to collect; None for all."""
        self._only = group
        self.groups: dict[str, GroupHistory] = {}
        self.names: set[str] = set()
        """All groups that were met."""
        self.by_key: dict[bytes, CommitSeries] = {}
        """The series of commits of each key that was met."""
        self.topics: dict[bytes, str] = {}
        self.unknown: dict[int, int] = {}
        self.unreadable = 0

    @property
    def commits(self) -> int:
        """How many commits were collected."""
        return sum(len(series.at) for series in self.by_key.values())

    def take(self, at: int, key: bytes, value: bytes | None) -> None:
        """Add a record that was written at `at`, in ms since the epoch."""
        try:
            kind = type_of(key, GROUP_TYPES)
            if kind is None:
                self._count(int.from_bytes(key[:2]))
                return
            self._take(at, kind, key, read_key(kind, key), value)
        except ProtocolError:
            self.unreadable += 1

    def _take(self, at: int, kind: RecordType, key: bytes, name: Key, value: bytes | None) -> None:
        assert not isinstance(name, TransactionKey), "of the other topic"
        group = name.group
        self.names.add(group)
        if self._only is not None and group != self._only:
            if isinstance(name, OffsetCommitKey):
                self.by_key[key] = _IGNORED
            return
        if isinstance(name, OffsetCommitKey):
            if value is not None:
                self._commit(kind, key, name, value)
            return
        read = None
        if value is not None:
            read = read_value(kind, value)
            if read is None:
                self._count(kind.number)
                return
        if isinstance(read, ConsumerGroupPartitionMetadataValue):
            self.topics.update((topic.topic_id, topic.topic_name) for topic in read.topics)
        self._of(group).records.append(GroupRecord(at, kind.number, name, read))

    def _commit(self, kind: RecordType, key: bytes, name: OffsetCommitKey, value: bytes) -> None:
        read = read_value(kind, value)
        if not isinstance(read, OffsetCommitValue):
            self._count(kind.number)
            return
        series = self.by_key.get(key)
        if series is None:
            place = TopicPartition(name.topic, name.partition)
            history = self._of(name.group)
            series = self.by_key[key] = history.commits.setdefault(place, CommitSeries())
            if read.topic_id != NO_ID:
                self.topics[read.topic_id] = name.topic
        series.add(value)

    def _of(self, group: str) -> GroupHistory:
        history = self.groups.get(group)
        if history is None:
            history = self.groups[group] = GroupHistory(group)
        return history

    def _count(self, number: int) -> None:
        self.unknown[number] = self.unknown.get(number, 0) + 1
