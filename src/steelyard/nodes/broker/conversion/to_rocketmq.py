"""Conversion of Kafka records for RocketMQ consumers, when they are read.

`messages` tells what becomes of a record.

The address of a batch does not identify a message. Viewing by id finds nothing there, and a message
that is sent back is refused as if it no longer existed; RocketMQ's clients then send a copy of it
themselves. Queries by key and by unique key find converted messages.

Control batches and records of aborted transactions are left out, and nothing beyond the last stable
offset is read: RocketMQ's consumers have no notion of uncommitted messages. A message that does not
fit into an answer, a record that cannot be read, and the rest of a batch that cannot be unpacked
any further are skipped (`skipped`).

A batch is unpacked as far as it is read, and kept for readers of the rest. A read takes an
`Effort`; if that ends before the first record is found, there is no answer yet, and repeating the
read gets further.

A reader that decodes batches itself gets them whole (`read_batches`), which costs the broker almost
nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec

from steelyard.conversion.messages import Found, MessageWriter, convert, unique_prefix
from steelyard.groups.remoting.subscriptions import Filter
from steelyard.nodes.broker.conversion.aborted import AbortedBatches
from steelyard.nodes.broker.filters import SCAN_MESSAGES_MAX
from steelyard.nodes.broker.skipped import PassedOver
from steelyard.nodes.broker.turns import SLICE
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.store.reads import Slice
from steelyard.types import Effort
from steelyard.wire import stored_batches
from steelyard.wire.kafka.records import BatchHeader, read_headers
from steelyard.wire.kafka.unpacking import Unpacking
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Approximate limit of the memory of unpacked batches; the newest one is always kept.

Readers come soon for the rest of a batch.
"""
UNPACKED_MAX = 256
"""Maximum of unpacked batches that are kept."""

_RUN_BYTES = 64 * 1024


class _Unpacked(msgspec.Struct, gc=False):
    """A batch, and its records if RocketMQ's consumers may have them.

    `size`: its memory when last measured.
    """

    header: BatchHeader
    key: tuple[int, int]
    records: Unpacking | None
    size: int = 0


class Batches(Slice, frozen=True, gc=False):
    """Batches as they are stored: `data` is that of `wire.stored_batches`.

    The first batch may begin before the offset that was asked for; `count` and `first_offset` do
    not count what is before it. `prefix`: see `unique_prefix`. `stored`: when the first batch was.
    """

    prefix: str
    stored: int


class Visible(Protocol):
    """Which transactions readers may see."""

    def last_stable(self, log: Log) -> int:
        """Return the last stable offset: every transaction before it has ended."""

    def aborted(self, log: Log, first: int, next_offset: int) -> Sequence[tuple[int, int, int]]:
        """Return the aborted transactions that overlap with `first` to `next_offset` - 1.

        Each as producer id, first offset, last offset.
        """


class Conversion:
    """Reads batches as RocketMQ records.

    `host`: the broker's, encoded as in messages. `visible`: None if everything may be read.
    """

    def __init__(self, host: bytes, visible: Visible | None = None) -> None:
        self._visible = visible
        self.passed = PassedOver()
        self._host = host
        self._unpacked: OrderedDict[tuple[int, int], _Unpacked] = OrderedDict()
        """By the address of the batch, which is that until the next swap of segments (`Log.swaps`).

        Those read the longest ago come first."""
        self._unpacked_bytes = 0

    def readable_end(self, log: Log, end: int) -> int:
        """Return `end`, or the last stable offset if that is lower."""
        return end if self._visible is None else min(end, self._visible.last_stable(log))

    def read(
        self,
        log: Log,
        offset: int,
        count_max: int,
        bytes_max: int,
        wanted: Filter,
        end: int,
        effort: Effort | None = None,
    ) -> Slice | None:
        """Read messages from `offset` on, which is in a batch, up to a stored record or the limits.

        The result is as that of `Log.read`. A bounded number of records is examined: an empty slice
        with a `next_offset` above `offset` means "read on". None if the effort (by default that of
        a turn) ended before the record at `offset` was found; the next call unpacks more of its
        batch.
        """
        effort = Effort(SLICE) if effort is None else effort
        end = min(self.readable_end(log, end), log.max_offset)
        passes_all = wanted.codes is None and wanted.condition is None
        stop = end if passes_all else min(end, offset + SCAN_MESSAGES_MAX)
        found = Found(count_max, min(bytes_max, ANSWER_BYTES_MAX), [])
        start = offset
        while offset < stop:
            before = offset
            for batch in self._batches(log, offset, stop):
                offset = self._read_batch(log, batch, offset, stop, wanted, found, effort)
                if offset < min(stop, batch.header.next_offset):
                    return None if offset == start else _slice(found, offset)
            if offset == before:
                break
        return _slice(found, offset)

    def read_batches(
        self, log: Log, offset: int, count_max: int, bytes_max: int, end: int
    ) -> Batches | None:
        """Read batches from the one that holds `offset` up to the limits, always one.

        Those without messages are left out; there may be nothing else. None if a record is at
        `offset`, or a batch that does not fit into an answer or lost records to compaction.
        """
        end = min(self.readable_end(log, end), log.max_offset)
        bytes_max = min(bytes_max, ANSWER_BYTES_MAX)
        stop = min(end, log.entry_end(min(offset + count_max, end) - 1))
        run = log.read_run(offset, bytes_max, stop)
        if run.kind != BATCHES or not run.data:
            return None
        hidden = AbortedBatches()
        if self._visible is not None:
            hidden = AbortedBatches(self._visible.aborted(log, run.first_offset, run.next_offset))
        parts: list[bytes | memoryview] = []
        first = next_offset = offset
        stored = size = count = 0
        with memoryview(run.data) as view:
            for at, header in read_headers(run.data):
                if header.is_sparse:
                    break
                begin = max(header.base_offset, offset)
                if not header.is_control and not hidden.has(header):
                    size += stored_batches.STORED_BYTES + header.size
                    if size > ANSWER_BYTES_MAX:
                        break
                    at_time = log.stored_at(begin)
                    if not parts:
                        first, stored = begin, at_time
                    parts += stored_batches.packed(at_time, view[at : at + header.size])
                    count += header.next_offset - begin
                next_offset = header.next_offset
            if next_offset == offset:
                return None
            data = b"".join(parts)
        first = first if count else next_offset
        prefix = unique_prefix(self._host, log.log_id)
        return Batches(data, count, next_offset, first, prefix, stored)

    def _read_batch(
        self,
        log: Log,
        batch: _Unpacked,
        offset: int,
        stop: int,
        wanted: Filter,
        found: Found,
        effort: Effort,
    ) -> int:
        """Add what the batch has from `offset` on; return the offset up to which it was read.

        If that is before the batch's end, a limit was reached or the effort ended.
        """
        stop = min(stop, batch.header.next_offset)
        if batch.records is None:
            return stop
        prefix = unique_prefix(self._host, log.log_id)
        stored = log.stored_at(offset)
        writer = MessageWriter.of(log.topic, log.queue_id, self._host, prefix, batch.key[0], stored)
        left_out = partial(self.passed.note, log)
        offset = convert(batch.records, writer, offset, stop, wanted, found, effort, left_out)
        self._account(batch)
        return offset

    def _batches(self, log: Log, offset: int, stop: int) -> Iterator[_Unpacked]:
        """Yield the batch that holds `offset` and some that follow; nothing if a record is there.

        Batches from `stop` on are not yielded: their transactions may not have ended yet.
        """
        address, swaps = log.address_at(offset), log.swaps
        known = self._unpacked.get((address, swaps))
        if known is not None and known.header.base_offset <= offset < known.header.next_offset:
            self._unpacked.move_to_end(known.key)
            yield known
            return
        run = log.read_run(offset, _RUN_BYTES)
        if run.kind != BATCHES:
            return
        hidden = AbortedBatches()
        if self._visible is not None:
            hidden = AbortedBatches(self._visible.aborted(log, run.first_offset, run.next_offset))
        for at, header in read_headers(run.data):
            if header.base_offset >= stop:
                return
            records = None
            if not header.is_control and not hidden.has(header):
                records = Unpacking(run.data[at : at + header.size], header)
            batch = _Unpacked(header, (address + at, swaps), records)
            self._forget(batch.key)
            self._unpacked[batch.key] = batch
            self._account(batch)
            yield batch

    def _account(self, batch: _Unpacked) -> None:
        """Account for a batch that may have grown, and evict those read the longest ago."""
        size = 0 if batch.records is None else batch.records.size
        self._unpacked_bytes += size - batch.size
        batch.size = size
        while len(self._unpacked) > 1 and (
            self._unpacked_bytes > UNPACKED_BYTES_MAX or len(self._unpacked) > UNPACKED_MAX
        ):
            self._forget(next(iter(self._unpacked)))

    def _forget(self, key: tuple[int, int]) -> None:
        gone = self._unpacked.pop(key, None)
        if gone is not None:
            self._unpacked_bytes -= gone.size

    def check(self) -> None:
        assert self._unpacked_bytes == sum(batch.size for batch in self._unpacked.values())
        assert self._unpacked_bytes <= UNPACKED_BYTES_MAX or len(self._unpacked) == 1
        assert len(self._unpacked) <= UNPACKED_MAX


def _slice(found: Found, next_offset: int) -> Slice:
    first = found.first if found.parts else next_offset
    return Slice(b"".join(found.parts), len(found.parts), next_offset, first)
