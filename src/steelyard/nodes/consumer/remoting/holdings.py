"""The queues that a consumer holds, and the offset at which each starts.

A held queue goes through the states of `groups.remoting.ownership`; `handover` moves it on. Each
holding has an `epoch` of its own, so that replies and timers of an earlier holding of the same
queue are ignored. Source: client/impl/consumer/RebalancePushImpl.java `computePullFromWhere`.
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
    """Timer key: time to continue with a queue, whatever its state."""

    queue: MessageQueue
    epoch: int


class Holdings:
    """All queues of this member. A method that returns a `Held` asks its caller to pull it."""

    def __init__(self, peers: Peers, offsets: OffsetStore) -> None:
        config = peers.config
        self._peers = peers
        self._offsets = offsets
        self.commits = Commits(offsets)
        self._polled = isinstance(config, LitePullConfig)
        self._waits_for_word = isinstance(config, LitePullConfig) and not config.auto_commit
        self._held: dict[MessageQueue, Held] = {}
        self._unfinished: list[tuple[Held, int]] = []
        """Ended holdings with which the application is still busy, and until when it may be."""
        self._epoch = 0

    # -- looking -----------------------------------------------------------------------------------

    def find(self, queue: MessageQueue, epoch: int) -> Held | None:
        """Return the holding if it still exists."""
        held = self._held.get(queue)
        return held if held is not None and held.epoch == epoch else None

    def get(self, queue: MessageQueue) -> Held | None:
        """Return the holding of a queue, in any state."""
        return self._held.get(queue)

    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(self._held)

    def all(self) -> list[Held]:
        return list(self._held.values())

    def stale(self, now: int) -> tuple[MessageQueue, ...]:
        """Return queues not considered for so long that something must be wrong with them."""
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
        """Start a holding, in LOCKING."""
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
        """Move a holding to another state, other than GONE."""
        held.holding.move(event, now)

    def gone(self, held: Held, event: Move, now: int) -> None:
        """End a holding. Verdicts on what the application still has of it will be ignored."""
        held.holding.move(event, now)
        del self._held[held.queue]
        self._unfinished = [
            (one, until)
            for one, until in self._unfinished
            if one.application.handed and until > now
        ]
        if held.application.handed:
            self._unfinished.append((held, now + self._peers.config.drain_timeout_ms))

    def at_work_until(self, queue: MessageQueue, now: int) -> int:
        """Return until when to wait for the application, busy with an earlier holding of the queue.

        0 if it is not busy, or its time is over. It can be busy if the queue's broker was lost and
        came back, for example.
        """
        ends = [
            u
            for one, u in self._unfinished
            if one.queue == queue and one.application.handed and u > now
        ]
        return max(ends, default=0)

    # -- where to start ----------------------------------------------------------------------------

    def acquire(self, held: Held, now: int, effects: list[Effect]) -> Held | None:
        """Find out where to start. Returns the holding if it can be pulled now.

        Otherwise a reply or a timer will continue with it.
        """
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
        """Handle the committed offset, or that there is none. Returns what to pull now."""
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
        """Start a queue without a committed offset as the group's settings say."""
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
        """Handle the end of the queue, or the offset at a time. Returns what to pull now."""
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
        """Move a holding whose start is known to PULLING."""
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
        """Replace a holding by a new one that starts at this offset, and return that.

        For a queue whose offset the broker has moved, or that the application or an operator has
        set.
        """
        self.gone(held, Move.SET, now)
        fresh = self.hold(held.queue, now)
        fresh.handover = HandoverSteps(held.handover.announced)
        fresh.holding.move(Move.LOCKED, now)
        self.begin(self._known(fresh, offset, UNKNOWN), now)
        fresh.wishes = Wishes(offset if self._waits_for_word else None, held.wishes.paused)
        return fresh

    def later(self, held: Held, delay_ms: int, now: int, effects: list[Effect]) -> None:
        """Set a timer to continue with the queue."""
        effects.append(SetTimer(LookAgain(held.queue, held.epoch), now + delay_ms))

    def commit_all(self, now: int, effects: list[Effect]) -> None:
        for held in self._held.values():
            self.commits.commit(held, now, effects)

    def check(self) -> None:
        """Assert the invariants of every queue."""
        for queue, held in self._held.items():
            assert held.queue == queue
            assert held.state is not HoldingState.GONE
            held.process.check()
            assert self._polled or held.commits.committed <= held.committable
            assert not (held.application.handed and held.state in COMING)


def _offset_in(reply: Command | RemotingError) -> int | str:
    """Return the offset in a reply, or what is wrong with it."""
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
