"""The partitions that a consumer holds: where it is in each, and what was fetched and not returned yet.

`position` is the offset of the next record that a poll returns. What polls returned counts as consumed when the next
poll begins (`consumed`), for only then is the application known to be done with it.
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
    """One partition. `turn` grows whenever what is under way for it must not count any more, and is never one that the
    partition had before: it may be given away and come back while an answer is under way. `turns`: those to come."""

    def __init__(self, partition: TopicPartition, turns: Iterator[int]) -> None:
        self.partition = partition
        self._turns = turns
        self.position: int | None = None
        self.consumed: int | None = None
        self.committed: int | None = None
        """The last offset that we committed, or found committed."""
        self.leader_epoch = -1
        """Of the last record returned."""
        self.reset_to: int | None = None
        """Look up the offset of this timestamp (EARLIEST, LATEST) and go on there."""
        self.paused = False
        self.fetching_from: int | None = None
        """The offset from which it was asked for, while it is."""
        self.turn = next(turns)
        self.retry_at = 0
        self.misled_by = -1
        """Version of the metadata that led to the wrong broker: it is not fetched before there is a newer one."""
        self.fault: SteelyardError | None = None
        """Raised by the next poll."""
        self.records: deque[ConsumerRecord] = deque()
        """The next ones; empty only where nothing is left of what was fetched."""
        self._fetched: Fetched | None = None

    def move(self, offset: int | None, reset_to: int | None = None) -> None:
        """Go on somewhere else: forget what was fetched."""
        self.position = offset
        self.reset_to = reset_to
        self.turn = next(self._turns)
        self.fault = None
        self.records.clear()
        self._fetched = None
        self.fetching_from = None
        self.retry_at = 0

    def feed(self, fetched: Fetched) -> None:
        """What was fetched from the position on."""
        assert not self.records
        assert fetched.next_offset == self.position
        self._fetched = fetched
        self._load(1)

    def take(self, count_max: int) -> list[ConsumerRecord]:
        """The next records; the position is after them then."""
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
        """Decode until so many records are there, or nothing is left; then the position is after all that was fetched."""
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
    """All of them, in the order in which polls look at them."""

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, Held] = {}
        self._turns = count()
        self.waiting: set[TopicPartition] = set()
        """New ones, of which the application is still being told: nothing of them is fetched."""
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
        """Raises ConfigError for a partition that is not held."""
        held = self.by_partition.get(partition)
        if held is None:
            raise ConfigError(f"{partition.topic}-{partition.partition} is not assigned")
        return held

    def chosen(self, partitions: Partitions) -> list[Held]:
        """These, or all where none are given. Raises ConfigError."""
        return [self.of(partition) for partition in partitions or self.partitions()]

    def poll_began(self) -> None:
        """The application is done with what it got."""
        for held in self.by_partition.values():
            held.consumed = held.position

    def take(self, count_max: int) -> tuple[ConsumerRecord, ...]:
        """Records for a poll: as many as there are of one partition, then of the next. Raises the fault of a partition
        whose turn it is."""
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
            # To the end: the next poll begins with another one.
            del self.by_partition[partition]
            self.by_partition[partition] = held
        return tuple(taken)

    def returned(
        self, unread: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that polls returned, but for what the application has not seen yet (`unread`: from which offset on)."""
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
        """What an automatic commit has to say of these partitions."""
        offsets = {}
        for partition in partitions:
            held = self.by_partition.get(partition)
            if held is not None and held.consumed not in (None, held.committed):
                assert held.consumed is not None
                offsets[partition] = OffsetAndMetadata(held.consumed, "", held.leader_epoch)
        return offsets

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The coordinator has these."""
        for partition, (offset, _, _) in offsets.items():
            held = self.by_partition.get(partition)
            if held is not None:
                held.committed = offset

    def give_back(self) -> None:
        """What the last `take` took reached nobody."""
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
