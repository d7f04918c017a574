"""APIs 22, 24 to 26, 65 and 66: what the coordinator of a transactional id is asked.

- Producers: 22 InitProducerId (versions 0-5), 24 AddPartitionsToTxn (0-3), 25 AddOffsetsToTxn
  (0-4), 26 EndTxn (0-5; from 5 on it bumps the epoch)
- Brokers: 24 AddPartitionsToTxn (4-5), for clients that write (`additions`)
- Operators: 65 DescribeTransactions (0), 66 ListTransactions (0-2)

`groups.kafka.transactions` decides, and `marking` writes the markers. Ids of other brokers get
NOT_COORDINATOR. If the disk refuses a write, the answer is COORDINATOR_NOT_AVAILABLE, and clients
retry. Clients that do not know PRODUCER_FENCED yet get INVALID_PRODUCER_EPOCH.
Source: core/kafka/server/KafkaApis.scala, coordinator/transaction/TransactionCoordinator.scala.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.errors import StorageError
from steelyard.groups.kafka.patterns import Pattern, PatternError
from steelyard.groups.kafka.transactional_ids import (
    BUMPS_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    TransactionalIdState,
)
from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.transactions.additions import transaction_of
from steelyard.nodes.broker.kafka.transactions.producer_ids import ProducerIds
from steelyard.nodes.seam import Effect
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.transactions import (
    ADDED_BY_BROKERS_SINCE,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicData,
)
from steelyard.wire.kafka.messages.transactions import DescribedTransaction as Described
from steelyard.wire.kafka.messages.transactions import ListedTransaction as Listed
from steelyard.wire.kafka.schema import ApiMessage

FENCED_SINCE_INIT = 4
FENCED_SINCE = 2
"""First versions, of InitProducerId and of the others, whose clients know PRODUCER_FENCED."""
BUMPS_SINCE = 5
"""First version of EndTxn that bumps the epoch."""


class TransactionRequests:
    """Handlers of these APIs."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        cluster: Cluster,
        durability: Durability,
        faults: Faults,
    ) -> None:
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._cluster = cluster
        self._durability = durability
        self._faults = faults

    @serves(InitProducerIdRequest)
    def init_producer_id(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        message = call.read(InitProducerIdRequest)
        transactional_id = message.transactional_id
        if transactional_id is None:
            return self._producer_ids.init_producer_id(call, now, effects)
        if not transactional_id:
            return InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST)
        fault = self._fault(transactional_id)
        producer = ProducerIdAndEpoch(fault)
        if fault is ErrorCode.NONE:
            try:
                producer = self._transactions.init_producer_id(
                    transactional_id,
                    message.transaction_timeout_ms,
                    message.producer_id,
                    message.producer_epoch,
                    now,
                )
            except StorageError as error:
                producer = ProducerIdAndEpoch(self._refused(error, now, effects))
        code = _known_code(producer.error, call.version, FENCED_SINCE_INIT)
        answer = InitProducerIdResponse(0, code, producer.producer_id, producer.epoch)
        return self._durability.acknowledge_call(call, answer, effects)

    @serves(AddPartitionsToTxnRequest)
    def add_partitions(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        message = call.read(AddPartitionsToTxnRequest)
        if call.version >= ADDED_BY_BROKERS_SINCE:
            results = [self.result_of(each, now, effects) for each in message.transactions]
            answer = AddPartitionsToTxnResponse(results_by_transaction=results)
            return self._durability.acknowledge_call(call, answer, effects)
        asked = AddPartitionsToTxnTransaction(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            topics=message.topics,
        )
        fenced = ErrorCode.PRODUCER_FENCED
        code = _known_code(fenced, call.version, FENCED_SINCE)
        result = self._result(asked, 0, {fenced: code}, now, effects)
        answer = AddPartitionsToTxnResponse(0, result.topic_results)
        return self._durability.acknowledge_call(call, answer, effects)

    def result_of(
        self, asked: AddPartitionsToTxnTransaction, now: int, effects: list[Effect]
    ) -> AddPartitionsToTxnResult:
        """Add partitions for a client of version 2, or verify those of another client."""
        return self._result(asked, BUMPS_EPOCH, {}, now, effects)

    def _result(
        self,
        asked: AddPartitionsToTxnTransaction,
        version: int,
        codes: Mapping[ErrorCode, ErrorCode],
        now: int,
        effects: list[Effect],
    ) -> AddPartitionsToTxnResult:
        """Return the result of each partition. `codes`: what errors are replaced by."""
        places = [TopicPartition(t.name, index) for t in asked.topics for index in t.partitions]
        unknown = {place for place in places if not self._exists(place)}
        errors: Mapping[TopicPartition, ErrorCode]
        if unknown:
            untried = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED)
            errors = {**untried, **dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        elif asked.verify_only:
            errors = self._verified(asked, places)
        else:
            error = self._added(asked, places, version, now, effects)
            errors = dict.fromkeys(places, codes.get(error, error))
        topics = [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(
                        index, errors[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return AddPartitionsToTxnResult(asked.transactional_id, topics)

    def _exists(self, place: TopicPartition) -> bool:
        partitions = self._cluster.partitions(place.topic)
        if place.topic == OFFSETS_TOPIC and not partitions:
            return True  # a broker that is alone needs no layout
        return 0 <= place.partition < partitions

    def _verified(
        self, asked: AddPartitionsToTxnTransaction, places: list[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        fault = self._fault(asked.transactional_id)
        if fault is not ErrorCode.NONE:
            return dict.fromkeys(places, fault)
        return self._transactions.verify_partitions(
            asked.transactional_id, asked.producer_id, asked.producer_epoch, places
        )

    @serves(AddOffsetsToTxnRequest)
    def add_offsets(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(AddOffsetsToTxnRequest)
        error = ErrorCode.INVALID_GROUP_ID
        if message.group_id:
            partition = self._cluster.offsets_partition(message.group_id)
            asked = transaction_of(
                *(message.transactional_id, message.producer_id, message.producer_epoch),
                [partition],
                adds=True,
            )
            error = self._added(asked, [partition], 0, now, effects)
        answer = AddOffsetsToTxnResponse(0, _known_code(error, call.version, FENCED_SINCE))
        return self._durability.acknowledge_call(call, answer, effects)

    def _added(
        self,
        asked: AddPartitionsToTxnTransaction,
        places: list[TopicPartition],
        version: int,
        now: int,
        effects: list[Effect],
    ) -> ErrorCode:
        fault = self._fault(asked.transactional_id)
        if fault is not ErrorCode.NONE:
            return fault
        producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
        try:
            return self._transactions.add_partitions(*producer, places, now, version=version)
        except StorageError as error:
            return self._refused(error, now, effects)

    @serves(EndTxnRequest)
    def end(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(EndTxnRequest)
        bumps = call.version >= BUMPS_SINCE
        ended = ProducerIdAndEpoch(self._fault(message.transactional_id))
        if not ended.error:
            try:
                ended = self._ended(message, now, bumps=bumps)
            except StorageError as fault:
                ended = ProducerIdAndEpoch(self._refused(fault, now, effects))
        code = _known_code(ended.error, call.version, FENCED_SINCE)
        answer = EndTxnResponse(0, code, ended.producer_id, ended.epoch)
        return self._durability.acknowledge_call(call, answer, effects)

    def _ended(self, message: EndTxnRequest, now: int, *, bumps: bool) -> ProducerIdAndEpoch:
        """End a transaction. Raises StorageError."""
        producer = message.transactional_id, message.producer_id, message.producer_epoch
        if bumps:
            return self._transactions.end_and_bump(*producer, commit=message.committed, now=now)
        error = self._transactions.end(*producer, commit=message.committed, now=now)
        return ProducerIdAndEpoch(error)

    # -- operators -------------------------------------------------------------------------------

    @serves(DescribeTransactionsRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(DescribeTransactionsRequest)
        return DescribeTransactionsResponse(
            0, [self._described(n) for n in message.transactional_ids]
        )

    def _described(self, transactional_id: str) -> Described:
        fault = self._fault(transactional_id)
        if fault is not ErrorCode.NONE:
            return Described(fault, transactional_id)
        found = self._transactions.get(transactional_id)
        if found is None:
            return Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        return Described(
            ErrorCode.NONE,
            transactional_id,
            found.state,
            found.timeout_ms,
            found.started_at,
            found.producer_id,
            found.producer_epoch,
            [TopicData(*each) for each in numbers_by_topic(sorted(found.partitions)).items()],
        )

    @serves(ListTransactionsRequest)
    def list_all(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(ListTransactionsRequest)
        text = message.transactional_id_pattern
        try:
            pattern = Pattern(text) if text else None
        except PatternError:
            return ListTransactionsResponse(0, ErrorCode.INVALID_REGULAR_EXPRESSION)
        states = set(message.state_filters)

        def is_asked_for(each: Transaction) -> bool:
            return (
                (not states or each.state in states)
                and (
                    not message.producer_id_filters
                    or each.producer_id in message.producer_id_filters
                )
                and (message.duration_filter < 0 or _age(each, now) > message.duration_filter)
                and (pattern is None or pattern.matches(each.transactional_id))
            )

        listed = [
            Listed(each.transactional_id, each.producer_id, each.state)
            for each in self._transactions.all()
            if is_asked_for(each)
        ]
        return ListTransactionsResponse(
            0, ErrorCode.NONE, sorted(states - set(TransactionalIdState)), listed
        )

    def _fault(self, transactional_id: str) -> ErrorCode:
        """Return NONE if this broker coordinates a transactional id, otherwise the error."""
        return self._cluster.coordinator_fault(transactional_id, TRANSACTIONS_TOPIC)

    def _refused(self, error: StorageError, now: int, effects: list[Effect]) -> ErrorCode:
        self._faults.tell(f"a transaction was not written: {error}", now, effects)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _age(transaction: Transaction, now: int) -> int:
    return now - transaction.started_at if transaction.started_at >= 0 else -1


def _known_code(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    if error == ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
