"""Kafka's transaction coordinator: producers of transactional ids, and their transactions.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing | Empty
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing | Empty

A transaction is decided when its Prepare state is written; then the client gets its response. The
markers that make it visible (or void) go to every partition that it wrote to, as `Marking`s: their
sender reports them as `marked`, and after the last one the transaction is complete. All of it
survives a restart; prepared transactions are marked again.

`commit_together` decides several transactions at once, and only once: the decision is one record,
kept under the name of the writer, that names all of them. What it names and a kill left undecided
is decided when the coordinator starts again.

A new producer under the id fences the old one by a higher epoch; an ongoing transaction is aborted
first, and so is one that takes longer than its time-out. Errors and their order:
coordinator/transaction/TransactionCoordinator.scala, TransactionMetadata.java (clients without
KIP-890: transaction.version 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from steelyard.config import KafkaConfig
from steelyard.decoding import prepared
from steelyard.errors import StorageError
from steelyard.machine import Machine
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table
from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode


class TransactionalIdState(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = (TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.PREPARE_ABORT)
"""States of a decided transaction whose markers are not written everywhere yet."""


class Move(StrEnum):
    MADE = "a new id"
    RESTORED = "restored from disk"
    TAKEN = "taken over from another coordinator"
    BEGUN = "a producer begins"
    WRITES = "partitions are added"
    COMMITTED = "committed"
    ABORTED = "aborted"
    FENCED = "another producer begins"
    EXPIRED = "the time-out is over"
    MARKED = "partitions are marked"
    VOIDED = "another producer has its id"


_OVER = {Move.BEGUN: (TransactionalIdState.EMPTY,), Move.WRITES: (TransactionalIdState.ONGOING,)}

TRANSACTIONS: Machine[TransactionalIdState, Move] = Machine(
    "Transactional id at its coordinator (Kafka)",
    {
        None: {
            Move.MADE: (TransactionalIdState.EMPTY,),
            Move.RESTORED: tuple(TransactionalIdState),
            Move.TAKEN: tuple(state for state in TransactionalIdState if state not in PREPARED),
        },
        TransactionalIdState.EMPTY: _OVER,
        TransactionalIdState.ONGOING: {
            Move.WRITES: (TransactionalIdState.ONGOING,),
            Move.COMMITTED: (TransactionalIdState.PREPARE_COMMIT,),
            Move.ABORTED: (TransactionalIdState.PREPARE_ABORT,),
            Move.FENCED: (TransactionalIdState.PREPARE_ABORT,),
            Move.EXPIRED: (TransactionalIdState.PREPARE_ABORT,),
            Move.VOIDED: (TransactionalIdState.PREPARE_ABORT,),
        },
        TransactionalIdState.PREPARE_COMMIT: {
            Move.MARKED: (TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.COMPLETE_COMMIT)
        },
        TransactionalIdState.PREPARE_ABORT: {
            Move.MARKED: (TransactionalIdState.PREPARE_ABORT, TransactionalIdState.COMPLETE_ABORT)
        },
        TransactionalIdState.COMPLETE_COMMIT: _OVER,
        TransactionalIdState.COMPLETE_ABORT: _OVER,
    },
)

EPOCH_MAX = 0x7FFF - 1
"""The last epoch given to a producer; then the id is renewed. One more is reserved for fencing."""

NO_EPOCH = -1

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


class Marking(msgspec.Struct, frozen=True):
    """Markers to write for a decided transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(msgspec.Struct, frozen=True, array_like=True):
    """A transaction of a producer, as `commit_together` is asked for it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class CommitTogether(msgspec.Struct, frozen=True):
    """Part `number` of what a writer writes, in several transactions; see `commit_together`.

    `writer`: its name, with which the transactional ids of its producers begin: `writer:...`.
    """

    writer: str
    number: int
    transactions: tuple[OpenTransaction, ...]


class Transaction(msgspec.Struct):
    """A transactional id and its latest transaction, as in the table."""

    transactional_id: str
    producer_id: int
    state: TransactionalIdState
    producer_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The previous epoch, for a client that repeats a request after a lost response."""
    previous_producer_id: int = -1
    timeout_ms: int = 0
    partitions: set[tuple[str, int]] = set()
    started_at: int = -1
    updated_at: int = -1
    decided: CommitTogether | None = None
    """The last part of the writer of this name that was committed."""


class ProducerIdAndEpoch(msgspec.Struct, frozen=True):
    """The result of InitProducerId: the id and epoch with which the producer may write."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = NO_EPOCH


class TransactionCoordinator:
    """All transactional ids of a broker.

    `next_producer_id` returns an id that no broker has ever given before. `clock`: what time-outs
    are measured by.
    """

    def __init__(
        self,
        config: KafkaConfig,
        table: Table,
        next_producer_id: Callable[[], int],
        now: int,
        *,
        clock: SessionClock | None = None,
    ) -> None:
        self._config = config
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
            self._all[transaction.transactional_id] = transaction
            if transaction.state in PREPARED:
                self._mark(transaction)
        for transaction in list(self._all.values()):
            if transaction.decided is not None:
                # A kill came between the decision and what follows from it.
                for found in self._committed(transaction.decided, now):
                    self._all[found.transactional_id] = found
                    self._mark(found)

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
            self._decide(self._fenced(known), Move.FENCED, now)
            return ProducerIdAndEpoch(ErrorCode.CONCURRENT_TRANSACTIONS)
        new = msgspec.structs.replace(
            known,
            state=TRANSACTIONS.move(known.state, Move.BEGUN),
            partitions=set(),
            started_at=-1,
            timeout_ms=timeout_ms,
            updated_at=now,
        )
        if known.producer_epoch >= EPOCH_MAX and (not expected or epoch == known.producer_epoch):
            new.previous_producer_id = known.producer_id
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
    ) -> ErrorCode:
        """Add partitions to which the producer is going to write. Raises StorageError."""
        found = self._found(transactional_id, producer_id, epoch)
        if isinstance(found, ErrorCode):
            return found
        if found.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        new: set[tuple[str, int]] = set(partitions)
        if found.state is TransactionalIdState.ONGOING:
            if new <= found.partitions:
                return ErrorCode.NONE
            new |= found.partitions
        if len(new) > PARTITIONS_MAX:
            return ErrorCode.INVALID_REQUEST
        started_at = found.started_at if found.state is TransactionalIdState.ONGOING else now
        state = TRANSACTIONS.move(found.state, Move.WRITES)
        self._put(
            msgspec.structs.replace(
                found, state=state, partitions=new, started_at=started_at, updated_at=now
            )
        )
        return ErrorCode.NONE

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now: int
    ) -> ErrorCode:
        """Commit or abort. The decision is final when this returns NONE. Raises StorageError."""
        found = self._found(transactional_id, producer_id, epoch)
        if isinstance(found, ErrorCode):
            return found
        prepared = (
            TransactionalIdState.PREPARE_COMMIT if commit else TransactionalIdState.PREPARE_ABORT
        )
        complete = (
            TransactionalIdState.COMPLETE_COMMIT if commit else TransactionalIdState.COMPLETE_ABORT
        )
        if found.state is TransactionalIdState.ONGOING:
            self._decide(found, Move.COMMITTED if commit else Move.ABORTED, now)
            return ErrorCode.NONE
        if found.state is complete:
            return ErrorCode.NONE  # the client repeats its request after a lost response
        if found.state is prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.INVALID_TXN_STATE

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
                self._decide(self._fenced(found), Move.FENCED, now)
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
        for one in committed:
            self._mark(one)
        for found in list(self._all.values()):
            is_open = found.state is TransactionalIdState.ONGOING
            if is_open and found.transactional_id.startswith(f"{asked.writer}:"):
                self._decide(self._fenced(found), Move.FENCED, now)
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
            msgspec.structs.replace(
                found, state=TRANSACTIONS.move(found.state, Move.COMMITTED), updated_at=now
            )
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

    # -- decisions and their markers ---------------------------------------------------------------

    def _fenced(self, found: Transaction) -> Transaction:
        """Return the same with an epoch that no client has."""
        epoch = min(found.producer_epoch + 1, 0x7FFF)
        return msgspec.structs.replace(found, producer_epoch=epoch, last_epoch=NO_EPOCH)

    def _decide(self, found: Transaction, event: Move, now: int) -> None:
        state = TRANSACTIONS.move(found.state, event)
        decided = msgspec.structs.replace(found, state=state, updated_at=now)
        self._put(decided)
        self._mark(decided)

    def _mark(self, decided: Transaction) -> None:
        commit = decided.state is TransactionalIdState.PREPARE_COMMIT
        partitions = tuple(sorted(TopicPartition(*each) for each in decided.partitions))
        self.markings.append(
            Marking(
                decided.transactional_id,
                decided.producer_id,
                decided.producer_epoch,
                commit,
                partitions,
            )
        )

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
        to = found.state
        if not left:
            is_commit = to is TransactionalIdState.PREPARE_COMMIT
            to = (
                TransactionalIdState.COMPLETE_COMMIT
                if is_commit
                else TransactionalIdState.COMPLETE_ABORT
            )
        state = TRANSACTIONS.move(found.state, Move.MARKED, to)
        self._put(msgspec.structs.replace(found, partitions=left, state=state, updated_at=now))

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

    def take(self, moved: Transaction) -> None:
        """Take over an id, unless the one here is newer or not ended. Raises StorageError."""
        known = self._all.get(moved.transactional_id)
        if known is None:
            if len(self._all) >= TRANSACTIONS_MAX:
                raise StorageError(f"more than {TRANSACTIONS_MAX} transactional ids")
        elif (
            known.state in (TransactionalIdState.ONGOING, *PREPARED)
            or known.updated_at >= moved.updated_at
        ):
            if moved.state is TransactionalIdState.ONGOING:
                self._void(moved)
            return
        moved.state = TRANSACTIONS.move(None, Move.TAKEN, moved.state)
        self._put(moved)

    def _void(self, moved: Transaction) -> None:
        """Void a transaction of a replaced producer: what it wrote does not count."""
        state = TRANSACTIONS.move(moved.state, Move.VOIDED)
        self._mark(self._fenced(msgspec.structs.replace(moved, state=state)))

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
                    self._decide(self._fenced(found), Move.EXPIRED, now)
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
            assert found.producer_epoch >= 0


def _may_be(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Return whether a producer with this id and epoch may continue, as far as is known."""
    return (
        known.producer_epoch == NO_EPOCH
        or producer_id == known.producer_id
        or (producer_id == known.previous_producer_id and epoch >= EPOCH_MAX)
    )
