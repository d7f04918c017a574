"""Moving one queue, and reading it back.

Chunks go to the target one after the other, each noted in the journal before and after. A chunk
that was in doubt when an earlier run ended is completed first: if the target ends after it, it is
stored; if not, it is sent again in the same piece, which the writer does without a repetition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic

import msgspec

from steelyard.spark.move.contract import (
    CHUNK_BYTES,
    DIGEST_MODULUS,
    MoveCluster,
    OffsetRange,
    QueueAppender,
    R,
    digest,
    expired_meanwhile,
    written_by_others,
)
from steelyard.spark.move.journal import ChunkSending, Journal, Total
from steelyard.spark.move.mapping import runs

CHUNK_RECORDS = 1_000
"""Most records of a chunk: our brokers store a larger RocketMQ batch in several pieces."""


class QueueResult(msgspec.Struct, frozen=True):
    """What became of a queue.

    `moved`: records of this run; `count`: of all runs. `read_back` and `checksum_read_back`: what
    the target has of them. `expired`: source offsets that were gone before they could be moved, of
    all runs.
    """

    topic: str
    source: str
    target: str
    first: int
    next: int
    moved: int
    count: int
    read_back: int
    checksum: str
    checksum_read_back: str
    expired: int

    @property
    def matches(self) -> bool:
        """Whether the target has what was moved, and nothing was missed."""
        same = (self.count, self.checksum) == (self.read_back, self.checksum_read_back)
        return same and not self.expired


class QueueMove(Generic[R]):
    """One queue on its way. `told` gets the number of records of each step."""

    def __init__(
        self,
        source: MoveCluster[R],
        target: MoveCluster[R],
        journal: Journal,
        *,
        stopped: threading.Event,
        told: Callable[[int], None],
    ) -> None:
        self._source = source
        self._target = target
        self.journal = journal
        self._stopped = stopped
        self._told = told

    # -- moving ------------------------------------------------------------------------------------

    def move(self, extent: OffsetRange) -> None:
        """Move what the source has in `extent` and was not moved yet."""
        journal = self.journal
        if journal.doubt is None and journal.next >= extent.end:
            return
        writer = self._target.writer(journal.begun.target)
        try:
            self._settle(writer)
            if journal.next < extent.first:
                journal.skip(extent.first)
            left = OffsetRange(journal.next, extent.end)
            for records in self._source.read(journal.begun.source, left, strict=True):
                for chunk in self._chunks(records):
                    if self._stopped.is_set():
                        return
                    self._send(writer, chunk)
        finally:
            writer.close()

    def _settle(self, writer: QueueAppender[R]) -> None:
        """Complete the chunk in doubt; afterwards the target must end where the journal says."""
        journal = self.journal
        target, end = journal.begun.target, journal.total.end
        found = self._target.extents([target])[target].end
        chunk = journal.doubt
        if chunk is not None and found == end + chunk.count:
            journal.stored()
            return
        if chunk is None or not end <= found < end + chunk.count:
            if found != end:
                raise written_by_others(target, found, end)
            return
        source = journal.begun.source
        extent = OffsetRange(journal.next, chunk.following)
        parts = self._source.read(source, extent, strict=True)
        records = [record for part in parts for record in part]
        if len(records) != chunk.count:
            raise expired_meanwhile(source)
        writer.append(records, end, chunk.token, unsure=True)
        journal.stored()
        self._told(len(records))

    def _send(self, writer: QueueAppender[R], chunk: Sequence[R]) -> None:
        journal = self.journal
        count, _, end = journal.total
        content = self._target.content
        total = sum(digest(count + place, content(one)) for place, one in enumerate(chunk))
        token = writer.token(len(chunk))
        journal.sending(
            ChunkSending(
                following=chunk[-1].offset + 1,
                count=len(chunk),
                digest=f"{total % DIGEST_MODULUS:x}",
                runs=runs((record.offset for record in chunk), end),
                token=token,
            )
        )
        writer.append(chunk, end, token)
        journal.stored()
        self._told(len(chunk))

    def _chunks(self, records: Iterable[R]) -> Iterator[list[R]]:
        chunk: list[R] = []
        size = 0
        for record in records:
            more = self._target.size(record)
            if chunk and (size + more > CHUNK_BYTES or len(chunk) == CHUNK_RECORDS):
                yield chunk
                chunk, size = [], 0
            chunk.append(record)
            size += more
        if chunk:
            yield chunk

    # -- checking ----------------------------------------------------------------------------------

    def check(self, moved: int) -> QueueResult:
        """Read back what was stored since the last check. `moved`: records of this run.

        Ends early, with less than there is, if the move is stopped.
        """
        journal = self.journal
        begun, stored = journal.begun, journal.total
        found = self._read_back()
        result = QueueResult(
            topic=begun.source[0],
            source=f"{begun.source[1]}:{begun.source[2]}".lstrip(":"),
            target=f"{begun.target[1]}:{begun.target[2]}".lstrip(":"),
            first=begun.first,
            next=journal.next,
            moved=moved,
            count=stored.records,
            read_back=found.records,
            checksum=f"{stored.digest:032x}",
            checksum_read_back=f"{found.digest:032x}",
            expired=journal.expired,
        )
        if found == stored and journal.verified != stored:
            journal.verify()
        return result

    def _read_back(self) -> Total:
        journal = self.journal
        count, total, end = journal.verified
        content = self._target.content
        parts = self._target.read(journal.begun.target, journal.unverified, strict=False)
        for records in parts:
            if self._stopped.is_set():
                break
            for record in records:
                total += digest(count, content(record))
                count += 1
                end = record.offset + 1
            self._told(len(records))
        return Total(count, total % DIGEST_MODULUS, end)
