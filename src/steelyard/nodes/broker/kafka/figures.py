"""9104 KAFKA_FIGURES, a request of our own at the RocketMQ listener: the Kafka listener's figures.

The answer (`wire/figures`) covers the groups that this broker coordinates, with the offsets that
they have committed, or not yet, in partitions of all brokers.
"""

from __future__ import annotations

from steelyard.groups.kafka.groups import CoordinatedGroups, Group
from steelyard.groups.kafka.offsets import Offsets
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.data.fetch import Fetches
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.wire import figures
from steelyard.wire.figures import (
    NOT_COMMITTED,
    ROWS_MAX,
    KafkaFigures,
    KafkaGroupFigures,
    PartitionRow,
    QueuePartition,
)
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.remoting.codes import SteelyardCode
from steelyard.wire.remoting.command import Command

STEP_ROWS = 1_000
"""Rows made in one step of some 4 ms."""


class KafkaFigureHandlers:
    """The handler of KAFKA_FIGURES."""

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        groups: CoordinatedGroups,
        offsets: Offsets,
        fetches: Fetches,
    ) -> None:
        self._store = parts.store
        self._statistics = parts.statistics
        self._cluster = cluster
        self._groups = groups
        self._offsets = offsets
        self._fetches = fetches

    @serves(SteelyardCode.KAFKA_FIGURES)
    def requested(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        partitions = yield from self._partitions()
        rows: list[KafkaGroupFigures] = []
        room, left_out = ROWS_MAX, 0
        for group in sorted(self._groups, key=lambda each: each.group_id):
            if self._cluster.coordinator_of(group.group_id) != self._cluster.node_id:
                continue
            if room <= 0:
                left_out += 1
                continue
            offsets = self._progress(group)
            left_out += max(0, len(offsets) - room)
            offsets = offsets[:room]
            members = len(group.member_ids())
            row = KafkaGroupFigures(
                group.group_id, group.kind, group.state, members, tuple(offsets)
            )
            rows.append(row)
            room -= 1 + len(offsets)
            if (ROWS_MAX - room) % STEP_ROWS <= len(offsets):
                yield
        logins: dict[str, dict[str, int]] = {}
        for (mechanism, outcome), count in self._statistics.kafka_logins.items():
            logins.setdefault(mechanism, {})[outcome] = count
        body = KafkaFigures(
            name=self._cluster.me.name,
            ready=self._cluster.is_ready,
            requests={APIS[key].name: n for key, n in self._statistics.kafka_requests.items()},
            refused={ErrorCode(code).name: n for code, n in self._statistics.kafka_refused.items()},
            parked={"fetch": self._fetches.parked_count},
            partitions=tuple(partitions[:ROWS_MAX]),
            groups=tuple(rows),
            left_out=left_out + max(0, len(partitions) - ROWS_MAX),
            logins=logins,
        )
        return request.reply(body=figures.write(body))

    def _partitions(self) -> Steps[list[QueuePartition]]:
        """Return the partitions that have logs."""
        found: list[QueuePartition] = []
        for number, log in enumerate(self._store.all_logs()):
            partition = self._cluster.partition_of(log.topic, log.queue_id)
            if partition is not None:
                found.append(QueuePartition(log.topic, log.queue_id, partition))
            if number % STEP_ROWS == STEP_ROWS - 1:
                yield
        return found

    def _progress(self, group: Group) -> list[PartitionRow]:
        """Return the offsets in partitions that exist, those that members only hold among them."""
        held = (place for reader in group.readers() for place in reader.partitions)
        offsets = dict.fromkeys(held, NOT_COMMITTED)
        for place, committed in self._offsets.of_group(group.group_id).items():
            offsets[place] = committed.offset
        rows: list[PartitionRow] = []
        for place, offset in sorted(offsets.items()):
            where = self._cluster.queue_of(place)
            if where is not None:
                rows.append(PartitionRow(place.topic, place.partition, *where, offset))
        return rows
