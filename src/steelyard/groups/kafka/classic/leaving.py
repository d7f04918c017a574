"""LeaveGroup of classic groups: members that leave, or that an operator removes.

Each member of the request has its own result; one rebalance follows for all of them together.
Source: GroupMetadataManager.java (classicGroupLeave...), KIP-345, KIP-800.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.joining import REASON_CHARACTERS_MAX
from steelyard.groups.kafka.classic.rebalances import Rebalances
from steelyard.groups.kafka.effects import Effects
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import MemberIdentity, MemberResponse


class Leaving:
    """Handles LeaveGroup."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def leave(
        self, group: ClassicGroup, leavers: Sequence[MemberIdentity], now: int, effects: Effects
    ) -> tuple[MemberResponse, ...]:
        gone: list[str] = []
        results = tuple(self._leave(group, leaver, gone, effects) for leaver in leavers)
        if gone and group.can_rebalance:
            self._rebalances.left(group, gone, now, effects)
        else:
            # (Apache Kafka also triggers a rebalance if only a pending id was given back.)
            self._rebalances.go_on(group, now, effects)
        return results

    def _leave(
        self, group: ClassicGroup, leaver: MemberIdentity, gone: list[str], effects: Effects
    ) -> MemberResponse:
        """Remove one member, and add its name to `gone`."""
        instance_id = leaver.group_instance_id
        # An operator knows a static member by its instance id only.
        by_instance = not leaver.member_id and instance_id is not None
        member_id = group.static.get(instance_id or "", "") if by_instance else leaver.member_id
        error = ErrorCode.NONE
        if member_id in group.pending:
            group.remove(member_id)
        else:
            error = group.check_member(member_id, instance_id)
            if error is ErrorCode.NONE:
                member = group.members[member_id]
                reason = (leaver.reason or "")[:REASON_CHARACTERS_MAX]
                said = f" (reason given: {reason})" if reason else ""
                self._rebalances.remove(group, member, "left", f"left{said}", effects)
                gone.append(f"{member.name}{said}")
        return MemberResponse(leaver.member_id, instance_id, error)
