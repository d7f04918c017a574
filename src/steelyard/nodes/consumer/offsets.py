"""Where a consumer's offsets are kept: with the broker of each queue, or at home.

- `BrokerOffsets`: the members of a group share one offset per queue, which its broker keeps (14, 15).
- `LocalOffsets`: every member of a broadcasting group has its own. They live here, and are written down by
  `Keep` every commit interval and at the end; what was kept last is given back when the node is made anew.
  An offset stays known when its queue is given up: a broker that is missing for a while takes no offset
  along (apache/rocketmq#4016).

Source: client/consumer/store/RemoteBrokerOffsetStore.java, LocalFileOffsetStore.java.
"""

from __future__ import annotations

from typing import Protocol

from steelyard.nodes.consumer.peers import LastCommitSent, OffsetAsked, OffsetTold, Peers
from steelyard.nodes.seam import Address, Effect, Keep
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import OffsetTable
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command


class Offsets(Protocol):
    """See the module's text. `address`: of the queue's broker."""

    def ask(self, asked: OffsetAsked, address: Address, now: int) -> int | list[Effect] | None:
        """The offset of a queue, None where there is none; or what to send, so that the answer comes under `asked`."""

    def write(self, queue: MessageQueue, address: Address, offset: int) -> list[Effect]:
        """Commit. Nobody says whether it arrived."""

    def write_surely(
        self, told: LastCommitSent | OffsetTold, address: Address, offset: int, now: int
    ) -> list[Effect]:
        """Commit, and learn under `told` what became of it. Nothing to send: it is done."""

    def keep(self) -> list[Effect]:
        """Time to write down what is not."""


class BrokerOffsets:
    """Offsets of the group, at the brokers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def ask(self, asked: OffsetAsked, address: Address, now: int) -> list[Effect]:
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=asked.queue.topic,
            queue_id=asked.queue.queue_id,
        )
        return self._peers.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header, asked, now)

    def write(self, queue: MessageQueue, address: Address, offset: int) -> list[Effect]:
        return self._peers.calls.tell(address, self._command(queue, offset))

    def write_surely(
        self, told: LastCommitSent | OffsetTold, address: Address, offset: int, now: int
    ) -> list[Effect]:
        return self._peers.call(address, self._command(told.queue, offset), told, now)

    def keep(self) -> list[Effect]:
        return []

    def _command(self, queue: MessageQueue, offset: int) -> Command:
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        return Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext=headers.write(header))


class LocalOffsets:
    """Offsets of this member. `kept`: the data of the last `Keep` of its life before, empty for the first."""

    def __init__(self, kept: bytes) -> None:
        self._offsets = read_kept(kept)
        self._written = dict(self._offsets)

    def get(self, queue: MessageQueue) -> int | None:
        """The offset of a queue, None where there is none."""
        return self._offsets.get(queue)

    def ask(self, asked: OffsetAsked, address: Address, now: int) -> int | None:
        return self.get(asked.queue)

    def write(self, queue: MessageQueue, address: Address, offset: int) -> list[Effect]:
        self._offsets[queue] = offset
        return []

    def write_surely(
        self, told: LastCommitSent | OffsetTold, address: Address, offset: int, now: int
    ) -> list[Effect]:
        return self.write(told.queue, address, offset)

    def keep(self) -> list[Effect]:
        if self._offsets == self._written:
            return []
        self._written = dict(self._offsets)
        return [Keep(fastjson.write(OffsetTable(self._written)))]


def read_kept(data: bytes) -> dict[MessageQueue, int]:
    """The offsets in the data of a `Keep`, or in a file of a Java client. Raises ProtocolError."""
    if not data:
        return {}
    table = fastjson.read(OffsetTable, data).offset_table
    return {queue: offset for queue, offset in table.items() if offset >= 0}
