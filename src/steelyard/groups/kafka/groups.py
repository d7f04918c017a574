"""The common parts of all kinds of groups; their view of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

GROUPS_MAX = 100_000
"""Most groups of all kinds together."""

SHARE = "share"
"""The kind of share groups, which is also their protocol type. Source: GroupType, ShareGroup."""


class Asker(msgspec.Struct, frozen=True):
    """The client of a request.

    `host`: its ip as shown by Kafka (`/127.0.0.1`); `link`: its connection; `software`: how it has
    named itself on this connection (KIP-511), "" if it has not.
    """

    client_id: str
    host: str
    link: int
    software: str = ""


class Reader(msgspec.Struct, frozen=True):
    """A member with partitions, and the client id and host with which it fetches."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class CoordinatedMember(Protocol):
    """A member of a group of consumers, of either kind."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def client_id(self) -> str: ...

    @property
    def host(self) -> str: ...


class TopicsView(Protocol):
    """The topics of the whole cluster as known to this broker."""

    @property
    def version(self) -> int:
        """Return a number that increases with every change."""

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if it is unknown."""

    def names(self) -> Iterable[str]:
        """Return all topics, including internal ones."""

    def id_of(self, topic: str) -> bytes:
        """Return the 16 bytes of a topic's id; NO_ID for an unknown topic."""

    def name_of(self, topic_id: bytes) -> str | None: ...


class Group(Protocol):
    """A group of any kind."""

    group_id: str
    kind: str
    """`classic`, `consumer`, `share` or `streams` (GroupType)."""

    @property
    def state(self) -> str:
        """Return the state's name as in ListGroups: Empty, PreparingRebalance, Stable, ..."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Return whether there are no members."""

    def member_ids(self) -> tuple[str, ...]:
        """Return the ids of all members, sorted."""

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member reads the topic, so that its offsets must be kept."""

    def expires_from(self, committed_at: int) -> int | None:
        """Return from when the retention of an unread topic's offset counts, in ms; None: never."""

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        transactional: bool,
        now: int,
    ) -> ErrorCode:
        """Return NONE if this member may commit in this generation (or member epoch)."""

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if a commit passed by `check_commit` may include this partition."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return NONE if this member may request committed offsets (OffsetFetch 9 and later)."""

    def owner_of(self, partition: TopicPartition) -> str | None:
        """Return the member to which the partition was assigned."""

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        """Return the owner of the partition, if it has this client id and host."""

    def readers(self) -> list[Reader]:
        """Return the members with assigned partitions."""

    def forget(self) -> None:
        """Drop the deleted group's timers and stored data. Raises StorageError."""

    def check(self) -> None:
        """Assert the group's invariants."""


def may_be_lost(group: Group | None) -> bool:
    """Return whether a member with an epoch may have been in a group that was lost with it.

    Kafka's coordinators lose no group, and answer GROUP_ID_NOT_FOUND, which ends Java's consumers
    for good. Here a group is lost if coordinators' layouts are merged (its offsets come, as a
    classic group without members), if a damaged table was repaired, or in a power cut right after
    it was made. So its members are told that they are unknown, and join again.
    """
    return group is None or (group.kind == "classic" and group.is_empty)


class CoordinatedGroups:
    """All groups of this coordinator, by id.

    `version` increases when a group or an assignment changes.
    """

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self.version = 0
        self._changed: set[str] = set()

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    @property
    def is_full(self) -> bool:
        """Return whether the limit of groups is reached."""
        return len(self._groups) >= GROUPS_MAX

    def add(self, group: Group) -> None:
        self._groups[group.group_id] = group
        self.touched(group.group_id)

    def remove(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self.touched(group_id)

    def touched(self, group_id: str) -> None:
        """Note that an assignment changed, so that `owner_of` may return something else."""
        self.version += 1
        self._changed.add(group_id)

    def take_changed(self) -> set[str]:
        """Return the ids of the groups touched since the last call; some may have been deleted."""
        changed, self._changed = self._changed, set()
        return changed

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)
