"""76 ShareGroupHeartbeat (version 1) and 77 ShareGroupDescribe (1), of KIP-932.

`groups.kafka.share` decides what a heartbeat does. This module adds whether the broker coordinates
the group, what happens if storage fails (COORDINATOR_NOT_AVAILABLE, and clients retry), and the
timer.
Source: core/kafka/server/KafkaApis.scala handleShareGroupHeartbeat, handleShareGroupDescribe.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.groups.kafka.share.groups import ShareGroups
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.descriptions import descriptions
from steelyard.nodes.broker.kafka.groups.late import Report
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_groups import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from steelyard.wire.kafka.schema import ApiMessage


class ShareGroupCalls:
    """Handlers of ShareGroupHeartbeat and ShareGroupDescribe."""

    def __init__(
        self,
        groups: ShareGroups,
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

    @serves(ShareGroupHeartbeatRequest)
    def heartbeat(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(ShareGroupHeartbeatRequest)
        refused = self._cluster.coordinator_fault(request.group_id)
        if refused is not ErrorCode.NONE:
            return ShareGroupHeartbeatResponse(error_code=refused)
        happened: done.Effects = []
        try:
            response = self._groups.heartbeat(request, call.asker, now, happened)
        except StorageError as error:
            text = f"share group {request.group_id} cannot be stored: {error}"
            self._faults.tell(text, now, effects)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            response = ShareGroupHeartbeatResponse(error_code=code)
        self._report(happened, now, effects)
        return self._durability.acknowledge_call(call, response, effects)

    @serves(ShareGroupDescribeRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        request = call.read(ShareGroupDescribeRequest)
        fault, describe = self._cluster.coordinator_fault, self._groups.describe
        groups = descriptions(request, DescribedShareGroup, fault, describe)
        return ShareGroupDescribeResponse(groups=groups)

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        return self._groups.next_at

    def due(self, now: int, effects: list[Effect]) -> None:
        happened: done.Effects = []
        self._groups.due(now, happened)
        self._report(happened, now, effects)

    def check(self) -> None:
        self._groups.check()
