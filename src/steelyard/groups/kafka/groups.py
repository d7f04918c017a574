"""What both kinds of group (classic and KIP-848) have in common, and what they need to know of the world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from steelyard.types import TopicPartition
from steelyard.wire.kafka.errors import ErrorCode

GROUPS_MAX = 100_000
"""Most groups of both kinds."""


class Asker(msgspec.Struct, frozen=True):
    """The client behind a request. `host`: its ip, as Kafka shows it (`/127.0.0.1`); `link`: its connection."""

    client_id: str
    host: str
    link: int


class Reader(msgspec.Struct, frozen=True):
    """A member that was assigned partitions, with the client id and host that it fetches with."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class TopicsView(Protocol):
    """The topics of the whole cluster, as this broker knows them."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 for an unknown one."""

    def names(self) -> Iterable[str]:
        """All topics, internal ones as well."""

    def id_of(self, topic: str) -> bytes:
        """The 16 bytes of a topic's id; NO_ID for an unknown topic."""

    def name_of(self, topic_id: bytes) -> str | None: ...


class Group(Protocol):
    """One group, of either kind."""

    group_id: str
    kind: str
    """`classic` or `consumer` (GroupType)."""

    @property
    def state(self) -> str:
        """The state's name as ListGroups shows it: Empty, PreparingRebalance, Stable, ..."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """No members."""

    def member_ids(self) -> tuple[str, ...]:
        """The ids of all members, sorted."""

    def subscribes_to(self, topic: str) -> bool:
        """True while a member reads the topic: then its offsets must not be deleted, nor expire."""

    def expires_from(self, committed_at: int) -> int | None:
        """From when on the retention of an offset of an unread topic counts, ms; None while none expires."""

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
        """NONE where this member may commit in this generation (member epoch, in a `consumer` group)."""

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        """NONE where a commit that `check_commit` let through may commit this partition (KIP-1251)."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE where this member may ask for committed offsets (OffsetFetch 9 and later)."""

    def owner_of(self, partition: TopicPartition) -> str | None:
        """The member that was assigned the partition."""

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        """The member that was assigned the partition, where it is of this client and host."""

    def readers(self) -> list[Reader]:
        """The members that were assigned partitions."""

    def forget(self) -> None:
        """The group is deleted: drop its timers and what is stored of it. Raises StorageError."""

    def check(self) -> None:
        """Assert the group's invariants."""


class CoordinatedGroups:
    """All groups of this coordinator, by id. `version` grows when a group or an assignment changes."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self.version = 0
        self._changed: set[str] = set()

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    @property
    def is_full(self) -> bool:
        """There is no room for one more."""
        return len(self._groups) >= GROUPS_MAX

    def add(self, group: Group) -> None:
        self._groups[group.group_id] = group
        self.touched(group.group_id)

    def remove(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self.touched(group_id)

    def touched(self, group_id: str) -> None:
        """An assignment of the group changed: `owner_of` may give something else than before."""
        self.version += 1
        self._changed.add(group_id)

    def take_changed(self) -> set[str]:
        """The ids of all groups that were touched since the last call; some may be gone."""
        changed, self._changed = self._changed, set()
        return changed

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)
