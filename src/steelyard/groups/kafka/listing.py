"""DescribeGroups, ListGroups and DeleteGroups for groups of all kinds.

DescribeGroups supports classic groups only; others are described by ConsumerGroupDescribe.
Source: GroupMetadataManager.java (listGroups, describeGroups), GroupCoordinatorShard.java
(deleteGroups).
"""

from __future__ import annotations

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.members import ClassicGroupMember
from steelyard.groups.kafka.classic.state import ClassicGroupState
from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.groups.kafka.offsets import Offsets
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
    ListGroupsRequest,
)

KNOWS_NO_GROUP = 6
"""The first version of DescribeGroups with an error for unknown groups (KIP-1043)."""


class Listing:
    """Handles DescribeGroups, ListGroups and DeleteGroups."""

    def __init__(self, groups: CoordinatedGroups, offsets: Offsets) -> None:
        self._groups = groups
        self._offsets = offsets

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            if version < KNOWS_NO_GROUP:
                return DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD)
            text = f"Group {group_id} not found."
            if group is not None:
                text = f"Group {group_id} is not a classic group."
            return DescribedGroup(
                ErrorCode.GROUP_ID_NOT_FOUND,
                text,
                group_id=group_id,
                group_state=ClassicGroupState.DEAD,
            )
        protocol = group.protocol if group.state is ClassicGroupState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=protocol or "",
            members=tuple(_described(member, protocol) for member in group.members.values()),
        )

    def all(self, request: ListGroupsRequest) -> tuple[ListedGroup, ...]:
        """Return groups by id, filtered by the requested states and kinds, ignoring case."""
        states = {state.strip().lower() for state in request.states_filter}
        kinds = {kind.strip().lower() for kind in request.types_filter}
        listed = [
            ListedGroup(group.group_id, group.protocol_type, group.state, group.kind)
            for group in self._groups
            if (not states or group.state.lower() in states)
            and (not kinds or group.kind.lower() in kinds)
        ]
        return tuple(sorted(listed, key=lambda group: group.group_id))

    def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets. Raises StorageError."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        self._offsets.delete_group(group_id)
        group.forget()
        self._groups.remove(group_id)
        return ErrorCode.NONE


def _described(member: ClassicGroupMember, protocol: str | None) -> DescribedGroupMember:
    metadata = b"" if protocol is None else member.protocols[protocol]
    return DescribedGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.host,
        metadata,
        member.assignment,
    )
