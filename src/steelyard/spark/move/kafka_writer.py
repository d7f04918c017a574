"""Appending to a partition of Kafka without repetitions.

Each batch has a producer id and a sequence number, which the journal has, too. The broker answers a
batch that it stored before as it did the first time, so a batch is sent until it is acknowledged,
also by the next run after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.driver.blocking_links import check_code
from steelyard.errors import ConfigError, KafkaError
from steelyard.spark.move.contract import Token, in_full, written_by_others
from steelyard.spark.move.kafka_servers import KafkaAccess, KafkaServers
from steelyard.spark.offsets import QueueName
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.transactions import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.records import Record, write_batch

INIT_VERSION, PRODUCE_VERSION = 4, 9
ACKS_ALL = -1
SEQUENCE_END = 1 << 31


class KafkaAppender:
    """Appends to one partition."""

    def __init__(self, given: KafkaAccess, queue: QueueName, compression: Compression) -> None:
        self._given = given
        self._queue = queue
        self._compression = compression
        self._servers = KafkaServers(given)
        self._producer: tuple[int, int] | None = None
        self._sequence = 0
        self._leader = ""

    def close(self) -> None:
        self._servers.close()

    def token(self, count: int) -> Token | None:
        if self._producer is None:
            self._producer = self._servers.persistently(self._new_producer)
        token = (*self._producer, self._sequence)
        self._sequence = (self._sequence + count) % SEQUENCE_END
        return token

    def _new_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(None, self._given.timeout_ms)
        kind = InitProducerIdResponse
        address, answer = self._servers.anyone(INIT_PRODUCER_ID, INIT_VERSION, request, kind)
        check_code(address, answer.error_code, "the request for a producer id")
        return answer.producer_id, answer.producer_epoch

    def append(
        self, records: Sequence[Record], at: int, token: Token | None, *, unsure: bool = False
    ) -> None:
        del unsure  # the broker knows
        assert token is not None, "`token` gave one"
        producer_id, epoch, sequence = token
        batch = write_batch(
            [msgspec.structs.replace(one, offset=place) for place, one in enumerate(records)],
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        found = self._servers.persistently(lambda: self._store(batch))
        if found not in (at, None):
            raise written_by_others(self._queue, found or 0, at)

    def _store(self, batch: bytes) -> int | None:
        """Return the offset of the first record; None if the broker knows only that it has it."""
        topic, _, partition = self._queue
        if not self._leader:
            self._leader = self._servers.leader(topic, partition)
        address, self._leader = self._leader, ""
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
        request = ProduceRequest(None, ACKS_ALL, self._given.timeout_ms, [data])
        kind = ProduceResponse
        answer = self._servers.call(address, PRODUCE, PRODUCE_VERSION, request, kind)
        result = answer.responses[0].partition_responses[0]
        if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._leader = address
            return None
        self._check(address, result.error_code)
        self._leader = address
        if result.log_append_time_ms >= 0:
            raise ConfigError(
                f"topic {topic!r} at the target has message.timestamp.type=LogAppendTime, which"
                " replaces the times of records; set it to CreateTime, delete the records and"
                " start again with a new --state"
            )
        return result.base_offset

    def _check(self, address: str, code: int) -> None:
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            raise KafkaError(
                code,
                f"a record is too large for {in_full(self._queue)} at the target; raise"
                " max.message.bytes there to what the source has",
            )
        check_code(address, code, f"records for {in_full(self._queue)}")
