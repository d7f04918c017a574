"""Kafka's transaction coordinator: producers of transactional ids, and their transactions.

A transaction is decided when its Prepare state is written; then the client gets its response. The
markers that make it visible (or void) go to every partition that it wrote to, as `Marking`s: their
sender reports them as `marked`, and after the last one the transaction is complete. All of it
survives a restart; prepared transactions are marked again.

`commit_together` decides several transactions at once, and only once: the decision is one record,
kept under the name of the writer, that names all of them. What it names and a kill left undecided
is decided when the coordinator starts again.

A new producer under the id fences the old one by a higher epoch; an ongoing transaction is aborted
first, and so is one that takes longer than its time-out.

Each client ends its transactions by the version that it knows: `end` keeps the epoch,
`end_and_bump` is that of KIP-890. One id may be used by clients of both kinds in turn. What the
coordinator aborts itself, it aborts by the version of the cluster.
Errors and their order: coordinator/transaction/TransactionCoordinator.scala.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from steelyard.config import KafkaConfig
from steelyard.decoding import prepared
from steelyard.errors import StorageError
from steelyard.groups.kafka.transactional_ids import (
    BUMPS_EPOCH,
    EPOCH_LIMIT,
    EPOCH_MAX,
    NO_EPOCH,
    NO_ID,
    PREPARED,
    TRANSACTIONS,
    CommitTogether,
    Marking,
    Move,
    ProducerIdAndEpoch,
    Transaction,
    TransactionalIdState,
    completed,
    ended,
    fenced,
    markers_of,
    moved,
)
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

TRANSACTIONS_MAX = 100_000
"""Most transactional ids; further ones are refused with COORDINATOR_NOT_AVAILABLE."""
PARTITIONS_MAX = 100_000
"""Most partitions in one transaction."""
TOGETHER_MAX = 10_000
"""Most transactions that are committed together."""

SCAN_INTERVAL_MS = 1_000
"""Interval of the search for timed-out transactions.

Kafka: transaction.abort.timed.out.transaction.cleanup.interval.ms, 10 s.
"""


class TransactionCoordinator:
    """All transactional ids of a broker.

    `next_producer_id` returns an id that no broker has ever given before. `version`: returns the
    cluster's level of transaction.version. `clock`: what time-outs are measured by.
    """

    def __init__(
        self,
        config: KafkaConfig,
        table: Table,
        next_producer_id: Callable[[], int],
        now: int,
        *,
        version: Callable[[], int] = lambda: BUMPS_EPOCH,
        clock: SessionClock | None = None,
    ) -> None:
        self._config = config
        self._version = version
        self._clock = clock or SessionClock()
        self._table = table
        self._next_producer_id = next_producer_id
        self._all: dict[str, Transaction] = {}
        self._scan_at = now + SCAN_INTERVAL_MS
        self.markings: list[Marking] = []
        """Markers not yet taken by their sender, which takes them from here."""
        for data in dict(table.items()).values():
            transaction = msgspec.json.decode(data, type=prepared(Transaction))
            transaction.state = TRANSACTIONS.move(None, Move.RESTORED, transaction.state)
            transaction.started_at = min(transaction.started_at, now)  # a clock set back
            self._all[transaction.transactional_id] = transaction
            if transaction.state in PREPARED:
                self.markings.append(markers_of(transaction))
        for transaction in list(self._all.values()):
            if transaction.decided is not None:
                # A kill came between the decision and what follows from it.
                for found in self._committed(transaction.decided, now):
                    self._all[found.transactional_id] = found
                    self.markings.append(markers_of(found))

    # -- what clients ask --------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int, now: int
    ) -> ProducerIdAndEpoch:
        """Handle InitProducerId: start a producer, and fence the previous one.

        `producer_id`, `epoch`: its previous ones, -1 for none (KIP-360). Raises StorageError.
        """
        if not transactional_id:
            return ProducerIdAndEpoch(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            return ProducerIdAndEpoch(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self._all.get(transactional_id)
        if known is None:
            if len(self._all) >= TRANSACTIONS_MAX:
                return ProducerIdAndEpoch(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            made = TRANSACTIONS.move(None, Move.MADE)
            known = Transaction(transactional_id, self._next_producer_id(), made)
        expected = producer_id >= 0
        if expected and not _may_be(known, producer_id, epoch):
            return ProducerIdAndEpoch(ErrorCode.PRODUCER_FENCED)
        if known.state in PREPARED:
            return ProducerIdAndEpoch(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is TransactionalIdState.ONGOING:
            self._abort(known, Move.FENCED, now)
            return ProducerIdAndEpoch(ErrorCode.CONCURRENT_TRANSACTIONS)
        new = moved(known, Move.BEGUN, now)
        new.partitions = set()
        new.started_at = -1
        new.timeout_ms = timeout_ms
        if known.producer_epoch >= EPOCH_MAX and (not expected or epoch == known.producer_epoch):
            new.producer_id = self._next_producer_id()
            new.producer_epoch = 0
            new.last_epoch = known.producer_epoch if expected else NO_EPOCH
        elif not expected or known.producer_epoch in (NO_EPOCH, epoch):
            new.last_epoch = known.producer_epoch if expected else NO_EPOCH
            new.producer_epoch = known.producer_epoch + 1
        elif epoch != known.last_epoch:
            return ProducerIdAndEpoch(ErrorCode.PRODUCER_FENCED)
        self._put(new)
        return ProducerIdAndEpoch(ErrorCode.NONE, new.producer_id, new.producer_epoch)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        now: int,
        *,
        version: int = 0,
    ) -> ErrorCode:
        """Add partitions to which the producer is going to write. Raises StorageError.

        `version`: the level of transaction.version that the client knows.
        """
        found = self._free(transactional_id, producer_id, epoch)
        if isinstance(found, ErrorCode):
            return found
        new: set[tuple[str, int]] = set(partitions)
        if found.state is TransactionalIdState.ONGOING:
            if new <= found.partitions:
                return ErrorCode.NONE
            new |= found.partitions
        if len(new) > PARTITIONS_MAX:
            return ErrorCode.INVALID_REQUEST
        writing = moved(found, Move.WRITES, now)
        writing.partitions = new
        writing.client_version = version
        if found.state is not TransactionalIdState.ONGOING:
            writing.started_at = now
        self._put(writing)
        return ErrorCode.NONE

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Return, for each partition, NONE if it is in the transaction that this producer has."""
        found = self._found(transactional_id, producer_id, epoch)
        if not isinstance(found, ErrorCode) and found.state in PREPARED:
            found = ErrorCode.CONCURRENT_TRANSACTIONS
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        known = found.partitions
        return {
            each: ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        }

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now: int
    ) -> ErrorCode:
        """Commit or abort; the epoch stays the same (transaction.version 0 and 1).

        The decision is final when this returns NONE. Raises StorageError.
        """
        found = self._found(transactional_id, producer_id, epoch)
        if isinstance(found, ErrorCode):
            return found
        if found.state is TransactionalIdState.ONGOING:
            self._decide(found, Move.COMMITTED if commit else Move.ABORTED, now, version=0)
            return ErrorCode.NONE
        if found.state is _complete(commit):
            return ErrorCode.NONE  # the client repeats its request after a lost response
        if found.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.INVALID_TXN_STATE

    def end_and_bump(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now: int
    ) -> ProducerIdAndEpoch:
        """Commit or abort; the next transaction has another epoch (transaction.version 2).

        The decision is final when there is no error; then the answer has the id and the epoch of
        the next transaction. A client that repeats its request after a lost response, with the
        epoch of the ended transaction, gets the same answer. Raises StorageError.
        """
        known = self._all.get(transactional_id)
        if known is not None and _is_repeated(known, producer_id, epoch):
            if known.state is _complete(commit):
                return ProducerIdAndEpoch(ErrorCode.NONE, known.producer_id, known.producer_epoch)
            return ProducerIdAndEpoch(ErrorCode.INVALID_TXN_STATE)
        found = self._free(transactional_id, producer_id, epoch)
        if isinstance(found, ErrorCode):
            return ProducerIdAndEpoch(found)
        if commit and found.state is not TransactionalIdState.ONGOING:
            return ProducerIdAndEpoch(ErrorCode.INVALID_TXN_STATE)
        event = Move.COMMITTED if commit else Move.ABORTED
        decided = self._decide(found, event, now, version=BUMPS_EPOCH)
        if decided.next_producer_id != NO_ID:
            return ProducerIdAndEpoch(ErrorCode.NONE, decided.next_producer_id, 0)
        return ProducerIdAndEpoch(ErrorCode.NONE, decided.producer_id, decided.producer_epoch)

    def commit_together(self, asked: CommitTogether, now: int) -> ErrorCode:
        """Commit transactions, all of them or none. The decision is final when this returns NONE.

        A writer's parts are committed in ascending order, each once: DUPLICATE_SEQUENCE_NUMBER if
        `number` is not above that of the last; what is still open of the transactions is aborted
        then. With a part, whatever else the writer has open is aborted, because it belongs to
        attempts that failed. Other errors are those of `end`, and mean that nothing was committed.
        Raises StorageError.
        """
        if not asked.writer or not 0 < len(asked.transactions) <= TOGETHER_MAX:
            return ErrorCode.INVALID_REQUEST
        known = self._all.get(asked.writer)
        if known is None:
            if len(self._all) >= TRANSACTIONS_MAX:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            made = TRANSACTIONS.move(None, Move.MADE)
            known = Transaction(asked.writer, self._next_producer_id(), made, producer_epoch=0)
        last = known.decided
        if last is not None and asked.number <= last.number:
            for found in self._named(asked, (TransactionalIdState.ONGOING,)):
                self._abort(found, Move.FENCED, now)
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        for each in asked.transactions:
            error = self.verify(each.transactional_id, each.producer_id, each.producer_epoch)
            if error:
                return error
        # Those of the last part may be committed in memory only; now nothing else names them.
        earlier = [] if last is None else self._named(last, PREPARED)
        decided = msgspec.structs.replace(known, decided=asked, updated_at=now)
        committed = self._committed(asked, now)
        self._put(*earlier, decided, *committed)
        self.markings += map(markers_of, committed)
        for found in list(self._all.values()):
            is_open = found.state is TransactionalIdState.ONGOING
            if is_open and found.transactional_id.startswith(f"{asked.writer}:"):
                self._abort(found, Move.FENCED, now)
        return ErrorCode.NONE

    def _named(
        self, asked: CommitTogether, states: Sequence[TransactionalIdState]
    ) -> list[Transaction]:
        """Return the transactions that are in one of these states, and still the same."""
        every = [self._found(*msgspec.structs.astuple(each)) for each in asked.transactions]
        return [each for each in every if isinstance(each, Transaction) and each.state in states]

    def _committed(self, asked: CommitTogether, now: int) -> list[Transaction]:
        """Return the transactions that are ongoing, as they are when they are committed."""
        return [
            ended(found, Move.COMMITTED, now, version=0, new_id=NO_ID)
            for found in self._named(asked, (TransactionalIdState.ONGOING,))
        ]

    def verify(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        """Return NONE if this producer has an ongoing transaction."""
        found = self._found(transactional_id, producer_id, epoch)
        if isinstance(found, ErrorCode):
            return found
        return (
            ErrorCode.NONE
            if found.state is TransactionalIdState.ONGOING
            else ErrorCode.INVALID_TXN_STATE
        )

    def get(self, transactional_id: str) -> Transaction | None:
        return self._all.get(transactional_id)

    def all(self) -> Iterable[Transaction]:
        return self._all.values()

    def _found(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> Transaction | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self._all.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.producer_epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        return found

    def _free(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction | ErrorCode:
        """Return what `_found` does, unless its last transaction is not complete yet.

        That comes first: the producer may have the id that replaces the one of that transaction.
        """
        known = self._all.get(transactional_id)
        if known is not None and known.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return self._found(transactional_id, producer_id, epoch)

    # -- decisions and their markers ---------------------------------------------------------------

    def _abort(self, found: Transaction, event: Move, now: int) -> None:
        """Abort an ongoing transaction with an epoch that its producer does not have."""
        version = self._version()
        if version < BUMPS_EPOCH:
            found = fenced(found)
        self._decide(found, event, now, version=version)

    def _decide(self, found: Transaction, event: Move, now: int, *, version: int) -> Transaction:
        is_exhausted = version >= BUMPS_EPOCH and found.producer_epoch >= EPOCH_MAX
        new_id = self._next_producer_id() if is_exhausted else NO_ID
        decided = ended(found, event, now, version=version, new_id=new_id)
        self._put(decided)
        self.markings.append(markers_of(decided))
        return decided

    def marked(self, marking: Marking, partitions: Iterable[TopicPartition], now: int) -> None:
        """Note that these partitions have the marker, or are gone. Raises StorageError."""
        found = self._all.get(marking.transactional_id)
        if found is None or found.state not in PREPARED:
            return
        if (found.producer_id, found.producer_epoch) != (
            marking.producer_id,
            marking.producer_epoch,
        ):
            return
        left = found.partitions - set(partitions)
        if left and left == found.partitions:
            return
        if not left:
            self._put(completed(found, now))
            return
        some = moved(found, Move.MARKED, now, to=found.state)
        some.partitions = left
        self._put(some)

    # -- ids that change their coordinator ---------------------------------------------------------

    def offered(
        self, concerns: Callable[[str], bool], ids_max: int
    ) -> tuple[tuple[Transaction, ...], bool]:
        """Return ids for their new coordinator, and whether others are decided but incomplete.

        Those are completed here first.
        """
        found = [each for _, each in sorted(self._all.items()) if concerns(each.transactional_id)]
        free = [each for each in found if each.state not in PREPARED]
        return tuple(free[:ids_max]), len(free) < len(found)

    def take(self, taken: Transaction) -> None:
        """Take over an id, unless the one here is newer or not ended. Raises StorageError."""
        known = self._all.get(taken.transactional_id)
        if known is None:
            if len(self._all) >= TRANSACTIONS_MAX:
                raise StorageError(f"more than {TRANSACTIONS_MAX} transactional ids")
        elif (
            known.state in (TransactionalIdState.ONGOING, *PREPARED)
            or known.updated_at >= taken.updated_at
        ):
            if taken.state is TransactionalIdState.ONGOING:
                self._void(taken)
            return
        taken.state = TRANSACTIONS.move(None, Move.TAKEN, taken.state)
        self._put(taken)

    def _void(self, taken: Transaction) -> None:
        """Void a transaction of a replaced producer: what it wrote does not count."""
        voided = ended(fenced(taken), Move.VOIDED, taken.updated_at, version=0, new_id=NO_ID)
        self.markings.append(markers_of(voided))

    def gave(self, transactional_id: str) -> None:
        """Delete an id, which the new coordinator has now. Raises StorageError."""
        found = self._all.get(transactional_id)
        if found is not None and found.state not in PREPARED:
            self._table.delete(transactional_id)
            del self._all[transactional_id]

    # -- time --------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        return self._scan_at if self._all else None

    def due(self, now: int) -> None:
        """Abort timed-out transactions, and forget unused ids. Raises StorageError."""
        self._scan_at = now + SCAN_INTERVAL_MS
        expired = now - self._config.transactional_id_expiration_ms
        for found in list(self._all.values()):
            if found.state is TransactionalIdState.ONGOING:
                if found.started_at < self._clock.ago(found.timeout_ms, now):
                    self._abort(found, Move.EXPIRED, now)
            elif (
                found.state not in PREPARED
                and found.updated_at <= expired
                and found.decided is None
            ):
                self._table.delete(found.transactional_id)
                del self._all[found.transactional_id]

    def _put(self, *transactions: Transaction) -> None:
        """Write transactions, in order; a kill keeps a prefix of them."""
        rows = [(each.transactional_id, msgspec.json.encode(each)) for each in transactions]
        self._table.put_many(rows)
        self._all.update((each.transactional_id, each) for each in transactions)

    def check(self) -> None:
        """Assert the invariants."""
        for transactional_id, found in self._all.items():
            assert found.transactional_id == transactional_id
            assert (
                found.state in (TransactionalIdState.ONGOING, *PREPARED)
            ) or not found.partitions
            assert 0 <= found.producer_epoch <= EPOCH_LIMIT
            assert found.next_producer_id == NO_ID or found.state in PREPARED


def _may_be(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Return whether a producer with this id and epoch may continue, as far as is known."""
    return (
        known.producer_epoch == NO_EPOCH
        or producer_id == known.producer_id
        or (producer_id == known.previous_producer_id and epoch >= EPOCH_MAX)
    )


def _complete(commit: bool) -> TransactionalIdState:
    return TransactionalIdState.COMPLETE_COMMIT if commit else TransactionalIdState.COMPLETE_ABORT


def _is_repeated(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Return whether a request to end a transaction is about the one that has just ended.

    Only if that one was ended with a bump of this epoch. (Apache Kafka 4.3 compares the epochs
    alone, so that a producer may go on with the epoch of a later one of version 1.)
    """
    if known.state not in (
        TransactionalIdState.COMPLETE_COMMIT,
        TransactionalIdState.COMPLETE_ABORT,
    ):
        return False
    if known.client_version < BUMPS_EPOCH or known.last_epoch != epoch:
        return False
    is_renewed = known.producer_epoch == 0 and known.previous_producer_id == producer_id
    return known.producer_id == producer_id or is_renewed
