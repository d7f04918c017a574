"""The queues a consumer holds: taking one (where to start), giving one up, committing.

A held queue goes through the states of `groups.ownership`. Each holding has an `epoch` of its own,
so that an answer or a timer of an earlier holding of the same queue finds nobody.
Source: client/impl/consumer/RebalancePushImpl.java `computePullFromWhere`,
`removeUnnecessaryMessageQueue`; RemoteBrokerOffsetStore.java.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from steelyard.consume.process_queue import ProcessQueue
from steelyard.errors import ProtocolError, RemotingError
from steelyard.groups.ownership import Change, Holding, State
from steelyard.nodes.consumer.peers import OffsetAsked, Peers, StartAsked
from steelyard.nodes.seam import Address, Effect, SetTimer, Tell
from steelyard.types import ConsumeFrom, MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

UNKNOWN = -1
"""In place of an offset that no broker is known to have."""


class LookAgain(msgspec.Struct, frozen=True):
    """Timer key: time to go on with a queue, in whatever state it is."""

    queue: MessageQueue
    epoch: int


class Held(msgspec.Struct, eq=False):
    """One queue of this member."""

    queue: MessageQueue
    epoch: int
    holding: Holding
    process: ProcessQueue
    """Empty and at offset 0 while ACQUIRING."""
    committed: int = UNKNOWN
    """The offset last sent to the broker and not known to be lost."""
    address: Address | None = None
    """Where it was last read from: a commit still goes there when the broker has left the routes."""
    pulling: bool = False
    """A pull is on its way or held by the broker."""
    pulled_at: int = 0
    """When the last pull was sent."""
    looked_at: int = 0
    """When pulling was last thought of, a pull sent or not."""
    in_vain: int = 0
    """Pulls in a row that were answered at once, with nothing."""
    queued: bool = False
    """In the delivery's line of queues with messages to hand."""
    handed: int = 0
    """Batches that the application has, or that are on their way back to their broker."""

    @property
    def state(self) -> State:
        return self.holding.state


class Holdings:
    """All queues of this member. Pulling starts when a method returns the `Held` to pull."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._held: dict[MessageQueue, Held] = {}
        self._epoch = 0

    # -- looking -----------------------------------------------------------------------------------

    def find(self, queue: MessageQueue, epoch: int) -> Held | None:
        """The holding, if it is still this one."""
        held = self._held.get(queue)
        return held if held is not None and held.epoch == epoch else None

    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(self._held)

    def all(self) -> list[Held]:
        return list(self._held.values())

    def stale(self, now: int) -> tuple[MessageQueue, ...]:
        """Queues that nobody has looked at for so long that something must be wrong with them."""
        oldest = now - self._peers.config.pull_idle_max_ms
        return tuple(
            held.queue
            for held in self._held.values()
            if held.state is State.PULLING and held.looked_at < oldest
        )

    # -- changing hands ----------------------------------------------------------------------------

    def change(self, change: Change[MessageQueue], now: int) -> list[Effect]:
        """Make the outcome of a rebalance true."""
        effects: list[Effect] = []
        for queue in change.release:
            effects += self.release(self._held[queue], now)
        for queue in change.acquire:
            held = self._hold(queue, now)
            effects += self.acquire(held, now)
        return effects

    def _hold(self, queue: MessageQueue, now: int) -> Held:
        self._epoch += 1
        held = Held(queue, self._epoch, Holding(now), ProcessQueue(0))
        self._held[queue] = held
        return held

    def release(self, held: Held, now: int) -> list[Effect]:
        """Commit what is finished, and let go. What the listener still has will count for nothing.

        The last commit goes out in any case: an earlier one of the same offset may be lost, or
        overwritten by a member that believed to own the queue.
        """
        effects = self.commit(held, news_only=False)
        held.holding.move(State.GONE, now)
        del self._held[held.queue]
        return effects

    def drain(self, now: int) -> None:
        """A stop begins: nothing more is pulled or handed; what no listener has seen is left to others."""
        for held in self.all():
            if held.state is State.PULLING:
                held.holding.move(State.DRAINING, now)
                held.process.discard_waiting()
            elif held.state is State.ACQUIRING:
                held.holding.move(State.GONE, now)
                del self._held[held.queue]

    # -- where to start ----------------------------------------------------------------------------

    def acquire(self, held: Held, now: int) -> list[Effect]:
        """Ask for the committed offset."""
        address = self._peers.address(held.queue)
        if address is None:
            return self.later(held, self._peers.config.pull_retry_ms, now)
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=held.queue.topic,
            queue_id=held.queue.queue_id,
        )
        purpose = OffsetAsked(held.queue, held.epoch)
        return self._peers.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header, purpose, now)

    def offset_answered(
        self, asked: OffsetAsked, reply: Command | RemotingError, now: int
    ) -> tuple[Held | None, list[Effect]]:
        """The broker told the committed offset, or that it has none. Returns what to pull now."""
        held = self.find(asked.queue, asked.epoch)
        if held is None:
            return None, []
        if isinstance(reply, Command) and reply.code == ResponseCode.QUERY_NOT_FOUND:
            return self._start_unknown(held, now)
        offset = _offset_in(reply)
        if isinstance(offset, int) and offset >= 0:
            return self._begin(held, offset, offset, now), []
        return None, self._failed(held, "committed offset", offset, now)

    def _start_unknown(self, held: Held, now: int) -> tuple[Held | None, list[Effect]]:
        """No committed offset: the group's setting tells where it starts."""
        config = self._peers.config
        queue = held.queue
        is_retry = queue.topic == self._peers.retry_topic
        code = RequestCode.GET_MAX_OFFSET
        header: headers.Header = headers.QueueRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id
        )
        match config.consume_from:
            case ConsumeFrom.FIRST_OFFSET:
                return self._begin(held, 0, UNKNOWN, now), []
            case ConsumeFrom.LAST_OFFSET:
                if is_retry:  # messages to retry must not be missed
                    return self._begin(held, 0, UNKNOWN, now), []
            case ConsumeFrom.TIMESTAMP:
                if not is_retry:
                    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
                    header = headers.SearchOffsetRequestHeader(
                        topic=queue.topic,
                        queue_id=queue.queue_id,
                        timestamp=config.consume_timestamp,
                    )
            case consume_from:
                assert_never(consume_from)
        address = self._peers.address(queue)
        if address is None:
            return None, self.later(held, config.pull_retry_ms, now)
        purpose = StartAsked(queue, held.epoch)
        return None, self._peers.ask(address, code, header, purpose, now)

    def start_answered(
        self, asked: StartAsked, reply: Command | RemotingError, now: int
    ) -> tuple[Held | None, list[Effect]]:
        """The broker told where the queue ends, or what was stored at a time. Returns what to pull now."""
        held = self.find(asked.queue, asked.epoch)
        if held is None:
            return None, []
        offset = _offset_in(reply)
        if isinstance(offset, int) and offset >= 0:
            return self._begin(held, offset, UNKNOWN, now), []
        return None, self._failed(held, "start offset", offset, now)

    def _begin(self, held: Held, offset: int, committed: int, now: int) -> Held:
        held.holding.move(State.PULLING, now)
        held.process = ProcessQueue(offset)
        held.address = self._peers.address(held.queue)
        held.committed = committed
        held.looked_at = now
        return held

    def _failed(self, held: Held, what: str, offset: int | str, now: int) -> list[Effect]:
        text = f"{what} of {_name(held.queue)}: {offset}; asked again soon"
        tell = Tell("WARNING", text)
        return [tell, *self.later(held, self._peers.config.pull_retry_ms, now)]

    def restart(self, held: Held, offset: int, now: int) -> Held:
        """The broker has moved the offset: go on from there as if the queue were new, and commit it."""
        held.holding.move(State.GONE, now)
        fresh = self._hold(held.queue, now)
        return self._begin(fresh, offset, UNKNOWN, now)

    def later(self, held: Held, delay_ms: int, now: int) -> list[Effect]:
        """Look at the queue again after a while."""
        return [SetTimer(LookAgain(held.queue, held.epoch), now + delay_ms)]

    # -- committing --------------------------------------------------------------------------------

    def commit(self, held: Held, *, news_only: bool = True) -> list[Effect]:
        """Tell the broker how far the queue is finished, if it does not know. One-way, as RocketMQ does."""
        if held.state not in (State.PULLING, State.DRAINING):
            return []
        offset = held.process.committable
        if held.address is None or (news_only and offset == held.committed):
            return []
        held.committed = offset
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=held.queue.topic,
            queue_id=held.queue.queue_id,
            commit_offset=offset,
        )
        command = Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext=headers.write(header))
        return self._peers.calls.tell(held.address, command)

    def commit_all(self) -> list[Effect]:
        return [effect for held in self._held.values() for effect in self.commit(held)]

    def check(self) -> None:
        """Assert what must hold of every queue."""
        for queue, held in self._held.items():
            assert held.queue == queue
            assert held.state is not State.GONE
            held.process.check()
            assert held.committed <= held.process.committable or held.state is State.ACQUIRING


def _offset_in(reply: Command | RemotingError) -> int | str:
    """The offset of an answer, or what is wrong with it."""
    if isinstance(reply, RemotingError):
        return str(reply)
    if reply.code != ResponseCode.SUCCESS:
        return f"code {reply.code}: {reply.remark}"
    try:
        return headers.read(headers.OffsetResponseHeader, reply.ext).offset
    except ProtocolError as error:
        return str(error)


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
