"""Which queues each topic has, and which of them are this member's: what is different since it was looked at last."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from steelyard.nodes.consumer.remoting.contract import QueuesChanged
from steelyard.nodes.consumer.remoting.peers import Peers
from steelyard.types import MessageQueue


class Shares:
    """See the module's text. Topics without a route stay as they were."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._last: dict[str, QueuesChanged] = {}

    def changed(self, topics: Iterable[str], plan: Collection[MessageQueue]) -> list[QueuesChanged]:
        """Take in that this member is to have the queues of `plan`. Returns what is news."""
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
        """This member's queues of a topic."""
        share = self._last.get(topic)
        return () if share is None else share.mine

    def all(self) -> list[MessageQueue]:
        return [queue for share in self._last.values() for queue in share.mine]
