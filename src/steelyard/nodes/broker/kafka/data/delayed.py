"""Records that their producer wants delayed, by a header with the name of RocketMQ's property.

TIMER_DELIVER_MS, TIMER_DELAY_MS and TIMER_DELAY_SEC mean what they do there (`timers.due`); the
value is the number as text. A record with such a header is taken out of its batch when that is
produced, and waits. When it is due it is appended to its partition, with the header TIMER_OUT_MS
besides, which says for when it was stored; whoever sends it on does not delay it again.

- The other records of the batch are appended at once, as a batch of their own. The answer has no
  offset (-1).
- INVALID_RECORD: the value is not a number, or further ahead than `timer_max_delay_sec`, or the
  batch belongs to a transaction.
- Idempotent producers: a batch that is sent again is recognised, after a restart too, by a
  snapshot. A kill before that is written may leave what the batch has stored, without an answer to
  the producer, which sends it again.
- A compressed batch is unpacked to be searched, unless that takes more than SEARCHED_BYTES_MAX.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import re2
from msgspec.structs import replace

from steelyard.errors import MessageError, ProtocolError
from steelyard.nodes.broker.kafka.data.partitions import Partition
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.timers.due import due_of
from steelyard.nodes.broker.timers.timers import KAFKA_RECORD, DelayedMessages
from steelyard.nodes.broker.writer import Draft
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.wire.kafka.compression import Compression, decompress
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.records import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    read_records,
    write_batch,
)
from steelyard.wire.remoting.properties import TIMER_OUT_MS, TIMER_PROPERTIES, Properties

SEARCHED_BYTES_MAX = 16 * 1024 * 1024
"""What a batch may unpack to for its headers to be looked at: some 10 ms."""

_SIGN = re2.compile(b"TIMER_DE")
"""What all of their names contain. RE2 searches several times as fast as `bytes.find`."""
_NAMES = frozenset((*TIMER_PROPERTIES, TIMER_OUT_MS))


class Parted(msgspec.Struct, frozen=True):
    """A batch of which some records, at least one, are to wait: (record, when it is due)."""

    waiting: Sequence[tuple[Record, int]]
    prompt: Sequence[Record]


class DelayedRecords:
    """See the module docstring. Without `enabled` no batch is looked at."""

    def __init__(
        self, parts: Parts, timers: DelayedMessages, producers: Producers, *, enabled: bool
    ) -> None:
        self._timers = timers
        self._producers = producers
        self._writer = parts.writer
        self._durability = parts.durability
        self._enabled = enabled
        self._unsaved: list[tuple[int, Log]] = []
        """Logs that need a snapshot of their producers, once the disk has what came before."""

    def part(self, batch: bytes, header: BatchHeader, now: int) -> Parted | None:
        """Return a batch in two parts, None if all of it is to be appended.

        Raises RequestRefused.
        """
        if not self._enabled or not _has_sign(batch, header):
            return None
        waiting: list[tuple[Record, int]] = []
        prompt: list[Record] = []
        try:
            for record in read_records(batch, bytes_max=SEARCHED_BYTES_MAX):
                due = self._due(record, now)
                if due is None:
                    prompt.append(replace(record, offset=len(prompt)))
                else:
                    waiting.append((record, due))
        except (MessageError, ProtocolError) as error:
            raise RequestRefused(ErrorCode.INVALID_RECORD, str(error)) from None
        if not waiting:
            return None
        if header.is_transactional:
            text = "a record of a transaction cannot be delayed (header TIMER_*)"
            raise RequestRefused(ErrorCode.INVALID_RECORD, text)
        return Parted(waiting, prompt)

    def _due(self, record: Record, now: int) -> int | None:
        wanted = {
            name: str(value or b"", "utf-8", "replace")
            for name, value in record.headers
            if name in _NAMES
        }
        self._timers.admit(wanted, now)
        return due_of(wanted, now)

    def store(
        self,
        partition: Partition,
        log: Log,
        header: BatchHeader,
        parted: Parted,
        append_time: int | None,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Store both parts of a batch. Raises StorageError; some may have been stored then."""
        for record, due in parted.waiting:
            self._wait(partition, record, due, now, effects)
        if parted.prompt:
            rest = write_batch(parted.prompt, compression=header.compression)
            offset = self._writer.write_batch(log, rest, len(parted.prompt), now, append_time)
            self._writer.wrote(log, offset, now, effects)
        if header.producer_id >= 0:
            self._producers.wrote(log, header, -1, header.max_timestamp, now)
            self._unsaved.append((self._durability.mark(), log))
            self.flushed()

    def _wait(
        self, partition: Partition, record: Record, due: int, now: int, effects: list[Effect]
    ) -> None:
        topic, queue_id, properties = self._timers.divert(
            partition.topic, partition.queue_id, due, {KAFKA_RECORD: "1"}
        )
        out = properties[TIMER_OUT_MS].encode()
        alone = replace(record, offset=0, headers=(*record.headers, (TIMER_OUT_MS, out)))
        draft = Draft(
            write_batch((alone,)),
            Properties.of(properties),
            self._writer.host,
            max(record.timestamp, 0),
        )
        written = self._writer.write(topic, queue_id, draft, now, effects)
        self._timers.stored(written.offset, properties, now, effects)

    def flushed(self) -> None:
        """Save what the logs do not show of their producers, if the disk has the rest."""
        ready = [log for mark, log in self._unsaved if self._durability.has(mark)]
        self._unsaved = [each for each in self._unsaved if not self._durability.has(each[0])]
        for log in {log.log_id: log for log in ready}.values():
            self._producers.save(log)


def _has_sign(batch: bytes, header: BatchHeader) -> bool:
    """Return whether the batch may have a record to delay; a damaged one has none."""
    if header.compression == Compression.NONE:
        records = batch
    else:
        try:
            records = decompress(batch[HEADER_BYTES:], header.compression, SEARCHED_BYTES_MAX)
        except ProtocolError:
            return False
    return _SIGN.search(records) is not None
