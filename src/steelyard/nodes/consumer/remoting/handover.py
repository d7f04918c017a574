"""Moves holdings through their states, from the plan's assignment to the first pull, and back.

`want` says what to hold; everything else here happens to one holding at a time, by the states of
`groups.remoting.ownership`. What each state waits for, and what follows:

| state | waits for | then |
|---|---|---|
| LOCKING | the broker's lock (41), see `locks` | ACQUIRING |
| ACQUIRING | the start offset (14, 30, 29); with hooks, the answer to `Assigned` | PULLING |
| PULLING | nothing; `pulling` and the delivery are at work | |
| DRAINING | see below | RELEASING |
| RELEASING | the reply to the last commit (15), then the reply to the unlock (42) | GONE |

DRAINING waits for the application's last verdict, for at most `drain_timeout_ms`; with hooks, for
its answer to `Revoked` for all queues that one rebalance gave up; and for commits in flight
(`Commits.settles_at`). The last commit is repeated in RELEASING if another one may have overtaken
it (`Commits.doubtful`).

The replies are awaited because a broker with several threads may process commits and locks in
another order than that of their arrival. The new owner reads the offset once it has the lock, so
the lock must not be free before the offset is right.

With quotas (`want_quota`) a queue has no LOCKING: it is found by locking it (see `quota`), and one
that another member has locked is no longer ours.

Without `drains` a queue is given up as in RocketMQ: with one last one-way commit, and GONE at once.
The same happens in any case if the queue's broker has left the routes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

import msgspec

from steelyard.errors import RemotingError
from steelyard.groups.remoting.ownership import (
    COMING,
    LEAVING,
    READ,
    HoldingState,
    Move,
    QueueChange,
    diff,
)
from steelyard.nodes.consumer.remoting.commits import SETTLE_MS
from steelyard.nodes.consumer.remoting.contract import Assigned, Lost, Revoked
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.hooks import Hooks, Telling
from steelyard.nodes.consumer.remoting.locks import LockNews, Locks
from steelyard.nodes.consumer.remoting.peers import (
    LastCommitSent,
    LocksAsked,
    LocksLetGo,
    OffsetAsked,
    Peers,
    PresentAsked,
    StartAsked,
)
from steelyard.nodes.consumer.remoting.pulling import PullService
from steelyard.nodes.consumer.remoting.quota import Quota
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.types import LogLine, MessageQueue
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

SEEK_TIMER = "seek"
GATHER_TIMER = "gather"
GATHER_MS = 10
"""The application is told together of queues that are ready within this interval."""


class _Round(msgspec.Struct):
    """The queues that one rebalance gave up.

    The application is told of them once all have drained.
    """

    open: dict[int, Held]
    drained: list[Held]


class Handover:
    """Moves the holdings of one consumer. `drains`: a queue given up waits for the application."""

    def __init__(
        self,
        peers: Peers,
        holdings: Holdings,
        locks: Locks,
        pulling: PullService,
        hooks: Hooks,
        *,
        drains: bool,
    ) -> None:
        self._peers = peers
        self._holdings = holdings
        self._locks = locks
        self._pulling = pulling
        self._hooks = hooks
        self._drains = drains
        self._quota = Quota(peers.config.client_id)
        self._sought: set[MessageQueue] = set()
        self._wanted: frozenset[MessageQueue] = frozenset()
        self._draining: dict[int, Held] = {}
        self._rounds: dict[int, _Round] = {}
        self._ready: list[Held] = []

    @property
    def wanted(self) -> frozenset[MessageQueue]:
        """Return the queues that this member is to hold."""
        return self._wanted

    # -- what to hold ------------------------------------------------------------------------------

    def want(
        self, target: Collection[MessageQueue], now: int, effects: list[Effect]
    ) -> QueueChange[MessageQueue]:
        """Hold these queues and no others from now on; return what changes."""
        self._wanted = frozenset(target)
        stale = self._holdings.stale(now)
        ours = [held.queue for held in self._holdings.all() if held.state not in LEAVING]
        change = diff(ours, target, stale)
        self._give_up([self._of(queue) for queue in change.release], now, effects)
        for queue in change.acquire:
            if self._holdings.get(queue) is None:
                self._hold(queue, now, effects)
        self._locks_news(self._locks.ask(now, effects), now, effects)
        return change

    def want_quota(
        self,
        target: Collection[MessageQueue],
        quota: int,
        pool: Collection[MessageQueue],
        now: int,
        effects: list[Effect],
    ) -> QueueChange[MessageQueue]:
        """Hold the target and `quota` queues of the pool; return what changes.

        Of the pool, the queues held longest are kept; others are added if they are free. Queues
        that are read without a lock are kept in any case until there is one: no other member could
        take them. Queues not read yet for want of their locks are released and sought like any
        other: another member may well have them.
        """
        self._quota.plan(quota, pool)
        of_pool = self._of_pool()
        ours = [
            held
            for held in self._holdings.all()
            if held.queue in of_pool and held.state is not HoldingState.LOCKING
        ]
        ours.sort(key=lambda held: held.epoch)
        ours.sort(key=lambda held: self._locks.granted_at(held.queue) > 0)
        bare = sum(not self._locks.granted_at(held.queue) for held in ours)
        kept = [held.queue for held in ours[: max(quota, bare)]]
        change = self.want([*target, *kept], now, effects)
        self._seek(now, effects)
        return change

    def _of_pool(self) -> frozenset[MessageQueue]:
        return self._wanted & self._quota.pool

    def _lacking(self) -> int:
        return self._quota.size - len(self._of_pool())

    def _seek(self, now: int, effects: list[Effect]) -> None:
        """Try to lock missing queues, unless such a request is pending."""
        if self._sought or self._lacking() <= 0:
            return
        picked = self._quota.pick(self._lacking(), self._holdings.queues())
        for queue in picked:
            self._locks.want(queue, now, sought=True)
        self._sought.update(picked)
        self._locks_news(self._locks.ask(now, effects), now, effects)

    def seek_again(self, now: int, effects: list[Effect]) -> None:
        """Act on the timer: missing queues may be free by now."""
        self._seek(now, effects)

    def _found(self, news: LockNews, now: int, effects: list[Effect]) -> None:
        """Take the queues found that are missing, and release any beyond the quota."""
        for queue in news.missed:
            self._sought.discard(queue)
            self._locks.forget(queue)
        for queue in news.won:
            self._sought.discard(queue)
            if queue in self._quota.pool and self._lacking() > 0:
                self._wanted |= {queue}
                held = self._holdings.hold(queue, now)
                self._acquire(held, now, effects)
            else:
                self._locks.let_go(queue, now, effects)
        if self._sought or self._lacking() <= 0:
            return
        effects.append(SetTimer(SEEK_TIMER, now + self._quota.wait()))

    def _of(self, queue: MessageQueue) -> Held:
        held = self._holdings.get(queue)
        assert held is not None
        return held

    def _hold(self, queue: MessageQueue, now: int, effects: list[Effect]) -> None:
        held = self._holdings.hold(queue, now)
        if self._locks.needed:
            self._locks.want(queue, now)
        else:
            self._acquire(held, now, effects)

    def _give_up(self, given: Sequence[Held], now: int, effects: list[Effect]) -> None:
        """Give up queues that the plan removes, or that are stale and to be taken anew."""
        drained: list[Held] = []
        lost: list[Held] = []
        for held in given:
            if self._peers.address(held.queue) is None:
                lost.append(held)
                self._holdings.commits.commit_at_once(held, now, effects)
                self._drop(held, now, effects)
            elif held.state is HoldingState.PULLING and held.queue in self._wanted:
                lost.append(held)
                self._release(held, now, effects)
            elif held.state is HoldingState.PULLING and self._drains:
                drained.append(held)
            elif held.state is HoldingState.PULLING and not self._locks.needed:
                lost.append(held)
                self._holdings.commits.commit_at_once(held, now, effects)
                self._drop(held, now, effects)
            else:
                if held.state in COMING and held.handover.announced:
                    self._tell(Revoked((held.queue,)), [held], now, effects)
                self._release(held, now, effects)
        self._tell_lost(lost, now, effects)
        until = now + self._peers.config.drain_timeout_ms
        self._drain(drained, until, now, effects)

    # -- coming ------------------------------------------------------------------------------------

    def _acquire(self, held: Held, now: int, effects: list[Effect]) -> None:
        self._holdings.move(held, Move.LOCKED, now)
        self._started(self._holdings.acquire(held, now, effects), now, effects)

    def offset_answered(
        self, asked: OffsetAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        self._started(self._holdings.offset_answered(asked, reply, now, effects), now, effects)

    def start_answered(
        self, asked: StartAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        self._started(self._holdings.start_answered(asked, reply, now, effects), now, effects)

    def _started(self, held: Held | None, now: int, effects: list[Effect]) -> None:
        """Continue with a holding whose start offset is known, if there is one."""
        if held is None:
            return
        if not self._hooks.wanted:
            self._begin(held, now, effects)
            return
        self._ready.append(held)
        effects.append(SetTimer(GATHER_TIMER, now + GATHER_MS))

    def _begin(self, held: Held, now: int, effects: list[Effect]) -> None:
        self._holdings.begin(held, now)
        self._pulling.look(held, now, effects)

    # -- going -------------------------------------------------------------------------------------

    def _drain(self, given: Sequence[Held], until: int, now: int, effects: list[Effect]) -> None:
        """Stop pulling and delivering, and wait for the application.

        Each queue stays until the application has nothing of it, or until the time `until`.
        """
        round_ = _Round({held.epoch: held for held in given}, [])
        for held in given:
            self._holdings.move(held, Move.GIVEN_UP, now)
            held.process.discard_waiting()
            held.handover.drain_by = until
            self._draining[held.epoch] = held
            if self._hooks.wanted:
                self._rounds[held.epoch] = round_
        for held in given:
            self._go_on_draining(held, now, effects)

    def _go_on_draining(self, held: Held, now: int, effects: list[Effect]) -> None:
        if held.application.handed and now < held.handover.drain_by:
            self._holdings.later(held, held.handover.drain_by - now, now, effects)
            return
        round_ = self._rounds.get(held.epoch)
        if round_ is not None:
            self._drained(held, round_, now, effects)
            return
        settled = self._holdings.commits.settles_at(held)
        if now < settled:
            self._holdings.later(held, settled - now, now, effects)
        else:
            self._release(held, now, effects)

    def _drained(self, held: Held, round_: _Round, now: int, effects: list[Effect]) -> None:
        """Note, with hooks, that a queue is done; tell the application once its whole round is."""
        if round_.open.pop(held.epoch, None) is not None:
            round_.drained.append(held)
            if not round_.open:
                queues = tuple(sorted(h.queue for h in round_.drained if h.handover.announced))
                self._tell(Revoked(queues), round_.drained, now, effects)

    def _release(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Send the last commit, if anything was read, then the unlock."""
        read = held.state in READ
        self._draining.pop(held.epoch, None)
        self._holdings.move(held, Move.RELEASED, now)
        if read and self._holdings.commits.commit_last(held, now, effects):
            return
        self._let_go(held, now, effects)

    def last_commit_answered(
        self, sent: LastCommitSent, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        held = self._holdings.find(sent.queue, sent.epoch)
        if held is None:
            return
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            why = reply if isinstance(reply, RemotingError) else f"code {reply.code}"
            effects.append(LogLine("WARNING", f"last commit of {held.queue}: {why}; sent again"))
            self._holdings.commits.commit_again(held, effects)
        elif not held.handover.repeated and self._holdings.commits.doubtful(held):
            held.handover.repeat_at = now + SETTLE_MS
            self._holdings.later(held, SETTLE_MS, now, effects)
            return
        self._let_go(held, now, effects)

    def _say_again(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Repeat the last commit if it is time: earlier ones have been processed by now."""
        if not held.handover.repeat_at or (
            now < held.handover.repeat_at and self._holdings.commits.doubtful(held)
        ):
            return
        held.handover.repeat_at = 0
        held.handover.repeated = True
        if not self._holdings.commits.commit_last(held, now, effects):
            self._let_go(held, now, effects)

    def _let_go(self, held: Held, now: int, effects: list[Effect]) -> None:
        if self._locks.let_go(held.queue, now, effects):
            self._gone(held, Move.LET_GO, now, effects)

    def let_go_answered(
        self, asked: LocksLetGo, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        queues = self._locks.let_go_answered(asked, reply, now, effects)
        for queue in queues:
            held = self._holdings.get(queue)
            if held is not None and held.state is HoldingState.RELEASING:
                self._gone(held, Move.LET_GO, now, effects)

    def _gone(self, held: Held, event: Move, now: int, effects: list[Effect]) -> None:
        """End a holding: others may take the queue now, or this member again."""
        self._holdings.gone(held, event, now)
        if held.queue in self._quota.pool:  # it belongs to whoever locks it first
            self._wanted -= {held.queue}
            self._seek(now, effects)
            return
        if held.queue not in self._wanted:
            return
        self._hold(held.queue, now, effects)
        self._locks_news(self._locks.ask(now, effects), now, effects)

    def _drop(self, held: Held, now: int, effects: list[Effect]) -> None:
        """End a holding without notifying the broker."""
        self._locks.forget(held.queue)
        self._gone(held, Move.DROPPED, now, effects)

    # -- what happens in between -------------------------------------------------------------------

    def go_on(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Continue with a holding whose timer was due, or whose pull has ended."""
        match held.state:
            case HoldingState.ACQUIRING:
                self._started(self._holdings.acquire(held, now, effects), now, effects)
            case HoldingState.PULLING:
                self._pulling.look(held, now, effects)
            case HoldingState.DRAINING:
                self._go_on_draining(held, now, effects)
            case HoldingState.RELEASING:
                self._say_again(held, now, effects)
            case HoldingState.LOCKING | HoldingState.GONE:
                pass
            case state:
                assert_never(state)

    def heard_out(self, now: int, effects: list[Effect]) -> None:
        """Note that the application gave a verdict: a queue being given up may be done."""
        self._locks.heard_out(now, effects)
        for held in list(self._draining.values()):
            if not held.application.handed:
                self._go_on_draining(held, now, effects)

    def routed(self, now: int, effects: list[Effect]) -> None:
        """Handle changed routes: a broker whose locks are awaited may have returned."""
        self._locks_news(self._locks.ask(now, effects), now, effects)

    def locks_answered(
        self, asked: LocksAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        self._locks_news(self._locks.answered(asked, reply, now, effects), now, effects)

    def present_answered(
        self, asked: PresentAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        self._locks_news(self._locks.present_answered(asked, reply, now, effects), now, effects)

    def _locks_news(self, news: LockNews, now: int, effects: list[Effect]) -> None:
        for held in news.free:
            self._acquire(held, now, effects)
        for held in news.lost:
            self._draining.pop(held.epoch, None)
            self._rounds.pop(held.epoch, None)
            self._drop(held, now, effects)
        self._tell_lost(news.lost, now, effects)
        if news.won or news.missed:
            self._found(news, now, effects)

    # -- hooks -------------------------------------------------------------------------------------

    def gathered(self, now: int, effects: list[Effect]) -> None:
        """Act on the timer: tell the application of the queues that are ready."""
        ready = [held for held in self._ready if held.state is HoldingState.ACQUIRING]
        self._ready.clear()
        if not ready:
            return
        for held in ready:
            held.handover.announced = True
        queues = tuple(sorted(held.queue for held in ready))
        self._hooks.tell(Telling(Assigned(queues), tuple(ready)), now, effects)

    def told(self, ticket: int, now: int, effects: list[Effect]) -> None:
        """Handle the application's answer to a notification, or the end of its time."""
        telling = self._hooks.ended(ticket, now, effects)
        if telling is None:
            return
        for held in telling.waiting:
            if held.state is HoldingState.ACQUIRING:
                self._begin(held, now, effects)
            elif held.state is HoldingState.DRAINING:
                self._rounds.pop(held.epoch, None)
                self._go_on_draining(held, now, effects)

    def _tell(self, what: Revoked, held: Sequence[Held], now: int, effects: list[Effect]) -> None:
        for one in held:
            one.handover.announced = False
        if what.queues:
            self._hooks.tell(Telling(what, tuple(held)), now, effects)
            return
        for one in held:
            self._rounds.pop(one.epoch, None)
            self._go_on_draining(one, now, effects)

    def _tell_lost(self, lost: Sequence[Held], now: int, effects: list[Effect]) -> None:
        announced = [held for held in lost if held.handover.announced]
        if not announced:
            return
        for held in announced:
            held.handover.announced = False
        queues = tuple(sorted(held.queue for held in announced))
        self._hooks.tell(Telling(Lost(queues)), now, effects)

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, until: int, now: int, effects: list[Effect]) -> None:
        """Give up all queues; the application's time ends at `until`."""
        self._wanted = frozenset()
        self._quota.plan(0, ())
        for queue in sorted(self._sought):
            self._locks.let_go(queue, now, effects)
        self._sought.clear()
        drained = []
        for held in self._holdings.all():
            if held.state is HoldingState.PULLING:
                drained.append(held)
            elif held.state in COMING:
                self._release(held, now, effects)
        self._drain(drained, until, now, effects)

    def abandon(self, now: int, effects: list[Effect]) -> None:
        """End a stop whose time is over: commit what is finished and unlock, without waiting."""
        self._hooks.drop()
        for held in self._holdings.all():
            self._holdings.commits.commit_at_once(held, now, effects)
            self._holdings.gone(held, Move.DROPPED, now)
        self._draining.clear()
        self._rounds.clear()
        self._locks.abandon(now, effects)

    def check(self) -> None:
        """Assert that the draining queues are known, and all wanted queues are held or coming."""
        draining = [held for held in self._holdings.all() if held.state is HoldingState.DRAINING]
        assert {held.epoch for held in draining} == set(self._draining)
        assert set(self._rounds) <= set(self._draining)
        for queue in self._wanted:
            assert self._holdings.get(queue) is not None
        for held in self._holdings.all():
            assert held.queue in self._wanted or held.state in LEAVING
        assert not self._sought & set(self._holdings.queues())
        self._hooks.check()
