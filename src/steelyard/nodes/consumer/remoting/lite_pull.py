"""Distributes the calls of an application that polls to the parts that answer them.

Polls, commits and pauses go to `polled`, seeks to `seeking`, and queries to brokers to `questions`.
`Assign` is answered here: a consumer without subscriptions holds the queues that it is given,
without locks, and without regard to other members of its group.
Source: client/impl/consumer/DefaultLitePullConsumerImpl.java.
"""

from __future__ import annotations

from typing import assert_never

from steelyard.config import LitePullConfig
from steelyard.consume.subscription import subscription
from steelyard.errors import ClosedError, ConfigError, RemotingError
from steelyard.nodes.consumer.remoting.contract import (
    Assign,
    Assignment,
    Commit,
    GiveBack,
    PauseQueues,
    Poll,
    Polling,
    ResumeQueues,
    Seek,
)
from steelyard.nodes.consumer.remoting.handover import Handover
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.offsets import LocalOffsets, OffsetStore
from steelyard.nodes.consumer.remoting.peers import OffsetTold, Peers, QuestionSent, RangeAsked
from steelyard.nodes.consumer.remoting.polled import PolledDelivery
from steelyard.nodes.consumer.remoting.pulling import PullService
from steelyard.nodes.consumer.remoting.questions import QueryConsumerOffset, Question, Questions
from steelyard.nodes.consumer.remoting.seeking import Seeking
from steelyard.nodes.route_cache import RouteNews
from steelyard.nodes.seam import Address, Answer, Effect
from steelyard.types import MessageQueue, Subscription
from steelyard.wire.remoting.command import Command


class LitePull:
    """The calls of an application that polls."""

    def __init__(
        self,
        peers: Peers,
        config: LitePullConfig,
        holdings: Holdings,
        offsets: OffsetStore,
        handover: Handover,
        pulling: PullService,
    ) -> None:
        self._peers = peers
        self._config = config
        self._offsets = offsets
        self._handover = handover
        self._pulling = pulling
        self.polled = PolledDelivery(peers, config, holdings, offsets, pulling)
        self._seeking = Seeking(peers, holdings, self.polled)
        self._questions = Questions(peers)
        self._assigned: tuple[MessageQueue, ...] = ()
        self._unrouted: set[str] = set()
        """Topics of assigned queues whose routes are being requested."""
        self._assigning: list[int] = []
        """Calls to be answered after that."""

    def asked(
        self, call_id: int, call: Polling | Question, now: int, effects: list[Effect]
    ) -> None:
        match call:
            case Poll() if not self._config.subscriptions and not self._assigned:
                text = "nothing to poll: subscribe(topic) before the start, or assign(queues)"
                effects.append(Answer(call_id, ConfigError(text)))
            case Poll():
                self.polled.poll(call_id, call, now, effects)
            case GiveBack():
                self.polled.give_back(call_id, call, now, effects)
            case Commit():
                self.polled.commit(call_id, call, now, effects)
            case PauseQueues():
                self.polled.pause(call_id, call, effects)
            case ResumeQueues():
                self.polled.resume(call_id, call, now, effects)
            case Seek():
                self._seeking.ask(call_id, call, now, effects)
            case Assign():
                self._assign(call_id, call, now, effects)
            case Assignment():
                effects.append(Answer(call_id, self.polled.assignment()))
            case QueryConsumerOffset(queue=queue) if isinstance(self._offsets, LocalOffsets):
                effects.append(Answer(call_id, self._offsets.get(queue)))
            case _:
                self._questions.ask(call_id, call, now, effects)

    def answered(
        self,
        purpose: OffsetTold | RangeAsked | QuestionSent,
        address: Address,
        reply: Command | RemotingError,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Handle the outcome of a request on behalf of the application."""
        match purpose:
            case OffsetTold():
                self.polled.told(purpose, address, reply, effects)
            case RangeAsked():
                self._seeking.answered(purpose, address, reply, now, effects)
            case QuestionSent():
                self._questions.answered(purpose, address, reply, effects)
            case _:
                assert_never(purpose)

    # -- assigned queues ---------------------------------------------------------------------------

    def _assign(self, call_id: int, call: Assign, now: int, effects: list[Effect]) -> None:
        if self._config.subscriptions:
            text = "this consumer subscribes to topics; use either subscribe or assign, not both"
            effects.append(Answer(call_id, ConfigError(text)))
            return
        topics = sorted({queue.topic for queue in call.queues})
        try:
            wanted = {
                topic: subscription(Subscription(topic, call.expression, call.expression_type), now)
                for topic in topics
            }
        except ConfigError as error:
            effects.append(Answer(call_id, error))
            return
        self._pulling.begin(wanted)
        self._assigned = tuple(sorted(set(call.queues)))
        routes = self._peers.routes
        for topic in topics:
            self._peers.client.ask_routes(routes.want(topic), now, effects)
        self._unrouted = {topic for topic in topics if routes.route(topic) is None}
        self._assigning.append(call_id)
        self._hold_assigned(now, effects)

    def _hold_assigned(self, now: int, effects: list[Effect]) -> None:
        """Take the assigned queues whose topics have a route.

        The others follow once their topics have one.
        """
        route = self._peers.routes.route
        here = [queue for queue in self._assigned if route(queue.topic) is not None]
        _ = self._handover.want(here, now, effects)
        self._pulling.share_out()
        if self._unrouted:
            return
        assigning, self._assigning = self._assigning, []
        effects += [Answer(call_id, None) for call_id in assigning]

    def routed(self, news: RouteNews, now: int, effects: list[Effect]) -> None:
        """Handle the end of a route request."""
        self._questions.routed(news, now, effects)
        if not self._config.subscriptions:
            self._unrouted.discard(news.done)
            self._hold_assigned(now, effects)

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, effects: list[Effect]) -> None:
        """Answer the calls that wait, because the consumer is stopping."""
        error = ClosedError("the consumer was closed")
        assigning, self._assigning = self._assigning, []
        effects += [Answer(call_id, error) for call_id in assigning]
        self.polled.stop(effects)
        self._questions.close(effects)

    def check(self) -> None:
        self._questions.check()
        assert self._unrouted or not self._assigning
