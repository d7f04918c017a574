"""A pull consumer: the application reads queues at offsets of its choice, and keeps the offsets.

Each call of the application is answered by one request to one broker (`questions`). Besides, the
client belongs to its group: it sends heartbeats to the brokers in its routes, and computes its
share of the queues of the registered topics (`config.subscriptions`) from the member list (38) and
the strategy, as a push consumer does. It only reports that share. Nothing is locked, read or
committed for these queues; the handover between their owners is left to the applications.

The start: routes of the registered topics (105) → heartbeats (34) → the first rebalance (38).
Without registered topics there is no rebalance, and brokers hear of the client only once it has
asked for a queue of theirs. `QueuesChanged` is delivered when the share, or the queues of a topic,
have changed.
Source: client/impl/consumer/DefaultMQPullConsumerImpl.java, RebalancePullImpl.java.
"""

from __future__ import annotations

from typing import assert_never

from steelyard.allocate import even, registry
from steelyard.allocate.plan import Strategy
from steelyard.config import ConsumerConfig
from steelyard.consume.subscription import subscription
from steelyard.errors import ClosedError, ConfigError, RemotingError
from steelyard.nodes.calls.remoting import CALLS_TIMER, Outcome
from steelyard.nodes.client_instance import HeartbeatSent, Unregistered
from steelyard.nodes.consumer.remoting.balance import REBALANCE_TIMER, Balance
from steelyard.nodes.consumer.remoting.contract import Stop
from steelyard.nodes.consumer.remoting.first_contact import FirstContact
from steelyard.nodes.consumer.remoting.membership import CONSUME_ACTIVELY, Membership
from steelyard.nodes.consumer.remoting.peers import (
    MembersAsked,
    Peers,
    Purpose,
    QuestionSent,
)
from steelyard.nodes.consumer.remoting.questions import Question, Questions
from steelyard.nodes.consumer.remoting.shares import Shares
from steelyard.nodes.route_cache import RouteAsked
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Call,
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
from steelyard.types import LogLine, MessageQueue, Random
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command, is_response


class Balanced(Call[tuple[MessageQueue, ...]], frozen=True):
    """Return this member's share of a registered topic, after the first rebalance."""

    topic: str


class PullerNode:
    """A pull consumer. `allocate`: a strategy in place of the one that `config.strategy` names."""

    def __init__(
        self, config: ConsumerConfig, rng: Random, allocate: Strategy | None = None
    ) -> None:
        self._config = config
        self._peers = Peers(config, rng)
        self._topics = [wanted.topic for wanted in config.subscriptions]
        for wanted in config.subscriptions:
            subscription(wanted, version=0)  # an invalid one is rejected at once
        self._client = self._peers.client
        self._membership = Membership(self._peers)
        strategy = registry.strategy(config.strategy) if allocate is None else allocate
        if strategy is even.allocate:
            raise ConfigError(
                "EVEN distributes queues by locks, which a pull consumer does not take;"
                " use another strategy, or a LitePullConsumer"
            )
        self._balance = Balance(self._peers, self._topics, strategy, rng)
        self._questions = Questions(self._peers)
        self._shares = Shares(self._peers)
        self._contact = FirstContact(self._peers, self._membership, self._topics)
        self._decided = False
        self._waiting: list[tuple[int, Balanced]] = []
        self._stop: int | None = None
        self._stopped = False

    def start(self, now: int) -> list[Effect]:
        told = [subscription(wanted, now) for wanted in self._config.subscriptions]
        effects: list[Effect] = []
        self._membership.begin(told, CONSUME_ACTIVELY, now, effects)
        for topic in self._topics:
            self._client.ask_routes(self._peers.routes.want(topic), now, effects)
        return effects

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Received(link=link, message=Command() as command):
                if is_response(command):
                    outcome = self._peers.calls.replied(link, command)
                    if outcome is not None:
                        self._settle(outcome, now, effects)
                else:
                    self._requested(link, command, now, effects)
            case Asked():
                self._asked(event, now, effects)
            case Due(key=key):
                self._due(key, now, effects)
            case Opened(dialed=True):
                self._client.opened(event, now, effects)
            case Refused(address=address):
                self._settle_all(self._peers.calls.refused(event), now, effects)
                self._client.doubt(address, now, effects)
            case Closed(link=link):
                lost = self._client.lost(link)
                self._settle_all(self._peers.calls.closed(event), now, effects)
                self._client.doubt(lost, now, effects)
            case Opened() | Received() | Flushed() | Handled() | Measured():
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
            case QuestionSent():
                self._questions.answered(purpose, outcome.address, reply, effects)
            case RouteAsked():
                self._route_answered(purpose, reply, now, effects)
            case HeartbeatSent(address=address):
                fresh = self._membership.registered(address, reply, now, effects)
                self._contact.registered(reply, now, effects)
                if self._stop is None:
                    self._balance.wake(now, effects, news=fresh)
                self._finish(effects)
            case MembersAsked():
                self._balance.answered(purpose, reply)
                self._rebalance(now, effects)
            case Unregistered(address=address):
                self._client.left(address)
                self._finish(effects)
            case _:
                raise AssertionError(f"a pull consumer does not ask for {purpose!r}")

    def _route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        news = self._client.route_answered(asked, reply, now, effects)
        if self._stop is not None or not news.done:
            return
        self._client.register_at_strangers(self._client.brokers(), now, effects)
        self._contact.routed(news, now, effects)
        self._questions.routed(news, now, effects)
        self._balance.wake(now, effects, news=news.changed and news.done in self._topics)

    # -- rebalance ---------------------------------------------------------------------------------

    def _rebalance(self, now: int, effects: list[Effect]) -> None:
        """Decide on the shares, once all member lists are in, and report what has changed."""
        if self._stop is not None:
            return
        decision = self._balance.decision(self._shares.all(), now)
        if decision is None:
            return
        effects.append(SetTimer(REBALANCE_TIMER, decision.next_at))
        self._balance.complaints(decision, effects)
        for share in self._shares.changed(self._topics, decision.target):
            text = (
                f"group {self._config.group}: {self._config.client_id} has {len(share.mine)} of"
                f" {len(share.all)} queues of {share.topic}"
            )
            effects.append(LogLine("INFO", text))
            if self._config.queue_changes:
                effects.append(Deliver(self._peers.ticket(), share))
        self._decided = True
        waiting, self._waiting = self._waiting, []
        effects += [Answer(call_id, self._shares.of(call.topic)) for call_id, call in waiting]
        if decision.absent:  # a broker that does not list this member has forgotten it
            self._client.register(self._client.brokers(), now, effects)

    # -- events ------------------------------------------------------------------------------------

    def _requested(self, link: Link, command: Command, now: int, effects: list[Effect]) -> None:
        """Handle a request or notification of a broker."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            if self._membership.notified(command, effects) and self._stop is None:
                self._balance.wake(now, effects)
        else:
            self._client.refuse(link, command, effects)

    def _due(self, key: object, now: int, effects: list[Effect]) -> None:
        if key == CALLS_TIMER:
            self._settle_all(self._peers.calls.expire(now, effects), now, effects)
            return
        if self._stop is not None:
            return
        if key == START_TIMER:
            self._contact.due(now, effects)
        elif key == REBALANCE_TIMER:
            self._balance.begin(now, effects)
            self._rebalance(now, effects)
        else:
            self._client.due(key, now, effects)

    # -- calls of the application ------------------------------------------------------------------

    def _asked(self, event: Asked, now: int, effects: list[Effect]) -> None:
        call_id, call = event.call_id, event.call
        if self._stop is not None:
            effects.append(Answer(call_id, ClosedError("the consumer was closed")))
            return
        match call:
            case _ if isinstance(call, Question):
                self._questions.ask(call_id, call, now, effects)
            case Balanced(topic=topic) if topic not in self._topics:
                text = f"topic {topic!r} is not registered: call register(topic) before the start"
                effects.append(Answer(call_id, ConfigError(text)))
            case Balanced():
                if self._decided:
                    effects.append(Answer(call_id, self._shares.of(call.topic)))
                else:
                    self._waiting.append((call_id, call))
            case Begin():
                self._contact.asked(call_id, call, now, effects)
            case Stop():
                self._stop = call_id
                error = ClosedError("the consumer was closed while the call was in progress")
                effects += [Answer(waiting, error) for waiting, _ in self._waiting]
                self._waiting = []
                self._questions.close(effects)
                self._client.close()
                self._client.leave(now, effects)
                self._finish(effects)
            case _:
                raise AssertionError(f"a pull consumer does not know the call {call!r}")

    def _finish(self, effects: list[Effect]) -> None:
        if self._stop is None or self._stopped or self._client.leaving:
            return
        self._stopped = True
        effects.append(Answer(self._stop, None))

    def check(self) -> None:
        """Assert the invariants of all parts; called after each event."""
        self._peers.calls.check()
        self._peers.routes.check()
        self._balance.check()
        self._questions.check()
        assert not (self._decided and self._waiting)
