"""The queues a consumer holds, and where each one starts.

A held queue goes through the states of `groups.remoting.ownership`; `handover` moves it on. Each holding has an
`epoch` of its own, so that an answer or a timer of an earlier holding of the same queue finds nobody.

Source: client/impl/consumer/RebalancePushImpl.java `computePullFromWhere`.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from steelyard.config import LitePullConfig
from steelyard.consume.process_queue import ProcessQueue
from steelyard.errors import ProtocolError, RemotingError
from steelyard.groups.remoting.ownership import COMING, Holding, HoldingState, Move
from steelyard.nodes.consumer.remoting.commits import Commits
from steelyard.nodes.consumer.remoting.held import (
    UNKNOWN,
    AtApplication,
    CommitsSent,
    HandoverSteps,
    Held,
    PullLoop,
    Wishes,
)
from steelyard.nodes.consumer.remoting.offsets import PENDING, OffsetStore
from steelyard.nodes.consumer.remoting.peers import OffsetAsked, Peers, StartAsked
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.types import ConsumeFrom, LogLine, MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command


class LookAgain(msgspec.Struct, frozen=True):
    """Timer key: time to go on with a queue, in whatever state it is."""

    queue: MessageQueue
    epoch: int


class Holdings:
    """All queues of this member. Pulling starts when a method returns the `Held` to pull."""

    def __init__(self, peers: Peers, offsets: OffsetStore) -> None:
        config = peers.config
        self._peers = peers
        self._offsets = offsets
        self.commits = Commits(offsets)
        self._polled = isinstance(config, LitePullConfig)
        self._waits_for_word = isinstance(config, LitePullConfig) and not config.auto_commit
        self._held: dict[MessageQueue, Held] = {}
        self._unfinished: list[tuple[Held, int]] = []
        """Holdings that are gone while the application was at work on them, and until when that is waited for."""
        self._epoch = 0

    # -- looking -----------------------------------------------------------------------------------

    def find(self, queue: MessageQueue, epoch: int) -> Held | None:
        """The holding, if it is still this one."""
        held = self._held.get(queue)
        return held if held is not None and held.epoch == epoch else None

    def get(self, queue: MessageQueue) -> Held | None:
        """The holding of a queue, in whatever state."""
        return self._held.get(queue)

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
            if held.state is HoldingState.PULLING
            and held.pull.looked_at < oldest
            and not held.wishes.paused
        )

    # -- coming and going --------------------------------------------------------------------------

    def hold(self, queue: MessageQueue, now: int) -> Held:
        """A new holding, LOCKING."""
        assert queue not in self._held
        self._epoch += 1
        held = Held(
            queue,
            self._epoch,
            Holding(now),
            ProcessQueue(0),
            PullLoop(),
            CommitsSent(),
            AtApplication(),
            Wishes(),
            HandoverSteps(),
        )
        self._held[queue] = held
        return held

    def move(self, held: Held, event: Move, now: int) -> None:
        """A holding that stays goes on to another state."""
        held.holding.move(event, now)

    def gone(self, held: Held, event: Move, now: int) -> None:
        """The end of a holding. What the application still has of it counts for nothing."""
        held.holding.move(event, now)
        del self._held[held.queue]
        self._unfinished = [
            (one, until) for one, until in self._unfinished if one.application.handed
        ]
        if held.application.handed:
            self._unfinished.append((held, now + self._peers.config.drain_timeout_ms))

    def at_work_until(self, queue: MessageQueue, now: int) -> int:
        """Until when at most to wait for the application, which is at work on what an earlier holding of the
        queue gave it; 0 where it is not, or had its time. The queue's broker was lost, say, and came back."""
        ends = [
            u
            for one, u in self._unfinished
            if one.queue == queue and one.application.handed and u > now
        ]
        return max(ends, default=0)

    # -- where to start ----------------------------------------------------------------------------

    def acquire(self, held: Held, now: int, effects: list[Effect]) -> Held | None:
        """Learn where to start. Returns what can be pulled now; otherwise an answer will tell."""
        address = self._peers.address(held.queue)
        if address is None:
            self.later(held, self._peers.config.pull_retry_ms, now, effects)
            return None
        found = self._offsets.ask(OffsetAsked(held.queue, held.epoch), address, now, effects)
        if found is PENDING:
            return None
        if found is None:
            return self._start_unknown(held, now, effects)
        return self._known(held, found, found)

    def offset_answered(
        self, asked: OffsetAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> Held | None:
        """The broker told the committed offset, or that it has none. Returns what to pull now."""
        held = self.find(asked.queue, asked.epoch)
        if held is None or held.state is not HoldingState.ACQUIRING:
            return None
        if isinstance(reply, Command) and reply.code == ResponseCode.QUERY_NOT_FOUND:
            return self._start_unknown(held, now, effects)
        offset = _offset_in(reply)
        if isinstance(offset, int) and offset >= 0:
            return self._known(held, offset, offset)
        self._failed(held, "committed offset", offset, now, effects)
        return None

    def _start_unknown(self, held: Held, now: int, effects: list[Effect]) -> Held | None:
        """No committed offset: the group's setting tells where it starts."""
        config = self._peers.config
        queue = held.queue
        is_retry = queue.topic == self._peers.retry_topic
        code = RequestCode.GET_MAX_OFFSET
        header: headers.Header = headers.QueueRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id
        )
        match config.consume_from:
            case _ if config.consume_offset >= 0 and not is_retry:
                pass  # no further than the end
            case ConsumeFrom.FIRST_OFFSET:
                return self._known(held, 0, UNKNOWN)
            case ConsumeFrom.LAST_OFFSET:
                if is_retry:  # messages to retry must not be missed
                    return self._known(held, 0, UNKNOWN)
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
            self.later(held, config.pull_retry_ms, now, effects)
            return None
        purpose = StartAsked(queue, held.epoch)
        self._peers.ask(address, code, header, purpose, now, effects)
        return None

    def start_answered(
        self, asked: StartAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> Held | None:
        """The broker told where the queue ends, or what was stored at a time. Returns what to pull now."""
        held = self.find(asked.queue, asked.epoch)
        if held is None or held.state is not HoldingState.ACQUIRING:
            return None
        offset = _offset_in(reply)
        if isinstance(offset, int) and offset >= 0:
            wanted = self._peers.config.consume_offset
            if wanted >= 0 and held.queue.topic != self._peers.retry_topic:
                offset = min(offset, wanted)
            return self._known(held, offset, UNKNOWN)
        self._failed(held, "start offset", offset, now, effects)
        return None

    def _known(self, held: Held, offset: int, committed: int) -> Held:
        held.process = ProcessQueue(offset)
        held.commits = CommitsSent(committed)
        held.wishes = Wishes(committed if self._waits_for_word else None, held.wishes.paused)
        return held

    def begin(self, held: Held, now: int) -> None:
        """The start is known: PULLING from here on."""
        held.holding.move(Move.STARTED, now)
        held.pull = PullLoop(self._peers.address(held.queue), looked_at=now)

    def _failed(
        self, held: Held, what: str, offset: int | str, now: int, effects: list[Effect]
    ) -> None:
        text = f"{what} of {_name(held.queue)}: {offset}; retrying soon"
        tell = LogLine("WARNING", text)
        effects.append(tell)
        self.later(held, self._peers.config.pull_retry_ms, now, effects)

    def restart(self, held: Held, offset: int, now: int) -> Held:
        """The broker has moved the offset: go on from there as if the queue were new, and commit it."""
        self.gone(held, Move.SET, now)
        fresh = self.hold(held.queue, now)
        fresh.handover = HandoverSteps(held.handover.announced)
        fresh.holding.move(Move.LOCKED, now)
        self.begin(self._known(fresh, offset, UNKNOWN), now)
        fresh.wishes = Wishes(offset if self._waits_for_word else None, held.wishes.paused)
        return fresh

    def later(self, held: Held, delay_ms: int, now: int, effects: list[Effect]) -> None:
        """Look at the queue again after a while."""
        effects.append(SetTimer(LookAgain(held.queue, held.epoch), now + delay_ms))

    def commit_all(self, now: int, effects: list[Effect]) -> None:
        for held in self._held.values():
            self.commits.commit(held, now, effects)

    def check(self) -> None:
        """Assert what must hold of every queue."""
        for queue, held in self._held.items():
            assert held.queue == queue
            assert held.state is not HoldingState.GONE
            held.process.check()
            assert self._polled or held.commits.committed <= held.committable
            assert not (held.application.handed and held.state in COMING)


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
