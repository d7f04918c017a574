"""68 ConsumerGroupHeartbeat (versions 0-1) and 69 ConsumerGroupDescribe (0-1), of KIP-848.

`groups.kafka.consumer` decides what a heartbeat does. This module adds whether the broker
coordinates the group, what happens if storage fails (COORDINATOR_NOT_AVAILABLE, and clients retry),
and the timer.
Source: core/kafka/server/KafkaApis.scala handleConsumerGroupHeartbeat, handleConsumerGroupDescribe.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
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

ALLOWED_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""All operations on a group, as bits, because nobody is refused any.

Read, delete, describe, describe configs and alter configs. Source:
security/authorizer/AclEntry.java supportedOperations.
"""

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

    @serves(ConsumerGroupHeartbeatRequest)
    def heartbeat(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(ConsumerGroupHeartbeatRequest)
        refused = self._refuse(request.group_id)
        if refused is not None:
            return ConsumerGroupHeartbeatResponse(error_code=refused)
        happened: done.Effects = []
        try:
            response = self._groups.heartbeat(request, call.version, call.asker, now, happened)
        except StorageError as error:
            text = f"group {request.group_id} cannot be stored: {error}"
            self._faults.tell(text, now, effects)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            response = ConsumerGroupHeartbeatResponse(error_code=code)
        self._report(happened, now, effects)
        return self._durability.acknowledge_call(call, response, effects)

    @serves(ConsumerGroupDescribeRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        request = call.read(ConsumerGroupDescribeRequest)
        groups = [self._describe(group_id) for group_id in request.group_ids]
        if request.include_authorized_operations:
            groups = [
                msgspec.structs.replace(group, authorized_operations=ALLOWED_OPERATIONS)
                if group.error_code == ErrorCode.NONE
                else group
                for group in groups
            ]
        return ConsumerGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str) -> DescribedGroup:
        if not group_id:
            return DescribedGroup(ErrorCode.INVALID_GROUP_ID)
        refused = self._refuse(group_id)
        if refused is not None:
            return DescribedGroup(refused, group_id=group_id)
        return self._groups.describe(group_id)

    def _refuse(self, group_id: str) -> ErrorCode | None:
        """Return why this broker does not answer for a group; None if it does."""
        if self._cluster.coordinator_of(group_id) is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        fault = self._cluster.coordinator_fault(group_id)
        return None if fault is ErrorCode.NONE else fault

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
