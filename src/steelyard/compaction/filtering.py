"""The second pass of compaction: what is left of each entry.

- Of a key, the last record stays; records without a key go.
- A tombstone (a record without value) stays until its batch's delete horizon. The first pass that
  meets it sets the horizon, `delete_retention_ms` from then on (KIP-534). A message of RocketMQ
  with an empty body stays for that long after it was stored.
- Records of aborted transactions go. The marker of a transaction goes, by the horizon like a
  tombstone, when no batch of the transaction is left.
- A batch keeps its offsets, sequence numbers, times and compression, whatever it loses. One that
  loses everything goes as well, except the last of each active producer, by which repetitions are
  recognised, and the last of all, which shows where the log has been compacted.
- A batch of which a record cannot be read stays as it is.

Source: core/kafka/log/LogCleaner.cleanInto, clients/common/record/MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from steelyard.compaction.entries import (
    RECORD_EFFORT,
    Steps,
    UnpackedRecord,
    key_of_message,
    records_of,
)
from steelyard.compaction.offset_map import OffsetMap
from steelyard.compaction.transactions import CleanedTransactions
from steelyard.errors import ProtocolError
from steelyard.types import Effort
from steelyard.wire.kafka.compression import Compression, packed_pieces
from steelyard.wire.kafka.packing import pack_batch, pack_record
from steelyard.wire.kafka.records import (
    COMPRESSION_MASK,
    DELETE_HORIZON,
    BatchHeader,
    read_header,
    read_record,
)

PIECE_EFFORTS: dict[int, int] = {Compression.NONE: 0, Compression.GZIP: 500}
PIECE_EFFORT = 150
"""The effort of compressing a piece (`packed_pieces`), unless PIECE_EFFORTS has another."""
REPACK_EFFORT = 10
"""The effort of writing a record anew."""


class LastWrite(msgspec.Struct, frozen=True):
    """What an active producer wrote last: the offset of its last record, -1 if that was a marker.

    `epoch`: the producer's.
    """

    offset: int
    epoch: int


class Filtering:
    """Tells what is left of entries, in the order of the log, from its beginning.

    `producers`: the last writes of active producers, by id. `stop`: where the pass ends.
    """

    def __init__(
        self,
        keys: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastWrite],
        stop: int,
        now: int,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._stop = stop
        self._now = now
        self._delete_retention_ms = delete_retention_ms
        self.bare_markers: list[int] = []
        """The offsets of the markers that went."""

    def message(self, message: bytes, offset: int, stored: int, effort: Effort) -> bool:
        """Return whether a message of RocketMQ stays. `stored`: when it was stored."""
        effort.left -= RECORD_EFFORT
        if offset > self._keys.latest:
            return True
        key, has_body = key_of_message(message)
        if not key or offset < self._keys.get(key):
            return False
        return has_body or self._now - stored < self._delete_retention_ms

    def batch(self, batch: bytes, effort: Effort) -> Steps[bytes]:
        """Return what is left of a batch: itself, a batch with fewer records, or nothing."""
        header = read_header(batch)
        effort.left -= RECORD_EFFORT
        horizon = header.delete_horizon_ms
        if header.is_control:
            is_bare = self._transactions.is_bare(header, batch)
            if not is_bare:
                return batch
            if horizon is None and header.count:
                found = yield from records_of(batch, header, effort)
                if found is None:
                    return batch
                return (yield from self._packed(batch, header, found, self._new_horizon, effort))
            if horizon is not None and horizon > self._now:
                return batch
            if header.count:
                self.bare_markers.append(header.base_offset)
            return self._empty(header)
        if self._transactions.is_aborted(header):
            return self._empty(header)
        found = yield from records_of(batch, header, effort)
        if found is None:
            return batch
        kept: list[UnpackedRecord] = []
        for each in found:
            if self._stays(each, horizon):
                kept.append(each)
            effort.left -= 1
            if effort.left <= 0:
                yield
        if not kept:
            return self._empty(header)
        sets_horizon = horizon is None and not all(each.has_value for each in kept)
        if len(kept) == len(found) and not sets_horizon:
            return batch
        horizon = self._new_horizon if sets_horizon else None
        return (yield from self._packed(batch, header, kept, horizon, effort))

    @property
    def _new_horizon(self) -> int:
        return self._now + self._delete_retention_ms

    def _stays(self, found: UnpackedRecord, horizon: int | None) -> bool:
        if found.offset > self._keys.latest:
            return True
        if found.key is None or found.offset < self._keys.get(found.key):
            return False
        return found.has_value or horizon is None or self._now < horizon

    def _packed(
        self,
        batch: bytes,
        header: BatchHeader,
        kept: Sequence[UnpackedRecord],
        horizon: int | None,
        effort: Effort,
    ) -> Steps[bytes]:
        """Return a batch with some of its records, and with another delete horizon if given.

        The whole batch if a record that must be written anew is damaged.
        """
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        attributes = header.attributes
        if horizon is not None:
            base_timestamp = horizon  # where batches with a horizon have it
            attributes |= DELETE_HORIZON
        packed: list[bytes] = []
        for each in kept:
            if horizon is None and each.is_true:
                packed.append(each.packed)
                continue
            try:
                packed.append(_repacked(each, header, each.offset - base_offset, base_timestamp))
            except (ProtocolError, IndexError, UnicodeDecodeError):
                return batch
            effort.left -= REPACK_EFFORT
            if effort.left <= 0:
                yield
        pieces: list[bytes] = []
        for piece in packed_pieces(b"".join(packed), header.compression):
            pieces.append(piece)
            effort.left -= PIECE_EFFORTS.get(header.compression, PIECE_EFFORT)
            if effort.left <= 0:
                yield
        timestamp = header.max_timestamp
        if not header.is_log_append_time:
            timestamp = header.base_timestamp + max(each.timestamp for each in kept)
        return pack_batch(
            b"".join(pieces),
            base_offset=base_offset,
            count=len(kept),
            last_offset_delta=header.last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=timestamp,
            attributes=attributes,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def _empty(self, header: BatchHeader) -> bytes:
        """Return a batch without records where somebody still needs that, otherwise nothing."""
        if header.next_offset != self._stop and not self._is_last(header):
            return b""
        return pack_batch(
            b"",
            base_offset=header.base_offset,
            count=0,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=-1,
            max_timestamp=header.max_timestamp,
            attributes=header.attributes & ~COMPRESSION_MASK & ~DELETE_HORIZON,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def _is_last(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.offset >= 0:
            return last.offset == header.last_offset
        return header.is_control and last.epoch == header.producer_epoch


def _repacked(
    found: UnpackedRecord, header: BatchHeader, offset: int, base_timestamp: int
) -> bytes:
    """Return a record for a batch with another base timestamp."""
    record, _ = read_record(found.packed, 0, header)
    headers = [(name.encode(), value) for name, value in record.headers]
    timestamp = found.timestamp + header.base_timestamp - base_timestamp
    return pack_record(timestamp, offset, record.key, record.value, headers)
