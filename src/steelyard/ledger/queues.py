"""What is known of a queue of a group: who reads it, what was delivered, what members report."""

from __future__ import annotations

import msgspec

from steelyard.ledger.events import Queue
from steelyard.ledger.gaps import QueueReaders
from steelyard.ledger.owners import QueueReports
from steelyard.ledger.repeats import Deliveries

QueueKey = tuple[str, str, int]
"""A `Queue`, or the tuple that equals it."""


class QueueState(msgspec.Struct, array_like=True):
    """A queue of a group. `heard`: the time of the latest record about it.

    `committed`: the group's offset, None before the first commit.
    """

    queue: Queue
    heard: int = 0
    readers: QueueReaders = msgspec.field(default_factory=QueueReaders)
    deliveries: Deliveries = msgspec.field(default_factory=Deliveries)
    reports: QueueReports = msgspec.field(default_factory=QueueReports)
    committed: int | None = None


class MemberMinute(msgspec.Struct, array_like=True):
    """What a member was delivered within a minute."""

    messages: int = 0
    queues: set[Queue] = set()
