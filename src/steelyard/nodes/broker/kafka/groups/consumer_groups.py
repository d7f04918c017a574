"""68 ConsumerGroupHeartbeat (versions 0-1) and 69 ConsumerGroupDescribe (0-1), of KIP-848.

`groups.kafka.consumer` decides what a heartbeat does. This module adds whether the broker
coordinates the group, what happens if storage fails (COORDINATOR_NOT_AVAILABLE, and clients retry),
and the timer.
Source: core/kafka/server/KafkaApis.scala handleConsumerGroupHeartbeat, handleConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.descriptions import descriptions
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect, Link
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)
from steelyard.wire.kafka.schema import ApiMessage

Report = Callable[[done.Effects, int, list[Effect]], None]
"""(what the groups did, now, effects to add to): notes it in the ledger, or logs it."""


class ConsumerGroupCalls:
    """Handlers of ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

    def __init__(
        self,
        groups: ConsumerGroups,
        cluster: Cluster,
        durability: Durability,
        report: Report,
        faults: Faults,
    ) -> None:
        self._groups = groups
        self._cluster = cluster
        self._durability = durability
        self._report = report
        self._faults = faults
        self._cluster_version = -1
        self._look_at: int | None = None

    @serves(ConsumerGroupHeartbeatRequest)
    def heartbeat(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(ConsumerGroupHeartbeatRequest)
        fault = self._fault(request.group_id)
        if fault is not ErrorCode.NONE:
            return ConsumerGroupHeartbeatResponse(error_code=fault)
        happened: done.Effects = []
        response: ConsumerGroupHeartbeatResponse | None
        try:
            response = self._groups.heartbeat(
                request, call.version, call.asker, now, happened, call
            )
        except StorageError as error:
            text = f"group {request.group_id} cannot be stored: {error}"
            self._faults.tell(text, now, effects)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            response = ConsumerGroupHeartbeatResponse(error_code=code)
        self._groups.wake(now, happened)
        self._report(happened, now, effects)
        if response is None:
            return None
        return self._durability.acknowledge_call(call, response, effects)

    def release(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Answer what waits on a link, because something else came on it."""
        happened: done.Effects = []
        self._groups.released(link, now, happened)
        self._report(happened, now, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """End what waits on a link that is closed."""
        happened: done.Effects = []
        self._groups.closed(link, now, happened)
        self._report(happened, now, effects)

    def follow(self, now: int) -> None:
        """Note after each event whether topics or coordinators have changed, for those who wait."""
        if self._cluster.version != self._cluster_version:
            self._cluster_version = self._cluster.version
            if self._groups.waiting_groups():
                self._look_at = now

    def _look(self, now: int, happened: done.Effects, effects: list[Effect]) -> None:
        """Answer those that wait in groups of other brokers, or whose topics have changed."""
        self._look_at = None
        for group_id in self._groups.waiting_groups():
            fault = self._fault(group_id)
            if fault is not ErrorCode.NONE:
                self._groups.refused(group_id, fault, happened)
        try:
            self._groups.look_at_topics(now, happened)
        except StorageError as error:
            self._faults.tell(f"groups cannot be stored: {error}", now, effects)

    @serves(ConsumerGroupDescribeRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        request = call.read(ConsumerGroupDescribeRequest)
        groups = descriptions(request, DescribedGroup, self._fault, self._groups.describe)
        return ConsumerGroupDescribeResponse(groups=groups)

    def _fault(self, group_id: str) -> ErrorCode:
        """Return why this broker does not answer for a group; NONE if it does."""
        if self._cluster.coordinator_of(group_id) is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._cluster.coordinator_fault(group_id)

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        times = [at for at in (self._groups.next_at, self._look_at) if at is not None]
        return min(times, default=None)

    def due(self, now: int, effects: list[Effect]) -> None:
        happened: done.Effects = []
        if self._look_at is not None:
            self._look(now, happened, effects)
        self._groups.due(now, happened)
        self._groups.wake(now, happened)
        self._report(happened, now, effects)

    def check(self) -> None:
        self._groups.check()
