"""A model of an application that consumes, transforms and produces in transactions.

What it consumes are the numbers from 0 on. A transaction takes the next few, writes to several
partitions, and mostly commits the next number as the offset of a group; some have no offsets, and
some are aborted by the application. When the application starts, and after an error that is final,
it makes a new producer under its transactional id, which ends what the one before has begun, and
goes on from the group's offset. Several applications may share one id: each replaces the other.

Version 1 of transactions: the producer tells the coordinator where it is going to write
(AddPartitionsToTxn, AddOffsetsToTxn); its epoch stays until an abort leaves open what became of a
batch (KIP-360). Version 2 (KIP-890): leaders and the group's coordinator tell it, and each EndTxn
gives another epoch. Source: the client's TransactionManager.java.
"""

from __future__ import annotations

from random import Random

from steelyard.sim.kafka.producers.committed_reader import fetched_offset
from steelyard.sim.kafka.producers.producer import KafkaProducerConfig, KafkaProducerNode
from steelyard.sim.kafka.producers.sending import RETRIABLE
from steelyard.sim.kafka.producers.witness import KafkaTransactionWitness
from steelyard.sim.kafka.producers.written import ProducedTransaction
from steelyard.sim.kafka.script import (
    AGAIN_MS,
    ELSEWHERE,
    GROUP_KEY,
    TRANSACTION_KEY,
    Script,
    ScriptPause,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.messages.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

WITHOUT_OFFSETS_OF_100 = 20
ABORTED_OF_100 = 20
SLOW_OF_100 = 5
"""Transactions whose application takes so long that they may time out."""
TURNS_MAX = 2
"""How often one transaction writes to some partitions; it pauses after each time."""
NUMBERS_MAX = 4
"""Most numbers that one transaction processes."""
AFTER_ERROR_MS_MAX = 8_000
"""Longest time until an application makes a new producer after an error that is final."""

V1_ADD_PARTITIONS = ADD_PARTITIONS_TO_TXN._replace(versions=(0, 3))
V1_TXN_OFFSET_COMMIT = TXN_OFFSET_COMMIT._replace(versions=(0, 4))
V1_END_TXN = END_TXN._replace(versions=(0, 4))
V2_TXN_OFFSET_COMMIT = TXN_OFFSET_COMMIT._replace(versions=(5, 5))
V2_END_TXN = END_TXN._replace(versions=(5, 5))

_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class _FinalError(Exception):
    """The producer can only be closed."""


class TransactionalProducerNode(KafkaProducerNode):
    """The application with its producer; see the module docstring."""

    def __init__(
        self, config: KafkaProducerConfig, witness: KafkaTransactionWitness, rng: Random
    ) -> None:
        assert config.transactional_id is not None
        self._id = config.transactional_id
        self._position = 0
        """The next number to process."""
        super().__init__(config, witness, rng)

    def life(self) -> Script[None]:
        while True:
            try:
                yield from self._produce_on()
            except _FinalError:
                self.sending.drop()
                yield ScriptPause(self.rng.randrange(AFTER_ERROR_MS_MAX))

    def _produce_on(self) -> Script[None]:
        """Make a producer, and use it. Raises _FinalError."""
        while not self.witness.wants(self.config.name):
            yield ScriptPause(1_000)
        yield from self._initialize(-1, -1)
        while True:
            position = yield from fetched_offset(self, self.witness, self._id, stable=True)
            if position is not None:
                break
            yield ScriptPause(AGAIN_MS)
        self._position = position
        while True:
            if self.witness.wants(self.config.name):
                yield from self._transaction()
            yield ScriptPause(self.rng.randrange(self.config.pause_ms_max))

    def _initialize(self, producer_id: int, epoch: int) -> Script[None]:
        """Get an id and an epoch; the given ones are those that it had (KIP-360)."""
        request = InitProducerIdRequest(
            self._id, self.config.transaction_timeout_ms, producer_id, epoch
        )
        reply = yield from self._asked(INIT_PRODUCER_ID, request)
        assert isinstance(reply, InitProducerIdResponse)
        self._accept(ErrorCode(reply.error_code))
        self.witness.initialized(self._id, reply.producer_epoch)
        self.sending.renew(reply.producer_id, reply.producer_epoch)

    # -- transactions ------------------------------------------------------------------------------

    def _transaction(self) -> Script[None]:
        span = None
        if self.rng.randrange(100) >= WITHOUT_OFFSETS_OF_100:
            span = self._position, self._position + 1 + self.rng.randrange(NUMBERS_MAX)
        epoch = self.sending.epoch
        transaction = self.witness.begins(self.config.name, self._id, epoch, span)
        is_well = yield from self._write(transaction)
        if self.rng.randrange(100) < SLOW_OF_100:
            yield ScriptPause(self.rng.randrange(2 * self.config.transaction_timeout_ms))
        commit = is_well and self.rng.randrange(100) >= ABORTED_OF_100
        self.sending.drop()
        must_bump = self.sending.has_gap
        yield from self._end(transaction, commit=commit)
        if must_bump and not self.config.bumps:
            yield from self._initialize(self.sending.producer_id, self.sending.epoch)

    def _write(self, transaction: ProducedTransaction) -> Script[bool]:
        """Write the records and the offset; return whether the transaction may be committed."""
        known: set[int] = set()
        for _ in range(1 + self.rng.randrange(TURNS_MAX)):
            partitions = self.some_partitions()
            new = [each for each in partitions if each not in known]
            if new and not self.config.bumps:
                yield from self._add_partitions(new)
            known.update(new)
            for partition in partitions:
                self.add(partition, self._id, transaction)
            while not self.sending.is_empty:
                error = yield from self.round()
                if error or self.sending.expired(self.now):
                    return False
            yield ScriptPause(self.rng.randrange(self.config.pause_ms_max))
        if transaction.span is None:
            return True
        if not self.config.bumps:
            yield from self._add_group()
        return (yield from self._commit_offset(transaction.span[1]))

    def _add_partitions(self, partitions: list[int]) -> Script[None]:
        topic = AddPartitionsToTxnTopic(self.topic, partitions)
        request = AddPartitionsToTxnRequest(self._id, *self._producer, [topic])
        reply = yield from self._asked(V1_ADD_PARTITIONS, request)
        assert isinstance(reply, AddPartitionsToTxnResponse)
        self._accept(_error_of(reply))

    def _add_group(self) -> Script[None]:
        request = AddOffsetsToTxnRequest(self._id, *self._producer, self._id)
        reply = yield from self._asked(ADD_OFFSETS_TO_TXN, request)
        assert isinstance(reply, AddOffsetsToTxnResponse)
        self._accept(ErrorCode(reply.error_code))

    def _commit_offset(self, offset: int) -> Script[bool]:
        """Commit the group's offset with the transaction; return whether that succeeded."""
        part = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            self._id,
            self._id,
            *self._producer,
            topics=[TxnOffsetCommitRequestTopic(self.topic, [part])],
        )
        api = V2_TXN_OFFSET_COMMIT if self.config.bumps else V1_TXN_OFFSET_COMMIT
        reply = yield from self._asked(api, request, GROUP_KEY)
        return not _error_of(reply)

    def _end(self, transaction: ProducedTransaction, *, commit: bool) -> Script[None]:
        """Commit or abort."""
        transaction.asks_commit = commit
        was_replaced = self.is_replaced()
        request = EndTxnRequest(self._id, *self._producer, commit)
        reply = yield from self._asked(V2_END_TXN if self.config.bumps else V1_END_TXN, request)
        assert isinstance(reply, EndTxnResponse)
        self._accept(ErrorCode(reply.error_code))
        self.witness.ended(transaction, commit=commit, was_replaced=was_replaced)
        if commit and transaction.span is not None:
            self._position = transaction.span[1]
        if self.config.bumps:
            self.sending.renew(reply.producer_id, reply.producer_epoch)

    # -- requests ----------------------------------------------------------------------------------

    @property
    def _producer(self) -> tuple[int, int]:
        return self.sending.producer_id, self.sending.epoch

    def _asked(
        self, api: Api, request: ApiMessage, key_type: int = TRANSACTION_KEY
    ) -> Script[ApiMessage]:
        """Ask a coordinator until it gives an answer that is not retriable."""
        while True:
            reply = yield from self.coordinated(key_type, self._id, api, request)
            if reply is not None:
                error = _error_of(reply)
                if error not in RETRIABLE:
                    return reply
                if error in ELSEWHERE:
                    self.forget(key_type, self._id)
            yield ScriptPause(AGAIN_MS)

    def _accept(self, error: ErrorCode) -> None:
        """Raise _FinalError if there is an error."""
        if error in _FENCED:
            self.witness.fenced += 1
        if error:
            raise _FinalError(error.name)


def _error_of(reply: ApiMessage) -> ErrorCode:
    """Return the error of an answer about one thing, or the first of its partitions' errors."""
    codes: list[int] = []
    match reply:
        case AddPartitionsToTxnResponse():
            parts = reply.results_by_topic
            codes = [
                each.partition_error_code for part in parts for each in part.results_by_partition
            ]
        case TxnOffsetCommitResponse():
            codes = [each.error_code for part in reply.topics for each in part.partitions]
        case InitProducerIdResponse() | AddOffsetsToTxnResponse() | EndTxnResponse():
            codes = [reply.error_code]
    return ErrorCode(next((code for code in codes if code), ErrorCode.NONE))
