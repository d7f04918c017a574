"""The stores of a consumer's offsets: the broker of each queue, or the consumer itself.

- `BrokerOffsets`: the members of a group share one offset per queue, which its broker stores (14,
  15). The first awaited commit to each topic of a broker is sent alone, and the others follow its
  reply: when the first commits of a group to a topic arrive at once, Apache's brokers keep those of
  one thread only (ConsumerOffsetManager.java `commitOffset`, 4.9 and 5.3).
- `LocalOffsets`: every member of a broadcasting group has its own. They are kept in memory, and
  saved by `Persist` every commit interval and at the end; a new node is given what was saved last.
  An offset stays known when its queue is given up, so that none is lost while a broker is missing
  (apache/rocketmq#4016).

Source: client/consumer/store/RemoteBrokerOffsetStore.java, LocalFileOffsetStore.java.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Protocol

from steelyard.nodes.consumer.remoting.peers import (
    Handed,
    LastCommitSent,
    OffsetAsked,
    OffsetTold,
    Peers,
)
from steelyard.nodes.seam import Address, Effect, Persist
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import OffsetTable
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

Told = LastCommitSent | OffsetTold
"""The purposes of an awaited commit."""


class Pending(Enum):
    """Placeholder for an offset that was requested."""

    PENDING = "pending"


PENDING: Final = Pending.PENDING


class OffsetStore(Protocol):
    """A store of offsets. `address`: that of the queue's broker."""

    def ask(
        self, asked: OffsetAsked, address: Address, now: int, effects: list[Effect]
    ) -> int | Pending | None:
        """Return the offset of a queue, or None if there is none.

        PENDING: the reply follows under `asked`.
        """

    def write(
        self,
        queue: MessageQueue,
        address: Address,
        offset: int,
        effects: list[Effect],
        *,
        handed: Handed | None = None,
    ) -> None:
        """Commit without awaiting a reply. `handed`: with the last commit of a holding."""

    def write_surely(
        self,
        told: Told,
        address: Address,
        offset: int,
        now: int,
        effects: list[Effect],
    ) -> bool:
        """Commit, and return whether the outcome will follow under `told`.

        If so, the node passes it to `answered`; otherwise the commit is done.
        """

    def answered(
        self, queue: MessageQueue, address: Address, now: int, effects: list[Effect]
    ) -> None:
        """Note that a `write_surely` has ended, well or not."""

    def keep(self, effects: list[Effect]) -> None:
        """Save what has changed."""


class BrokerOffsets:
    """The offsets of the group, stored at the brokers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._begun: set[tuple[Address, str]] = set()
        """Brokers and topics to which an awaited commit has ended."""
        self._first: dict[tuple[Address, str], deque[tuple[Told, int]]] = {}
        """Commits that wait for the first one to a broker and topic, which is in flight."""

    def ask(self, asked: OffsetAsked, address: Address, now: int, effects: list[Effect]) -> Pending:
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=asked.queue.topic,
            queue_id=asked.queue.queue_id,
            set_zero_if_not_found=False if self._peers.config.consume_strictly else None,
        )
        self._peers.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header, asked, now, effects)
        return PENDING

    def write(
        self,
        queue: MessageQueue,
        address: Address,
        offset: int,
        effects: list[Effect],
        *,
        handed: Handed | None = None,
    ) -> None:
        self._peers.calls.tell(address, self._command(queue, offset, handed), effects)

    def write_surely(
        self, told: Told, address: Address, offset: int, now: int, effects: list[Effect]
    ) -> bool:
        place = (address, told.queue.topic)
        if place in self._first:
            self._first[place].append((told, offset))
            return True
        if place not in self._begun:
            self._first[place] = deque()
        handed = told.handed if isinstance(told, LastCommitSent) else None
        self._peers.call(address, self._command(told.queue, offset, handed), told, now, effects)
        return True

    def answered(
        self, queue: MessageQueue, address: Address, now: int, effects: list[Effect]
    ) -> None:
        place = (address, queue.topic)
        self._begun.add(place)
        for told, offset in self._first.pop(place, ()):
            self.write_surely(told, address, offset, now, effects)

    def keep(self, effects: list[Effect]) -> None:
        """Do nothing: the brokers store the offsets."""

    def _command(self, queue: MessageQueue, offset: int, handed: Handed | None) -> Command:
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            handed_offset=None if handed is None else handed.offset,
            handed_ms=None if handed is None else handed.ms,
        )
        return Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext=headers.write(header))


class LocalOffsets:
    """The offsets of this member.

    `kept`: the data of the last `Persist` of its previous run, empty for the first.
    """

    def __init__(self, kept: bytes) -> None:
        self._offsets = read_kept(kept)
        self._written = dict(self._offsets)

    def get(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue, or None if there is none."""
        return self._offsets.get(queue)

    def ask(
        self, asked: OffsetAsked, address: Address, now: int, effects: list[Effect]
    ) -> int | None:
        return self.get(asked.queue)

    def write(
        self,
        queue: MessageQueue,
        address: Address,
        offset: int,
        effects: list[Effect],
        *,
        handed: Handed | None = None,
    ) -> None:
        self._offsets[queue] = offset

    def write_surely(
        self, told: Told, address: Address, offset: int, now: int, effects: list[Effect]
    ) -> bool:
        self.write(told.queue, address, offset, effects)
        return False

    def answered(
        self, queue: MessageQueue, address: Address, now: int, effects: list[Effect]
    ) -> None:
        raise AssertionError("nobody was asked")

    def keep(self, effects: list[Effect]) -> None:
        if self._offsets == self._written:
            return
        self._written = dict(self._offsets)
        effects.append(Persist(fastjson.write(OffsetTable(self._written))))


def read_kept(data: bytes) -> dict[MessageQueue, int]:
    """Return the offsets in the data of a `Persist`, or in a Java client's file.

    Raises ProtocolError.
    """
    if not data:
        return {}
    table = fastjson.read(OffsetTable, data).offset_table
    return {queue: offset for queue, offset in table.items() if offset >= 0}
