"""A member of a share group: its subscription and its partitions.

Members are immutable values; a change creates another one. Source:
modern/share/ShareGroupMember.java.
"""

from __future__ import annotations

import msgspec

from steelyard.types import TopicPartition

LEAVE = -1
"""The epoch with which a member leaves."""


class ShareGroupMember(msgspec.Struct, frozen=True):
    """A member.

    `topics`: sorted; `epoch`: of the target assignment that it has; `assigned`: the partitions that
    it reads, which other members may read as well.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[TopicPartition] = frozenset()
