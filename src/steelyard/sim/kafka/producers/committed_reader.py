"""A consumer of committed records without a group, which reads a topic from the first offset on.

It leaves out the records of aborted transactions, as clients do, and asks for the offsets that
producers commit with their transactions. Source: the Java client's CompletedFetch.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from steelyard.nodes.seam import Address
from steelyard.sim.kafka.producers.committed_view import CommittedView, PartitionEnd
from steelyard.sim.kafka.producers.witness import KafkaTransactionWitness
from steelyard.sim.kafka.script import (
    AGAIN_MS,
    ELSEWHERE,
    GROUP_KEY,
    ClientRequest,
    Reply,
    Script,
    ScriptedNode,
    ScriptPause,
)
from steelyard.sim.world import Violation
from steelyard.types import joined
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from steelyard.wire.kafka.records import ABORT, crc_ok, read_headers, read_marker, read_records

READ_COMMITTED = 1
WAIT_MS = 300
REST_MS_MAX = 300
"""Longest pause between two rounds of fetches."""
PARTITION_BYTES = 32 * 1024
"""Of one partition in an answer; a batch that is larger comes whole."""


class CommittedReaderNode(ScriptedNode):
    """The consumer; see the module docstring. `groups`: those whose offsets it asks for."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        topic: str,
        partitions: int,
        groups: Sequence[str],
        witness: KafkaTransactionWitness,
        rng: Random,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._witness = witness
        self._view: CommittedView = witness.view
        super().__init__("reader", bootstrap, topic, rng)

    def life(self) -> Script[None]:
        while True:
            pause_ms = self.rng.randrange(REST_MS_MAX)
            if len(self.leaders) < self._partitions:
                yield from self.refresh()
                pause_ms = AGAIN_MS
            if self.leaders:
                replies = yield self._fetches()
                pause_ms = max(pause_ms, *map(self._took, replies))
            for group in self._groups:
                stable = self.rng.random() < 0.5
                yield from fetched_offset(self, self._witness, group, stable=stable)
            yield ScriptPause(pause_ms)

    def _fetches(self) -> Sequence[ClientRequest]:
        positions: dict[Address, list[FetchPartition]] = {}
        for partition, leader in sorted(self.leaders.items()):
            position = self._view.positions.get(partition, 0)
            part = FetchPartition(
                partition, fetch_offset=position, partition_max_bytes=PARTITION_BYTES
            )
            positions.setdefault(leader, []).append(part)
        return [
            ClientRequest(
                leader,
                FETCH,
                FetchRequest(
                    max_wait_ms=WAIT_MS,
                    min_bytes=1,
                    isolation_level=READ_COMMITTED,
                    topics=[FetchTopic(self.topic, partitions=parts)],
                ),
            )
            for leader, parts in positions.items()
        ]

    def _took(self, reply: Reply) -> int:
        """Take an answer; return the least time until the next request, in ms."""
        if not isinstance(reply, FetchResponse) or reply.error_code:
            self.leaders = {}
            return AGAIN_MS
        for topic in reply.responses:
            for part in topic.partitions:
                if part.error_code:
                    self.leaders = {}
                else:
                    self._read(part)
        return reply.throttle_time_ms

    def _read(self, part: PartitionData) -> None:
        """Read the committed records of a partition, in order."""
        partition, data = part.partition_index, joined([part.records or b""])
        position = self._view.positions.get(partition, 0)
        begun = sorted(
            (each.first_offset, each.producer_id) for each in part.aborted_transactions or ()
        )
        void: set[int] = set()
        """Producers whose transactional records are aborted from here on."""
        for at, header in read_headers(data):
            if not crc_ok(data, at, header.size):
                raise Violation(f"the batch at {header.base_offset} of {partition} is damaged")
            while begun and begun[0][0] <= header.last_offset:
                void.add(begun.pop(0)[1])
            if header.is_control:
                marker = read_marker(data, at)
                if marker is not None and marker.kind == ABORT:
                    void.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in void):
                for record in read_records(data, at):
                    if record.offset >= position:
                        self._view.read(partition, record.offset, record.value or b"")
            position = max(position, header.next_offset)
        self._view.reached(
            partition, position, PartitionEnd(part.last_stable_offset, part.high_watermark)
        )


def fetched_offset(
    node: ScriptedNode, witness: KafkaTransactionWitness, group: str, *, stable: bool
) -> Script[int | None]:
    """Ask for a group's offset in partition 0; return it, or None if that failed.

    `stable`: not while a transaction with a later one is being committed.
    """
    floor = witness.floor(group, stable=stable)
    topic = OffsetFetchRequestTopic(node.topic, partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=[topic])], require_stable=stable
    )
    reply = yield from node.coordinated(GROUP_KEY, group, OFFSET_FETCH, request)
    if not isinstance(reply, OffsetFetchResponse):
        return None
    (found,) = reply.groups
    if found.error_code:
        if found.error_code in ELSEWHERE:
            node.forget(GROUP_KEY, group)
        return None
    part = found.topics[0].partitions[0]
    if part.error_code:
        if part.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise Violation(f"the offset of {group!r} is refused: {part.error_code}")
        return None
    offset = max(0, part.committed_offset)
    witness.fetched(group, offset, floor, stable=stable)
    return offset
