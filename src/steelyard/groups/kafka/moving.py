"""The hand-over of offsets to a group's new coordinator.

If both brokers have an offset of a group and a partition, the one committed later counts. A group's
offsets are taken over in the order of their commits, including those of open transactions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.groups.kafka.committing import SimpleGroup
from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.groups.kafka.offsets import CommittedOffset, Concerns, Offsets
from steelyard.types import TopicPartition


class MovedOffset(msgspec.Struct, frozen=True):
    """An offset to hand over. `producer_id`: that of its open transaction, None if committed."""

    topic: str
    partition: int
    offset: CommittedOffset
    producer_id: int | None = None


class Moving:
    """Both sides of the hand-over."""

    def __init__(self, groups: CoordinatedGroups, offsets: Offsets, new_group: SimpleGroup) -> None:
        self._groups = groups
        self._offsets = offsets
        self._new_group = new_group

    def offered(self, concerns: Concerns, offsets_max: int) -> dict[str, tuple[MovedOffset, ...]]:
        """Return the offsets of some groups by group.

        Whole groups only, up to about `offsets_max`.
        """
        found: dict[str, tuple[MovedOffset, ...]] = {}
        count = 0
        for group in sorted(set(self._offsets.groups())):
            if count >= offsets_max:
                break
            if concerns(group):
                found[group] = tuple(
                    MovedOffset(partition.topic, partition.partition, offset, producer_id)
                    for partition, offset, producer_id in self._offsets.history(group)
                )
                count += len(found[group])
        return found

    def take(self, group_id: str, moved: Sequence[MovedOffset], now: int) -> bool:
        """Take over a group's offsets; return False if there is no room. Raises StorageError."""
        mine = self._offsets.of_group(group_id)
        newer = [each for each in moved if self._is_newer(each, mine.get(_place(each)))]
        added = [one for one in newer if one.producer_id is not None or _place(one) not in mine]
        if len(added) > self._offsets.room:
            return False
        if self._groups.get(group_id) is None and self._new_group(group_id, now) is None:
            return False
        for each in newer:
            self._offsets.commit(group_id, {_place(each): each.offset}, each.producer_id)
        return True

    def _is_newer(self, moved: MovedOffset, mine: CommittedOffset | None) -> bool:
        if moved.producer_id is not None:
            return True
        return mine is None or mine.committed_at < moved.offset.committed_at

    def gave(self, group_id: str) -> None:
        """Delete a group's offsets, which the other broker has now. Raises StorageError."""
        self._offsets.delete_group(group_id)
        group = self._groups.get(group_id)
        if group is not None and group.is_empty:
            group.forget()
            self._groups.remove(group_id)


def _place(moved: MovedOffset) -> TopicPartition:
    return TopicPartition(moved.topic, moved.partition)
