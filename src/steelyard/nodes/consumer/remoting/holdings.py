"""The queues a consumer holds: where each one starts, and how far it is committed.

A held queue goes through the states of `groups.remoting.ownership`; `handover` moves it on. Each holding has an
`epoch` of its own, so that an answer or a timer of an earlier holding of the same queue finds nobody.

Commits are one-way as in RocketMQ, by themselves (15) or riding on a pull (11), but for the last one of a
holding. A broker with several threads may take in two that arrive one after the other the wrong way round,
and what was sent some time apart can arrive together. So the last one waits a moment for those before it
(`settles_at`); and if by its answer, which proves that they have arrived, one is still not known to be
taken in (`doubtful`), it is said again after another moment.
Source: client/impl/consumer/RebalancePushImpl.java `computePullFromWhere`; RemoteBrokerOffsetStore.java.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from steelyard.config import LitePullConfig
from steelyard.consume.process_queue import ProcessQueue
from steelyard.errors import ProtocolError, RemotingError
from steelyard.groups.remoting.ownership import COMING, READ, Holding, Move, State
from steelyard.nodes.consumer.remoting.offsets import Offsets
from steelyard.nodes.consumer.remoting.peers import LastCommitSent, OffsetAsked, Peers, StartAsked
from steelyard.nodes.seam import Address, Effect, SetTimer
from steelyard.types import ConsumeFrom, LogLine, MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

UNKNOWN = -1
"""In place of an offset that no broker is known to have."""

SETTLE_MS = 50
"""Two requests that arrive so far apart are taken in in that order."""

DOUBT_MS = 2_000
"""Two commits that are sent so far apart arrive apart."""


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
    """Empty and at offset 0 until PULLING."""
    committed: int = UNKNOWN
    """The offset last sent to the broker and not known to be lost."""
    wrote: int = UNKNOWN
    """The offset of the last commit that did not ride on a pull."""
    wrote_at: int = 0
    """When it was sent."""
    other_at: int = 0
    """When the last one with another offset was sent."""
    arrived: bool = True
    """A pull that was sent after both has been answered."""
    address: Address | None = None
    """Where it was last read from: a commit still goes there when the broker has left the routes."""
    pulling: bool = False
    """A pull is on its way or held by the broker."""
    pulled_at: int = 0
    """When the last pull was sent."""
    carried: int = UNKNOWN
    """The offset that the last pull committed."""
    looked_at: int = 0
    """When pulling was last thought of, a pull sent or not."""
    in_vain: int = 0
    """Pulls in a row that were answered at once, with nothing."""
    queued: bool = False
    """In the delivery's line of queues with messages to hand."""
    handed: int = 0
    """Batches that the application has, or that are on their way back to their broker."""
    consumed_at: int = 0
    """When the listener got something of it or was done with it last."""
    drain_by: int = 0
    """While DRAINING: when the time of the application is over."""
    repeat_at: int = 0
    """While RELEASING: when to say the last commit again."""
    repeated: bool = False
    """The last commit was said again."""
    agreed: int | None = None
    """In place of what is finished here: how far the application that polls says that it is; UNKNOWN before it
    has said anything."""
    paused: bool = False
    """The application that polls wants nothing of it for a while."""
    announced: bool = False
    """The application was told that the queue is its own, and not yet that it is not (`config.hooks`)."""

    @property
    def state(self) -> State:
        return self.holding.state

    @property
    def committable(self) -> int:
        """The offset that may be committed; UNKNOWN: none yet."""
        return self.process.committable if self.agreed is None else self.agreed


class Holdings:
    """All queues of this member. Pulling starts when a method returns the `Held` to pull."""

    def __init__(self, peers: Peers, offsets: Offsets) -> None:
        config = peers.config
        self._peers = peers
        self._offsets = offsets
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
            if held.state is State.PULLING and held.looked_at < oldest and not held.paused
        )

    # -- coming and going --------------------------------------------------------------------------

    def hold(self, queue: MessageQueue, now: int) -> Held:
        """A new holding, LOCKING."""
        assert queue not in self._held
        self._epoch += 1
        held = Held(queue, self._epoch, Holding(now), ProcessQueue(0))
        self._held[queue] = held
        return held

    def gone(self, held: Held, event: Move, now: int) -> None:
        """The end of a holding. What the application still has of it counts for nothing."""
        held.holding.move(event, now)
        del self._held[held.queue]
        self._unfinished = [(one, until) for one, until in self._unfinished if one.handed]
        if held.handed:
            self._unfinished.append((held, now + self._peers.config.drain_timeout_ms))

    def at_work_until(self, queue: MessageQueue, now: int) -> int:
        """Until when at most to wait for the application, which is at work on what an earlier holding of the
        queue gave it; 0 where it is not, or had its time. The queue's broker was lost, say, and came back."""
        ends = [u for one, u in self._unfinished if one.queue == queue and one.handed and u > now]
        return max(ends, default=0)

    # -- where to start ----------------------------------------------------------------------------

    def acquire(self, held: Held, now: int) -> tuple[Held | None, list[Effect]]:
        """Learn where to start. Returns what can be pulled now; otherwise an answer will tell."""
        address = self._peers.address(held.queue)
        if address is None:
            return None, self.later(held, self._peers.config.pull_retry_ms, now)
        found = self._offsets.ask(OffsetAsked(held.queue, held.epoch), address, now)
        if isinstance(found, list):
            return None, found
        if found is None:
            return self._start_unknown(held, now)
        return self._known(held, found, found), []

    def offset_answered(
        self, asked: OffsetAsked, reply: Command | RemotingError, now: int
    ) -> tuple[Held | None, list[Effect]]:
        """The broker told the committed offset, or that it has none. Returns what to pull now."""
        held = self.find(asked.queue, asked.epoch)
        if held is None or held.state is not State.ACQUIRING:
            return None, []
        if isinstance(reply, Command) and reply.code == ResponseCode.QUERY_NOT_FOUND:
            return self._start_unknown(held, now)
        offset = _offset_in(reply)
        if isinstance(offset, int) and offset >= 0:
            return self._known(held, offset, offset), []
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
            case _ if config.consume_offset >= 0 and not is_retry:
                pass  # no further than the end
            case ConsumeFrom.FIRST_OFFSET:
                return self._known(held, 0, UNKNOWN), []
            case ConsumeFrom.LAST_OFFSET:
                if is_retry:  # messages to retry must not be missed
                    return self._known(held, 0, UNKNOWN), []
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
        if held is None or held.state is not State.ACQUIRING:
            return None, []
        offset = _offset_in(reply)
        if isinstance(offset, int) and offset >= 0:
            wanted = self._peers.config.consume_offset
            if wanted >= 0 and held.queue.topic != self._peers.retry_topic:
                offset = min(offset, wanted)
            return self._known(held, offset, UNKNOWN), []
        return None, self._failed(held, "start offset", offset, now)

    def _known(self, held: Held, offset: int, committed: int) -> Held:
        held.process = ProcessQueue(offset)
        held.committed = committed
        held.agreed = committed if self._waits_for_word else None
        return held

    def begin(self, held: Held, now: int) -> None:
        """The start is known: PULLING from here on."""
        held.holding.move(Move.STARTED, now)
        held.address = self._peers.address(held.queue)
        held.looked_at = now

    def _failed(self, held: Held, what: str, offset: int | str, now: int) -> list[Effect]:
        text = f"{what} of {_name(held.queue)}: {offset}; asked again soon"
        tell = LogLine("WARNING", text)
        return [tell, *self.later(held, self._peers.config.pull_retry_ms, now)]

    def restart(self, held: Held, offset: int, now: int) -> Held:
        """The broker has moved the offset: go on from there as if the queue were new, and commit it."""
        self.gone(held, Move.SET, now)
        fresh = self.hold(held.queue, now)
        fresh.announced = held.announced
        fresh.paused = held.paused
        fresh.holding.move(Move.LOCKED, now)
        self.begin(self._known(fresh, offset, UNKNOWN), now)
        if fresh.agreed is not None:
            fresh.agreed = offset
        return fresh

    def later(self, held: Held, delay_ms: int, now: int) -> list[Effect]:
        """Look at the queue again after a while."""
        return [SetTimer(LookAgain(held.queue, held.epoch), now + delay_ms)]

    # -- committing --------------------------------------------------------------------------------

    def commit(self, held: Held, now: int, *, news_only: bool = True) -> list[Effect]:
        """Tell the broker how far the queue is finished, if it does not know. One-way, as RocketMQ does."""
        if held.state not in READ:
            return []
        offset = held.committable
        if held.address is None or offset < 0 or (news_only and offset == held.committed):
            return []
        self.wrote(held, offset, now)
        return self._offsets.write(held.queue, held.address, offset)

    def wrote(self, held: Held, offset: int, now: int) -> None:
        """A commit goes out that does not ride on a pull."""
        if held.wrote not in (UNKNOWN, offset):
            held.other_at = held.wrote_at
        held.committed = held.wrote = offset
        held.wrote_at = now
        held.arrived = False

    def commit_all(self, now: int) -> list[Effect]:
        return [effect for held in self._held.values() for effect in self.commit(held, now)]

    def _lags(self, held: Held) -> bool:
        """A pull with another commit than the last one is not answered: it is held, or under way."""
        return held.pulling and held.carried not in (UNKNOWN, held.committable)

    def _other_at(self, held: Held) -> int:
        """When a commit that did not ride on a pull was sent with another offset than the last of all."""
        return held.other_at if held.wrote in (UNKNOWN, held.committable) else held.wrote_at

    def settles_at(self, held: Held) -> int:
        """When to send the last commit, as far as those before it are concerned."""
        pulled_at = held.pulled_at if self._lags(held) else 0
        return max(pulled_at, self._other_at(held)) + SETTLE_MS

    def doubtful(self, held: Held) -> bool:
        """While RELEASING: an earlier commit may have arrived with the last one, and be taken in after it."""
        since = held.holding.since - DOUBT_MS
        if self._lags(held) and held.pulled_at > since:
            return True
        return not held.arrived and self._other_at(held) > since

    def commit_last(self, held: Held, now: int) -> tuple[bool, list[Effect]]:
        """Tell the broker for good. True: the outcome will come as `LastCommitSent`.

        It goes out even if it is nothing new: an earlier one of the same offset may be lost, or overwritten
        by a member that believed to own the queue.
        """
        offset = held.committable
        if held.address is None or offset < 0:
            return False, []
        held.committed = offset
        told = LastCommitSent(held.queue, held.epoch)
        effects = self._offsets.write_surely(told, held.address, offset, now)
        return (False, []) if effects is None else (True, effects)

    def commit_again(self, held: Held) -> list[Effect]:
        """The last commit was not answered, or not well: once more, one-way."""
        if held.address is None:
            return []
        return self._offsets.write(held.queue, held.address, held.committed)

    def check(self) -> None:
        """Assert what must hold of every queue."""
        for queue, held in self._held.items():
            assert held.queue == queue
            assert held.state is not State.GONE
            held.process.check()
            assert self._polled or held.committed <= held.committable
            assert not (held.handed and held.state in COMING)


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
