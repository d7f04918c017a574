"""The times of share groups, which may differ from group to group and change at run time."""

from __future__ import annotations

from typing import Protocol


class ShareGroupTimes(Protocol):
    """What applies to a group now, in ms."""

    def share_session_timeout_ms(self, group_id: str) -> int:
        """Silence after which a member is removed."""

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval of the members' heartbeats."""

    def share_assignment_interval_ms(self, group_id: str) -> int:
        """Minimum time between two target assignments."""
