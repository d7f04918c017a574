"""Moves holdings on: from the plan's word that a queue is ours to the first pull, and back again.

`want` says what to hold; everything else here happens to one holding at a time, by the states of
`groups.remoting.ownership`. What each state waits for, and what ends the waiting:

| state | waits for | then |
|---|---|---|
| LOCKING | the broker's lock (41), see `locks` | ACQUIRING |
| ACQUIRING | the start offset (14, 30, 29); with hooks, the application's answer to `Assigned` | PULLING |
| PULLING | nothing; `pulling` and the delivery are at work | |
| DRAINING | the application's last verdict, for `drain_timeout_ms` at most; with hooks, its answer to `Revoked` for all queues that one rebalance gave up; commits under way (`Holdings.settles_at`) | RELEASING |
| RELEASING | the reply to the last commit (15), said again if another one may have overtaken it (`Holdings.doubtful`); then the reply to the unlock (42) | GONE |

Why the replies: on a broker with several threads commits and locks go different ways. The new owner reads
the offset once it has the lock, so the lock must not be free before the offset is right.

With quotas (`want_quota`) a queue has no LOCKING: it is found by locking it (see `quota`), and one whose lock
somebody else has got is not ours any more.

Without `drains` a queue is given up as RocketMQ does it: one last one-way commit, GONE at once. So it is in
any case when the queue's broker has left the routes.
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
    Change,
    Move,
    State,
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
from steelyard.nodes.consumer.remoting.pulling import Pulling
from steelyard.nodes.consumer.remoting.quota import Quota
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.types import LogLine, MessageQueue
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

SEEK_TIMER = "seek"
GATHER_TIMER = "gather"
GATHER_MS = 10
"""Queues that are ready within this are told to the application together."""


class _Round(msgspec.Struct):
    """What one rebalance gave up: told to the application once all of it is drained."""

    open: dict[int, Held]
    drained: list[Held]


class Handover:
    """See the module's text. `drains`: a queue that is given up waits for the application."""

    def __init__(
        self,
        peers: Peers,
        holdings: Holdings,
        locks: Locks,
        pulling: Pulling,
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
        """What `want` said last."""
        return self._wanted

    # -- what to hold ------------------------------------------------------------------------------

    def want(
        self, target: Collection[MessageQueue], now: int
    ) -> tuple[Change[MessageQueue], list[Effect]]:
        """Hold these queues and no others from now on. Returns what changes."""
        self._wanted = frozenset(target)
        stale = self._holdings.stale(now)
        ours = [held.queue for held in self._holdings.all() if held.state not in LEAVING]
        change = diff(ours, target, stale)
        effects = self._give_up([self._of(queue) for queue in change.release], now)
        for queue in change.acquire:
            if self._holdings.get(queue) is None:
                effects += self._hold(queue, now)
        effects += self._locks_news(self._locks.ask(now), now)
        return change, effects

    def want_quota(
        self,
        target: Collection[MessageQueue],
        quota: int,
        pool: Collection[MessageQueue],
        now: int,
    ) -> tuple[Change[MessageQueue], list[Effect]]:
        """Hold the target, and so many queues of the pool besides: those held longest, and others if they are free.

        What is read without a lock stays in any case until there is one: nobody else could take it. What is not read
        yet for want of its lock is let go and sought like any other queue: somebody else may well have it.
        """
        self._quota.plan(quota, pool)
        of_pool = self._of_pool()
        ours = [
            held
            for held in self._holdings.all()
            if held.queue in of_pool and held.state is not State.LOCKING
        ]
        ours.sort(key=lambda held: held.epoch)
        ours.sort(key=lambda held: self._locks.granted_at(held.queue) > 0)
        bare = sum(not self._locks.granted_at(held.queue) for held in ours)
        kept = [held.queue for held in ours[: max(quota, bare)]]
        change, effects = self.want([*target, *kept], now)
        return change, effects + self._seek(now)

    def _of_pool(self) -> frozenset[MessageQueue]:
        return self._wanted & self._quota.pool

    def _lacking(self) -> int:
        return self._quota.size - len(self._of_pool())

    def _seek(self, now: int) -> list[Effect]:
        """Try to lock what is lacking, unless that is under way."""
        if self._sought or self._lacking() <= 0:
            return []
        picked = self._quota.pick(self._lacking(), self._holdings.queues())
        for queue in picked:
            self._locks.want(queue, now, sought=True)
        self._sought.update(picked)
        return self._locks_news(self._locks.ask(now), now)

    def seek_again(self, now: int) -> list[Effect]:
        """Timer: what is lacking may be free by now."""
        return self._seek(now)

    def _found(self, news: LockNews, now: int) -> list[Effect]:
        """What came of seeking: what is lacking is taken, what is too much let go."""
        effects: list[Effect] = []
        for queue in news.missed:
            self._sought.discard(queue)
            self._locks.forget(queue)
        for queue in news.won:
            self._sought.discard(queue)
            if queue in self._quota.pool and self._lacking() > 0:
                self._wanted |= {queue}
                held = self._holdings.hold(queue, now)
                self._locks.keep(queue)
                effects += self._acquire(held, now)
            else:
                effects += self._locks.let_go(queue, now)[1]
        if self._sought or self._lacking() <= 0:
            return effects
        return [*effects, SetTimer(SEEK_TIMER, now + self._quota.wait())]

    def _of(self, queue: MessageQueue) -> Held:
        held = self._holdings.get(queue)
        assert held is not None
        return held

    def _hold(self, queue: MessageQueue, now: int) -> list[Effect]:
        held = self._holdings.hold(queue, now)
        if self._locks.needed:
            self._locks.want(queue, now)
            return []
        return self._acquire(held, now)

    def _give_up(self, given: Sequence[Held], now: int) -> list[Effect]:
        """Queues that the plan takes away, or takes away and gives back because they are stale."""
        effects: list[Effect] = []
        drained: list[Held] = []
        lost: list[Held] = []
        for held in given:
            if self._peers.address(held.queue) is None:
                lost.append(held)
                effects += self._holdings.commits.commit(held, now, news_only=False)
                effects += self._drop(held, now)
            elif held.state is State.PULLING and held.queue in self._wanted:
                lost.append(held)
                effects += self._release(held, now)
            elif held.state is State.PULLING and self._drains:
                drained.append(held)
            elif held.state is State.PULLING and not self._locks.needed:
                lost.append(held)
                effects += self._holdings.commits.commit(held, now, news_only=False)
                effects += self._drop(held, now)
            else:
                if held.state in COMING and held.handover.announced:
                    effects += self._tell(Revoked((held.queue,)), [held], now)
                effects += self._release(held, now)
        effects += self._tell_lost(lost, now)
        until = now + self._peers.config.drain_timeout_ms
        return effects + self._drain(drained, until, now)

    # -- coming ------------------------------------------------------------------------------------

    def _acquire(self, held: Held, now: int) -> list[Effect]:
        self._holdings.move(held, Move.LOCKED, now)
        return self._started(*self._holdings.acquire(held, now), now)

    def offset_answered(
        self, asked: OffsetAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        return self._started(*self._holdings.offset_answered(asked, reply, now), now)

    def start_answered(
        self, asked: StartAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        return self._started(*self._holdings.start_answered(asked, reply, now), now)

    def _started(self, held: Held | None, effects: list[Effect], now: int) -> list[Effect]:
        """The start offset is known, if there is a holding."""
        if held is None:
            return effects
        if not self._hooks.wanted:
            return effects + self._begin(held, now)
        self._ready.append(held)
        return [*effects, SetTimer(GATHER_TIMER, now + GATHER_MS)]

    def _begin(self, held: Held, now: int) -> list[Effect]:
        self._holdings.begin(held, now)
        return self._pulling.look(held, now)

    # -- going -------------------------------------------------------------------------------------

    def _drain(self, given: Sequence[Held], until: int, now: int) -> list[Effect]:
        """No more pulling and handing. The queue stays until the application is done, or until then."""
        round_ = _Round({held.epoch: held for held in given}, [])
        for held in given:
            self._holdings.move(held, Move.GIVEN_UP, now)
            held.process.discard_waiting()
            held.handover.drain_by = until
            self._draining[held.epoch] = held
            if self._hooks.wanted:
                self._rounds[held.epoch] = round_
        return [effect for held in given for effect in self._go_on_draining(held, now)]

    def _go_on_draining(self, held: Held, now: int) -> list[Effect]:
        if held.application.handed and now < held.handover.drain_by:
            return self._holdings.later(held, held.handover.drain_by - now, now)
        round_ = self._rounds.get(held.epoch)
        if round_ is not None:
            return self._drained(held, round_, now)
        settled = self._holdings.commits.settles_at(held)
        if now < settled:
            return self._holdings.later(held, settled - now, now)
        return self._release(held, now)

    def _drained(self, held: Held, round_: _Round, now: int) -> list[Effect]:
        """With hooks: one of a round is done. The application is told when all are."""
        if round_.open.pop(held.epoch, None) is not None:
            round_.drained.append(held)
            if not round_.open:
                queues = tuple(sorted(h.queue for h in round_.drained if h.handover.announced))
                return self._tell(Revoked(queues), round_.drained, now)
        return []

    def _release(self, held: Held, now: int) -> list[Effect]:
        """The last commit, if anything was read, then the unlock."""
        read = held.state in READ
        self._draining.pop(held.epoch, None)
        self._holdings.move(held, Move.RELEASED, now)
        if read:
            answered, effects = self._holdings.commits.commit_last(held, now)
            if answered:
                return effects
        else:
            effects = []
        return effects + self._let_go(held, now)

    def last_commit_answered(
        self, sent: LastCommitSent, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        held = self._holdings.find(sent.queue, sent.epoch)
        if held is None:
            return []
        effects: list[Effect] = []
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            why = reply if isinstance(reply, RemotingError) else f"code {reply.code}"
            effects.append(LogLine("WARNING", f"last commit of {held.queue}: {why}; sent again"))
            effects += self._holdings.commits.commit_again(held)
        elif not held.handover.repeated and self._holdings.commits.doubtful(held):
            held.handover.repeat_at = now + SETTLE_MS
            return self._holdings.later(held, SETTLE_MS, now)
        return effects + self._let_go(held, now)

    def _say_again(self, held: Held, now: int) -> list[Effect]:
        """The last commit once more, if it is time: what was under way has been taken in."""
        if not held.handover.repeat_at or (
            now < held.handover.repeat_at and self._holdings.commits.doubtful(held)
        ):
            return []
        held.handover.repeat_at = 0
        held.handover.repeated = True
        answered, effects = self._holdings.commits.commit_last(held, now)
        return effects if answered else effects + self._let_go(held, now)

    def _let_go(self, held: Held, now: int) -> list[Effect]:
        done, effects = self._locks.let_go(held.queue, now)
        return effects + self._gone(held, Move.LET_GO, now) if done else effects

    def let_go_answered(
        self, asked: LocksLetGo, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        queues, effects = self._locks.let_go_answered(asked, reply, now)
        for queue in queues:
            held = self._holdings.get(queue)
            if held is not None and held.state is State.RELEASING:
                effects += self._gone(held, Move.LET_GO, now)
        return effects

    def _gone(self, held: Held, event: Move, now: int) -> list[Effect]:
        """Others may have it now; or we again."""
        self._holdings.gone(held, event, now)
        if held.queue in self._quota.pool:  # whoever locks it first has it
            self._wanted -= {held.queue}
            return self._seek(now)
        if held.queue not in self._wanted:
            return []
        effects = self._hold(held.queue, now)
        return effects + self._locks_news(self._locks.ask(now), now)

    def _drop(self, held: Held, now: int) -> list[Effect]:
        """Gone without a word to the broker."""
        self._locks.forget(held.queue)
        return self._gone(held, Move.DROPPED, now)

    # -- what happens in between -------------------------------------------------------------------

    def go_on(self, held: Held, now: int) -> list[Effect]:
        """The holding's timer was due, or its pull ended."""
        match held.state:
            case State.ACQUIRING:
                return self._started(*self._holdings.acquire(held, now), now)
            case State.PULLING:
                return self._pulling.look(held, now)
            case State.DRAINING:
                return self._go_on_draining(held, now)
            case State.RELEASING:
                return self._say_again(held, now)
            case State.LOCKING | State.GONE:
                return []
            case state:
                assert_never(state)

    def heard_out(self, now: int) -> list[Effect]:
        """The application gave a verdict: perhaps a queue that is given up is done."""
        effects = self._locks.heard_out(now)
        for held in list(self._draining.values()):
            if not held.application.handed:
                effects += self._go_on_draining(held, now)
        return effects

    def routed(self, now: int) -> list[Effect]:
        """The routes have changed: a broker may be there again whose locks are waited for."""
        return self._locks_news(self._locks.ask(now), now)

    def locks_answered(
        self, asked: LocksAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        return self._locks_news(self._locks.answered(asked, reply, now), now)

    def present_answered(
        self, asked: PresentAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        return self._locks_news(self._locks.present_answered(asked, reply, now), now)

    def _locks_news(self, news: LockNews, now: int) -> list[Effect]:
        effects = news.effects
        for held in news.free:
            effects += self._acquire(held, now)
        for held in news.lost:
            self._draining.pop(held.epoch, None)
            self._rounds.pop(held.epoch, None)
            effects += self._drop(held, now)
        effects += self._tell_lost(news.lost, now)
        return effects + self._found(news, now) if news.won or news.missed else effects

    # -- hooks -------------------------------------------------------------------------------------

    def gathered(self, now: int) -> list[Effect]:
        """Timer: what is ready by now is told to the application."""
        ready = [held for held in self._ready if held.state is State.ACQUIRING]
        self._ready.clear()
        if not ready:
            return []
        for held in ready:
            held.handover.announced = True
        queues = tuple(sorted(held.queue for held in ready))
        return self._hooks.tell(Telling(Assigned(queues), tuple(ready)), now)

    def told(self, ticket: int, now: int) -> list[Effect]:
        """The application answered what it was told, or its time is over."""
        telling, effects = self._hooks.ended(ticket, now)
        if telling is None:
            return effects
        for held in telling.waiting:
            if held.state is State.ACQUIRING:
                effects += self._begin(held, now)
            elif held.state is State.DRAINING:
                self._rounds.pop(held.epoch, None)
                effects += self._go_on_draining(held, now)
        return effects

    def _tell(self, what: Revoked, held: Sequence[Held], now: int) -> list[Effect]:
        for one in held:
            one.handover.announced = False
        if what.queues:
            return self._hooks.tell(Telling(what, tuple(held)), now)
        effects: list[Effect] = []
        for one in held:
            self._rounds.pop(one.epoch, None)
            effects += self._go_on_draining(one, now)
        return effects

    def _tell_lost(self, lost: Sequence[Held], now: int) -> list[Effect]:
        announced = [held for held in lost if held.handover.announced]
        if not announced:
            return []
        for held in announced:
            held.handover.announced = False
        queues = tuple(sorted(held.queue for held in announced))
        return self._hooks.tell(Telling(Lost(queues)), now)

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, until: int, now: int) -> list[Effect]:
        """Give everything up; the application has until then."""
        self._wanted = frozenset()
        self._quota.plan(0, ())
        effects: list[Effect] = []
        for queue in sorted(self._sought):
            effects += self._locks.let_go(queue, now)[1]
        self._sought.clear()
        drained = []
        for held in self._holdings.all():
            if held.state is State.PULLING:
                drained.append(held)
            elif held.state in COMING:
                effects += self._release(held, now)
        return effects + self._drain(drained, until, now)

    def abandon(self, now: int) -> list[Effect]:
        """The time of a stop is over: commit what is finished, unlock, without waiting for anybody."""
        self._hooks.drop()
        effects: list[Effect] = []
        for held in self._holdings.all():
            effects += self._holdings.commits.commit(held, now, news_only=False)
            self._holdings.gone(held, Move.DROPPED, now)
        self._draining.clear()
        self._rounds.clear()
        return effects + self._locks.abandon(now)

    def check(self) -> None:
        """Assert that what drains is known, and that everything wanted is held or on its way."""
        draining = [held for held in self._holdings.all() if held.state is State.DRAINING]
        assert {held.epoch for held in draining} == set(self._draining)
        assert set(self._rounds) <= set(self._draining)
        for queue in self._wanted:
            assert self._holdings.get(queue) is not None
        for held in self._holdings.all():
            assert held.queue in self._wanted or held.state in LEAVING
        assert not self._sought & set(self._holdings.queues())
        self._hooks.check()
