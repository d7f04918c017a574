"""What an application that polls asks of its consumer, and who answers.

Polls, commits and pauses are for `polled`, seeks for `seeking`, and what brokers know for `questions`. `Assign`
is answered here: a consumer without subscriptions holds the queues that it is told to, alone and
without locks; nobody else of its group is asked.
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
from steelyard.nodes.consumer.remoting.offsets import LocalOffsets, Offsets
from steelyard.nodes.consumer.remoting.peers import OffsetTold, Peers, QuestionSent, RangeAsked
from steelyard.nodes.consumer.remoting.polled import PolledDelivery
from steelyard.nodes.consumer.remoting.pulling import Pulling
from steelyard.nodes.consumer.remoting.questions import Committed, Question, Questions
from steelyard.nodes.consumer.remoting.seeking import Seeking
from steelyard.nodes.route_cache import RouteNews
from steelyard.nodes.seam import Address, Answer, Effect
from steelyard.types import MessageQueue, Subscription
from steelyard.wire.remoting.command import Command


class LitePull:
    """See the module's text."""

    def __init__(
        self,
        peers: Peers,
        config: LitePullConfig,
        holdings: Holdings,
        offsets: Offsets,
        handover: Handover,
        pulling: Pulling,
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
        """Topics of assigned queues whose routes are being asked for."""
        self._assigning: list[int] = []
        """Calls that are answered after that."""

    def asked(self, call_id: int, call: Polling | Question, now: int) -> list[Effect]:
        match call:
            case Poll() if not self._config.subscriptions and not self._assigned:
                text = "nothing to poll: subscribe(topic) before the start, or assign(queues)"
                return [Answer(call_id, ConfigError(text))]
            case Poll():
                return self.polled.poll(call_id, call, now)
            case GiveBack():
                return self.polled.give_back(call_id, call, now)
            case Commit():
                return self.polled.commit(call_id, call, now)
            case PauseQueues():
                return self.polled.pause(call_id, call)
            case ResumeQueues():
                return self.polled.resume(call_id, call, now)
            case Seek():
                return self._seeking.ask(call_id, call, now)
            case Assign():
                return self._assign(call_id, call, now)
            case Assignment():
                return [Answer(call_id, self.polled.assignment())]
            case Committed(queue=queue) if isinstance(self._offsets, LocalOffsets):
                return [Answer(call_id, self._offsets.get(queue))]
            case _:
                return self._questions.ask(call_id, call, now)

    def answered(
        self,
        purpose: OffsetTold | RangeAsked | QuestionSent,
        address: Address,
        reply: Command | RemotingError,
        now: int,
    ) -> list[Effect]:
        """A broker answered something that the application waits for, or did not."""
        match purpose:
            case OffsetTold():
                return self.polled.told(purpose, address, reply)
            case RangeAsked():
                return self._seeking.answered(purpose, address, reply, now)
            case QuestionSent():
                return self._questions.answered(purpose, address, reply)
            case _:
                assert_never(purpose)

    # -- assigned queues ---------------------------------------------------------------------------

    def _assign(self, call_id: int, call: Assign, now: int) -> list[Effect]:
        if self._config.subscriptions:
            text = "this consumer subscribes to topics; either subscribe or assign, not both"
            return [Answer(call_id, ConfigError(text))]
        topics = sorted({queue.topic for queue in call.queues})
        try:
            wanted = {
                topic: subscription(Subscription(topic, call.expression, call.expression_type), now)
                for topic in topics
            }
        except ConfigError as error:
            return [Answer(call_id, error)]
        self._pulling.begin(wanted)
        self._assigned = tuple(sorted(set(call.queues)))
        routes = self._peers.routes
        effects: list[Effect] = []
        for topic in topics:
            effects += self._peers.ask_routes(routes.want(topic), now)
        self._unrouted = {topic for topic in topics if routes.route(topic) is None}
        self._assigning.append(call_id)
        return effects + self._hold_assigned(now)

    def _hold_assigned(self, now: int) -> list[Effect]:
        """Take the assigned queues whose topics have a route; the others follow with it, should there ever be one."""
        route = self._peers.routes.route
        here = [queue for queue in self._assigned if route(queue.topic) is not None]
        _, effects = self._handover.want(here, now)
        self._pulling.share_out()
        if self._unrouted:
            return effects
        assigning, self._assigning = self._assigning, []
        return effects + [Answer(call_id, None) for call_id in assigning]

    def routed(self, news: RouteNews, now: int) -> list[Effect]:
        """The question for the route of a topic has ended."""
        effects = self._questions.routed(news, now)
        if not self._config.subscriptions:
            self._unrouted.discard(news.done)
            effects += self._hold_assigned(now)
        return effects

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> list[Effect]:
        """What the application still waits for will not come."""
        error = ClosedError("the consumer was closed")
        assigning, self._assigning = self._assigning, []
        effects: list[Effect] = [Answer(call_id, error) for call_id in assigning]
        return effects + self.polled.stop() + self._questions.close()

    def check(self) -> None:
        self._questions.check()
        assert self._unrouted or not self._assigning
