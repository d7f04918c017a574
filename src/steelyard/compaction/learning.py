"""The first pass of compaction: the last offset of each key of the part that is not compacted yet.

Source: core/kafka/log/LogCleaner.buildOffsetMapForSegment.
"""

from __future__ import annotations

from steelyard.compaction.entries import RECORD_EFFORT, Steps, key_of_message, records_of
from steelyard.compaction.offset_map import OffsetMap
from steelyard.compaction.transactions import CleanedTransactions
from steelyard.types import Effort
from steelyard.wire.kafka.records import read_header


class Learning:
    """Fills an OffsetMap from entries in the order of the log, from the offset `start` on."""

    def __init__(self, keys: OffsetMap, transactions: CleanedTransactions, start: int) -> None:
        self._keys = keys
        self._transactions = transactions
        self._start = start

    def batch(self, batch: bytes, effort: Effort) -> Steps[bool]:
        """Take a batch; return False, and take no more, if its keys have no room in the map."""
        header = read_header(batch)
        effort.left -= RECORD_EFFORT
        if header.is_control:
            self._transactions.is_bare(header, batch)
        elif not self._transactions.is_aborted(header):
            for found in (yield from records_of(batch, header, effort)) or ():
                if found.key is None or found.offset < self._start:
                    continue
                if not self._keys.put(found.key, found.offset):
                    return False
                effort.left -= 1
                if effort.left <= 0:
                    yield
        self._keys.latest = max(self._keys.latest, header.last_offset)
        return True

    def message(self, message: bytes, offset: int, effort: Effort) -> bool:
        """Take a message; return False, and take no more, if its key has no room in the map."""
        effort.left -= RECORD_EFFORT
        key, _ = key_of_message(message)
        if key and offset >= self._start and not self._keys.put(key, offset):
            return False
        self._keys.latest = max(self._keys.latest, offset)
        return True
