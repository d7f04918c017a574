"""One member of a group of the new protocol: what it wants, what it has, and how far it has come.

Members are values; a change makes another one. Source: modern/consumer/ConsumerGroupMember.java, MemberState.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from steelyard.groups.kafka.groups import Reader
from steelyard.machine import Machine
from steelyard.types import TopicPartition

LEFT_FOR_NOW = -2
"""The epoch of a static member that said that it will be back, and with which it says so."""

LEAVE = -1
"""The epoch with which a member leaves for good."""

Holdings = Mapping[TopicPartition, int]
"""Partitions, each with the member epoch in which the member got it (KIP-1251)."""


class ConsumerGroupMemberState(StrEnum):
    """See `reconciliation`."""

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
    """See the module's text.

    `topics`: sorted; `regex`: None for none; `assignor`: the one it prefers, None for no matter; `epoch`: the
    target assignment that it has or is on the way from; `assigned`: what it may read; `revoking`: what it has to
    give up, and holds until it says that it did. A partition is in one of the two, of one member.
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

    def is_reconciled(self, assignment_epoch: int) -> bool:
        """It has all that the target assignment of this epoch gives it, and nothing else."""
        return self.state is ConsumerGroupMemberState.STABLE and self.epoch == assignment_epoch

    def epoch_of(self, partition: TopicPartition) -> int | None:
        """In which epoch it got a partition; None for one that it does not have."""
        return self.assigned.get(partition, self.revoking.get(partition))

    @property
    def reader(self) -> Reader:
        """It, and what it may still read."""
        partitions = (*self.assigned, *self.revoking)
        return Reader(self.member_id, self.client_id, self.host, partitions)

    @property
    def name(self) -> str:
        """For people."""
        instance = f", static {self.instance_id}" if self.instance_id is not None else ""
        return f"{self.member_id} ({self.client_id}{self.host}{instance})"
