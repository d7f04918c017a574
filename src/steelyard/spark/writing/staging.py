"""Rows that nobody can read until the driver commits them: a transaction for each task.

- Each attempt of a task opens a Kafka transaction under an id of its own place: the writer, the
  partition and the number of the attempt. What an earlier run left open under that id is aborted
  thereby. Sequence numbers keep a request that is repeated from being stored twice.
- The driver commits the transactions of all tasks at once, by COMMIT_TOGETHER, with the number of
  the batch. The coordinator does that once for each number and never for an earlier one, whatever
  the rows are: a batch that Spark repeats is written to transactions that are aborted.
- Transactions that nobody ends are aborted with the next batch, and by the option
  transactionTimeoutMs at the latest. Until then readers see nothing that was stored after them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from steelyard.driver.blocking_links import KafkaLink
from steelyard.errors import ConfigError, KafkaError, SteelyardError
from steelyard.produce.rules import check_topic
from steelyard.routes.layout import Layout
from steelyard.spark.joining import PIECE_BYTES_MAX, pieces
from steelyard.spark.offsets import QueueName
from steelyard.spark.options.writing import SinkOptions
from steelyard.spark.servers.kafka_cluster import KafkaCluster
from steelyard.spark.servers.patience import Patience, persist
from steelyard.spark.servers.server_links import ServerLinks, WritableRoute
from steelyard.spark.writing import kafka_batches
from steelyard.spark.writing.committing import Staged, abort
from steelyard.spark.writing.rows import Rows
from steelyard.spark.writing.targets import Targets
from steelyard.spark.writing.under_way import RowsRequest, UnderWay
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.transactions import (
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.records import HEADER_BYTES

INIT_VERSION, ADD_VERSION, PRODUCE_VERSION = 4, 3, 9
ACKS_ALL = -1
ROWS_MAX = 10_000
"""Most rows of a record batch."""
RECORD_BYTES = 10
"""Most bytes of a record before what `kafka_batches.encode` makes."""


class _Topic(NamedTuple):
    """Where a topic's queues are, and how large its record batches may be.

    `rows_max`, `bytes_max`: of encoded rows.
    """

    route: WritableRoute
    layout: Layout
    rows_max: int
    bytes_max: int


@dataclass(slots=True)
class _Batch(RowsRequest):
    """A record batch on its way."""

    partition: int
    records: bytes
    link: KafkaLink | None = None
    correlation_id: int = 0


class Stager(UnderWay[_Batch]):
    """Writes the rows of one task. `task`: names its partition and its attempt."""

    def __init__(self, options: SinkOptions, writer: str, task: str) -> None:
        super().__init__(options.retry_timeout_ms)
        self._options = options
        self._writer = writer
        self._task = task
        self._servers = ServerLinks(options.nameservers, options.timeout_ms, options.access)
        self._cluster = KafkaCluster(options, self._servers)
        self._topics: dict[str, _Topic] = {}
        self._targets = Targets(options.topic, self._queues)
        self._sequences: dict[QueueName, int] = {}
        self._staged: Staged | None = None

    def close(self) -> None:
        self._cluster.close()
        self._servers.close()

    def send(self, rows: Rows) -> None:
        """Send rows; those of earlier calls are acknowledged, or wait for `finish`."""
        staged = self._staged or self._begin()
        encoded = kafka_batches.encode(rows)
        targets = [*self._targets.choose(rows)]
        self._add([target.queue for target in targets if target.queue not in self._sequences])
        now = int(time.time() * 1000)
        for target in targets:
            chosen = encoded if target.rows is None else encoded.take(pa.array(target.rows))
            (name, broker, queue_id) = target.queue
            topic = self._topics[name]
            partition = topic.layout.partition_of(broker, queue_id)
            assert partition is not None, "_queues returns those of the layout"
            for part in pieces(chosen, topic.rows_max, topic.bytes_max):
                sequence = self._sequences[target.queue]
                self._sequences[target.queue] = (sequence + len(part)) % (1 << 31)
                records = kafka_batches.seal(
                    part, now, staged.producer_id, staged.producer_epoch, sequence
                )
                self.start(_Batch(target.queue, True, partition, records))

    def finish(self) -> Staged | None:
        """Wait until every row is acknowledged; None if there were no rows."""
        self.flush()
        return self._staged

    def abort(self) -> None:
        """Give the rows up."""
        if self._staged is not None:
            abort(self._cluster, self._staged)

    # -- the transaction ---------------------------------------------------------------------------

    def _begin(self) -> Staged:
        self._staged = persist(self._begun, self._options.retry_timeout_ms)
        return self._staged

    def _begun(self) -> Staged:
        name, coordinator = self._cluster.coordinated(self._writer, self._task)
        request = InitProducerIdRequest(name, self._options.transaction_timeout_ms)
        with self._cluster.using(coordinator.address) as link:
            answer = link.call(INIT_PRODUCER_ID, INIT_VERSION, request, InitProducerIdResponse)
        if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ConfigError(
                f"option 'transactionTimeoutMs' is {self._options.transaction_timeout_ms}, which is"
                " more than the brokers allow (transaction.max.timeout.ms)"
            )
        link.check(answer.error_code, f"a producer of {name!r}")
        return Staged(name, answer.producer_id, answer.producer_epoch, coordinator)

    def _add(self, queues: Sequence[QueueName]) -> None:
        """Add queues to the transaction, before anything is written to them."""
        if queues:
            persist(lambda: self._added(queues), self._options.retry_timeout_ms)
            self._sequences |= dict.fromkeys(queues, 0)

    def _added(self, queues: Sequence[QueueName]) -> None:
        staged = self._staged
        assert staged is not None, "it was begun"
        partitions: dict[str, list[int]] = {}
        for topic, broker, queue_id in queues:
            number = self._topics[topic].layout.partition_of(broker, queue_id)
            partitions.setdefault(topic, []).append(number or 0)
        topics = [AddPartitionsToTxnTopic(topic, each) for topic, each in partitions.items()]
        request = AddPartitionsToTxnRequest(
            staged.transactional_id, staged.producer_id, staged.producer_epoch, topics
        )
        with self._cluster.using(staged.coordinator.address) as link:
            kind = AddPartitionsToTxnResponse
            answer = link.call(ADD_PARTITIONS_TO_TXN, ADD_VERSION, request, kind)
        for each in answer.results_by_topic:
            for result in each.results_by_partition:
                link.check(result.partition_error_code, f"a transaction that writes {each.name!r}")

    # -- requests ----------------------------------------------------------------------------------

    def transmit(self, request: _Batch) -> None:
        assert self._staged is not None, "it was begun"
        topic, broker, _ = request.queue
        request.link = None
        link = request.link = self._cluster.link(self._cluster.broker(broker).address)
        data = TopicProduceData(
            topic, partition_data=[PartitionProduceData(request.partition, request.records)]
        )
        message = ProduceRequest(
            self._staged.transactional_id, ACKS_ALL, self._options.timeout_ms, [data]
        )
        request.correlation_id = link.send(PRODUCE, PRODUCE_VERSION, message)

    def receive(self, request: _Batch) -> None:
        link = request.link
        assert link is not None, "it was sent"
        answer = link.receive(request.correlation_id, ProduceResponse)
        code = answer.responses[0].partition_responses[0].error_code
        if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # stored, but the answer was lost
            link.check(code, f"rows for {request.queue[0]!r}")

    def failed(self, request: _Batch, error: SteelyardError, patience: Patience) -> None:
        patience.wait(error)
        if request.link is not None and not isinstance(error, KafkaError):
            self._cluster.drop(request.link)

    # -- routes ------------------------------------------------------------------------------------

    def _queues(self, topic: str) -> Sequence[QueueName]:
        if topic not in self._topics:
            check_topic(topic)
            timeout_ms = self._options.retry_timeout_ms
            self._topics[topic] = persist(lambda: self._looked_up(topic), timeout_ms)
        return self._topics[topic].route.queues

    def _looked_up(self, topic: str) -> _Topic:
        route = self._servers.writable(topic)
        layout, limit = self._cluster.layout(topic)
        for _, broker, queue_id in route.queues:
            if layout.partition_of(broker, queue_id) is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"queue {queue_id} of broker {broker!r} is not a partition of {topic!r} yet",
                    retriable=True,
                )
        if limit is None:
            return _Topic(route, layout, ROWS_MAX, PIECE_BYTES_MAX)
        # A quarter is for what comes before each row, and the head of the batch.
        rows_max = min(ROWS_MAX, max(limit // 4 // RECORD_BYTES, 1))
        bytes_max = min(PIECE_BYTES_MAX, max(limit * 3 // 4 - HEADER_BYTES, 1))
        return _Topic(route, layout, rows_max, bytes_max)
