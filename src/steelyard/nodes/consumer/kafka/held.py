"""The partitions that a consumer holds: its position in each, and the prefetched records.

`position` is the offset of the next record that a poll returns. What polls returned counts as
consumed when the next poll begins (`consumed`), because only then has the application certainly
finished with it.
Source: clients/consumer/internals/SubscriptionState.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from steelyard.errors import ConfigError, KafkaError, ProtocolError, SteelyardError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord, OffsetAndMetadata, Partitions
from steelyard.nodes.consumer.kafka.decoding import Fetched
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode


class Held:
    """One partition.

    `turn` changes whenever requests in flight for it become obsolete, and never takes a value that
    the partition had before: it may be revoked and assigned again while a response is pending.
    `turns`: the values to come.
    """

    def __init__(self, partition: TopicPartition, turns: Iterator[int]) -> None:
        self.partition = partition
        self._turns = turns
        self.position: int | None = None
        self.consumed: int | None = None
        self.committed: int | None = None
        """The last offset that we committed, or found committed; None: to be committed again."""
        self.leader_epoch = -1
        """Of the last record returned."""
        self.reset_to: int | None = None
        """Look up the offset of this timestamp (EARLIEST, LATEST) and resume from there."""
        self.paused = False
        self.fetching_from: int | None = None
        """The offset of the fetch in flight, if any."""
        self.turn = next(turns)
        self.retry_at = 0
        self.misled_by = -1
        """Version of the metadata that led to the wrong broker: no fetch until it is refreshed."""
        self.fault: SteelyardError | None = None
        """Raised by the next poll."""
        self.records: deque[ConsumerRecord] = deque()
        """The next records; empty only if everything fetched has been returned."""
        self._fetched: Fetched | None = None

    def move(self, offset: int | None, reset_to: int | None = None) -> None:
        """Resume elsewhere, and discard what was fetched."""
        self.position = offset
        self.reset_to = reset_to
        self.turn = next(self._turns)
        self.fault = None
        self.records.clear()
        self._fetched = None
        self.fetching_from = None
        self.retry_at = 0

    def feed(self, fetched: Fetched) -> None:
        """Add what was fetched from the position on."""
        assert not self.records
        assert fetched.next_offset == self.position
        self._fetched = fetched
        self._load(1)

    def take(self, count_max: int) -> list[ConsumerRecord]:
        """Return the next records, and move the position past them."""
        self._load(count_max)
        records = self.records
        taken = [records.popleft() for _ in range(min(count_max, len(records)))]
        if taken:
            self.position = taken[-1].offset + 1
            epoch = taken[-1].leader_epoch
            self.leader_epoch = -1 if epoch is None else epoch
        self._load(1)
        return taken

    def _load(self, count: int) -> None:
        """Decode until there are enough records, or nothing is left.

        Then move the position past all fetched.
        """
        fetched = self._fetched
        while fetched is not None and len(self.records) < count:
            try:
                more = fetched.more()
            except ProtocolError as error:
                topic, number = self.partition
                text = f"{topic}-{number} at offset {fetched.next_offset}: {error}"
                self.fault = KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
                more = []
            self.records += more
            if more:
                continue
            self._fetched = None
            if not self.records:
                if self.consumed == self.position:
                    self.consumed = fetched.next_offset
                self.position = fetched.next_offset
            return

    @property
    def wants_fetch(self) -> bool:
        return (
            self.position is not None
            and not self.paused
            and not self.records
            and self.fault is None
            and self.fetching_from is None
        )


class Holdings:
    """All held partitions, in the order in which polls return them."""

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, Held] = {}
        self._turns = count()
        self.waiting: set[TopicPartition] = set()
        """New ones whose assignment the application is still handling: not fetched yet."""
        self._before_poll: dict[TopicPartition, tuple[int, int]] = {}

    def partitions(self) -> Partitions:
        return tuple(sorted(self.by_partition))

    def paused(self) -> Partitions:
        return tuple(sorted(part for part, held in self.by_partition.items() if held.paused))

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.by_partition.setdefault(partition, Held(partition, self._turns))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.by_partition.pop(partition, None)
            self.waiting.discard(partition)

    def of(self, partition: TopicPartition) -> Held:
        """Return a held partition. Raises ConfigError for others."""
        held = self.by_partition.get(partition)
        if held is None:
            raise ConfigError(f"{partition.topic}-{partition.partition} is not assigned")
        return held

    def chosen(self, partitions: Partitions) -> list[Held]:
        """Return these, or all by default. Raises ConfigError."""
        return [self.of(partition) for partition in partitions or self.partitions()]

    def poll_began(self) -> None:
        """Note that the application has finished with what it received."""
        for held in self.by_partition.values():
            held.consumed = held.position

    def take(self, count_max: int) -> tuple[ConsumerRecord, ...]:
        """Return records for a poll: all there are of one partition, then of the next.

        Raises the fault of the partition whose turn it is.
        """
        taken: list[ConsumerRecord] = []
        self._before_poll = {}
        for partition, held in list(self.by_partition.items()):
            if len(taken) >= count_max:
                break
            if held.paused:
                continue
            if held.fault is not None and not held.records:
                if taken:
                    break  # the next poll begins with it
                fault, held.fault = held.fault, None
                raise fault
            if not held.records:
                continue
            assert held.position is not None
            self._before_poll[partition] = (held.position, held.turn)
            taken += held.take(count_max - len(taken))
            # Move to the end: the next poll begins with another one.
            del self.by_partition[partition]
            self.by_partition[partition] = held
        return tuple(taken)

    def returned(
        self, unread: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of all that polls returned and the application has seen.

        `unread`: the first offsets not yet seen.
        """
        return {
            partition: OffsetAndMetadata(
                unread.get(partition, held.position), "", held.leader_epoch
            )
            for partition, held in self.by_partition.items()
            if held.position is not None
        }

    def consumed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what an automatic commit of these partitions contains."""
        offsets = {}
        for partition in partitions:
            held = self.by_partition.get(partition)
            if held is not None and held.consumed not in (None, held.committed):
                assert held.consumed is not None
                offsets[partition] = OffsetAndMetadata(held.consumed, "", held.leader_epoch)
        return offsets

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that the coordinator has stored these."""
        for partition, (offset, _, _) in offsets.items():
            held = self.by_partition.get(partition)
            if held is not None:
                held.committed = offset

    def renew(self) -> None:
        """Have the next automatic commit contain everything, as if nothing was committed."""
        for held in self.by_partition.values():
            held.committed = None

    def give_back(self) -> None:
        """Take back what the last `take` returned, because it reached nobody."""
        for partition, (position, turn) in self._before_poll.items():
            held = self.by_partition.get(partition)
            if held is not None and held.turn == turn:
                held.move(position)
        self._before_poll = {}

    def check(self) -> None:
        """Assert that every partition knows the offset to resume from."""
        assert self.waiting <= set(self.by_partition)
        for held in self.by_partition.values():
            if held.records:
                assert held.position is not None
                assert held.records[0].offset >= held.position
