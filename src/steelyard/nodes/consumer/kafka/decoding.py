"""The records of a partition in a fetch response.

A fetch may begin before the requested offset, and end within a batch. With read_committed the
broker sends what precedes the last stable offset, and lists the aborted transactions in it: the
producer, and the first offset; the producer's control batch ends the transaction. Source:
clients/consumer/internals/CompletedFetch.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.errors import ProtocolError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.data import AbortedTransaction
from steelyard.wire.kafka.records import (
    ABORT,
    BatchHeader,
    crc_ok,
    read_headers,
    read_marker,
    read_records,
)


class _Aborted:
    """The producers whose transactional batches are aborted, while a fetch is read in order."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(transactions, key=lambda t: t.first_offset, reverse=True)
        self._producers: set[int] = set()

    def voids(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        return header.is_transactional and header.producer_id in self._producers

    def ended(self, producer_id: int) -> None:
        self._producers.discard(producer_id)


class Fetched:
    """A fetch's records, decoded batch by batch on demand: often more than a poll takes.

    `aborted`: None if the records of aborted transactions are wanted as well.
    """

    def __init__(
        self,
        partition: TopicPartition,
        data: bytes,
        from_offset: int,
        aborted: Sequence[AbortedTransaction] | None,
        *,
        check_crcs: bool,
    ) -> None:
        self.next_offset = from_offset
        """Where to resume after what `more` returned; also past control records."""
        self._partition = partition
        self._data = data
        self._from_offset = from_offset
        self._void = None if aborted is None else _Aborted(aborted)
        self._check_crcs = check_crcs
        self._batches = read_headers(data)

    def more(self) -> list[ConsumerRecord]:
        """Return the records of the next batch that has some; none at the end.

        Raises ProtocolError if the data is damaged.
        """
        for at, header in self._batches:
            if header.next_offset <= self._from_offset:
                continue
            if self._check_crcs and not crc_ok(self._data, at, header.size):
                raise ProtocolError(f"the checksum of the batch at {header.base_offset} is wrong")
            records: list[ConsumerRecord] = []
            if header.is_control:
                _end(self._void, header, self._data, at)
            elif self._void is None or not self._void.voids(header):
                records = _batch(self._partition, self._data, at, header, self._from_offset)
            self.next_offset = header.next_offset
            if records:
                return records
        return []


def _end(void: _Aborted | None, header: BatchHeader, data: bytes, at: int) -> None:
    if void is not None and void.voids(header):
        marker = read_marker(data, at)
        if marker is not None and marker.kind == ABORT:
            void.ended(header.producer_id)


def _batch(
    partition: TopicPartition, data: bytes, at: int, header: BatchHeader, from_offset: int
) -> list[ConsumerRecord]:
    topic, number = partition
    timestamp_type = int(header.is_log_append_time)
    epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    return [
        ConsumerRecord(
            topic,
            number,
            record.offset,
            record.timestamp,
            timestamp_type,
            record.key,
            record.value,
            record.headers,
            epoch,
        )
        for record in read_records(data, at)
        if record.offset >= from_offset
    ]
