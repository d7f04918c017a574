"""9101 KAFKA_GROUPS, a request of our own at the RocketMQ listener: Kafka groups for operators.

Kafka's own requests tell neither why a group rebalances nor whom it waits for. The answer covers
the groups that this broker coordinates, so `steelyard.Admin` asks every broker.

| ext field | answer, JSON |
|---|---|
| none | a `KafkaGroup` for each, by name |
| group | `KafkaGroupReport` with the committed offsets; 26 for a group not coordinated here |
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.groups import CoordinatedGroups, Group
from steelyard.groups.kafka.report import (
    KafkaFlapping,
    KafkaGroup,
    KafkaGroupReport,
    KafkaOffset,
    line,
    report_classic,
    report_consumer,
)
from steelyard.groups.kafka.streams.group import StreamsGroup
from steelyard.groups.kafka.streams.report import report_streams
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.remoting.codes import ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command

GROUPS_MAX = 50_000
OFFSETS_MAX = 50_000
"""Most groups, and partitions of a group, in one answer: it must fit a frame.

Further ones are left out.
"""

FLAPPING_MAX = 1_000
"""Most clients that flap in one answer."""


class Reports:
    """The handler of KAFKA_GROUPS."""

    def __init__(
        self, cluster: Cluster, groups: CoordinatedGroups, coordinator: Coordinator
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._coordinator = coordinator

    @serves(SteelyardCode.KAFKA_GROUPS)
    def requested(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        name = request.ext.get("group")
        if name is None:
            return request.reply(body=msgspec.json.encode(self._lines()))
        group = self._groups.get(name) if self._is_ours(name) else None
        report = None if group is None else self._report(group, now)
        if report is None:
            remark = f"{self._cluster.me.name} coordinates no Kafka group {name}"
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return request.reply(body=msgspec.json.encode(report))

    def _is_ours(self, group: str) -> bool:
        return self._cluster.coordinator_of(group) == self._cluster.node_id

    def _lines(self) -> tuple[KafkaGroup, ...]:
        ours = sorted(
            (group for group in self._groups if self._is_ours(group.group_id)),
            key=lambda group: group.group_id,
        )
        return tuple(line(group, self._cluster.me.name) for group in ours[:GROUPS_MAX])

    def _report(self, group: Group, now: int) -> KafkaGroupReport | None:
        if isinstance(group, ClassicGroup):
            report = report_classic(group, self._cluster.me.name)
            until = self._coordinator.damped(group.group_id)
        elif isinstance(group, ConsumerGroup):
            report = report_consumer(group, self._cluster.me.name)
            until = group.damped_names
        elif isinstance(group, StreamsGroup):
            report, until = report_streams(group, self._cluster.me.name), {}
        else:
            return None
        flapping = tuple(
            KafkaFlapping(one.name, one.flaps, one.last_at, until.get(one.name))
            for one in self._coordinator.flapping.of_group(group.group_id, now)[:FLAPPING_MAX]
        )
        return replace(report, offsets=self._offsets(report), flapping=flapping)

    def _offsets(self, report: KafkaGroupReport) -> tuple[KafkaOffset, ...]:
        """Return the committed offsets of partitions that still exist, and their readers."""
        committed = self._coordinator.offsets.of_group(report.group)
        holders = {
            partition: member.member_id
            for member in report.members
            for partition in member.partitions
        }
        rows: list[KafkaOffset] = []
        for place in sorted(committed.keys() | holders.keys())[:OFFSETS_MAX]:
            found = committed.get(place)
            where = self._cluster.queue_of(place)
            if where is not None:
                offset = None if found is None else found.offset
                rows.append(KafkaOffset(*place, *where, offset, holders.get(place, "")))
        return tuple(rows)
