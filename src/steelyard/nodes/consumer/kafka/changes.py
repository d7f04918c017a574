"""A change of what is held, on its way: the steps that a rebalance, or a leaving, takes with the application."""

from __future__ import annotations

from enum import Enum

import msgspec

from steelyard.groups.kafka.member import events
from steelyard.nodes.consumer.kafka.contract import Partitions


class Stage(Enum):
    WAITING = "for the application"
    COMMITTING = "what is given up"
    TAKING = "the hook for what is given up"
    GIVING = "the hook for what is new"
    DONE = "done"


class Change(msgspec.Struct):
    """A `Prepare`, an `Adopt` or a leaving on its way."""

    kind: type[events.Prepare] | type[events.Adopt] | None
    commit: Partitions
    revoked: Partitions
    lost: Partitions
    assigned: Partitions
    stage: Stage = Stage.WAITING
    ticket: int = 0
    """Of the hook that the application is in; 0 for none."""

    @property
    def taken(self) -> Partitions:
        return self.revoked or self.lost
