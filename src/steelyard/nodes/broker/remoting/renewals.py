"""Pulls with a subscription newer than the broker's: it asks the client for the subscription.

A Java client gives its subscription a new version at each rebalance, so that brokers which have not
seen its heartbeat since refuse its pulls (25), lest they filter by an old expression. It sends
heartbeats to all brokers then, unless another thread is just doing that, with the old version. In
that case all its pulls are refused for up to 30 s, until the next heartbeat. A client that has just
started is prone to it: its first rebalance and its first periodic heartbeat come at the same time.

So with delayed answers, such a pull waits, and the broker asks the client what it is doing (307),
which includes its subscriptions. Pulls that are still newer than the answer, or that got none
within WAIT_MS, are refused. Nobody is asked twice within AGAIN_MS.

Source: Java RebalancePushImpl.messageQueueChanged, MQClientInstance.sendHeartbeatToAllBroker-
WithLockV2; broker/processor/PullMessageProcessor.java (SUBSCRIPTION_NOT_LATEST).
"""

from __future__ import annotations

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.remoting.registry import Registry
from steelyard.nodes.broker.requests import RemotingRequest
from steelyard.nodes.seam import Effect, Link, Send
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ConsumerRunningInfo
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

WAIT_MS = 1_000
"""How long a client may take to answer."""
AGAIN_MS = 3_000
"""Time after a question before the client is asked again."""
WAITING_MAX = 10_000
"""Maximum of pulls that wait; others are refused at once."""
FIRST_OPAQUE = 1 << 29
"""Far from the numbers of `relays` and `replies`, which send requests over the same connections."""

_GroupLink = tuple[str, Link]


class _Question(msgspec.Struct):
    """A client that was asked, and its pulls that wait for the answer. `opaque`: of the request."""

    opaque: int
    asked_at: int
    waiting: list[RemotingRequest]


class Renewed(msgspec.Struct, frozen=True):
    """What an answer has brought: the pulls that waited for it, and in which group.

    `refiltered`: topics of which the client wants other messages than before.
    """

    group: str
    waiting: list[RemotingRequest]
    refiltered: frozenset[str]


class Renewals:
    """The pulls that wait for their subscriptions; see the module docstring."""

    def __init__(self, registry: Registry, *, enabled: bool) -> None:
        self._registry = registry
        self._enabled = enabled
        self._questions: dict[_GroupLink, _Question] = {}
        """In the order in which they were asked."""
        self._opaque = FIRST_OPAQUE
        self._waiting = 0

    @property
    def next_at(self) -> int | None:
        """When to call `due` next; None if no pull waits."""
        if not self._waiting:
            return None
        times = (q.asked_at + WAIT_MS for q in self._questions.values() if q.waiting)
        return min(times, default=None)

    def wait(self, request: RemotingRequest, group: str, now: int, effects: list[Effect]) -> bool:
        """Let a pull wait whose subscription is newer; return False if it is to be refused."""
        link = request.peer.link
        member = self._registry.member(group, link)
        if (
            not self._enabled
            or request.is_oneway
            or self._waiting >= WAITING_MAX
            or member is None
            or not member.client.tells_subscriptions
        ):
            return False
        question = self._questions.get((group, link))
        if question is None or not (question.waiting or now - question.asked_at < AGAIN_MS):
            question = self._ask(group, link, member.client.client_id, now, effects)
        elif not question.waiting:  # it has answered, or was silent
            return False
        question.waiting.append(request)
        self._waiting += 1
        return True

    def _ask(
        self, group: str, link: Link, client_id: str, now: int, effects: list[Effect]
    ) -> _Question:
        self._forget_old(now)
        self._opaque = (self._opaque + 1) & (FIRST_OPAQUE - 1) | FIRST_OPAQUE
        header = headers.ConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        code = int(RequestCode.GET_CONSUMER_RUNNING_INFO)
        effects.append(Send(link, Command(code, self._opaque, 0, headers.write(header))))
        question = _Question(self._opaque, now, [])
        self._questions[group, link] = question
        return question

    def _forget_old(self, now: int) -> None:
        """Forget the clients that may be asked again."""
        for key, question in list(self._questions.items()):
            if now - question.asked_at < AGAIN_MS:
                break
            if not question.waiting:
                del self._questions[key]

    def answered(self, link: Link, response: Command) -> Renewed | None:
        """Take over the subscriptions from an answer; None if it is to something else."""
        if response.opaque < FIRST_OPAQUE:
            return None
        for (group, asked), question in self._questions.items():
            if asked == link and question.opaque == response.opaque:
                refiltered = self._take_over(group, link, response)
                return Renewed(group, self._taken(question), refiltered)
        return None

    def _take_over(self, group: str, link: Link, response: Command) -> frozenset[str]:
        if response.code != ResponseCode.SUCCESS:
            return frozenset()
        try:
            info = fastjson.read(ConsumerRunningInfo, response.body)
            return self._registry.renew(group, link, info.subscription_set)
        except ProtocolError:
            return frozenset()  # an answer that cannot be read counts as none

    def due(self, now: int) -> list[RemotingRequest]:
        """Return the pulls that waited in vain."""
        silent = [q for q in self._questions.values() if q.waiting and now - q.asked_at >= WAIT_MS]
        return [request for question in silent for request in self._taken(question)]

    def _taken(self, question: _Question) -> list[RemotingRequest]:
        taken, question.waiting = question.waiting, []
        self._waiting -= len(taken)
        return taken

    def closed(self, link: Link) -> None:
        """Forget a closed link."""
        for key in [key for key in self._questions if key[1] == link]:
            self._taken(self._questions.pop(key))

    def check(self) -> None:
        assert self._enabled or not self._questions
        assert self._waiting == sum(len(q.waiting) for q in self._questions.values())
        assert self._waiting <= WAITING_MAX
