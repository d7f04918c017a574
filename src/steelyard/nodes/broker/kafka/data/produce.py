"""0 Produce, versions 3-13: appends record batches to logs, with new offsets, otherwise as sent.

- Each partition gets one batch of format 2 with base offset 0, and its answer is an offset or an
  error.
- CORRUPT_MESSAGE: a damaged or truncated batch. INVALID_RECORD: no batch or several, an older
  format, a base offset other than 0, an impossible count, control records, or a producer id without
  a sequence. MESSAGE_TOO_LARGE: more than max.message.bytes. UNSUPPORTED_COMPRESSION_TYPE: an
  unknown compression, or zstd before version 7. `producers` has the errors of idempotent producers.
- Internal topics are INVALID_TOPIC_EXCEPTION. A topic that RocketMQ's permissions close to writers
  is TOPIC_AUTHORIZATION_FAILED, which no client retries.
- A batch that was stored before is answered as it was the first time.
- With message.timestamp.type=LogAppendTime the batch gets the broker's time.
- acks=all and acks=1 mean the same, because a partition has one copy. With acks=0 there is no
  answer; an error closes the link.
- With flush=sync the answer waits for the disk.
- The first batch of a transaction in a partition must be one that its coordinator knows of, which
  `transactions/producing` has found out before: otherwise INVALID_TXN_STATE.
- In a topic that is compacted, each record must have a key: otherwise INVALID_RECORD, with the
  errors of up to ERRORS_MAX records.
- Records with a header TIMER_* are delayed (`delayed`). Nothing else of records is inspected:
  timestamps, and the contents of compressed batches, are the producer's business.
Source: core/kafka/server/KafkaApis.handleProduceRequest,
clients/common/requests/ProduceRequest.validateRecords,
storage/internals/log/UnifiedLog.analyzeAndValidateRecords, LogValidator.validateBatch.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.errors import ProtocolError, StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.topic import INTERNAL
from steelyard.nodes.broker.kafka.data.delayed import DelayedRecords
from steelyard.nodes.broker.kafka.data.partitions import LEADER_EPOCH, Partition, Partitions
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.data.verifications import Verified
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.seam import Effect
from steelyard.store.batch import COUNT_MAX
from steelyard.types import TopicPartition, joined
from steelyard.wire.kafka.compression import Compression, decompress
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from steelyard.wire.kafka.packing import MAGIC
from steelyard.wire.kafka.records import (
    HEADER_BYTES,
    NULL,
    SIZE_BEFORE,
    BatchHeader,
    crc_ok,
    read_header,
    read_varint,
)
from steelyard.wire.kafka.schema import ApiMessage

ACKS = (-1, 0, 1)
ZSTD_SINCE = 7
ERRORS_MAX = 100
"""Most records of a batch that are named in a refusal."""

_COMPRESSIONS = frozenset(int(each) for each in Compression)


class Produce:
    """The handler of Produce."""

    def __init__(
        self,
        parts: Parts,
        partitions: Partitions,
        producers: Producers,
        delayed: DelayedRecords,
        faults: Faults,
        *,
        verifies: bool,
    ) -> None:
        """`verifies`: transaction.partition.verification.enable."""
        self._verifies = verifies
        self._partitions = partitions
        self._producers = producers
        self._delayed = delayed
        self._store = parts.store
        self._writer = parts.writer
        self._durability = parts.durability
        self._faults = faults
        self._refused = parts.statistics.kafka_refused

    def store(
        self, call: OpenRequest, verified: Verified, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        """Store the batches of a request. Raises ProtocolError with acks=0."""
        request = call.read(ProduceRequest)
        leaders: list[int] = []
        answers = [
            self._topic(request, topic, call.version, verified, leaders, now, effects)
            for topic in request.topic_data
        ]
        if request.acks == 0:
            for topic in answers:
                for part in topic.partition_responses:
                    if part.error_code:
                        name = ErrorCode(part.error_code).name
                        raise ProtocolError(f"acks=0, and {topic.name}-{part.index}: {name}")
            call.no_reply(effects)
            return None
        endpoints = [NodeEndpoint(*each) for each in self._partitions.endpoints(leaders)]
        answer = ProduceResponse(answers, 0, endpoints)
        return self._durability.acknowledge_call(call, answer, effects)

    def _topic(
        self,
        request: ProduceRequest,
        topic: TopicProduceData,
        version: int,
        verified: Verified,
        leaders: list[int],
        now: int,
        effects: list[Effect],
    ) -> TopicProduceResponse:
        name = self._partitions.topic_of(topic.name, topic.topic_id)
        parts: Sequence[PartitionProduceResponse]
        if name is None:
            parts = [
                PartitionProduceResponse(part.index, ErrorCode.UNKNOWN_TOPIC_ID, -1)
                for part in topic.partition_data
            ]
        elif request.acks not in ACKS:
            parts = [
                PartitionProduceResponse(part.index, ErrorCode.INVALID_REQUIRED_ACKS, -1)
                for part in topic.partition_data
            ]
        else:
            parts = [
                self._partition(name, part, version, verified, leaders, now, effects)
                for part in topic.partition_data
            ]
        return TopicProduceResponse(topic.name, topic.topic_id, parts)

    def _partition(
        self,
        topic: str,
        part: PartitionProduceData,
        version: int,
        verified: Verified,
        leaders: list[int],
        now: int,
        effects: list[Effect],
    ) -> PartitionProduceResponse:
        """Store the batch of one partition."""
        index = part.index
        partition = self._partitions.find(topic, index)
        if partition.fault:
            leader = LeaderIdAndEpoch()
            if partition.fault == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leaders.append(partition.leader)
                leader = LeaderIdAndEpoch(partition.leader, LEADER_EPOCH)
            return PartitionProduceResponse(index, partition.fault, -1, current_leader=leader)
        batch = joined([part.records or b""])
        try:
            return self._stored(partition, batch, version, verified, now, effects)
        except RequestRefused as refused:
            self._refused[refused.code] = self._refused.get(refused.code, 0) + 1
            return PartitionProduceResponse(index, refused.code, -1, error_message=refused.text)
        except StorageError as error:
            self._faults.tell(f"{topic}-{index} was not written: {error}", now, effects)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            self._refused[code] = self._refused.get(code, 0) + 1
            return PartitionProduceResponse(index, code, -1, error_message=str(error))

    def _stored(
        self,
        partition: Partition,
        batch: bytes,
        version: int,
        verified: Verified,
        now: int,
        effects: list[Effect],
    ) -> PartitionProduceResponse:
        topic, place = partition.topic, TopicPartition(partition.topic, partition.index)
        if place in verified.refused:
            raise verified.refused[place]
        if topic in INTERNAL:
            raise RequestRefused(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}"
            )
        if not partition.writable:
            raise RequestRefused(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{topic} is closed to writers"
            )
        settings = self._partitions.cluster.settings_of(topic)
        header = _checked(batch, version, settings.max_message_bytes)
        if settings.compacts:
            without = _without_key(batch, header)
            if without:
                code = ErrorCode.INVALID_RECORD
                self._refused[code] = self._refused.get(code, 0) + 1
                return _keyless(partition, without)
        self._writer.admit()
        append_time = now if settings.log_append_time else None
        log = partition.log
        if log is None:
            log = partition.log = self._store.create_log(topic, partition.queue_id)
        timestamp = header.max_timestamp if append_time is None else append_time
        producers = self._producers
        if header.producer_id >= 0:
            written = producers.duplicate(log, header, now)
            if written is not None:
                time = written.timestamp if settings.log_append_time else -1
                return PartitionProduceResponse(
                    partition.index, 0, written.first_offset, time, log.min_offset
                )
            fault = producers.fault(log, header, now)
            if not fault and header.is_transactional and self._verifies:
                fault = producers.first_fault(log, header, verified.serials.get(place), now)
            if fault:
                raise RequestRefused(fault, _order_text(partition, header, fault))
            producers.prepare(log)
        parted = self._delayed.part(batch, header, now)
        if parted is not None:
            self._delayed.store(partition, log, header, parted, append_time, now, effects)
            return PartitionProduceResponse(partition.index, 0, -1, -1, log.min_offset)
        if header.producer_id < 0:
            offset = self._writer.write_batch(log, batch, header.count, now, append_time)
            producers.passed(log)
        else:
            offset = self._writer.write_batch(log, batch, header.count, now, append_time)
            # Before readers wake: they must not read beyond the begin of an open transaction.
            producers.wrote(log, header, offset, timestamp, now)
        self._writer.wrote(log, offset, now, effects)
        time = -1 if append_time is None else append_time
        return PartitionProduceResponse(partition.index, 0, offset, time, log.min_offset)


def _checked(batch: bytes, version: int, bytes_max: int) -> BatchHeader:
    """Return the header of the one batch that a producer sent. Raises RequestRefused."""
    invalid = ErrorCode.INVALID_RECORD
    size = len(batch)
    if not size:
        raise RequestRefused(invalid, "there must be one record batch per partition")
    if size > 16 and batch[16] != MAGIC:
        raise RequestRefused(invalid, f"record batches must have magic version 2, not {batch[16]}")
    try:
        header = read_header(batch)
    except ProtocolError as error:
        raise RequestRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    whole = header.batch_length + SIZE_BEFORE
    if whole > size:
        raise RequestRefused(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes of a batch of {whole} bytes")
    if whole < size:
        raise RequestRefused(invalid, "there must be exactly one record batch per partition")
    compression = header.attributes & 7
    if compression and (
        compression not in _COMPRESSIONS
        or (compression == Compression.ZSTD and version < ZSTD_SINCE)
    ):
        raise RequestRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression type {compression} in Produce version {version}",
        )
    if size > bytes_max:
        text = f"the record batch of {size} bytes is larger than max.message.bytes, {bytes_max}"
        raise RequestRefused(ErrorCode.MESSAGE_TOO_LARGE, text)
    if not crc_ok(batch):
        raise RequestRefused(ErrorCode.CORRUPT_MESSAGE, "the checksum of the record batch is wrong")
    if header.base_offset:
        raise RequestRefused(invalid, f"the base offset is {header.base_offset}, not 0")
    if not header.count_fits or header.count > COUNT_MAX:
        text = f"{header.count} records with offsets up to {header.last_offset_delta}"
        raise RequestRefused(invalid, f"the count is wrong: {text}")
    if header.is_control:
        raise RequestRefused(invalid, "clients must not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        text = f"invalid sequence number {header.base_sequence}"
        raise RequestRefused(invalid, f"{text} of producer {header.producer_id}")
    return header


def _without_key(batch: bytes, header: BatchHeader) -> list[int]:
    """Return the places of the first records without a key. Raises RequestRefused if damaged."""
    found: list[int] = []
    try:
        data = decompress(batch[HEADER_BYTES:], header.compression)
        at = 0
        for number in range(header.count):
            size, begin = read_varint(data, at)
            _, key_at = read_varint(data, begin + 1)
            _, key_at = read_varint(data, key_at)
            if data[key_at] == NULL:
                found.append(number)
                if len(found) == ERRORS_MAX:
                    break
            if size < 0:
                raise ProtocolError(f"record {number} claims {size} bytes")
            at = begin + size
    except (IndexError, ProtocolError) as error:
        raise RequestRefused(ErrorCode.CORRUPT_MESSAGE, f"a damaged record: {error}") from None
    return found


def _keyless(partition: Partition, without: list[int]) -> PartitionProduceResponse:
    """Return the answer to a batch that has records without a key, in Kafka's words."""
    place = f"{partition.topic}-{partition.index}"
    text = f"Compacted topic cannot accept message without key in topic partition {place}"
    errors = [BatchIndexAndErrorMessage(number, text) for number in without]
    shown = ", ".join(
        f"RecordError(batchIndex={number}, message='{text}')" for number in without[:3]
    )
    return PartitionProduceResponse(
        partition.index,
        ErrorCode.INVALID_RECORD,
        -1,
        record_errors=errors,
        error_message=(
            f"One or more records have been rejected due to {len(errors)} record errors in total,"
            f" and only showing the first three errors at most: [{shown}]"
        ),
    )


def _order_text(partition: Partition, header: BatchHeader, fault: ErrorCode) -> str:
    return (
        f"{fault.name}: sequence {header.base_sequence} in epoch {header.producer_epoch}"
        f" of producer {header.producer_id} in {partition.topic}-{partition.index}"
    )
