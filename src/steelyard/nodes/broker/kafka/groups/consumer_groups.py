"""68 ConsumerGroupHeartbeat (versions 0-1) and 69 ConsumerGroupDescribe (0-1), of KIP-848.

`groups.kafka.consumer` decides what a heartbeat does. This module adds whether the broker
coordinates the group, what happens if storage fails (COORDINATOR_NOT_AVAILABLE, and clients retry),
and the timer.
Source: core/kafka/server/KafkaApis.scala handleConsumerGroupHeartbeat, handleConsumerGroupDescribe.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.descriptions import descriptions
from steelyard.nodes.broker.kafka.groups.late import LateGroupCalls, Report
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)
from steelyard.wire.kafka.schema import ApiMessage


class ConsumerGroupCalls(LateGroupCalls):
    """Handlers of ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

    def __init__(
        self,
        groups: ConsumerGroups,
        cluster: Cluster,
        durability: Durability,
        report: Report,
        faults: Faults,
    ) -> None:
        super().__init__(groups, cluster, report, faults)
        self._groups = groups
        self._durability = durability

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

    @serves(ConsumerGroupDescribeRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        request = call.read(ConsumerGroupDescribeRequest)
        groups = descriptions(request, DescribedGroup, self._fault, self._groups.describe)
        return ConsumerGroupDescribeResponse(groups=groups)

    def check(self) -> None:
        self._groups.check()
