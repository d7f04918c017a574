"""A member of a KIP-848 group: its subscription, its partitions and its state.

Members are immutable values; a change creates another one. Source:
modern/consumer/ConsumerGroupMember.java, MemberState.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from steelyard.groups.kafka.groups import Reader
from steelyard.machine import Machine
from steelyard.types import TopicPartition

LEFT_FOR_NOW = -2
"""The epoch with which a static member leaves temporarily, and which it then has."""

LEAVE = -1
"""The epoch with which a member leaves permanently."""

Holdings = Mapping[TopicPartition, int]
"""Partitions, each with the epoch in which the member got it (KIP-1251)."""


class ClassicMemberMetadata(msgspec.Struct, frozen=True):
    """What a member of the classic protocol said in its JoinGroup, with its protocols in order.

    Source: ConsumerGroupMemberMetadataValue.json, ClassicMemberMetadata.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol(self) -> str:
        """Return the protocol that its responses name: its first one."""
        return self.protocols[0][0]


class ConsumerGroupMemberState(StrEnum):
    """The states of a member, which `reconciliation` describes."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked"
    UNRELEASED_PARTITIONS = "unreleased"


class Move(StrEnum):
    JOINED = "joined"
    RESTORED = "restored from disk"
    RECONCILED = "the next assignment"
    UNSUBSCRIBED = "subscribes to less"


_ALL = tuple(ConsumerGroupMemberState)

RECONCILIATION: Machine[ConsumerGroupMemberState, Move] = Machine(
    "Member of a consumer group (KIP-848) at its coordinator",
    {
        None: {Move.JOINED: (ConsumerGroupMemberState.STABLE,), Move.RESTORED: _ALL},
        ConsumerGroupMemberState.STABLE: {
            Move.RECONCILED: _ALL,
            Move.UNSUBSCRIBED: (
                ConsumerGroupMemberState.STABLE,
                ConsumerGroupMemberState.UNREVOKED_PARTITIONS,
            ),
        },
        ConsumerGroupMemberState.UNREVOKED_PARTITIONS: {
            Move.RECONCILED: _ALL,
            Move.UNSUBSCRIBED: (ConsumerGroupMemberState.UNREVOKED_PARTITIONS,),
        },
        ConsumerGroupMemberState.UNRELEASED_PARTITIONS: {Move.RECONCILED: _ALL},
    },
)


class ConsumerGroupMember(msgspec.Struct, frozen=True):
    """A member.

    `topics`: sorted; `regex`: None for none; `assignor`: the preferred one, None for any; `epoch`:
    that of its target assignment, or of the previous one until it has released what it must;
    `assigned`: what it may read; `revoking`: what it has to release, and holds until it reports
    otherwise. A partition is in one of the two, at one member. `classic`: None for a member that
    uses the consumer protocol itself (see `classic_members`).
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: ConsumerGroupMemberState = msgspec.field(
        default_factory=lambda: RECONCILIATION.move(None, Move.JOINED)
    )
    assigned: Holdings = {}
    revoking: Holdings = {}
    classic: ClassicMemberMetadata | None = None

    def is_reconciled(self, assignment_epoch: int) -> bool:
        """Return whether it has exactly what the target assignment of this epoch gives it."""
        return self.state is ConsumerGroupMemberState.STABLE and self.epoch == assignment_epoch

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """Return the epoch in which it got a partition; None if it does not have it."""
        return self.assigned.get(partition, self.revoking.get(partition))

    @property
    def reader(self) -> Reader:
        """Return the member with all partitions that it may still read."""
        partitions = (*self.assigned, *self.revoking)
        return Reader(self.member_id, self.client_id, self.host, partitions)

    @property
    def name(self) -> str:
        """Return the member's name for people."""
        instance = f", static {self.instance_id}" if self.instance_id is not None else ""
        return f"{self.member_id} ({self.client_id}{self.host}{instance})"
