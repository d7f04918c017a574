"""The rebalance runs of a consumer: who is in the group, and which queues to hold.

A run requests the member list (38) from one broker of each topic. Any broker will do, because every
member sends heartbeats to all of them.
Source: client/impl/consumer/RebalanceImpl.java, MQClientInstance.java `findConsumerIdList`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from steelyard.allocate import contiguous, even
from steelyard.allocate.plan import Strategy
from steelyard.errors import ProtocolError, RemotingError
from steelyard.groups.remoting.rebalancer import Decision, Rebalancer, View
from steelyard.nodes.consumer.remoting.peers import MembersAsked, Peers
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.types import LogLine, MessageModel, MessageQueue, Random
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ConsumerListBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

REBALANCE_TIMER = "rebalance"


class Balance:
    """The rebalance runs of one consumer, one at a time.

    `members`: the latest member lists, by topic. `by_quota`: decide how many queues of all topics
    to hold, not which (`even`). A broadcasting consumer queries nobody: it reads everything, as the
    only member would.
    """

    def __init__(
        self,
        peers: Peers,
        topics: Sequence[str],
        strategy: Strategy,
        rng: Random,
        *,
        by_quota: bool = False,
    ) -> None:
        config = peers.config
        self._alone = config.message_model is MessageModel.BROADCASTING
        if self._alone:
            strategy, by_quota = contiguous.allocate, False
        self._peers = peers
        self._topics = tuple(topics)
        self._rng = rng
        self._rebalancer = Rebalancer(
            config.client_id,
            contiguous.allocate if by_quota else strategy,
            interval_ms=config.rebalance_interval_ms,
            retry_ms=config.rebalance_retry_ms,
            quotas=even.quotas if by_quota else None,
        )
        self._run = 0
        self._collided = False
        self._faults: tuple[str, ...] = ()
        self._open: set[str] = set()
        self._seen: dict[str, tuple[str, ...]] = {}
        self.members: dict[str, tuple[str, ...]] = {}

    def wake(self, now: int, effects: list[Effect], *, news: bool = True) -> None:
        """Schedule a run soon.

        `news`: something may change who holds what. The first run ignores it, and waits instead
        until no route or heartbeat request is pending.
        """
        first = self._run == 0
        waits = self._peers.routes.asking or self._peers.client.pending if first else not news
        at = self._rebalancer.wake(now) if self._topics and not waits else None
        if at is not None:
            effects.append(SetTimer(REBALANCE_TIMER, at))

    def begin(self, now: int, effects: list[Effect]) -> None:
        """Start the run that was scheduled: request everything missing.

        `decision` follows once all requests have been answered.
        """
        if self._rebalancer.running:
            return
        self._rebalancer.begin(now)
        self._run += 1
        self._seen = {}
        self._peers.client.ask_routes(self._peers.routes.missing(), now, effects)
        header = headers.ConsumerGroupHeader(consumer_group=self._peers.config.group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        for topic in self._topics:
            route = self._peers.routes.route(topic)
            if self._alone:
                self._seen[topic] = (self._peers.config.client_id,)
            elif route is not None and route.readers:
                self._open.add(topic)
                address = route.readers[self._rng.choice(sorted(route.readers))]
                self._peers.ask(address, code, header, MembersAsked(topic, self._run), now, effects)

    def answered(self, asked: MembersAsked, reply: Command | RemotingError) -> None:
        """Handle a member list; any other reply counts as a missing list."""
        if asked.run != self._run:
            return
        self._open.discard(asked.topic)
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            return
        try:
            listed = fastjson.read(ConsumerListBody, reply.body)
        except ProtocolError:
            return
        self._seen[asked.topic] = listed.consumer_id_list

    def decision(self, held: Collection[MessageQueue], now: int) -> Decision | None:
        """Return the result of the run, or None while replies are pending or no run is in progress.

        `held`: the plan so far.
        """
        if self._open or not self._rebalancer.running:
            return None
        views = []
        for topic in self._topics:
            route = self._peers.routes.route(topic)
            optional = topic == self._peers.retry_topic
            queues = None if route is None else route.subscribe
            views.append(View(topic, self._seen.get(topic), queues, optional))
        self.members.update(self._seen)
        return self._rebalancer.decide(views, held, now)

    def complaints(self, decision: Decision, effects: list[Effect]) -> None:
        """Log once what somebody should correct.

        Apache's brokers list every connection, so a client id that is listed twice belongs to two
        clients.
        """
        config = self._peers.config
        if decision.faults != self._faults:
            self._faults = decision.faults
            for fault in decision.faults:
                text = (
                    f"group {config.group}: the allocation strategy failed on {fault};"
                    " its queues stay"
                )
                effects.append(LogLine("ERROR", text))
        twice = any(listed.count(config.client_id) > 1 for listed in self._seen.values())
        if twice and not self._collided:
            self._collided = True
            text = (
                f"group {config.group} has another client with the id {config.client_id}: both"
                " read the same queues and leave others unread; give each its own client_id"
            )
            effects.append(LogLine("WARNING", text))

    def everybody(self) -> frozenset[str]:
        """Return all members in the latest list of each topic.

        For a topic without a list in the last run, an earlier one counts.
        """
        return frozenset(member for listed in self.members.values() for member in listed)

    def check(self) -> None:
        self._rebalancer.check()
        assert not self._open or self._rebalancer.running
