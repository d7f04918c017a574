"""Expiry of offsets after offsets.retention.minutes, and deletion of groups that have none left.

- A group that manages its partitions itself (no protocol): retention counts from the commit.
- A group without members: from when it became empty.
- A stable group of consumers: offsets of topics to which no member subscribes, from the commit.
- A commit with its own retention (OffsetCommit up to version 4): that one.
- Offsets with an open transaction stay, and so do share groups.
Source: OffsetMetadataManager.java (cleanupExpiredOffsets), ClassicGroup.java
(offsetExpirationCondition); KIP-211.
"""

from __future__ import annotations

from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.effects import Effects
from steelyard.groups.kafka.groups import SHARE, CoordinatedGroups, Group
from steelyard.groups.kafka.offsets import CommittedOffset, Offsets
from steelyard.types import LogLine

MINUTE_MS = 60_000


class Expiry:
    """The expiry of the offsets of all groups."""

    def __init__(self, retention_minutes: int, groups: CoordinatedGroups, offsets: Offsets) -> None:
        self._retention_ms = retention_minutes * MINUTE_MS
        self._groups = groups
        self._offsets = offsets

    def clean(self, now: int, effects: Effects) -> None:
        """Delete expired offsets. Raises StorageError; earlier deletions stay."""
        for group in self._groups:
            old = sorted(
                partition
                for partition, committed in self._offsets.of_group(group.group_id).items()
                if self._is_old(group, partition.topic, committed, now)
                and not self._offsets.is_unstable(group.group_id, partition)
            )
            if old:
                self._offsets.delete(group.group_id, old)
                text = f"{len(old)} offsets are past their retention"
                effects.append(LogLine("INFO", f"group {group.group_id}: {text}"))
            if group.is_empty and not self._offsets.has_any(group.group_id) and _is_idle(group):
                group.forget()
                self._groups.remove(group.group_id)

    def _is_old(self, group: Group, topic: str, committed: CommittedOffset, now: int) -> bool:
        since = group.expires_from(committed.committed_at)
        if since is None or group.subscribes_to(topic):
            return False
        if committed.expires_at is not None:
            return now >= committed.expires_at
        return now - since >= self._retention_ms


def _is_idle(group: Group) -> bool:
    """Return whether no client is about to join, and the group need not be deleted by hand."""
    return group.kind != SHARE and not (isinstance(group, ClassicGroup) and group.pending)
