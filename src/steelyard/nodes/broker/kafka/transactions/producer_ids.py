"""Producer ids, of which none is given out twice; `transactions` serves the API for them.

- An id is made of the node id and a number, which is taken from blocks that a table remembers:
  neither a restart nor another broker gives out one twice. What is left of a block is lost with the
  process.
- A producer without a transactional id gets a new id in epoch 0, whatever it had before (as in
  Kafka).
Source: coordinator/transaction/TransactionCoordinator.handleInitProducerId,
RPCProducerIdManager.java.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.seam import Effect
from steelyard.store.tables import Table
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.transactions import InitProducerIdResponse
from steelyard.wire.kafka.schema import ApiMessage

BLOCK = 1_000
NODE_SHIFT = 32
"""Bits of a producer id for the number; the node id is above them."""
_KEY = "next"


class ProducerIds:
    """The producer ids of this broker; see the module docstring."""

    def __init__(self, node_id: int, table: Table, durability: Durability, faults: Faults) -> None:
        self._first = node_id << NODE_SHIFT
        self._table = table
        self._durability = durability
        self._faults = faults
        self._next = self._end = int(table.get(_KEY) or 0)

    def next_producer_id(self) -> int:
        """Return an id that no producer has had. Raises StorageError."""
        if self._next == self._end:
            if self._end + BLOCK >= 1 << NODE_SHIFT:
                raise StorageError("this broker has given out all its producer ids")
            self._table.put(_KEY, b"%d" % (self._end + BLOCK))
            self._end += BLOCK
        self._next += 1
        return self._first + self._next - 1

    def init_producer_id(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        """Answer InitProducerId without a transactional id."""
        try:
            answer = InitProducerIdResponse(0, 0, self.next_producer_id(), 0)
        except StorageError as error:
            self._faults.tell(f"no producer id was given: {error}", now, effects)
            # The one error that every client retries.
            return InitProducerIdResponse(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._durability.acknowledge_call(call, answer, effects)
