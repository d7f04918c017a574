"""The share partitions of this broker, in memory and in its table `kafka_share_partitions`.

Apache Kafka's share coordinator keeps their state as records of `__share_group_state`, which are
replicated, and the leader of a partition asks it. There is one replica of a queue here, so its
broker keeps the state beside it, on the same disk: one row for each group and partition, with the
start, and what became of the records in flight. Acknowledgements are answered when they are in it,
as durably as messages are stored (`flush`).

A record that is acquired is stored as it was before: after a restart others may have it at once,
and that delivery does not count. Unlike in Kafka, the first start offset is stored as soon as it is
found, so that a group that begins at the end of a topic misses nothing over a restart.
Source: share-coordinator/ShareCoordinatorShard.java, ShareGroupOffset.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.groups.kafka.timers import Timers
from steelyard.nodes.broker.kafka.cluster.group_settings import (
    DELIVERIES_MAX,
    LOCK_MS,
    LOCKS_MAX,
    RENEWALS,
    GroupSettings,
)
from steelyard.nodes.broker.kafka.shares.in_flight import (
    DELIVERY,
    InFlight,
    RecordEvent,
    RecordState,
)
from steelyard.nodes.broker.kafka.shares.share_partition import ShareLimits, SharePartition
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table

SHARE_PARTITIONS_MAX = 100_000
"""Most share partitions of a broker."""


class ShareKey(NamedTuple):
    """A share partition."""

    group: str
    topic_id: bytes
    partition: int


class StoredRun(NamedTuple):
    """A run of records in flight."""

    first: int
    last: int
    state: RecordState
    deliveries: int


class SharePartitionRow(msgspec.Struct, frozen=True):
    """A row of the table. `topic`: its name, by which the rows of deleted topics are found."""

    topic: str
    start: int
    epoch: int = 0
    runs: tuple[StoredRun, ...] = ()


class KeptSharePartition(msgspec.Struct):
    """A share partition with the name of its topic."""

    topic: str
    partition: SharePartition


_read_key = msgspec.json.Decoder(prepared(tuple[str, str, int]))
_read_row = msgspec.json.Decoder(prepared(SharePartitionRow))


class SharePartitions:
    """All share partitions of this broker. Methods that write raise StorageError."""

    def __init__(self, table: Table, settings: GroupSettings, clock: SessionClock) -> None:
        self._table = table
        self._settings = settings
        self._clock = clock
        self._timers = Timers(clock)
        self._kept: dict[ShareKey, KeptSharePartition] = {}
        self._groups: dict[str, set[ShareKey]] = {}
        for text, value in table.items():
            try:
                group, topic_id, index = _read_key.decode(text)
                row = _read_row.decode(value)
                self._add(ShareKey(group, bytes.fromhex(topic_id), index), _restored(row))
            except (msgspec.MsgspecError, ValueError):
                continue

    def _add(self, key: ShareKey, kept: KeptSharePartition) -> None:
        self._kept[key] = kept
        self._groups.setdefault(key.group, set()).add(key)

    # -- reading ---------------------------------------------------------------------------------

    def get(self, key: ShareKey) -> SharePartition | None:
        kept = self._kept.get(key)
        return None if kept is None else kept.partition

    def topic_of(self, key: ShareKey) -> str:
        """Return the name of an existing share partition's topic."""
        return self._kept[key].topic

    def each(self) -> Iterator[tuple[ShareKey, SharePartition]]:
        """Yield all share partitions."""
        for key, kept in self._kept.items():
            yield key, kept.partition

    def of_group(self, group: str) -> list[ShareKey]:
        """Return the share partitions of a group, sorted."""
        return sorted(self._groups.get(group, ()))

    @property
    def is_full(self) -> bool:
        return len(self._kept) >= SHARE_PARTITIONS_MAX

    def limits(self, group: str) -> ShareLimits:
        """Return what applies to a group's records now."""
        number = self._settings.number
        return ShareLimits(
            number(group, LOCKS_MAX),
            number(group, DELIVERIES_MAX),
            number(group, LOCK_MS),
            self._settings.text(group, RENEWALS) == "true",
        )

    def time(self, now: int) -> int:
        """Return the time by which locks are measured: without that in which nobody ran."""
        return now - self._clock.lost_ms

    # -- changing --------------------------------------------------------------------------------

    def put(self, key: ShareKey, topic: str, start: int) -> SharePartition:
        """Begin a share partition at an offset, or anew if there is one, and store it."""
        before = self._kept.get(key)
        epoch = 0 if before is None else before.partition.epoch + 1
        kept = KeptSharePartition(topic, SharePartition(start, epoch))
        self._table.put(_text(key), _row(kept))
        self._add(key, kept)
        self.locked(key)
        return kept.partition

    def store(self, keys: Iterable[ShareKey]) -> None:
        """Store the present state of share partitions, with one write."""
        self._table.put_many((_text(key), _row(self._kept[key])) for key in keys)

    def locked(self, key: ShareKey) -> None:
        """Note that locks of a share partition have changed."""
        timer = (key.group, key.topic_id.hex(), str(key.partition))
        at = self._kept[key].partition.next_at
        if at is None:
            self._timers.drop(timer)
        else:
            self._timers.set(timer, at + self._clock.lost_ms)

    def delete(self, keys: Sequence[ShareKey]) -> None:
        """Delete share partitions."""
        self._table.put_many((_text(key), None) for key in keys)
        for key in keys:
            self._kept.pop(key, None)
            self._timers.drop((key.group, key.topic_id.hex(), str(key.partition)))
            of_group = self._groups.get(key.group)
            if of_group is not None:
                of_group.discard(key)
                if not of_group:
                    del self._groups[key.group]

    def delete_topic(self, topic: str, topic_id: bytes) -> None:
        """Delete those of deleted topics with this name. `topic_id`: of the one that exists."""
        self.delete(
            [
                key
                for key, kept in self._kept.items()
                if kept.topic == topic and key.topic_id != topic_id
            ]
        )

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        return self._timers.next_at

    def due(self, now: int) -> Iterator[ShareKey]:
        """Yield the share partitions in which locks have timed out."""
        for group, topic_id, index in self._timers.due(now):
            yield ShareKey(group, bytes.fromhex(topic_id), int(index))

    def check(self) -> None:
        self._timers.check()
        assert {key for keys in self._groups.values() for key in keys} == self._kept.keys()
        assert all(self._groups.values())
        for key, kept in self._kept.items():
            kept.partition.check()
            at = self._timers.at((key.group, key.topic_id.hex(), str(key.partition)))
            next_at = kept.partition.next_at
            assert (at is None) == (next_at is None), f"{key} has locks without a timer"


def _text(key: ShareKey) -> str:
    return msgspec.json.encode((key.group, key.topic_id.hex(), key.partition)).decode()


def _row(kept: KeptSharePartition) -> bytes:
    partition = kept.partition
    runs = [_stored(run) for run in partition.runs]
    while runs and runs[-1].state is RecordState.AVAILABLE and not runs[-1].deliveries:
        runs.pop()  # as if it had not been fetched
    return msgspec.json.encode(
        SharePartitionRow(kept.topic, partition.start, partition.epoch, tuple(runs))
    )


def _stored(run: InFlight) -> StoredRun:
    if run.state is RecordState.ACQUIRED:
        return StoredRun(run.first, run.last, RecordState.AVAILABLE, run.count - 1)
    return StoredRun(run.first, run.last, run.state, run.count)


def _restored(row: SharePartitionRow) -> KeptSharePartition:
    """Return the share partition in a row. Raises ValueError if nobody can have written it."""
    runs = []
    at = row.start
    for first, last, state, count in row.runs:
        if first != at or last < first or state is RecordState.ACQUIRED:
            raise ValueError("no state of records in flight")
        state = DELIVERY.move(None, RecordEvent.RESTORED, state)
        runs.append(InFlight(first, last, state, count, batch_size=last - first + 1))
        at = last + 1
    return KeptSharePartition(row.topic, SharePartition(row.start, row.epoch, runs))
