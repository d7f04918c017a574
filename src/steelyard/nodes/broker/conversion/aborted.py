"""Which batches belong to aborted transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from steelyard.wire.kafka.records import BatchHeader


class AbortedBatches:
    """Knows aborted transactions by their producers, whose transactions do not overlap.

    `aborted`: producer id, first offset and last offset of each.
    """

    def __init__(self, aborted: Iterable[tuple[int, int, int]] = ()) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        """The first and the last offsets of its transactions, in ascending order."""
        for producer_id, first, last in sorted(aborted):
            firsts, lasts = self._by_producer.setdefault(producer_id, ([], []))
            firsts.append(first)
            lasts.append(last)

    def has(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to one of these transactions."""
        known = self._by_producer.get(header.producer_id)
        if known is None or not header.is_transactional:
            return False
        firsts, lasts = known
        before = bisect_right(firsts, header.base_offset)
        return before > 0 and header.base_offset <= lasts[before - 1]
