"""Models of Java's KafkaProducer: an idempotent one, and what it shares with a transactional one.

The idempotent one writes to random partitions with acks=all until its records are acknowledged or
their delivery time-out is over. Then it goes on in the next epoch, as Java's does. What it does
goes to the `KafkaTransactionWitness`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from steelyard.nodes.seam import Address
from steelyard.sim.kafka.producers.sending import Batch, UnacknowledgedBatches
from steelyard.sim.kafka.producers.witness import KafkaTransactionWitness
from steelyard.sim.kafka.producers.written import ProducedTransaction
from steelyard.sim.kafka.script import AGAIN_MS, ClientRequest, Script, ScriptedNode, ScriptPause
from steelyard.sim.world import Violation
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import PRODUCE
from steelyard.wire.kafka.messages.transactions import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

BATCHES_MAX = 4
RECORDS_MAX = 3
PARTITIONS_MAX = 3
"""Most batches that are sent at once to a partition, records in one, and partitions."""

V1_PRODUCE = PRODUCE._replace(versions=(3, 11))
V2_PRODUCE = PRODUCE._replace(versions=(12, 12))
"""From version 12 on, leaders add their partitions to transactions (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProducerConfig:
    """A producer: its name, the number of its run, where to begin, and where to write."""

    name: str
    run: int
    bootstrap: tuple[Address, ...]
    topic: str
    partitions: int
    pause_ms_max: int
    """Longest pause between two transactions, or between two groups of batches."""
    transactional_id: str | None = None
    bumps: bool = True
    """Whether it uses version 2 of transactions, otherwise 1."""
    transaction_timeout_ms: int = 60_000


class KafkaProducerNode(ScriptedNode):
    """A producer: how batches are sent, and `life` as that of an idempotent one."""

    def __init__(
        self, config: KafkaProducerConfig, witness: KafkaTransactionWitness, rng: Random
    ) -> None:
        self.config = config
        self.witness = witness
        self.sending = UnacknowledgedBatches(config.topic, config.transactional_id)
        self._produce = V2_PRODUCE if config.bumps else V1_PRODUCE
        witness.joined(config.name)
        super().__init__(config.name, config.bootstrap, config.topic, rng)

    def life(self) -> Script[None]:
        yield from self._begin()
        source = f"{self.config.name} {self.config.run}"
        while True:
            must_bump = self.sending.has_gap
            if must_bump and not self.sending.has_sent:
                self.sending.renew(self.sending.producer_id, self.sending.epoch + 1)
                must_bump = False
            if not must_bump and self.sending.is_empty and self.witness.wants(self.config.name):
                for partition in self.some_partitions():
                    self.add(partition, source)
            error = yield from self.round(only_sent=must_bump)
            if error:
                raise Violation(f"{source} is refused: {error.name}")
            self.sending.expired(self.now)
            if self.sending.is_empty:
                yield ScriptPause(self.rng.randrange(self.config.pause_ms_max))

    def _begin(self) -> Script[None]:
        """Get a producer id, from whichever broker."""
        while True:
            address = self.rng.choice(self.config.bootstrap)
            request = InitProducerIdRequest(None)
            (reply,) = yield (ClientRequest(address, INIT_PRODUCER_ID, request),)
            if isinstance(reply, InitProducerIdResponse) and not reply.error_code:
                self.sending.renew(reply.producer_id, reply.producer_epoch)
                return
            yield ScriptPause(AGAIN_MS)

    # -- batches -----------------------------------------------------------------------------------

    def some_partitions(self) -> list[int]:
        """Return the partitions to write to next."""
        every = range(self.config.partitions)
        most = min(PARTITIONS_MAX, len(every))
        return sorted(self.rng.sample(every, 1 + self.rng.randrange(most)))

    def add(
        self, partition: int, source: str, transaction: ProducedTransaction | None = None
    ) -> None:
        """Add some batches for a partition."""
        for _ in range(1 + self.rng.randrange(BATCHES_MAX)):
            count = 1 + self.rng.randrange(RECORDS_MAX)
            epoch = self.sending.epoch
            values = [
                self.witness.writes(partition, source, epoch, transaction) for _ in range(count)
            ]
            self.sending.add(partition, values, self.now)

    def round(self, *, only_sent: bool = False) -> Script[ErrorCode]:
        """Send what may be sent, and take the answers; return an error that is not retriable."""
        sending = self.sending
        asks: list[ClientRequest] = []
        sent: list[list[Batch]] = []
        for row in sending.window(only_sent=only_sent):
            for leader, request, batches in sending.requests(row, self.leaders, self.now):
                asks.append(ClientRequest(leader, self._produce, request))
                sent.append(batches)
        failure = ErrorCode.NONE
        if asks:
            was_replaced = self.is_replaced()
            replies = yield asks
            for batches, reply in zip(sent, replies, strict=True):
                error = self._took(batches, reply, was_replaced=was_replaced)
                failure = failure or error
        if not failure and sending.is_stale:
            sending.is_stale = False
            yield from self.refresh()
            yield ScriptPause(AGAIN_MS)
        return failure

    def _took(self, batches: Iterable[Batch], reply: object, *, was_replaced: bool) -> ErrorCode:
        def acknowledged(batch: Batch) -> None:
            self.witness.acknowledged(batch.values, was_replaced=was_replaced)
            if self.config.transactional_id is None:
                self.witness.achieved(self.config.name)

        def out_of_order(batch: Batch) -> None:
            self.witness.out_of_order(self.config.name, batch.partition, batch.sequence)

        return self.sending.answered(batches, reply, acknowledged, out_of_order)

    def is_replaced(self) -> bool:
        """Return whether another producer has taken over its transactional id."""
        name = self.config.transactional_id
        return name is not None and self.witness.is_replaced(name, self.sending.epoch)
