"""Calls that wait for the route of their topic."""

from __future__ import annotations

import msgspec

from steelyard.nodes.producer.peers import Peers
from steelyard.nodes.seam import Effect, SetTimer

WAITING_TIMER = "waiting"


class _Waiting(msgspec.Struct, frozen=True):
    call_id: int
    deadline: int


class Waiting:
    """Calls by topic, each with its deadline. The first call requests the topic's route."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._topics: dict[str, list[_Waiting]] = {}
        self._due: int | None = None

    def add(self, topic: str, call_id: int, deadline: int, now: int, effects: list[Effect]) -> None:
        """Add a waiting call; `release` or `expire` returns it."""
        self._topics.setdefault(topic, []).append(_Waiting(call_id, deadline))
        self._peers.client.ask_routes(self._peers.routes.want(topic), now, effects)
        if self._due is None or deadline < self._due:
            self._due = deadline
            effects.append(SetTimer(WAITING_TIMER, deadline))

    def release(self, topic: str) -> list[int]:
        """Return the topic's calls, because the request for the route has ended."""
        return [waiting.call_id for waiting in self._topics.pop(topic, ())]

    def expire(self, now: int, effects: list[Effect]) -> list[int]:
        """Return calls that have waited too long; to be called when the timer was due."""
        late: list[int] = []
        for topic, calls in list(self._topics.items()):
            late += [waiting.call_id for waiting in calls if waiting.deadline <= now]
            self._topics[topic] = [waiting for waiting in calls if waiting.deadline > now]
            if not self._topics[topic]:
                del self._topics[topic]
        deadlines = [waiting.deadline for calls in self._topics.values() for waiting in calls]
        self._due = min(deadlines, default=None)
        if self._due is not None:
            effects.append(SetTimer(WAITING_TIMER, self._due))
        return late

    def call_ids(self) -> list[int]:
        return [waiting.call_id for calls in self._topics.values() for waiting in calls]

    def check(self) -> None:
        """Assert that no call waits twice, or without a timer."""
        waiting = self.call_ids()
        assert len(waiting) == len(set(waiting))
        assert not waiting or self._due is not None
