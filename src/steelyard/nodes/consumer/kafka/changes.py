"""A change of the assignment in progress: the steps of a rebalance, or of leaving the group."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from steelyard.groups.kafka.member import events
from steelyard.machine import Machine
from steelyard.nodes.consumer.kafka.contract import Partitions


class Stage(StrEnum):
    WAITING = "for the application"
    COMMITTING = "what is given up"
    TAKING = "the hook for what is given up"
    GIVING = "the hook for what is new"
    DONE = "done"


class Move(StrEnum):
    ORDERED = "ordered"
    BEGAN = "the application waits, or need not"
    COMMITTED = "committed"
    TAKEN = "let go"
    GIVEN = "taken"


CHANGES: Machine[Stage, Move] = Machine(
    "Change of what a Kafka consumer holds",
    {
        None: {Move.ORDERED: (Stage.WAITING,)},
        Stage.WAITING: {Move.BEGAN: (Stage.COMMITTING,)},
        Stage.COMMITTING: {Move.COMMITTED: (Stage.TAKING,)},
        Stage.TAKING: {Move.TAKEN: (Stage.GIVING,)},
        Stage.GIVING: {Move.GIVEN: (Stage.DONE,)},
        Stage.DONE: {},
    },
)


class Change(msgspec.Struct):
    """A `Prepare`, an `Adopt` or a departure in progress."""

    kind: type[events.Prepare] | type[events.Adopt] | None
    commit: Partitions
    revoked: Partitions
    lost: Partitions
    assigned: Partitions
    stage: Stage = msgspec.field(default_factory=lambda: CHANGES.move(None, Move.ORDERED))
    ticket: int = 0
    """Of the hook that the application is handling; 0 for none."""
    until: int = 0
    """Until when it waits for the application's commits in the end; 0 if it does not (yet)."""

    def move(self, event: Move) -> None:
        self.stage = CHANGES.move(self.stage, event)

    @property
    def taken(self) -> Partitions:
        return self.revoked or self.lost
