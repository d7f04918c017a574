"""The table `kafka_offsets`: offsets that are committed or pending in a transaction.

    topic/partition/group                a committed offset; topics have no slash
    ~producer id/topic/partition/group   one of an open transaction; topics have no tilde

A request is one write. A transaction's offsets become valid when it is committed, unless there was
a later commit in the meantime (see `sequence`).
Source: OffsetMetadataManager.java, OffsetCommitValue.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from steelyard.decoding import prepared
from steelyard.store.tables import Table
from steelyard.types import TopicPartition

OFFSETS_MAX = 1_000_000
"""Most committed and pending offsets of all groups."""

PENDING = "~"


class CommittedOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """A committed offset.

    Times in ms since the epoch; `expires_at`: if the commit set its retention.
    """

    offset: int
    committed_at: int
    sequence: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    expires_at: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(prepared(CommittedOffset)).decode

Concerns = Callable[[str], bool]
"""Whether a group is one of those concerned."""

OfGroup = dict[TopicPartition, CommittedOffset]


class Offsets:
    """The offsets of all groups."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._groups: dict[str, OfGroup] = {}
        self._pending: dict[int, dict[str, OfGroup]] = {}
        """Pending offsets by producer id and group."""
        self._unstable: dict[str, dict[TopicPartition, set[int]]] = {}
        """By group and partition, the producers with a pending offset of it."""
        self._count = 0
        self._sequence = 0
        for key, data in table.items():
            self._load(key, _decode(data))

    def _load(self, key: str, committed: CommittedOffset) -> None:
        producer_id: int | None = None
        if key.startswith(PENDING):
            producer, _, key = key[1:].partition("/")
            producer_id = int(producer)
        topic, partition, group = key.split("/", 2)
        self._sequence = max(self._sequence, committed.sequence)
        self._set(group, TopicPartition(topic, int(partition)), committed, producer_id)

    # -- reading ---------------------------------------------------------------------------------

    def get(self, group: str, partition: TopicPartition) -> CommittedOffset | None:
        offsets = self._groups.get(group)
        return None if offsets is None else offsets.get(partition)

    def of_group(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group."""
        return self._groups.get(group, {})

    def history(self, group: str) -> list[tuple[TopicPartition, CommittedOffset, int | None]]:
        """Return all offsets of a group in order of arrival.

        Those of open transactions have their producer ids, the others None.
        """
        found: list[tuple[TopicPartition, CommittedOffset, int | None]] = [
            (partition, offset, None) for partition, offset in self.of_group(group).items()
        ]
        for partition, producers in self._unstable.get(group, {}).items():
            found += [
                (partition, self._pending[producer][group][partition], producer)
                for producer in sorted(producers)
            ]
        return sorted(found, key=lambda each: each[1].sequence)

    def groups(self) -> Iterator[str]:
        """Yield every group with an offset, committed or pending.

        Do not change anything while iterating.
        """
        yield from self._groups
        yield from (group for group in self._unstable if group not in self._groups)

    def is_unstable(self, group: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction has an offset of the partition."""
        return partition in self._unstable.get(group, ())

    def has_any(self, group: str) -> bool:
        return group in self._groups or group in self._unstable

    @property
    def room(self) -> int:
        """Return how many more offsets can be stored."""
        return OFFSETS_MAX - self._count

    def has_room(
        self, group: str, partitions: Iterable[TopicPartition], producer_id: int | None = None
    ) -> bool:
        """Return whether offsets can be stored: those that take the place of others always can."""
        known = (
            self._groups.get(group, {})
            if producer_id is None
            else self._pending.get(producer_id, {}).get(group, {})
        )
        return sum(partition not in known for partition in partitions) <= self.room

    # -- committing ------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer_id: int | None = None,
    ) -> None:
        """Store offsets, as pending ones of a transaction if there is a `producer_id`.

        Raises StorageError.
        """
        numbered = [
            (partition, replace(committed, sequence=self._sequence + number))
            for number, (partition, committed) in enumerate(offsets.items(), 1)
        ]
        self._table.put_many(
            (_key(group, partition, producer_id), _encode(committed))
            for partition, committed in numbered
        )
        self._sequence += len(numbered)
        for partition, committed in numbered:
            self._set(group, partition, committed, producer_id)

    def end_transaction(
        self, producer_id: int, concerns: Concerns, *, committed: bool
    ) -> dict[str, OfGroup]:
        """End a producer's transaction for some groups: its offsets become valid, or are dropped.

        Returns the valid ones by group. Repeating it does nothing. Raises StorageError.
        """
        pending = {
            group: dict(offsets)
            for group, offsets in self._pending.get(producer_id, {}).items()
            if concerns(group)
        }
        counting = {group: self._counting(group, offsets) for group, offsets in pending.items()}
        if not committed:
            counting = {}
        writes: list[tuple[str, bytes | None]] = [
            (_key(group, partition), _encode(offset))
            for group, offsets in counting.items()
            for partition, offset in offsets.items()
        ]
        # Deleted after their results are stored: after a kill between the two, the transaction can
        # be ended again.
        writes += [
            (_key(group, partition, producer_id), None)
            for group, offsets in pending.items()
            for partition in offsets
        ]
        self._table.put_many(writes)
        for group, offsets in pending.items():
            for partition in offsets:
                self._drop_pending(group, partition, producer_id)
        for group, offsets in counting.items():
            for partition, offset in offsets.items():
                self._set(group, partition, offset, None)
        return counting

    def _counting(self, group: str, pending: OfGroup) -> OfGroup:
        """Return those after which there was no other commit."""
        current = self._groups.get(group, {})
        return {
            partition: offset
            for partition, offset in pending.items()
            if partition not in current or current[partition].sequence < offset.sequence
        }

    # -- deleting --------------------------------------------------------------------------------

    def delete(self, group: str, partitions: Iterable[TopicPartition]) -> int:
        """Delete offsets, including pending ones; return their number. Raises StorageError."""
        writes: list[tuple[str, bytes | None]] = []
        gone = []
        for partition in partitions:
            if self.get(group, partition) is not None:
                writes.append((_key(group, partition), None))
            producers = sorted(self._unstable.get(group, {}).get(partition, ()))
            writes += [(_key(group, partition, producer), None) for producer in producers]
            gone.append((partition, producers))
        self._table.put_many(writes)
        for partition, producers in gone:
            self._drop(group, partition)
            for producer_id in producers:
                self._drop_pending(group, partition, producer_id)
        return len(writes)

    def delete_group(self, group: str) -> int:
        """Delete all offsets of a group; return their number. Raises StorageError."""
        return self.delete(group, self._known(group))

    def delete_topic(self, topic: str) -> None:
        """Delete the offsets of all groups for a deleted topic. Raises StorageError."""
        for group in list(self.groups()):
            self.delete(group, [one for one in self._known(group) if one.topic == topic])

    def _known(self, group: str) -> list[TopicPartition]:
        """Return the partitions with an offset, committed or pending; sorted."""
        return sorted({*self._groups.get(group, ()), *self._unstable.get(group, ())})

    # -- in memory -------------------------------------------------------------------------------

    def _set(
        self,
        group: str,
        partition: TopicPartition,
        committed: CommittedOffset,
        producer_id: int | None,
    ) -> None:
        if producer_id is None:
            offsets = self._groups.setdefault(group, {})
        else:
            offsets = self._pending.setdefault(producer_id, {}).setdefault(group, {})
            unstable = self._unstable.setdefault(group, {})
            unstable.setdefault(partition, set()).add(producer_id)
        self._count += partition not in offsets
        offsets[partition] = committed

    def _drop(self, group: str, partition: TopicPartition) -> None:
        offsets = self._groups.get(group, {})
        if offsets.pop(partition, None) is not None:
            self._count -= 1
            if not offsets:
                del self._groups[group]

    def _drop_pending(self, group: str, partition: TopicPartition, producer_id: int) -> None:
        groups = self._pending[producer_id]
        del groups[group][partition]
        self._count -= 1
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._pending[producer_id]
        unstable = self._unstable[group]
        unstable[partition].discard(producer_id)
        if not unstable[partition]:
            del unstable[partition]
        if not unstable:
            del self._unstable[group]

    def check(self) -> None:
        """Assert that the maps agree with each other and with the table."""
        pending = [
            (producer_id, group, partition)
            for producer_id, groups in self._pending.items()
            for group, offsets in groups.items()
            for partition in offsets
        ]
        assert all(self._groups.values())
        assert self._count == sum(map(len, self._groups.values())) + len(pending)
        assert self._count == len(self._table) <= OFFSETS_MAX
        for producer_id, group, partition in pending:
            assert producer_id in self._unstable[group][partition]


def _key(group: str, partition: TopicPartition, producer_id: int | None = None) -> str:
    key = f"{partition.topic}/{partition.partition}/{group}"
    return key if producer_id is None else f"{PENDING}{producer_id}/{key}"
