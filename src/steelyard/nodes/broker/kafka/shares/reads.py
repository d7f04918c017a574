"""Reads what share groups want of a log: batches, and what they have to deliver.

Of a fetch of n records, batches are read up to that which holds the n-th offset. Markers of
transactions are never delivered (Kafka's consumers pass over them), and records of transactions
that were aborted are not delivered to groups with share.isolation.level=read_committed, which read
up to the last stable offset.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.nodes.broker.conversion.aborted import AbortedBatches
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.data.fetch_converted import Converted
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.shares.share_partition import BatchesRead
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.types import Effort
from steelyard.wire.kafka.messages.share_data import AcquiredRecords
from steelyard.wire.kafka.records import BatchHeader, read_headers


class ShareRead(msgspec.Struct, frozen=True):
    """Batches as they are sent, what is known of them, and where in `data` each begins."""

    data: bytes
    read: BatchesRead
    positions: Sequence[int] = ()

    def part(self, acquired: Sequence[AcquiredRecords]) -> bytes:
        """Return the batches from that of the first acquired record to that of the last."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        batches = self.read.batches
        wanted = [n for n, batch in enumerate(batches) if batch[1] >= first and batch[0] <= last]
        begin, behind = self.positions[wanted[0]], wanted[-1] + 1
        end = self.positions[behind] if behind < len(self.positions) else len(self.data)
        return self.data[begin:end]


class ShareReads:
    """Reads logs for share groups."""

    def __init__(self, producers: Producers, durability: Durability) -> None:
        self._producers = producers
        self._durability = durability
        self._converted = Converted()

    def end(self, log: Log, *, committed: bool) -> int:
        """Return the offset up to which a group may read. Raises StorageError."""
        if committed:
            return self._producers.last_stable(log)
        return self._durability.readable_end(log)

    def size_at(self, log: Log, offset: int, bytes_max: int, end: int) -> int:
        """Return how many bytes there are from an offset on, without reading; 1 if unknown.

        Raises CorruptError, StorageError.
        """
        if not log.min_offset <= offset < end:
            return 0
        return log.find_run(offset, bytes_max, end).size or 1

    def read(
        self, log: Log, offset: int, count: int, bytes_max: int, effort: Effort, *, committed: bool
    ) -> ShareRead | None:
        """Read the batches with `count` offsets from `offset` on, one at least.

        None if there are none, or if they would have to be converted and too little effort is left.
        Raises CorruptError, StorageError.
        """
        end = self.end(log, committed=committed)
        if not log.min_offset <= offset < end:
            return None
        end = min(end, log.entry_end(min(offset + count, end) - 1))
        extent = log.find_run(offset, bytes_max, end)
        if not extent.size:  # the entries there were given up, or reach beyond the end
            gone = [(offset, extent.next_offset - 1)]
            return ShareRead(b"", BatchesRead(offset, gone, gone)) if gone[0][1] >= offset else None
        if extent.kind == BATCHES:
            data = extent.read().data
        else:
            found = self._converted.read(log, extent, bytes_max, effort)
            if found is None:
                return None
            data, next_offset = found
            if not data:
                gone = [(offset, next_offset - 1)]
                return ShareRead(b"", BatchesRead(offset, gone, gone))
        headers = list(read_headers(data))
        if not headers:
            return None
        batches = [(header.base_offset, header.last_offset) for _, header in headers]
        empty = self._empty(log, [header for _, header in headers], committed=committed)
        positions = [position for position, _ in headers]
        return ShareRead(data, BatchesRead(offset, batches, empty), positions)

    def _empty(
        self, log: Log, headers: Sequence[BatchHeader], *, committed: bool
    ) -> list[tuple[int, int]]:
        """Return the offsets of batches with nothing to deliver."""
        aborted = AbortedBatches()
        if committed and any(header.is_transactional for header in headers):
            first, next_offset = headers[0].base_offset, headers[-1].next_offset
            aborted = AbortedBatches(self._producers.aborted(log, first, next_offset))
        return [
            (header.base_offset, header.last_offset)
            for header in headers
            if header.is_control or aborted.has(header)
        ]

    def check(self) -> None:
        self._converted.check()
