"""The op topic: how transactions end, written before anything is published.

An operation is a message with the tag `d` and the offset of the half message as its body, as
RocketMQ writes it. Its properties say more here: the outcome and, if a message is published, its
topic, its queue and the address that it is about to get, so that a restart can look whether it was
written.
Source: broker/transaction/queue/TransactionalMessageBridge.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from steelyard.errors import CorruptError
from steelyard.nodes.broker.topics import OP_TOPIC
from steelyard.nodes.broker.writer import Draft, Writer
from steelyard.nodes.seam import Effect
from steelyard.store.address import POSITION_BITS, is_before
from steelyard.store.store import Store
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.message import MessageView, decode_records
from steelyard.wire.remoting.properties import Properties

REMOVE_TAG = "d"
OUTCOME = "OUTCOME"
ADDRESS = "ADDRESS"

_READ_MESSAGES = 1_000
_READ_BYTES = 1024 * 1024


class TransactionOutcome(Enum):
    """How a transaction ends."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    GIVEN_UP = "GIVEN_UP"


class Destination(msgspec.Struct, frozen=True):
    """Where the message of an ending transaction goes."""

    topic: str
    queue_id: int
    draft: Draft


class Operation(msgspec.Struct, frozen=True):
    """An entry of the op topic. `address`: of the published message, -1 for none."""

    half_offset: int
    outcome: TransactionOutcome
    topic: str
    queue_id: int
    address: int


class Operations:
    """Writes and reads the op topic; see the module docstring."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._log = store.create_log(OP_TOPIC, 0)
        self.unreadable = 0
        """Operations met by `since` that make no sense: no checksum protects their properties."""

    @property
    def next_offset(self) -> int:
        """The offset of the next operation."""
        return self._log.max_offset

    def write(
        self,
        half_offset: int,
        outcome: TransactionOutcome,
        target: Destination | None,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Write an operation; its message must be the next one written to the target.

        Raises StorageError.
        """
        properties = {props.TAGS: REMOVE_TAG, OUTCOME: outcome.value}
        if target is not None:
            address = self._writer.next_address(target.topic, target.queue_id)
            properties[props.REAL_TOPIC] = target.topic
            properties[props.REAL_QID] = str(target.queue_id)
            properties[ADDRESS] = str(address)
        body = str(half_offset).encode()
        draft = Draft(body, Properties.of(properties), self._writer.host, now)
        self._writer.write(OP_TOPIC, 0, draft, now, effects)

    def since(self, offset: int) -> Iterator[Operation]:
        """Yield the operations from an offset on; the last one for a half message counts."""
        offset = max(offset, self._log.min_offset)
        while offset < self._log.max_offset:
            try:
                found = self._log.read(offset, _READ_MESSAGES, _READ_BYTES)
            except CorruptError as error:
                # The transaction is open again, and its producer is asked again.
                offset = error.next_offset
                continue
            offset = max(offset + 1, found.next_offset)  # a Kafka batch is not an operation
            for view in decode_records(found.data):
                try:
                    operation = _operation_of(view)
                except ValueError:  # its properties are damaged
                    self.unreadable += 1
                    continue
                yield operation

    def is_unfinished(self, operation: Operation, half_address: int) -> bool:
        """Return whether the operation's message was not published.

        False as well if its queue was deleted since, and has messages again. `half_address` is in
        the message as its prepared transaction offset.
        """
        if operation.address < 0:
            return False
        log = self._store.log(operation.topic, operation.queue_id)
        if log is None:
            return True  # a power failure took the queue with its first message, or it was deleted
        if operation.address >> POSITION_BITS != log.log_id:
            return False
        if not is_before(operation.address, log.next_address):
            return True  # beyond the end: a power failure took the message
        try:
            entry = self._store.at_address(operation.address)
        except CorruptError:
            return False  # it is there, or was: it is not published twice
        if entry is None:
            return False  # its retention ended
        return decode_records(entry)[0].prepared_transaction_offset != half_address


def _operation_of(view: MessageView) -> Operation:
    """Decode an operation. Raises ValueError if it makes no sense."""
    return Operation(
        int(view.body),
        TransactionOutcome(view.property_of(OUTCOME)),
        view.property_of(props.REAL_TOPIC) or "",
        int(view.property_of(props.REAL_QID) or 0),
        int(view.property_of(ADDRESS) or -1),
    )
