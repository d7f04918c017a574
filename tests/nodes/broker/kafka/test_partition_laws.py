"""The laws of one partition, whatever its producers, DeleteRecords, the cleaner and restarts do to it.

1. It begins where DeleteRecords left it and ends after the last record or marker; readers of committed records come as
   far as the oldest open transaction, and never less far than the beginning.
2. A reader finds records of the model at their offsets, in their order. Without compaction it finds all of them, with
   it the last one of each key; an older value of a key that was deleted does not come back.
3. A reader of committed records finds nothing of a transaction that was aborted or goes on.
4. The next batch of a producer is stored, a repeated one is not stored again, and one after a gap is refused. A
   producer may be forgotten only by a restart, and only if nothing is left of what it wrote last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.requests import producing
from tests.nodes.broker.kafka.test_fetch import request as fetching

from steelyard.config import BrokerConfig, KafkaConfig, StoreConfig
from steelyard.nodes.broker.node import Stop
from steelyard.nodes.seam import Answer, Asked, Effect
from steelyard.types import joined
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FetchResponse,
    PartitionData,
    PartitionProduceResponse,
    ProduceResponse,
)
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from steelyard.wire.kafka.records import (
    ABORT,
    TRANSACTIONAL,
    Record,
    read_headers,
    read_marker,
    read_records,
    write_batch,
)
from steelyard.wire.kafka.schema import ApiMessage

E = ErrorCode
R = TypeVar("R", bound=ApiMessage)
Ended = TypeVar("Ended", InitProducerIdResponse, EndTxnResponse)

LATEST, EARLIEST = -1, -2
TO_THE_END = -1
DAY_MS = 86_400_000
"""The time-out of transactions; no history lasts that long."""
SNAPSHOT_MS = 61_000
"""In this time producers are saved."""
CLEANER_MS = 1_100
"""In this time the cleaner runs once."""
MARKERS_MS = 300
"""In this time the markers of a transaction are written."""
PLAIN, IDEMPOTENT = "plain", "idempotent"
TRANSACTIONAL_IDS = ("one", "two", "three")

names = st.sampled_from((PLAIN, IDEMPOTENT, *TRANSACTIONAL_IDS))
rows = st.lists(
    st.tuples(st.sampled_from((b"a", b"b", b"c")), st.booleans()), min_size=1, max_size=4
)
"""Keys, and whether a record is a tombstone."""
compressions = st.sampled_from(list(Compression))
sizes = st.sampled_from((1, 200, 1 << 20))


# -- the model -------------------------------------------------------------------------------------


@dataclass
class Transaction:
    """An open transaction, or one with an outcome: True if it was committed.

    `batches`: first and last offsets. `first`: where it begins for the broker, `first_left` where it does if the broker
    had to look at the log that is left of it; None if there is nothing.
    """

    outcome: bool | None = None
    batches: list[tuple[int, int]] = field(default_factory=list)
    first_left: int | None = None

    @property
    def first(self) -> int:
        return self.batches[0][0]

    def wrote(self, first: int, last: int) -> None:
        self.batches.append((first, last))
        if self.first_left is None:
            self.first_left = first

    def restarted(self, start: int) -> None:
        """The broker may have read what is left of the log, from `start` on."""
        left = [first for first, last in self.batches if last >= start]
        self.first_left = left[0] if left else None


class Written(NamedTuple):
    """A record."""

    key: bytes | None
    value: bytes | None
    transaction: Transaction | None

    @property
    def counts(self) -> bool:
        """Whether readers of committed records may see it."""
        return self.transaction is None or self.transaction.outcome is True


class Model:
    """What was written, a marker being None, where the log begins, and the transactions that go on."""

    def __init__(self, *, compacts: bool) -> None:
        self.compacts = compacts
        self.log: list[Written | None] = []
        self.start = 0
        self.open: list[Transaction] = []

    @property
    def end(self) -> int:
        return len(self.log)

    @property
    def stable(self) -> tuple[int, int]:
        """The least and the most that the last stable offset may be."""
        least = min((each.first for each in self.open), default=self.end)
        left = [each.first_left for each in self.open if each.first_left is not None]
        return max(least, self.start), max(min(left, default=self.end), self.start)

    def append(
        self, data: Sequence[tuple[bytes, bytes | None]], transaction: Transaction | None
    ) -> None:
        if transaction is not None:
            transaction.wrote(self.end, self.end + len(data) - 1)
        self.log += [Written(key, value, transaction) for key, value in data]

    def finish(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.outcome = commit
        self.open.remove(transaction)
        self.log.append(None)

    def restarted(self) -> None:
        for transaction in self.open:
            if transaction.first < self.start:
                transaction.restarted(self.start)

    def check_read(
        self, first: int, stop: int, found: Sequence[Record], *, committed: bool
    ) -> None:
        """A reader came from `first` to `stop`, and found these records."""
        there = {
            offset: written
            for offset, written in enumerate(self.log[first:stop], first)
            if written is not None and (written.counts or not committed)
        }
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets)), "in no order"
        for record in found:
            expected = there.get(record.offset)
            assert expected is not None, f"{record} is not to be read"
            assert (record.key, record.value) == (expected.key, expected.value)
        if not self.compacts:
            assert offsets == list(there), "records are missing"
            return
        self._check_keys(
            {offset: each for offset, each in there.items() if each.counts}, set(offsets)
        )

    @staticmethod
    def _check_keys(counting: dict[int, Written], found: set[int]) -> None:
        """Of each key, the last record that counts was found. Or it is a tombstone, and no other was found."""
        last = {written.key: offset for offset, written in counting.items()}
        for key, offset in last.items():
            if offset in found:
                continue
            assert counting[offset].value is None, f"the last value of {key!r} is gone, at {offset}"
            older = [other for other in found if other in counting and counting[other].key == key]
            assert not older, f"{key!r} was deleted and is back: {older}"


class Batch(NamedTuple):
    """What is sent, and sent again."""

    data: bytes
    rows: Sequence[tuple[bytes, bytes | None]]
    sequence: int


@dataclass
class Producer:
    """A producer, its next sequence number, and its open transaction.

    `last`: its last batch in this epoch, and where that was stored. `written_to`: the offset of its last record or
    marker. `is_known`: the broker cannot have forgotten it.
    """

    name: str
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0
    transaction: Transaction | None = None
    last: tuple[Batch, int] | None = None
    written_to: int = -1
    is_known: bool = False

    @property
    def is_transactional(self) -> bool:
        return self.name in TRANSACTIONAL_IDS

    @property
    def has_id(self) -> bool:
        return self.producer_id >= 0

    def begins(self, producer_id: int, epoch: int) -> None:
        """It goes on in this epoch, without a transaction."""
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0
        self.transaction = self.last = None

    def may_be_refused(self, sequence: int) -> bool:
        """Whether this sequence number, its next one, is one that a broker without state refuses (KIP-890)."""
        return self.is_transactional and not self.is_known and sequence > 0


# -- the broker ------------------------------------------------------------------------------------


class PartitionRig(KafkaRig):
    """Its requests are of the one partition, and wait for their answers."""

    def waited(self, message: ApiMessage, version: int, kind: type[R]) -> R:
        correlation = self.post(message, version)
        for _ in range(400):
            answer = self.answer_to(correlation, kind)
            if answer is not None:
                return answer
            self.advance(5)
        raise AssertionError(f"no answer to {message}")

    def stop(self) -> None:
        """Stop cleanly, and start again."""
        self.event(Asked(1, Stop()))
        self.restart()
        assert self.store.was_clean

    def cut_power(self) -> None:
        self.lose_power()
        self.link = self.connect()

    def _make_other_true(self, effect: Effect) -> None:
        """Only to stopping."""
        assert isinstance(effect, Answer), f"not expected here: {effect}"
        assert effect.result is None

    def produce(self, data: bytes, transactional_id: str | None) -> PartitionProduceResponse:
        answer = self.waited(producing(TOPIC, 0, data, transactional_id), 12, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def fetch(self, offset: int, bytes_max: int, *, committed: bool) -> PartitionData:
        request = fetching(offset, min_bytes=0, part_bytes=bytes_max, isolation=int(committed))
        return self.waited(request, 12, FetchResponse).responses[0].partitions[0]

    def list_offset(self, timestamp: int, *, committed: bool = False) -> int:
        part = ListOffsetsPartition(0, -1, timestamp)
        request = ListOffsetsRequest(-1, int(committed), [ListOffsetsTopic(TOPIC, [part])])
        answer = self.waited(request, 11, ListOffsetsResponse).topics[0].partitions[0]
        assert answer.error_code == E.NONE
        return answer.offset

    def delete_records(self, offset: int) -> DeleteRecordsPartitionResult:
        topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])
        answer = self.waited(DeleteRecordsRequest([topic], 1_000), 2, DeleteRecordsResponse)
        return answer.topics[0].partitions[0]

    def init_producer_id(self, transactional_id: str | None) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id, DAY_MS)
        return self._settled(lambda: self.waited(request, 5, InitProducerIdResponse))

    def end_txn(self, producer: Producer, *, commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(producer.name, producer.producer_id, producer.epoch, commit)
        return self._settled(lambda: self.waited(request, 5, EndTxnResponse))

    def _settled(self, ask: Callable[[], Ended]) -> Ended:
        """Ask until the end of the transaction before is written, and until that of this one is."""
        for _ in range(50):
            answer = ask()
            if answer.error_code != E.CONCURRENT_TRANSACTIONS:
                assert answer.error_code == E.NONE
                self.advance(MARKERS_MS)
                return answer
            self.advance(50)
        raise AssertionError("a transaction does not end")


class CommittedFilter:
    """What a consumer leaves out of an answer: it goes by the aborted transactions that come with it."""

    def __init__(self, part: PartitionData) -> None:
        aborted = part.aborted_transactions or ()
        self._ahead = sorted((each.first_offset, each.producer_id) for each in aborted)
        self._aborted: set[int] = set()

    def records(self, data: bytes) -> list[Record]:
        found: list[Record] = []
        for at, header in read_headers(data):
            while self._ahead and self._ahead[0][0] <= header.last_offset:
                self._aborted.add(self._ahead.pop(0)[1])
            if header.is_control:
                marker = read_marker(data, at) if header.count else None
                if marker is not None and marker.kind == ABORT:
                    self._aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in self._aborted):
                found += read_records(data, at)
        return found


# -- the machine -----------------------------------------------------------------------------------


class PartitionMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(
        policy=st.sampled_from(("delete", "compact", "compact,delete")),
        segment_ms=st.sampled_from((1, DAY_MS)),
        segment_bytes=st.sampled_from((600, 1 << 20)),
        delete_retention_ms=st.sampled_from((0, 1_000, DAY_MS)),
        flush=st.sampled_from(("async", "sync")),
        delayed_answers=st.booleans(),
    )
    def begin(
        self,
        policy: str,
        segment_ms: int,
        segment_bytes: int,
        delete_retention_ms: int,
        flush: Literal["async", "sync"],
        delayed_answers: bool,
    ) -> None:
        store = StoreConfig(
            segment_bytes=segment_bytes, retention_ms=0, compaction_interval_ms=1_000
        )
        kafka = KafkaConfig(transaction_max_timeout_ms=DAY_MS)
        config = BrokerConfig(
            store=store, kafka=kafka, flush=flush, delayed_answers=delayed_answers
        )
        self.rig = PartitionRig(config)
        self.is_synced = flush == "sync"
        self.deletes = policy != "compact"
        self.model = Model(compacts=policy != "delete")
        self.values = 0
        topic = {
            "cleanup.policy": policy,
            "segment.ms": str(1 if self.model.compacts else segment_ms),
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": str(delete_retention_ms),
        }
        self.rig.create_topic(settings=topic)
        self.producers = {name: Producer(name) for name in (PLAIN, IDEMPOTENT, *TRANSACTIONAL_IDS)}
        for producer in self.producers.values():
            if producer.name != PLAIN:
                self.init(producer)

    def opened(self) -> list[Producer]:
        """Those with a transaction."""
        return [each for each in self.producers.values() if each.transaction is not None]

    def with_sequence(self) -> list[Producer]:
        """Those of which the partition knows what is next: other transactional ones begin anew."""
        return [self.producers[IDEMPOTENT], *self.opened()]

    # -- writing -----------------------------------------------------------------------------------

    @rule(writes=st.lists(st.tuples(names, rows, compressions), min_size=1, max_size=4))
    def produce(self, writes: list[tuple[str, list[tuple[bytes, bool]], int]]) -> None:
        for name, drawn, compression in writes:
            self.write(self.producers[name], drawn, compression)

    def write(
        self, producer: Producer, drawn: Sequence[tuple[bytes, bool]], compression: int = 0
    ) -> None:
        """The next batch of a producer. If the broker refuses it, as it may, the producer begins anew."""
        batch = self.batch(producer, drawn, compression, producer.sequence)
        answer = self.send(producer, batch)
        if answer.error_code and producer.may_be_refused(batch.sequence):
            assert answer.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.init(producer)
        else:
            self.stored(producer, batch, answer)

    @rule(data=st.data(), drawn=rows, gap=st.integers(1, 3))
    def produce_after_a_gap(
        self, data: st.DataObject, drawn: list[tuple[bytes, bool]], gap: int
    ) -> None:
        producer = data.draw(st.sampled_from(self.with_sequence()))
        batch = self.batch(producer, drawn, Compression.NONE, producer.sequence + gap)
        answer = self.send(producer, batch)
        if producer.is_known or answer.error_code:
            assert answer.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            self.stored(producer, batch, answer)

    @precondition(lambda self: any(each.last for each in self.with_sequence()))
    @rule(data=st.data())
    def produce_again(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from([each for each in self.with_sequence() if each.last]))
        assert producer.last is not None
        batch, offset = producer.last
        answer = self.send(producer, batch)
        if not producer.is_known and answer.error_code:
            assert answer.error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert producer.may_be_refused(batch.sequence)
        elif producer.is_known or answer.base_offset == offset:
            assert (answer.error_code, answer.base_offset) == (E.NONE, offset)
        else:
            self.stored(producer, batch, answer)

    def batch(
        self,
        producer: Producer,
        drawn: Sequence[tuple[bytes, bool]],
        compression: int,
        sequence: int,
    ) -> Batch:
        """No value comes twice."""
        pairs: list[tuple[bytes, bytes | None]] = []
        for key, is_tombstone in drawn:
            self.values += 1
            pairs.append(
                (key, None if is_tombstone and self.model.compacts else b"%d" % self.values)
            )
        data = write_batch(
            [Record(number, self.rig.now, *pair) for number, pair in enumerate(pairs)],
            compression=compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence if producer.has_id else -1,
            attributes=TRANSACTIONAL if producer.is_transactional else 0,
        )
        return Batch(data, pairs, sequence)

    def send(self, producer: Producer, batch: Batch) -> PartitionProduceResponse:
        self.rig.advance(2)  # so that segments come of age
        return self.rig.produce(batch.data, producer.name if producer.is_transactional else None)

    def stored(self, producer: Producer, batch: Batch, answer: PartitionProduceResponse) -> None:
        """A batch is at the end of the log."""
        model = self.model
        assert (answer.error_code, answer.base_offset) == (E.NONE, model.end)
        if producer.is_transactional and producer.transaction is None:
            producer.transaction = Transaction()
            model.open.append(producer.transaction)
        model.append(batch.rows, producer.transaction)
        if producer.has_id:
            producer.sequence = batch.sequence + len(batch.rows)
            producer.last = (batch, answer.base_offset)
            producer.written_to, producer.is_known = model.end - 1, True

    # -- transactions ------------------------------------------------------------------------------

    @precondition(lambda self: self.opened())
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        self.end(data.draw(st.sampled_from(self.opened())), commit=commit)

    def end(self, producer: Producer, *, commit: bool) -> None:
        answer = self.rig.end_txn(producer, commit=commit)
        self.ended(producer, commit=commit)
        producer.begins(answer.producer_id, answer.producer_epoch)

    @rule(name=st.sampled_from(TRANSACTIONAL_IDS))
    def fence(self, name: str) -> None:
        """Another one comes with the same id."""
        self.init(self.producers[name])

    def init(self, producer: Producer) -> None:
        answer = self.rig.init_producer_id(producer.name if producer.is_transactional else None)
        self.ended(producer, commit=False)
        producer.begins(answer.producer_id, answer.producer_epoch)

    def ended(self, producer: Producer, *, commit: bool) -> None:
        """The marker of its transaction is at the end of the log."""
        if producer.transaction is not None:
            self.model.finish(producer.transaction, commit=commit)
            producer.written_to, producer.is_known = self.model.end - 1, True

    # -- the beginning of the log, the cleaner, restarts -------------------------------------------

    @precondition(lambda self: self.model.end)
    @rule(data=st.data(), to_the_end=st.booleans())
    def delete_records(self, data: st.DataObject, to_the_end: bool) -> None:
        model = self.model
        offset = data.draw(st.integers(model.start, model.end))
        answer = self.rig.delete_records(TO_THE_END if to_the_end else offset)
        if not self.deletes:
            assert answer.error_code == E.POLICY_VIOLATION
            return
        model.start = model.end if to_the_end else offset
        assert (answer.error_code, answer.low_watermark) == (E.NONE, model.start)

    @precondition(lambda self: self.model.compacts and self.model.end)
    @rule(times=st.integers(1, 4), drawn=rows)
    def clean(self, times: int, drawn: list[tuple[bytes, bool]]) -> None:
        """The cleaner runs, and each time there are newer values of these keys in a closed segment."""
        for _ in range(times):
            self.write(self.producers[PLAIN], drawn)
            self.write(self.producers[PLAIN], [(b"z", False)])
            self.rig.advance(CLEANER_MS)

    @precondition(lambda self: self.model.end)
    @rule()
    def save_producers(self) -> None:
        self.rig.advance(SNAPSHOT_MS)

    @precondition(lambda self: self.model.end)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        rig = self.rig
        ways = [rig.restart, rig.stop, *[self.cut_power] * self.is_synced]
        self.start_anew(data.draw(st.sampled_from(ways)))

    def start_anew(self, restart: Callable[[], None]) -> None:
        """The broker may forget producers of which nothing is left."""
        restart()
        self.model.restarted()
        for producer in self.producers.values():
            producer.is_known = producer.is_known and producer.written_to >= self.model.start

    def cut_power(self) -> None:
        """Markers are written again if the coordinator's note is lost that they were."""
        self.rig.cut_power()
        self.rig.advance(MARKERS_MS)
        again = self.rig.list_offset(LATEST) - self.model.end
        assert 0 <= again <= len(TRANSACTIONAL_IDS)
        self.model.log += [None] * again

    # -- reading -----------------------------------------------------------------------------------

    @rule(data=st.data(), bytes_max=sizes, committed=st.booleans())
    def read_some(self, data: st.DataObject, bytes_max: int, committed: bool) -> None:
        first = data.draw(st.integers(self.model.start, self.model.end))
        self.read(first, bytes_max, committed=committed)

    @invariant()
    def readers_find_what_was_written(self) -> None:
        for committed in (False, True):
            self.read(self.model.start, 1 << 20, committed=committed)

    def read(self, first: int, bytes_max: int, *, committed: bool) -> None:
        """Read to the end."""
        found: list[Record] = []
        offset, stop = first, self.model.end
        while True:
            part = self.rig.fetch(offset, bytes_max, committed=committed)
            assert part.error_code == E.NONE
            self.check_ends(part.log_start_offset, part.high_watermark, part.last_stable_offset)
            if committed:
                stop = part.last_stable_offset
            data = joined([part.records or b""])
            if not data:
                break
            assert offset < stop
            seen = CommittedFilter(part).records(data) if committed else records(data)
            found += [record for record in seen if record.offset >= offset]
            offset = max(header.next_offset for _, header in read_headers(data))
        self.model.check_read(first, stop, found, committed=committed)

    @invariant()
    def the_ends_are_right(self) -> None:
        rig = self.rig
        stable = rig.list_offset(LATEST, committed=True)
        self.check_ends(rig.list_offset(EARLIEST), rig.list_offset(LATEST), stable)

    def check_ends(self, start: int, end: int, stable: int) -> None:
        assert (start, end) == (self.model.start, self.model.end)
        least, most = self.model.stable
        assert least <= stable <= most, (
            "readers of committed records come too far, or not far enough"
        )

    @invariant()
    def the_node_agrees(self) -> None:
        self.rig.node.check()


def records(data: bytes) -> list[Record]:
    """All records of batches that are no markers."""
    batches = read_headers(data)
    return [
        each for at, header in batches if not header.is_control for each in read_records(data, at)
    ]


class LongMachine(PartitionMachine):
    """The same with longer histories, and many of them."""


PartitionMachine.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=30)
LongMachine.TestCase.settings = settings(max_examples=examples(600), stateful_step_count=50)
TestPartition = PartitionMachine.TestCase
TestPartitionOften = pytest.mark.timeout(900)(pytest.mark.proof(LongMachine.TestCase))


def test_a_transaction_of_which_compaction_left_nothing_is_over_after_a_restart() -> None:
    """The cleaner takes a marker of which a snapshot, from amid the transaction, knows nothing."""
    machine = PartitionMachine()
    machine.begin("compact", 1, 600, 0, "async", False)
    producer = machine.producers[TRANSACTIONAL_IDS[0]]
    machine.write(producer, [(b"a", False)])
    machine.save_producers()
    machine.end(producer, commit=True)
    machine.clean(3, [(b"a", False)])
    machine.the_ends_are_right()
    machine.start_anew(machine.rig.restart)
    machine.the_ends_are_right()
