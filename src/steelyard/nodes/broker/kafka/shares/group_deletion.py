"""42 DeleteGroups, versions 0-3: groups without members, of all kinds.

The partitions of a share group are with the brokers that lead them, so they are asked first.
Source: GroupCoordinatorService.deleteGroups.
"""

from __future__ import annotations

from functools import partial

from steelyard.errors import StorageError
from steelyard.groups.kafka.groups import SHARE, CoordinatedGroups
from steelyard.groups.kafka.listing import Listing
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.shares.offsets import ShareOffsets
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


class GroupDeletion:
    """The handler of DeleteGroups."""

    def __init__(
        self,
        groups: CoordinatedGroups,
        listing: Listing,
        shares: ShareOffsets,
        cluster: Cluster,
        durability: Durability,
    ) -> None:
        self._groups = groups
        self._listing = listing
        self._shares = shares
        self._cluster = cluster
        self._durability = durability

    @serves(DeleteGroupsRequest)
    def delete(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        names = call.read(DeleteGroupsRequest).groups_names
        outcomes: dict[str, ErrorCode] = {}

        def decided(group_id: str, error: ErrorCode, now: int, effects: list[Effect]) -> None:
            """Delete a group, unless there is something wrong; answer after the last one."""
            if error is ErrorCode.NONE:
                error = self._delete(group_id, effects)
            outcomes[group_id] = error
            if len(outcomes) == len(names):
                results = [DeletableGroupResult(name, outcomes[name]) for name in names]
                self._durability.answer(call, DeleteGroupsResponse(results=results), effects)

        for group_id in names:
            group, then = self._groups.get(group_id), partial(decided, group_id)
            error = self._cluster.coordinator_fault(group_id)
            if error is ErrorCode.NONE and group is not None and group.kind == SHARE:
                self._shares.delete_group(group_id, then, now, effects)
            else:
                then(error, now, effects)
        if not names:
            call.answer(DeleteGroupsResponse(), effects)

    def _delete(self, group_id: str, effects: list[Effect]) -> ErrorCode:
        try:
            return self._listing.delete(group_id)
        except StorageError as fault:
            effects.append(LogLine("ERROR", f"group {group_id} was not deleted: {fault}"))
            return ErrorCode.NOT_COORDINATOR
