"""A push or lite pull consumer: joins a group, holds its share of the queues, delivers messages.

The start: routes of all topics and of the group's retry topic (105) → heartbeats to all their
brokers (34) → the first rebalance (38) → locks (41) → for each queue: where to start (14, 30 or 29)
→ pulls (11). The parts and what they decide: `membership` (heartbeats), `balance` (what to hold),
`handover` (taking and giving up, with `locks` and `hooks`), `holdings` (where to start), `commits`,
`pulling` (the pull loops), `delivery` (the listener, or polls in `lite_pull`). This module only
passes events on.

A rebalance runs at the start, on a notification (40), when a route changed, when a broker did not
know this member any more, and every `rebalance_interval_ms`, in case a notification was lost.

`Stop`: stop pulling and delivering; wait, for at most `stop_timeout_ms`, for the listener to finish
its batches; commit (15) and unlock (42); unregister from every broker (35); answer. After that
nothing is sent any more.
"""

from __future__ import annotations

from typing import assert_never

from steelyard.allocate import even, registry
from steelyard.allocate.plan import Strategy
from steelyard.config import ConsumerConfig, LitePullConfig
from steelyard.consume.statistics import ConsumeStatistics
from steelyard.errors import ClosedError, ConfigError, RemotingError
from steelyard.groups.remoting.ownership import READ, HoldingState
from steelyard.groups.remoting.rebalancer import Decision
from steelyard.nodes.calls.remoting import CALLS_TIMER, Outcome
from steelyard.nodes.client_instance import HeartbeatSent, Unregistered
from steelyard.nodes.consumer.remoting.balance import REBALANCE_TIMER, Balance
from steelyard.nodes.consumer.remoting.concurrent import ConcurrentDelivery
from steelyard.nodes.consumer.remoting.contract import (
    Assign,
    Commit,
    ConsumeBatch,
    ConsumerState,
    Describe,
    Pause,
    Polling,
    Resize,
    Resume,
    Stop,
)
from steelyard.nodes.consumer.remoting.delivery import Delivery, DeliveryTimer
from steelyard.nodes.consumer.remoting.first_contact import FirstContact
from steelyard.nodes.consumer.remoting.handover import GATHER_TIMER, SEEK_TIMER, Handover
from steelyard.nodes.consumer.remoting.holdings import Holdings, LookAgain
from steelyard.nodes.consumer.remoting.hooks import Hooks, HookTimer
from steelyard.nodes.consumer.remoting.lite_pull import LitePull
from steelyard.nodes.consumer.remoting.locks import Locks, LockTimer
from steelyard.nodes.consumer.remoting.membership import (
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    Membership,
    subscriptions_of,
)
from steelyard.nodes.consumer.remoting.offsets import BrokerOffsets, LocalOffsets
from steelyard.nodes.consumer.remoting.ordered import OrderedDelivery
from steelyard.nodes.consumer.remoting.peers import (
    ConditionAsked,
    LastCommitSent,
    LocksAsked,
    LocksLetGo,
    MembersAsked,
    OffsetAsked,
    OffsetTold,
    Peers,
    PresentAsked,
    PullSent,
    Purpose,
    QuestionSent,
    RangeAsked,
    SentBack,
    StartAsked,
)
from steelyard.nodes.consumer.remoting.pulling import PullService
from steelyard.nodes.consumer.remoting.questions import Question
from steelyard.nodes.consumer.remoting.reporting import Reporting
from steelyard.nodes.consumer.remoting.shares import Shares
from steelyard.nodes.route_cache import RouteAsked
from steelyard.nodes.seam import (
    Address,
    Answer,
    Asked,
    Closed,
    Deliver,
    Due,
    Effect,
    Event,
    Flushed,
    Handled,
    Link,
    Measured,
    Opened,
    Received,
    Refused,
    SetTimer,
)
from steelyard.nodes.starting import START_TIMER, Begin
from steelyard.types import LogLine, MessageModel, Random
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command, is_response
from steelyard.wording import counted

__all__ = ["ConsumeBatch", "ConsumerNode", "ConsumerState", "Describe", "Stop"]

COMMIT_TIMER = "commits"
STOP_TIMER = "stop"


class ConsumerNode:
    """A push or lite pull consumer.

    `allocate`: a strategy in place of the one that `config.strategy` names. `kept`: the data of the
    last `Persist` of a broadcasting consumer.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        rng: Random,
        allocate: Strategy | None = None,
        kept: bytes = b"",
    ) -> None:
        if not config.subscriptions and not isinstance(config, LitePullConfig):
            raise ConfigError("a consumer needs a subscription")
        self._config = config
        self._peers = Peers(config, rng)
        self._topics = [wanted.topic for wanted in config.subscriptions]
        if self._peers.retry_topic:
            self._topics.append(self._peers.retry_topic)
        subscriptions_of(config, self._peers.retry_topic, version=0)  # rejects invalid ones
        self._client = self._peers.client
        self._membership = Membership(self._peers)
        strategy = registry.strategy(config.strategy) if allocate is None else allocate
        clustering = config.message_model is MessageModel.CLUSTERING
        shares = clustering and bool(config.subscriptions)
        by_quota = shares and strategy is even.allocate
        self._balance = Balance(self._peers, self._topics, strategy, rng, by_quota=by_quota)
        self._offsets = BrokerOffsets(self._peers) if clustering else LocalOffsets(kept)
        self._holdings = Holdings(self._peers, self._offsets)
        self._shares = Shares(self._peers)
        self._statistics = ConsumeStatistics()
        self._pulling = PullService(self._peers, self._holdings, self._statistics)
        drains = shares and (config.clean_handover or config.orderly)
        self._locks = Locks(
            self._peers,
            self._holdings,
            needed=drains or by_quota,
            patient=config.orderly,
            strict=config.orderly or by_quota,
        )
        hooks = Hooks(wanted=config.hooks, timeout_ms=config.drain_timeout_ms)
        self._handover = Handover(
            self._peers, self._holdings, self._locks, self._pulling, hooks, drains=drains
        )
        self._lite: LitePull | None = None
        self._delivery: Delivery
        if isinstance(config, LitePullConfig):
            self._lite = LitePull(
                self._peers, config, self._holdings, self._offsets, self._handover, self._pulling
            )
            self._delivery = self._lite.polled
        elif config.orderly:
            self._delivery = OrderedDelivery(self._peers, self._locks, self._statistics)
        else:
            self._delivery = ConcurrentDelivery(self._peers, self._statistics)
        self._reporting = Reporting(
            self._peers, self._holdings, self._locks, self._pulling, self._statistics
        )
        subscribed = [wanted.topic for wanted in config.subscriptions]
        self._contact = FirstContact(self._peers, self._membership, subscribed)
        self._stop: int | None = None
        self._left = False
        self._stopped = False

    def start(self, now: int) -> list[Effect]:
        subscriptions = subscriptions_of(self._config, self._peers.retry_topic, now)
        consume_type = CONSUME_PASSIVELY if self._lite is None else CONSUME_ACTIVELY
        effects: list[Effect] = []
        self._membership.begin(subscriptions.values(), consume_type, now, effects)
        self._pulling.begin(subscriptions)
        self._statistics.begin(now)
        self._reporting.begin(subscriptions.values(), now)
        effects.append(SetTimer(COMMIT_TIMER, now + self._config.commit_interval_ms))
        for topic in self._topics:
            self._client.ask_routes(self._peers.routes.want(topic), now, effects)
        return effects

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        match event:  # the most frequent first: a class that does not match costs as much as a call
            case Received(link=link, message=Command() as command):
                if is_response(command):
                    outcome = self._peers.calls.replied(link, command)
                    if outcome is not None:
                        self._settle(outcome, now, effects)
                else:
                    self._requested(link, command, now, effects)
            case Due(key=key):
                self._due(key, now, effects)
            case Handled(ticket=ticket) if ticket < 0:
                self._handover.told(ticket, now, effects)
                self._leave_if_done(now, effects)
            case Handled():
                if not self._reporting.handled(event, now, effects):
                    self._delivery.handled(event, now, effects)
                    self._heard_out(now, effects)
            case Asked():
                self._asked(event, now, effects)
            case Opened(dialed=True):
                self._client.opened(event, now, effects)
            case Refused(address=address):
                self._settle_all(self._peers.calls.refused(event), now, effects)
                self._client.doubt(address, now, effects)
            case Closed(link=link):
                lost = self._client.lost(link)
                self._settle_all(self._peers.calls.closed(event), now, effects)
                self._client.doubt(lost, now, effects)
            case Opened() | Received() | Flushed() | Measured():
                pass
            case _:
                assert_never(event)
        return effects

    # -- answers -----------------------------------------------------------------------------------

    def _settle_all(
        self, outcomes: list[Outcome[Purpose]], now: int, effects: list[Effect]
    ) -> None:
        for outcome in outcomes:
            self._settle(outcome, now, effects)

    def _settle(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        purpose, reply = outcome.purpose, outcome.reply
        match purpose:
            case PullSent():
                self._pulled(purpose, outcome.address, reply, now, effects)
            case RouteAsked():
                self._route_answered(purpose, reply, now, effects)
            case HeartbeatSent(address=address):
                fresh = self._membership.registered(address, reply, now, effects)
                self._contact.registered(reply, now, effects)
                if fresh:
                    self._locks.registered(address, now, effects)
                retry_topic = self._peers.retry_topic
                if fresh and retry_topic and self._peers.routes.route(retry_topic) is None:
                    # A broker creates the retry topic of a new group at its first heartbeat.
                    self._client.poll_soon(now, effects)
                if self._stop is None:
                    self._balance.wake(now, effects, news=fresh)
                self._finish(effects)
            case ConditionAsked():
                error = self._membership.condition_answered(purpose, reply)
                if error is not None:
                    effects.append(LogLine("ERROR", str(error)))
                self._contact.checked(error, now, effects)
            case MembersAsked():
                self._balance.answered(purpose, reply)
                self._rebalance(now, effects)
            case OffsetAsked():
                self._handover.offset_answered(purpose, reply, now, effects)
            case StartAsked():
                self._handover.start_answered(purpose, reply, now, effects)
            case LastCommitSent():
                self._commit_ended(purpose, outcome.address, now, effects)
                self._handover.last_commit_answered(purpose, reply, now, effects)
                self._leave_if_done(now, effects)
            case LocksAsked():
                self._handover.locks_answered(purpose, reply, now, effects)
                self._tell_shares(effects)
            case LocksLetGo():
                self._handover.let_go_answered(purpose, reply, now, effects)
                self._leave_if_done(now, effects)
            case PresentAsked():
                self._handover.present_answered(purpose, reply, now, effects)
            case SentBack():
                self._delivery.sent_back(purpose, reply, now, effects)
                self._heard_out(now, effects)
            case OffsetTold() | RangeAsked() | QuestionSent():
                assert self._lite is not None
                if isinstance(purpose, OffsetTold):
                    self._commit_ended(purpose, outcome.address, now, effects)
                self._lite.answered(purpose, outcome.address, reply, now, effects)
                self._heard_out(now, effects)
            case Unregistered(address=address):
                self._client.left(address)
                self._finish(effects)
            case _:
                assert_never(purpose)

    def _commit_ended(
        self, told: LastCommitSent | OffsetTold, address: Address, now: int, effects: list[Effect]
    ) -> None:
        if not self._left:
            self._offsets.answered(told.queue, address, now, effects)

    def _pulled(
        self,
        sent: PullSent,
        address: Address,
        reply: Command | RemotingError,
        now: int,
        effects: list[Effect],
    ) -> None:
        more: list[Effect] = []
        held = self._pulling.answered(sent, address, reply, now, more)
        if held is not None and held.state is HoldingState.PULLING:
            self._delivery.offer(held, now, effects)
        effects += more  # only after the delivery of what came
        if held is not None and held.state is not HoldingState.PULLING:
            self._handover.go_on(held, now, effects)
            self._leave_if_done(now, effects)

    def _heard_out(self, now: int, effects: list[Effect]) -> None:
        """Note that the application finished something: a handover, or the stop, may be done."""
        self._handover.heard_out(now, effects)
        self._leave_if_done(now, effects)

    def _route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        news = self._client.route_answered(asked, reply, now, effects)
        if self._stop is not None or not news.done:
            return
        self._membership.ask_condition(news.done, now, effects)
        self._client.register_at_strangers(self._client.brokers(), now, effects)
        self._contact.routed(news, now, effects)
        if news.changed:
            self._locks.rerouted(news.done, now)
            self._handover.routed(now, effects)
        if self._lite is not None:
            self._lite.routed(news, now, effects)
            if not self._topics:
                self._tell_shares(effects)
        self._balance.wake(now, effects, news=news.changed)

    # -- rebalance ---------------------------------------------------------------------------------

    def _rebalance(self, now: int, effects: list[Effect]) -> None:
        """Decide what to hold, once all member lists are in, and change the holdings."""
        if self._stop is not None:
            return
        decision = self._balance.decision(self._handover.wanted, now)
        if decision is None:
            return
        self._locks.heard(self._balance.everybody(), now)
        if decision.quota is None:
            change = self._handover.want(decision.target, now, effects)
        else:
            change = self._handover.want_quota(
                decision.target, decision.quota, decision.pool, now, effects
            )
        self._pulling.share_out()
        effects.append(SetTimer(REBALANCE_TIMER, decision.next_at))
        self._balance.complaints(decision, effects)
        if change.release or change.acquire:
            text = (
                f"group {self._config.group}: {self._config.client_id} holds"
                f" {counted(len(decision.target), 'queue')}, gave up {len(change.release)},"
                f" took {len(change.acquire)}"
            )
            effects.append(LogLine("INFO", text))
        self._tell_shares(effects)
        self._introduce(decision, now, effects)

    def _tell_shares(self, effects: list[Effect]) -> None:
        """Tell the application of topics whose queues, or its shares of them, have changed."""
        if not self._config.queue_changes or self._stop is not None:
            return
        plan = self._handover.wanted
        topics = self._topics or sorted({queue.topic for queue in plan})
        effects += [
            Deliver(self._peers.ticket(), share) for share in self._shares.changed(topics, plan)
        ]

    def _introduce(self, decision: Decision, now: int, effects: list[Effect]) -> None:
        """Send heartbeats again if a broker does not list this member: it has forgotten it."""
        if decision.absent:
            self._client.register(self._client.brokers(), now, effects)

    # -- events ------------------------------------------------------------------------------------

    def _requested(self, link: Link, command: Command, now: int, effects: list[Effect]) -> None:
        """Handle a request or notification of a broker."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            if self._membership.notified(command, effects) and self._stop is None:
                self._balance.wake(now, effects)
        elif not self._reporting.requested(link, command, now, effects):
            self._client.refuse(link, command, effects)

    def _due(self, key: object, now: int, effects: list[Effect]) -> None:
        if key == CALLS_TIMER:
            self._settle_all(self._peers.calls.expire(now, effects), now, effects)
            return
        if self._left:
            return
        match key:
            case LookAgain():
                held = self._holdings.find(key.queue, key.epoch)
                if held is None:
                    return
                self._handover.go_on(held, now, effects)
                self._leave_if_done(now, effects)
            case LockTimer():
                self._locks.due(key, now, effects)
            case HookTimer(ticket=ticket):
                self._handover.told(ticket, now, effects)
                self._leave_if_done(now, effects)
            case DeliveryTimer():
                self._delivery.due(key, now, effects)
                self._heard_out(now, effects)
            case _ if key == GATHER_TIMER:
                self._handover.gathered(now, effects)
            case _ if key == SEEK_TIMER:
                self._handover.seek_again(now, effects)
            case _ if key == STOP_TIMER:
                self._handover.abandon(now, effects)
                self._leave_if_done(now, effects)
            case _ if key == REBALANCE_TIMER:
                if self._stop is not None:
                    return
                self._balance.begin(now, effects)
                self._rebalance(now, effects)
            case _ if key == START_TIMER:
                if self._stop is None:
                    self._contact.due(now, effects)
            case _ if key == COMMIT_TIMER:
                effects.append(SetTimer(COMMIT_TIMER, now + self._config.commit_interval_ms))
                self._holdings.commit_all(now, effects)
                self._offsets.keep(effects)
            case _:
                self._client.due(key, now, effects)

    # -- calls of the application ------------------------------------------------------------------

    def _asked(self, event: Asked, now: int, effects: list[Effect]) -> None:
        match event.call:
            case Describe():
                effects.append(Answer(event.call_id, self._describe(now)))
            case Pause():
                self._pulling.pause()
                effects.append(Answer(event.call_id, None))
            case Resume():
                effects.append(Answer(event.call_id, None))
                self._pulling.resume(now, effects)
            case Resize(consume_threads=consume_threads, handed_max=handed_max):
                self._reporting.resize(consume_threads)
                effects.append(Answer(event.call_id, None))
                self._delivery.resize(handed_max, now, effects)
            case _ if self._stop is not None and (self._left or not isinstance(event.call, Commit)):
                effects.append(Answer(event.call_id, ClosedError("the consumer was closed")))
            case Begin() as begin:
                self._contact.asked(event.call_id, begin, now, effects)
            case Stop():
                self._stop = event.call_id
                self._client.close()
                until = now + self._config.stop_timeout_ms
                effects.append(SetTimer(STOP_TIMER, until))
                if self._lite is not None:
                    self._lite.stop(effects)
                self._handover.stop(until if event.call.wait else now, now, effects)
                self._leave_if_done(now, effects)
            case call if self._lite is not None and isinstance(call, Polling | Question):
                self._lite.asked(event.call_id, call, now, effects)
                if isinstance(call, Assign):
                    self._tell_shares(effects)
                self._heard_out(now, effects)
            case call:
                raise AssertionError(f"a consumer does not know the call {call!r}")

    def _describe(self, now: int) -> ConsumerState:
        held = self._holdings.all()
        return ConsumerState(
            client_id=self._config.client_id,
            members=dict(self._balance.members),
            held=tuple(sorted(h.queue for h in held if h.state is not HoldingState.LOCKING)),
            offsets={
                h.queue: h.committable for h in held if h.state in READ and h.committable >= 0
            },
            paused=self._pulling.paused,
            statistics={topic: self._statistics.of(topic, now) for topic in self._topics},
        )

    # -- the end -----------------------------------------------------------------------------------

    def _leave_if_done(self, now: int, effects: list[Effect]) -> None:
        """Leave the group, while stopping, once nothing is held any more."""
        if self._stop is None or self._left or self._holdings.queues():
            return
        self._left = True
        self._offsets.keep(effects)
        self._client.leave(now, effects)
        self._finish(effects)

    def _finish(self, effects: list[Effect]) -> None:
        if self._stop is None or self._stopped or not self._left or self._client.leaving:
            return
        self._stopped = True
        effects.append(Answer(self._stop, None))

    def check(self) -> None:
        """Assert the invariants of all parts; called after each event."""
        self._peers.calls.check()
        self._peers.routes.check()
        self._balance.check()
        self._holdings.check()
        self._handover.check()
        self._locks.check()
        self._delivery.check()
        if self._lite is not None:
            self._lite.check()
        assert not self._left or not self._holdings.queues()
        assert not self._stopped or self._left
