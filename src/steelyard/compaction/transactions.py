"""Which transactions of a log were aborted, and which of their markers are still needed.

A marker is needed as long as there is a batch of its transaction: readers tell by it where an
aborted transaction ends. Batches come in the order of the log.
Source: core/kafka/log/LogCleaner.CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from steelyard.errors import ProtocolError
from steelyard.wire.kafka.records import ABORT, COMMIT, BatchHeader, read_marker

Aborted = tuple[int, int, int]
"""An aborted transaction: its producer's id, its first offset, the offset of its marker."""


class CleanedTransactions:
    """See the module docstring. `aborted`: those that overlap with what is read."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._ahead = deque(sorted(aborted, key=_first_of))
        self._committed: set[int] = set()
        """Producers of which a batch was read that no marker has followed yet."""
        self._aborted: dict[int, bool] = {}
        """Producers whose transaction is an aborted one, and whether a batch of it was read."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a batch of data belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._aborted[producer_id] = True
            return True
        self._committed.add(producer_id)
        return False

    def is_bare(self, header: BatchHeader, batch: bytes) -> bool:
        """Return whether a control batch is a marker of which no batch was read, or empty.

        Other control records are never bare.
        """
        self._reach(header.last_offset)
        if not header.count:
            return True
        try:
            marker = read_marker(batch)
        except ProtocolError:
            return False
        kind = None if marker is None else marker.kind
        if kind == ABORT:
            return not self._aborted.pop(header.producer_id, False)
        if kind == COMMIT:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen
        return False

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][1] <= offset:
            self._aborted.setdefault(self._ahead.popleft()[0], False)


def _first_of(aborted: Aborted) -> int:
    return aborted[1]
