"""Entries of brokers' logs, and records of their tables, that bits flipped in: what they were, and what an operator gave up.

A damaged entry is given to nobody, or as it was to whoever had it before. It holds up the groups that come to it until
the operator gives it up; then they pass over it, and over nothing else. What it was to tell is not owed any more.

A broker does not start on a damaged table. A committed offset that a repair loses falls back to an older one, or is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from steelyard.types import MessageQueue, TopicPartition
from steelyard.wire.remoting.message import MessageView, decode_records

Position = tuple[MessageQueue, int]


class RottenRecord(NamedTuple):
    """A record of a table in which a bit flipped."""

    path: str
    position: int
    size: int
    """With the write behind it that a kill cut off, if there is one."""
    key: str
    is_named: bool
    """It can be told whose record it was."""
    content: dict[str, bytes]
    """Of the table, before."""
    without: dict[str, bytes]
    """Of the table, were this record not there."""


class Damage:
    """See the module's text."""

    def __init__(self) -> None:
        self.entries: dict[Position, bytes] = {}
        """As they were."""
        self.numbers: dict[Position, int] = {}
        """Of those that are messages."""
        self.given_up: set[Position] = set()
        self.lost: set[int] = set()
        """Numbers whose message is damaged, or was before it got to its queue."""
        self.retries_lost: set[int] = set()
        """Numbers whose copy is damaged that was to come to the group again."""
        self.records: dict[str, RottenRecord] = {}
        """By broker, which must not start until the record is given up."""
        self.offsets_lost: set[MessageQueue] = set()
        """Queues whose committed offset a repair lost."""
        self.kafka_offsets_lost: set[TopicPartition] = set()

    def passes(self, topic: str, offset: int) -> bool:
        """May a reader of the topic, of which queue is not known, pass over the offset?"""
        return any(at == offset and queue.topic == topic for queue, at in self.given_up)

    def is_as_it_was(self, queue: MessageQueue, message: MessageView) -> bool:
        """Is what a member got what was written there, but for how often it came, which orderly members count themselves?"""
        entry = self.entries.get((queue, message.queue_offset))
        if entry is None:
            return True
        (view,) = decode_records(entry, queue.broker_name)
        return _fields(view) == _fields(message)


def _fields(view: MessageView) -> tuple[object, ...]:
    return (
        view.flag,
        view.physical_offset,
        view.sys_flag,
        view.born_timestamp,
        view.born_host_bytes,
        view.store_timestamp,
        view.store_host_bytes,
        view.prepared_transaction_offset,
        view.body_crc,
        view.stored_body,
        view.property_bytes,
    )
