"""What a log knows of its producers: their last batches, and open and aborted transactions.

This only records what was stored, in that order; `producers` decides what may be stored.
Source: storage/internals/log/ProducerStateEntry.java, TransactionIndex.java.
"""

from __future__ import annotations

import msgspec

from steelyard.store.log import Log
from steelyard.wire.kafka.records import BatchHeader

BATCHES_KEPT = 5
SEQUENCE_MAX = 0x7FFFFFFF
NO_SEQUENCE = -1


class BatchMetadata(msgspec.Struct, array_like=True, gc=False):
    """A batch that a producer wrote. `timestamp`: the largest of its records."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerStateEntry(msgspec.Struct, array_like=True):
    """What a log knows of a producer.

    `seen_at`: when it last wrote, in ms. `open_from`: the first offset of its open transaction.
    """

    producer_id: int
    epoch: int
    seen_at: int
    coordinator_epoch: int = -1
    open_from: int | None = None
    timestamp: int = -1
    batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_open_in(self, epoch: int) -> bool:
        """Return whether it has an open transaction in this epoch."""
        return self.open_from is not None and self.epoch == epoch

    def wrote(self, header: BatchHeader, offset: int, timestamp: int, now: int) -> None:
        """Record a batch that was stored at an offset."""
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.batches = []
        first = header.base_sequence
        last = sequence_after(first, header.last_offset_delta)
        last_offset = offset + header.last_offset_delta
        written = BatchMetadata(first, last, offset, last_offset, timestamp)
        if len(self.batches) == BATCHES_KEPT:
            del self.batches[0]
        self.batches.append(written)
        self.timestamp = timestamp
        self.seen_at = now
        if header.is_transactional and self.open_from is None:
            self.open_from = offset


class Aborted(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An aborted transaction: its batches begin at `first`, its marker is at `last`.

    `stable`: the last stable offset after it; no transaction that ends later began before that.
    """

    producer_id: int
    first: int
    last: int
    stable: int


class LogProducers:
    """The producers of one log, in the order of their last writes."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.known: dict[int, ProducerStateEntry] = {}
        self.open: dict[int, int] = {}
        """First offsets of open transactions by producer, in ascending order."""
        self.aborted: list[Aborted] = []
        """By the offset of their markers."""
        self.unwritten: list[Aborted] = []
        """Those of `aborted` that must be on the disk before the next snapshot."""
        self.snapshot_upto = 0
        self.snapshot_address = 0
        self.unsaved = 0
        """Batches since the last snapshot."""

    def wrote(self, header: BatchHeader, offset: int, timestamp: int, now: int) -> None:
        """Record a batch of data with a producer id."""
        producer_id = header.producer_id
        producer = self.known.pop(producer_id, None)
        if producer is None:
            producer = ProducerStateEntry(producer_id, header.producer_epoch, now)
        self.known[producer_id] = producer
        was_open = producer.open_from is not None
        producer.wrote(header, offset, timestamp, now)
        if producer.open_from is not None and not was_open:
            self.open[producer_id] = offset
        self.unsaved += 1

    def ended(
        self, header: BatchHeader, coordinator_epoch: int, offset: int, *, abort: bool, now: int
    ) -> None:
        """Record a marker."""
        producer_id = header.producer_id
        producer = self.known.pop(producer_id, None)
        if producer is None:
            producer = ProducerStateEntry(producer_id, header.producer_epoch, now)
        self.known[producer_id] = producer
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches = []
        producer.coordinator_epoch = coordinator_epoch
        producer.open_from = None
        producer.timestamp = header.max_timestamp
        producer.seen_at = now
        self.unsaved += 1
        first = self.open.pop(producer_id, None)
        if first is not None and abort:
            stable = next(iter(self.open.values()), offset + 1)
            aborted = Aborted(producer_id, first, offset, stable)
            self.aborted.append(aborted)
            self.unwritten.append(aborted)


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` after another one; 0 follows the largest."""
    after = sequence + count
    return after if after <= SEQUENCE_MAX else after - SEQUENCE_MAX - 1
