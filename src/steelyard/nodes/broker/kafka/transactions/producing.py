"""0 Produce, versions 3-13: what has to be done before `data/produce` stores the batches.

The first batch of a transaction in a partition needs the transaction's coordinator (`additions`):
from version 12 on it adds the partition, before that the client has done so, which is verified.
Meanwhile the requests behind it on its link wait, because batches of a producer must be stored in
their order. (Apache Kafka reads no further request of a connection until then.)

| the coordinator | the client gets |
|---|---|
| PRODUCER_FENCED | INVALID_PRODUCER_EPOCH: it may abort |
| TRANSACTION_ABORTABLE | the same, before version 11 INVALID_TXN_STATE |
| cannot be asked, or is loading | NOT_ENOUGH_REPLICAS, which every client retries |
| CONCURRENT_TRANSACTIONS | the same, before version 12 NOT_ENOUGH_REPLICAS |

A client of version 2 whose transaction has ended has a later epoch, so that late batches of the
ended one are INVALID_PRODUCER_EPOCH. Batches of two producers in one request are
INVALID_PRODUCER_ID_MAPPING.
Source: core/kafka/server/ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from steelyard.errors import ProtocolError, StorageError
from steelyard.nodes.broker.kafka.data.partitions import Partition, Partitions
from steelyard.nodes.broker.kafka.data.produce import Produce
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.data.verifications import Verified
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.kafka.transactions.additions import (
    PartitionAdditions,
    Refused,
    client_error,
    transaction_of,
)
from steelyard.nodes.seam import Effect, Hang, Link
from steelyard.types import TopicPartition, joined
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import ProduceRequest
from steelyard.wire.kafka.records import BatchHeader, read_header
from steelyard.wire.kafka.schema import ApiMessage, Records

KNOWS_ABORTABLE = 11
ADDS_PARTITIONS = 12
"""First versions whose clients know TRANSACTION_ABORTABLE, and have partitions added."""

WAITING_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of requests that wait behind others; further ones are NOT_ENOUGH_REPLICAS."""

_UNREACHED = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


Answer = Callable[[int, list[Effect]], ApiMessage | None]
"""(now, effects) -> the answer to a request; None if it comes later. Raises ProtocolError."""


class _Batch(NamedTuple):
    """A transactional batch that has to be verified."""

    partition: Partition
    header: BatchHeader

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.index)


class TransactionalProduce:
    """The handler of Produce; see the module docstring. `verifies`: see `Produce`."""

    def __init__(
        self,
        produce: Produce,
        partitions: Partitions,
        producers: Producers,
        additions: PartitionAdditions,
        *,
        verifies: bool,
    ) -> None:
        self._produce = produce
        self._partitions = partitions
        self._producers = producers
        self._additions = additions
        self._verifies = verifies
        self._waiting: dict[Link, deque[OpenRequest]] = {}
        """By link with a request whose coordinator is asked: the requests behind it."""
        self._waiting_bytes = 0

    @serves(ProduceRequest)
    def produce(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        waiting = self._waiting.get(call.peer.link)
        if waiting is None:
            return self._take(call, now, effects)
        size = _size(call)
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            refused = RequestRefused(ErrorCode.NOT_ENOUGH_REPLICAS, "too many requests wait")
            return self._produce.store(call, self._all_refused(call, refused), now, effects)
        self._waiting_bytes += size
        waiting.append(call)
        return None

    def _take(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        """Store the batches of a request, at once if no coordinator has to be asked."""
        request = call.read(ProduceRequest)
        adds = call.version >= ADDS_PARTITIONS
        if request.transactional_id is None or not (adds or self._verifies):
            return self._produce.store(call, Verified(), now, effects)
        batches = [each for each in self._transactional(request) if self._is_first(each, now)]
        if not batches:
            return self._produce.store(call, Verified(), now, effects)
        producers = {(each.header.producer_id, each.header.producer_epoch) for each in batches}
        if len(producers) > 1:
            text = "Transactional records contained more than one producer ID"
            mixed = RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
            return self._produce.store(call, self._all_refused(call, mixed), now, effects)
        serials = {
            each.place: self._producers.verifications.begin(
                each.partition.topic, each.partition.queue_id, each.header, bumps=adds
            )
            for each in batches
        }
        ((producer_id, epoch),) = producers
        asked = transaction_of(request.transactional_id, producer_id, epoch, serials, adds=adds)
        then = partial(self._told, call, serials)
        refused = self._additions.ask(asked, then, now, effects)
        if refused is None:
            self._waiting[call.peer.link] = deque()
            return None
        return self._produce.store(call, _verified(call, serials, refused), now, effects)

    def _transactional(self, request: ProduceRequest) -> Iterator[_Batch]:
        """Yield the transactional batches for partitions of this broker.

        Damaged ones are left out, because they are refused when they are to be stored.
        """
        for place, records in self._parts(request):
            partition = self._partitions.find(*place)
            if not partition.fault:
                with suppress(ProtocolError):
                    header = read_header(joined([records]))
                    if header.has_producer_id and header.is_transactional:
                        yield _Batch(partition, header)

    def _is_first(self, batch: _Batch, now: int) -> bool:
        """Return whether a batch may be the first of its transaction in its partition."""
        log = batch.partition.log
        try:
            return log is None or self._producers.needs_verification(log, batch.header, now)
        except StorageError:
            return False  # and so it is refused when it is to be stored

    def _parts(self, request: ProduceRequest) -> Iterator[tuple[TopicPartition, Records]]:
        """Yield the partitions of a request whose topics are known, with their batches."""
        for topic in request.topic_data:
            name = self._partitions.topic_of(topic.name, topic.topic_id)
            if name is not None:
                for part in topic.partition_data:
                    yield TopicPartition(name, part.index), part.records or b""

    def _all_refused(self, call: OpenRequest, refused: RequestRefused) -> Verified:
        places = [place for place, _ in self._parts(call.read(ProduceRequest))]
        return Verified({}, dict.fromkeys(places, refused))

    # -- when the coordinator has answered ---------------------------------------------------------

    def _told(
        self,
        call: OpenRequest,
        serials: dict[TopicPartition, int],
        refused: Refused,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Store the batches, then take the requests behind them."""
        waiting = self._waiting.pop(call.peer.link)
        verified = _verified(call, serials, refused)
        self._finish(call, partial(self._produce.store, call, verified), now, effects)
        while waiting:
            following = waiting.popleft()
            self._waiting_bytes -= _size(following)
            self._finish(following, partial(self._take, following), now, effects)
            if call.peer.link in self._waiting:
                self._waiting[call.peer.link] = waiting
                return

    def _finish(self, call: OpenRequest, answer: Answer, now: int, effects: list[Effect]) -> None:
        """Answer a request that has waited."""
        try:
            found = answer(now, effects)
        except ProtocolError as error:  # acks=0 has no other answer
            if not call.is_gone:
                effects.append(Hang(call.peer.link, str(error)))
            return
        if found is not None:
            call.answer(found, effects)

    def check(self) -> None:
        """Assert that what waits is counted."""
        waiting = [call for calls in self._waiting.values() for call in calls]
        assert self._waiting_bytes == sum(map(_size, waiting))


def _size(call: OpenRequest) -> int:
    topics = call.read(ProduceRequest).topic_data
    return sum(len(part.records or b"") for topic in topics for part in topic.partition_data)


def _verified(
    call: OpenRequest, serials: Mapping[TopicPartition, int], refused: Refused
) -> Verified:
    return Verified(
        serials, {place: _refusal(error, call.version) for place, error in refused.items()}
    )


def _refusal(error: ErrorCode, version: int) -> RequestRefused:
    """Return a coordinator's error as the client gets it."""
    code = client_error(error, knows_abortable=version >= KNOWS_ABORTABLE)
    is_busy = code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS
    if code in _UNREACHED or is_busy:
        text = (
            "Unable to verify the partition has been added to the transaction."
            f" Underlying error: {code.name}"
        )
        return RequestRefused(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    if code is ErrorCode.INVALID_TXN_STATE:
        return RequestRefused(code, "Partition was not added to the transaction")
    return RequestRefused(code, f"the transaction's coordinator answered {error.name}")
