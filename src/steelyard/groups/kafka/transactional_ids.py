"""What a transaction coordinator knows of a transactional id, and how that changes.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing | Empty | PrepareAbort
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing | Empty | PrepareAbort

With transaction.version 2 (KIP-890) each end of a transaction bumps the epoch, so that nothing late
of it can get into the next one. The markers have the bumped epoch. When a producer has used up its
epochs, its next transaction has a new id. Such a client may also abort a transaction in which it
has written nothing, or nothing that the coordinator knows of.
Source: transaction-coordinator/TransactionMetadata.java, TransactionState.java.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.machine import Machine
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


_OVER = {
    Move.BEGUN: (TransactionalIdState.EMPTY,),
    Move.WRITES: (TransactionalIdState.ONGOING,),
    Move.ABORTED: (TransactionalIdState.PREPARE_ABORT,),
}

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

EPOCH_LIMIT = 0x7FFF
"""The last epoch that there is."""

NO_EPOCH = -1
NO_ID = -1

BUMPS_EPOCH = 2
"""The level of transaction.version from which on each end of a transaction bumps the epoch."""


class Marking(msgspec.Struct, frozen=True):
    """Markers to write for a decided transaction.

    `version`: the level of transaction.version that it was ended by: from BUMPS_EPOCH on, the epoch
    of the markers is higher than that of the records.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    version: int = 0


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
    """A transactional id and its latest transaction, as in the table.

    `previous_producer_id`: the one before the last move. `next_producer_id`: the one that replaces
    `producer_id` when the transaction is complete; -1: none does. `client_version`: the level of
    transaction.version of the client that wrote or ended the transaction.
    """

    transactional_id: str
    producer_id: int
    state: TransactionalIdState
    producer_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The previous epoch, for a client that repeats a request after a lost response."""
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0
    timeout_ms: int = 0
    partitions: set[tuple[str, int]] = set()
    started_at: int = -1
    updated_at: int = -1
    decided: CommitTogether | None = None
    """The last part of the writer of this name that was committed."""


class ProducerIdAndEpoch(msgspec.Struct, frozen=True):
    """The id and epoch with which a producer may write from now on, or an error."""

    error: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


def moved(
    found: Transaction, event: Move, now: int, *, to: TransactionalIdState | None = None
) -> Transaction:
    """Return a copy in the state to which `event` leads."""
    return msgspec.structs.replace(
        found,
        state=TRANSACTIONS.move(found.state, event, to),
        previous_producer_id=found.producer_id,
        updated_at=now,
    )


def ended(found: Transaction, event: Move, now: int, *, version: int, new_id: int) -> Transaction:
    """Return the transaction as it is when it is decided.

    `version`: the level of transaction.version by which it ends. `new_id`: the producer id of the
    next transaction, NO_ID for the same.
    """
    decided = moved(found, event, now)
    decided.client_version = version
    decided.next_producer_id = new_id
    if version >= BUMPS_EPOCH:
        decided.last_epoch = found.producer_epoch
        decided.producer_epoch = min(found.producer_epoch + 1, EPOCH_LIMIT)
        if found.state is not TransactionalIdState.ONGOING:
            decided.started_at = now
    return decided


def fenced(found: Transaction) -> Transaction:
    """Return a copy with an epoch that no client has, as transaction.version 0 and 1 do it."""
    epoch = min(found.producer_epoch + 1, EPOCH_LIMIT)
    return msgspec.structs.replace(found, producer_epoch=epoch, last_epoch=NO_EPOCH)


def completed(found: Transaction, now: int) -> Transaction:
    """Return a decided transaction as it is when all its partitions have their markers."""
    is_commit = found.state is TransactionalIdState.PREPARE_COMMIT
    complete = (
        TransactionalIdState.COMPLETE_COMMIT if is_commit else TransactionalIdState.COMPLETE_ABORT
    )
    done = moved(found, Move.MARKED, now, to=complete)
    done.partitions = set()
    if found.next_producer_id != NO_ID:
        done.producer_id, done.producer_epoch = found.next_producer_id, 0
        done.next_producer_id = NO_ID
    return done


def markers_of(decided: Transaction) -> Marking:
    """Return the markers of a decided transaction."""
    return Marking(
        decided.transactional_id,
        decided.producer_id,
        decided.producer_epoch,
        decided.state is TransactionalIdState.PREPARE_COMMIT,
        tuple(sorted(TopicPartition(*each) for each in decided.partitions)),
        decided.client_version,
    )
