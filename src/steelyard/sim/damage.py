"""Damaged entries of brokers' logs and records of their tables, and what an operator gave up.

A damaged entry is delivered to nobody, or unchanged if it was read before. It blocks the groups
that reach it until the operator gives it up; then they skip it, and nothing else. Messages that it
contained are no longer owed.

A broker does not start on a damaged table. A committed offset that a repair loses falls back to an
older one, or is gone.
"""

from __future__ import annotations

from typing import NamedTuple

from steelyard.types import MessageQueue, TopicPartition
from steelyard.wire.remoting.message import MessageView, decode_records

Position = tuple[MessageQueue, int]


class RottenRecord(NamedTuple):
    """A record of a table in which a bit was flipped."""

    path: str
    position: int
    size: int
    """Its size, including a following write that a kill interrupted."""
    key: str
    is_named: bool
    """Whether the record's key can be determined."""
    content: dict[str, bytes]
    """The former contents of the table."""
    without: dict[str, bytes]
    """The contents of the table without this record."""


class Damage:
    """All damage; see the module docstring."""

    def __init__(self) -> None:
        self.entries: dict[Position, bytes] = {}
        """The original bytes."""
        self.numbers: dict[Position, int] = {}
        """The numbers of those that are messages."""
        self.given_up: set[Position] = set()
        self.lost: set[int] = set()
        """Numbers of messages that are damaged, or were before they reached their queue."""
        self.retries_lost: set[int] = set()
        """Numbers whose copy for redelivery is damaged."""
        self.records: dict[str, RottenRecord] = {}
        """By broker, which must not start until the record is given up."""
        self.offsets_lost: set[MessageQueue] = set()
        """Queues whose committed offset was lost by a repair."""
        self.kafka_offsets_lost: set[TopicPartition] = set()

    def passes(self, topic: str, offset: int) -> bool:
        """Return whether a reader of the topic, of an unknown queue, may skip the offset."""
        return any(at == offset and queue.topic == topic for queue, at in self.given_up)

    def is_as_it_was(self, queue: MessageQueue, message: MessageView) -> bool:
        """Return whether a member got the original message, apart from the delivery count.

        Orderly members count deliveries themselves.
        """
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
