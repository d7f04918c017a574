"""The queues of each topic, and this member's share of them, compared with the last look."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from steelyard.nodes.consumer.remoting.contract import QueuesChanged
from steelyard.nodes.consumer.remoting.peers import Peers
from steelyard.types import MessageQueue


class Shares:
    """The shares of one member. A topic without a route keeps what it had."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._last: dict[str, QueuesChanged] = {}

    def changed(self, topics: Iterable[str], plan: Collection[MessageQueue]) -> list[QueuesChanged]:
        """Note that this member is to hold the queues of `plan`; return what has changed."""
        news: list[QueuesChanged] = []
        for topic in topics:
            route = self._peers.routes.route(topic)
            if route is None:
                continue
            mine = tuple(sorted(queue for queue in plan if queue.topic == topic))
            share = QueuesChanged(topic, route.subscribe, mine)
            if self._last.get(topic) != share:
                self._last[topic] = share
                news.append(share)
        return news

    def of(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return this member's queues of a topic."""
        share = self._last.get(topic)
        return () if share is None else share.mine

    def all(self) -> list[MessageQueue]:
        return [queue for share in self._last.values() for queue in share.mine]
