"""The brokers' locks of queues (41, 42): one member has a queue's lock, the next waits for it.

RocketMQ uses them for ordered consumption only. Here every clustering consumer with
`clean_handover` takes them, because they tell the new owner of a queue when the old one is done.
That works on any broker, between any members that do the same; others do not lock and are not
affected.

- **One request at a time** goes to a broker, for all queues there: a broker with several threads
  may process two in the reverse order, and a renewal processed after the unlock would leave a lock
  that nobody uses.
- **An unlock without a reply** (the broker was stalled, the link broke) may still be processed
  after a lock that was granted since. That lock is not relied upon: once the broker answers again,
  earlier requests are processed within `SETTLE_MS`, and the lock is then requested once more.
- **Waiting**: a refused lock is requested again after `POLL_MS`, then after twice as long, up to
  `POLL_MAX_MS`.
- **Renewal** of all locks happens every `lock_renew_ms`, and at once when a broker did not know
  this member any more: it has forgotten its locks as well.
- **Unlocking** is delayed, by at most `drain_timeout_ms`, while the application is busy with an
  earlier holding of the queue (its broker was lost and came back): whoever gets the lock next would
  consume the same messages at the same time.
- **Without a lock** a consumer that is `patient` (an ordered one) never starts. Any other starts
  without it after `takeover_timeout_ms`, unless the broker then knows members that are missing in
  the plan, or the topic's route has changed recently and others may still plan with the old one. It
  starts at once if the broker does not support locks, or knows no other member of the group. It
  continues when it loses one. It keeps requesting the lock, so that the next owner has to wait for
  it.
- **Dead members** do not unlock; their locks last a minute. If a lock is refused and members have
  departed lately, the refusing broker is asked whom it knows (38). The queues are then unlocked on
  behalf of the departed members that it does not know, which brokers accept. Ordered consumers
  never do this: a member that is only cut off from the broker may still be consuming.

Source: client/impl/consumer/RebalanceImpl.java `lockAll`, `unlock`;
broker/client/rebalance/RebalanceLockManager.java.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from steelyard.errors import ProtocolError, RemotingError
from steelyard.groups.remoting.ownership import HoldingState
from steelyard.nodes.consumer.remoting.claim import CLAIMS, ClaimMove, ClaimState, LockClaim
from steelyard.nodes.consumer.remoting.commits import SETTLE_MS
from steelyard.nodes.consumer.remoting.departed import Departed
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.peers import LocksAsked, LocksLetGo, Peers, PresentAsked
from steelyard.nodes.seam import Address, Effect, SetTimer
from steelyard.types import LogLine, MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ConsumerListBody, LockBatchBody, LockBatchResponseBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

LOCK_TIMEOUT_MS = 1_000
"""Timeout with which MQClientAPIImpl.lockBatchMQ and unlockBatchMQ are called."""

POLL_MS = 10
POLL_MAX_MS = 500

RETRY_MS = 1_000
"""Delay after a broker did not answer, or not with locks."""

BARE_POLL_MS = 2_000
"""Interval between requests for the lock of a queue that is read without it."""

EXPIRY_MS = 60_000
"""A lock not renewed for this long belongs to nobody.

Source: rocketmq.broker.rebalance.lockMaxLiveTime.
"""


class LockTimer(msgspec.Struct, frozen=True):
    """Timer key: time for the next request to this broker."""

    address: Address


class LockNews(msgspec.Struct):
    """The consequences of a reply.

    `free`: holdings that need not wait any longer. `lost`: holdings that another member has locked,
    or may have had meanwhile; they must end. `won`, `missed`: queues sought without a holding.
    """

    free: list[Held] = []
    lost: list[Held] = []
    won: list[MessageQueue] = []
    missed: list[MessageQueue] = []


class _BrokerLocks(msgspec.Struct):
    """The requests to one broker, and what it said of its locks."""

    busy: bool = False
    ask_at: int | None = None
    """When to request missing locks."""
    wait_ms: int = POLL_MS
    renew_at: int | None = None
    timer_at: int | None = None
    unlocks: dict[str, dict[MessageQueue, None]] = {}
    """Queues to unlock, by client id."""
    unheard: dict[MessageQueue, int | None] = {}
    """Queues whose unlock was not answered, and when it will have been processed.

    None until the broker answers again.
    """
    refused: dict[MessageQueue, None] = {}
    """Queues whose locks a departed member may have: ask who is present."""
    lockless: bool = False
    """The broker does not support locks."""
    alone: bool = False
    """The broker knows no other member of the group, whoever has the locks."""


class Locks:
    """The locks of one consumer.

    `needed`: False if no queue is locked. `patient`: never reads without a lock. `strict`: a
    holding ends when another live member has its lock.
    """

    def __init__(
        self, peers: Peers, holdings: Holdings, *, needed: bool, patient: bool, strict: bool
    ) -> None:
        self._peers = peers
        self._holdings = holdings
        self.needed = needed
        self._patient = patient
        self._strict = strict
        self._me = peers.config.client_id
        self._claims: dict[MessageQueue, LockClaim] = {}
        self._brokers: dict[Address, _BrokerLocks] = {}
        self._departed = Departed(self._me)
        config = peers.config
        # The old owner may need all of its time, and with hooks its application has it twice.
        drain_ms = config.drain_timeout_ms * (2 if config.hooks else 1) + config.call_timeout_ms
        self._takeover_ms = max(config.takeover_timeout_ms, drain_ms)
        self._rerouted_ms = config.route_poll_ms + config.call_timeout_ms
        self._rerouted_at: dict[str, int] = {}
        """By topic: when its route changed; 0 while it has its first one."""

    # -- asking ------------------------------------------------------------------------------------

    def holds(self, held: Held, now: int) -> bool:
        """Return whether the queue is surely locked for this member, or locks are not needed."""
        if not self.needed:
            return True
        claim = self._claims.get(held.queue)
        if claim is None or not claim.granted_at:
            return False
        return now < claim.granted_at + self._peers.config.lock_life_ms

    def granted_at(self, queue: MessageQueue) -> int:
        """Return when the lock that was granted last was requested; 0: it is not ours."""
        claim = self._claims.get(queue)
        return 0 if claim is None else claim.granted_at

    def renew(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Request this queue's lock as soon as possible."""
        address = self._peers.master(held.queue)
        claim = self._claims.get(held.queue)
        if address is None or claim is None:
            return
        broker = self._broker(address)
        if claim.granted_at:
            broker.renew_at = now
        else:
            broker.ask_at = now
        self._talk(address, now, effects)

    def want(self, queue: MessageQueue, now: int, *, sought: bool = False) -> None:
        """Add a claim to the lock; call `ask` once all are added."""
        assert queue not in self._claims
        event = ClaimMove.SOUGHT if sought else ClaimMove.PLANNED
        claim = self._claims[queue] = LockClaim(CLAIMS.move(None, event), now)
        for address, broker in self._brokers.items():
            unlocks = broker.unlocks.get(self._me)
            if unlocks and unlocks.pop(queue, False) is None:
                claim.address = address  # the unlock was not sent: the lock may still be ours
                if not unlocks:
                    del broker.unlocks[self._me]

    def ask(self, now: int, effects: list[Effect]) -> LockNews:
        """Request all awaited locks now; return the queues that need none."""
        news = LockNews()
        addresses: dict[Address, None] = {}
        for queue, claim in self._claims.items():
            if not claim.awaited:
                continue
            address = self._peers.master(queue)
            if address is None or self._broker(address).lockless:
                if claim.state is ClaimState.SEEKING:
                    news.missed.append(queue)
                else:
                    self._do_without(queue, claim, news)
            else:
                addresses[address] = None
        for address in addresses:
            broker = self._broker(address)
            broker.ask_at = now
            broker.wait_ms = POLL_MS
            self._talk(address, now, effects)
        return news

    def let_go(self, queue: MessageQueue, now: int, effects: list[Effect]) -> bool:
        """Give up the claim to the lock.

        Returns True if nobody need be told; otherwise `let_go_answered` says when the lock is free.
        """
        claim = self._claims.pop(queue, None)
        if claim is None or claim.address is None:
            return True
        self._unlock(claim.address, self._me, [queue])
        self._talk(claim.address, now, effects)
        return False

    def forget(self, queue: MessageQueue) -> None:
        """Give up the claim to the lock without telling anybody."""
        self._claims.pop(queue, None)

    def abandon(self, now: int, effects: list[Effect]) -> None:
        """Unlock everything at the end, without waiting."""
        for queue in list(self._claims):
            claim = self._claims.pop(queue)
            if claim.address is not None:
                self._unlock(claim.address, self._me, [queue])
        for address, broker in self._brokers.items():
            mine = broker.unlocks.get(self._me)
            if mine:
                command = self._command(RequestCode.UNLOCK_BATCH_MQ, self._me, tuple(mine))
                self._peers.calls.tell(address, command, effects)
            broker.unlocks = {}

    def due(self, timer: LockTimer, now: int, effects: list[Effect]) -> None:
        self._broker(timer.address).timer_at = None
        self._talk(timer.address, now, effects)

    def registered(self, address: Address, now: int, effects: list[Effect]) -> None:
        """Note that the broker did not know this member: it may have forgotten its locks too."""
        if address not in self._brokers and not self._claims_at(address):
            return
        broker = self._broker(address)
        broker.lockless = False
        broker.renew_at = now
        self._talk(address, now, effects)

    def heard(self, members: Collection[str], now: int) -> None:
        """Note the members that brokers listed in one rebalance."""
        self._departed.heard(members, now)
        if not self._departed.alone:
            for broker in self._brokers.values():
                broker.alone = False

    def rerouted(self, topic: str, now: int) -> None:
        """Note that the topic's route changed; others may not know before they ask again."""
        self._rerouted_at[topic] = now if topic in self._rerouted_at else 0

    # -- the conversation with one broker ----------------------------------------------------------

    def _broker(self, address: Address) -> _BrokerLocks:
        return self._brokers.setdefault(address, _BrokerLocks())

    def _talk(self, address: Address, now: int, effects: list[Effect]) -> None:
        """Send the next request, unless one is pending or it is not time."""
        broker = self._broker(address)
        if broker.busy:
            return
        for client_id in list(broker.unlocks):
            queues = self._take_unlocks(broker, client_id, now)
            if queues:
                command = self._command(RequestCode.UNLOCK_BATCH_MQ, client_id, queues)
                self._send(address, command, LocksLetGo(address, client_id, queues), now, effects)
                return
        if broker.refused:
            header = headers.ConsumerGroupHeader(consumer_group=self._peers.config.group)
            code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
            command = Command(code=code, ext=headers.write(header))
            self._send(address, command, PresentAsked(address), now, effects)
            return
        asked = self._due_at(address, broker, now)
        if asked:
            for queue in asked:
                self._claims[queue].address = address
            command = self._command(RequestCode.LOCK_BATCH_MQ, self._me, asked)
            self._send(address, command, LocksAsked(address, asked, now), now, effects)
        else:
            self._timer(address, broker, now, effects)

    def _take_unlocks(
        self, broker: _BrokerLocks, client_id: str, now: int
    ) -> tuple[MessageQueue, ...]:
        """Remove and return the queues to unlock now on behalf of a client."""
        unlocks = broker.unlocks[client_id]
        mine = client_id == self._me
        queues = tuple(q for q in unlocks if not (mine and self._holdings.at_work_until(q, now)))
        for queue in queues:
            del unlocks[queue]
        if not unlocks:
            del broker.unlocks[client_id]
        return queues

    def heard_out(self, now: int, effects: list[Effect]) -> None:
        """Note that the application gave a verdict: a delayed unlock may be possible."""
        for address, broker in self._brokers.items():
            if broker.unlocks:
                self._talk(address, now, effects)

    def _due_at(self, address: Address, broker: _BrokerLocks, now: int) -> tuple[MessageQueue, ...]:
        """Return the queues to request from the broker now: all, or those missing."""
        renew = broker.renew_at is not None and now >= broker.renew_at
        if not renew and (broker.ask_at is None or now < broker.ask_at):
            return ()
        broker.ask_at = None
        if renew:
            broker.renew_at = None
        here = self._claims_at(address)
        return tuple(queue for queue in here if renew or not self._claims[queue].granted_at)

    def _claims_at(self, address: Address) -> list[MessageQueue]:
        """Return the claimed queues whose locks are this broker's.

        It granted them, or is their master, or was asked last while no route names a master.
        """
        here = []
        for queue, claim in self._claims.items():
            master = self._peers.master(queue)
            asked = claim.granted_at or master is None
            if address == master or (asked and address == claim.address):
                here.append(queue)
        return here

    def _timer(
        self, address: Address, broker: _BrokerLocks, now: int, effects: list[Effect]
    ) -> None:
        times = [at for at in (broker.ask_at, broker.renew_at) if at is not None]
        # Those left are our own, delayed for the application.
        times += [self._holdings.at_work_until(q, now) for q in broker.unlocks.get(self._me, ())]
        at = min(times, default=None)
        if at is None or (broker.timer_at is not None and broker.timer_at <= at):
            return
        broker.timer_at = at
        effects.append(SetTimer(LockTimer(address), at))

    def _send(
        self,
        address: Address,
        command: Command,
        purpose: LocksAsked | LocksLetGo | PresentAsked,
        now: int,
        effects: list[Effect],
    ) -> None:
        self._broker(address).busy = True
        self._peers.call(address, command, purpose, now, effects, LOCK_TIMEOUT_MS)

    def _command(
        self, code: RequestCode, client_id: str, queues: tuple[MessageQueue, ...]
    ) -> Command:
        body = LockBatchBody(self._peers.config.group, client_id, queues)
        return Command(code=code, body=fastjson.write(body))

    def _unlock(self, address: Address, client_id: str, queues: Iterable[MessageQueue]) -> None:
        unlocks = self._broker(address).unlocks.setdefault(client_id, {})
        unlocks.update(dict.fromkeys(queues))

    # -- answers -----------------------------------------------------------------------------------

    def answered(
        self, asked: LocksAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> LockNews:
        """Handle the outcome of a LOCK_BATCH_MQ (41)."""
        broker = self._broker(asked.address)
        broker.busy = False
        news = LockNews()
        awaited = frozenset(queue for queue, claim in self._claims.items() if claim.awaited)
        granted = self._granted(asked, reply, effects)
        if granted is not None:
            self._settle(broker, asked, now)
        for queue in asked.queues:
            claim = self._claims.get(queue)
            if claim is None:
                if granted is None or queue in granted:  # nobody wants it any more
                    self._unlock(asked.address, self._me, [queue])
            elif granted is None or queue not in granted:
                self._refused(queue, claim, asked, answered=granted is not None, news=news, now=now)
            elif queue in broker.unheard:
                broker.ask_at = broker.unheard[queue]
            else:
                held = self._holdings.get(queue)
                lapsed = claim.granted_at and asked.at - claim.granted_at > EXPIRY_MS
                before = claim.state
                claim.grant(asked.address, asked.at)
                if lapsed and self._strict and held is not None:
                    # Another member may have had it meanwhile and moved its offset.
                    news.lost.append(held)
                else:
                    self._wait_ended(queue, before, news)
        self._plan(asked.address, broker, awaited, answered=granted is not None, now=now)
        self._talk(asked.address, now, effects)
        if granted is None:
            self._turn_to_masters(asked, now, effects)
        return news

    def _settle(self, broker: _BrokerLocks, asked: LocksAsked, now: int) -> None:
        """Note that the broker answers: what it was sent before is, or soon will be, processed."""
        for queue, settled_at in list(broker.unheard.items()):
            if settled_at is None:
                broker.unheard[queue] = now + SETTLE_MS
            elif asked.at >= settled_at:
                del broker.unheard[queue]

    def _turn_to_masters(self, asked: LocksAsked, now: int, effects: list[Effect]) -> None:
        """Renew the locks at once at masters that the routes name by now, after no usable reply."""
        masters = {
            self._peers.master(queue): None for queue in asked.queues if queue in self._claims
        }
        for address in masters:
            if (
                address is not None
                and address != asked.address
                and not self._broker(address).lockless
            ):
                self._broker(address).renew_at = now
                self._talk(address, now, effects)

    def _granted(
        self, asked: LocksAsked, reply: Command | RemotingError, effects: list[Effect]
    ) -> frozenset[MessageQueue] | None:
        """Return the queues locked for this member, or None if the broker does not say."""
        if isinstance(reply, RemotingError):
            return None
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and not self._patient:
            self._broker(asked.address).lockless = True
            return None
        if reply.code != ResponseCode.SUCCESS:
            text = f"locks refused by {asked.address}: code {reply.code}: {reply.remark}"
            effects.append(LogLine("WARNING", text))
            return None
        try:
            body = fastjson.read(LockBatchResponseBody, reply.body)
        except ProtocolError as error:
            effects.append(LogLine("WARNING", f"lock reply of {asked.address}: {error}"))
            return None
        return frozenset(body.lock_ok_mq_set)

    def _refused(
        self,
        queue: MessageQueue,
        claim: LockClaim,
        asked: LocksAsked,
        *,
        answered: bool,
        news: LockNews,
        now: int,
    ) -> None:
        """Note that the queue is not locked for this member.

        `answered`: the broker said so, because another member has it.
        """
        held = self._holdings.get(queue)
        if answered:
            # If the queue is read without its lock: the lock of a member that was dead when that
            # began has expired by now, so a live member has it.
            lapsed = claim.granted_at or now - claim.since > EXPIRY_MS
            claim.refuse()
            if self._strict and held is not None and lapsed and not claim.awaited:
                news.lost.append(held)
        if not claim.awaited:
            return
        broker = self._broker(asked.address)
        suspects = self._departed.suspects(queue) or (self._departed.alone and not broker.alone)
        if answered and suspects and not self._patient:
            broker.refused[queue] = None
        if broker.alone:
            self._do_without(queue, claim, news)
        elif claim.state is ClaimState.SEEKING:
            news.missed.append(queue)
            if not answered:  # it may have been granted all the same
                self._unlock(asked.address, self._me, [queue])
        elif broker.lockless:
            self._do_without(queue, claim, news)
        elif not self._patient and self._overdue(queue, claim, now):
            broker.refused[queue] = None

    def _overdue(self, queue: MessageQueue, claim: LockClaim, now: int) -> bool:
        rerouted_at = self._rerouted_at.get(queue.topic, 0)
        return now - claim.since >= self._takeover_ms and now - rerouted_at >= self._rerouted_ms

    def present_answered(
        self, asked: PresentAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> LockNews:
        """Note whom the refusing broker knows. The locks of dead members are unlocked."""
        broker = self._broker(asked.address)
        broker.busy = False
        news = LockNews()
        refused, broker.refused = tuple(broker.refused), {}
        known = _members_in(reply)
        broker.alone = known is not None and self._departed.is_alone(known)
        for queue in refused:
            claim = self._claims.get(queue)
            if claim is None or not claim.awaited:
                continue
            if broker.alone:
                self._do_without(queue, claim, news)
            elif self._overdue(queue, claim, now):
                self._take_over(queue, claim, known, news, now, effects)
        if known is not None:
            for client_id in self._departed.dead(known):
                self._unlock(asked.address, client_id, refused)
                self._departed.tried(client_id, refused)
                broker.ask_at = now
        self._talk(asked.address, now, effects)
        return news

    def _take_over(
        self,
        queue: MessageQueue,
        claim: LockClaim,
        known: frozenset[str] | None,
        news: LockNews,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Read the queue without its lock, because the wait was long enough.

        But if the broker knows members that are missing in the plan, one of them may well be
        reading the queue, and the wait begins again.
        """
        waited_ms = now - claim.since
        if known is not None and self._departed.unheard_of(known):
            claim.since = now
            return
        text = f"{queue} could not be locked for {waited_ms} ms; reading it without a lock"
        effects.append(LogLine("WARNING", text))
        self._do_without(queue, claim, news)

    def let_go_answered(
        self, asked: LocksLetGo, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> tuple[MessageQueue, ...]:
        """Handle the outcome of an UNLOCK_BATCH_MQ (42); return the queues free for others now."""
        broker = self._broker(asked.address)
        broker.busy = False
        mine = asked.queues if asked.client_id == self._me else ()
        if isinstance(reply, RemotingError):
            broker.unheard.update(dict.fromkeys(mine))
        self._talk(asked.address, now, effects)
        return mine

    def _do_without(self, queue: MessageQueue, claim: LockClaim, news: LockNews) -> None:
        if not self._patient:
            before = claim.state
            claim.waive()
            self._wait_ended(queue, before, news)

    def _wait_ended(self, queue: MessageQueue, before: ClaimState, news: LockNews) -> None:
        """Report what may continue now that the claim, in the state before, need not wait."""
        if before is ClaimState.SEEKING:
            news.won.append(queue)
        elif before is ClaimState.WAITING:
            held = self._holdings.get(queue)
            assert held is not None
            news.free.append(held)

    def _plan(
        self,
        address: Address,
        broker: _BrokerLocks,
        awaited: frozenset[MessageQueue],
        *,
        answered: bool,
        now: int,
    ) -> None:
        """Schedule the next requests, after a LOCK_BATCH_MQ (41) has ended.

        `awaited`: the queues awaited until then. Their locks are requested soon, even if they are
        read without them from now on.
        """
        here = self._claims_at(address)
        if broker.lockless or not here:
            broker.renew_at = broker.ask_at = None
            return
        if broker.renew_at is None:
            broker.renew_at = now + (self._peers.config.lock_renew_ms if answered else RETRY_MS)
        missing = [q for q in here if not self._claims[q].granted_at]
        if not missing or broker.ask_at is not None:
            return
        if not answered:
            broker.ask_at = now + RETRY_MS
        elif self._patient or not awaited.isdisjoint(missing):
            broker.ask_at = now + broker.wait_ms
            broker.wait_ms = min(2 * broker.wait_ms, POLL_MAX_MS)
        else:
            broker.ask_at = now + BARE_POLL_MS

    def check(self) -> None:
        """Assert that coming holdings have claims, and that claims are requested or renewed."""
        for queue, claim in self._claims.items():
            held = self._holdings.get(queue)
            assert (claim.state is ClaimState.SEEKING) == (held is None)
            locking = held is not None and held.state is HoldingState.LOCKING
            assert (claim.state is ClaimState.WAITING) == locking
            assert (claim.state is ClaimState.GRANTED) == (claim.granted_at > 0)
            assert claim.address is not None or not claim.granted_at
            assert all(
                queue not in broker.unlocks.get(self._me, ()) for broker in self._brokers.values()
            )
        if not self.needed:
            assert not self._claims
            return
        for held in self._holdings.all():
            if held.state is not HoldingState.RELEASING:
                assert held.queue in self._claims
            address = self._peers.master(held.queue)
            if held.state is HoldingState.LOCKING and address is not None:
                broker = self._broker(address)
                assert broker.busy or broker.ask_at is not None
        for claim in self._claims.values():
            if claim.granted_at and claim.address is not None:
                broker = self._broker(claim.address)
                assert broker.busy or broker.lockless or broker.renew_at is not None


def _members_in(reply: Command | RemotingError) -> frozenset[str] | None:
    if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
        return None
    try:
        return frozenset(fastjson.read(ConsumerListBody, reply.body).consumer_id_list)
    except ProtocolError:
        return None
